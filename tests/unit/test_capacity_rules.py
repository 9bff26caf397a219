"""Rules about what pods and pools ask for: reservations, local disk, host memory, and the advice of refusals for memory."""

from __future__ import annotations

import re
from typing import Any

import pytest
from disagg_serving.corrections import corrected
from disagg_serving.errors import Finding, Level
from factories import aggregated, check, environment, model, role

FIRST, SECOND = "cr-0123456789abcdef0", "cr-0123456789abcdef1"


def found(data: dict[str, Any], rule: str, path: str) -> list[Finding]:
    """Findings of a rule about one place."""
    return [f for f in check(data).findings if f.id == rule and f.path == path]


def reserved(*ids: str, nodes: int = 1, **rest: Any) -> dict[str, Any]:
    """A role on reserved nodes."""
    return role(capacity={"type": "reserved", "reservationIds": list(ids), "nodes": nodes}, **rest)


def test_a_kv_dtype_without_a_known_size_is_refused_once() -> None:
    """A forecast that cannot be made is an error and not a missing line of the plan."""
    result = check(environment(model(kvCacheDtype="fp8_ds_mla")))
    (refusal,) = [f for f in result.findings if f.id == "memory-unknown"]
    assert (refusal.level, refusal.path, refusal.value) == (Level.ERROR, "models[0].kvCacheDtype", "fp8_ds_mla")
    assert "fp8_e4m3" in refusal.allowed
    assert not found(environment(model()), "memory-unknown", "models[0].kvCacheDtype")


def test_a_reservation_has_one_instance_type() -> None:
    """The id of one type beside nodes of another is refused; the same id of the same type is not."""
    other = environment(model(prefill=reserved(FIRST), decode=reserved(FIRST, instanceType="p5en.48xlarge")))
    (refusal,) = [f for f in found(other, "reservations", "models[0].decode.capacity.reservationIds") if f.level is Level.ERROR]
    assert "models[0].prefill, whose nodes are p5.48xlarge" in refusal.message
    same = environment(model(prefill=reserved(FIRST), decode=reserved(FIRST)))
    assert not found(same, "reservations", "models[0].decode.capacity.reservationIds")


def test_a_reservation_twice_in_a_list() -> None:
    """An id that stands twice looks like twice the instances."""
    (warning,) = found(environment(aggregated(server=reserved(FIRST, FIRST))), "reservations", "models[0].server.capacity.reservationIds")
    assert (warning.level, "2 times" in warning.message) == (Level.WARNING, True)


def test_pools_that_share_a_reservation() -> None:
    """What both may take together is named; pools with reservations of their own, and two models of one pool, share nothing."""
    path = "models[0].decode.capacity.reservationIds"
    (warning,) = found(environment(model(prefill=reserved(FIRST, nodes=2), decode=reserved(FIRST, nodes=3))), "reservation-shared", path)
    assert (warning.level, "5 instances" in warning.message) == (Level.WARNING, True)
    assert not found(environment(model(prefill=reserved(FIRST), decode=reserved(SECOND))), "reservation-shared", path)
    one_pool = environment(aggregated(name="a", server=reserved(FIRST)), aggregated(name="b", server=reserved(FIRST)))
    assert not [f for f in check(one_pool).findings if f.id == "reservation-shared"]


def test_local_disk_holds_the_weights() -> None:
    """The value that the refusal names is accepted, and where weights are streamed nothing is kept."""
    path = "models[0].server.ephemeralStorageGiB"
    (refusal,) = found(environment(aggregated(server=role(ephemeralStorageGiB=20))), "pod-fits-node", path)
    assert refusal.level is Level.ERROR
    least = int(refusal.allowed.split(maxsplit=1)[0])
    assert not found(environment(aggregated(server=role(ephemeralStorageGiB=least))), "pod-fits-node", path)
    streamed = aggregated(server=role(ephemeralStorageGiB=20), weights={"s3": {"bucket": "weights"}})
    assert not found(environment(streamed), "pod-fits-node", path)


@pytest.mark.parametrize(
    ("given", "key", "level", "allowed"),
    [
        ({"tensorParallel": 8, "memoryGiB": 150}, "memoryGiB", Level.WARNING, "192 or more"),
        ({"tensorParallel": 2, "memoryGiB": 25}, "memoryGiB", Level.ERROR, "52 or more"),
        ({"tensorParallel": 2, "cpu": 0.1}, "cpu", Level.WARNING, "2 or more"),
        ({"tensorParallel": 8, "shmGiB": 8}, "shmGiB", Level.WARNING, "64 or more"),
        ({"tensorParallel": 2, "shmGiB": 8}, "shmGiB", Level.WARNING, "20 or more"),
    ],
)
def test_host_memory(given: dict[str, Any], key: str, level: Level, allowed: str) -> None:
    """Too little memory, CPU and shared memory are named with the value that is enough, which then passes."""
    path = f"models[0].decode.{key}"
    both = model(prefill=role(tensorParallel=given["tensorParallel"]), decode=role(**given))
    (line,) = found(environment(both), "host-memory", path)
    assert (line.level, line.allowed) == (level, allowed)
    enough = {**both, "decode": role(**{**given, key: int(allowed.split(maxsplit=1)[0])})}
    assert not found(environment(enough), "host-memory", path)


@pytest.mark.parametrize("instance", ["p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge"])
@pytest.mark.parametrize("tensor_parallel", [1, 2, 4, 8])
def test_what_is_left_out_is_enough(instance: str, tensor_parallel: int) -> None:
    """The shares that pods get by default raise no line of the rule."""
    both = role(instanceType=instance, tensorParallel=tensor_parallel)
    assert not [f for f in check(environment(model(prefill=both, decode=both))).findings if f.id == "host-memory"]


@pytest.mark.parametrize(("key", "much"), [("cpu", 500), ("memoryGiB", 5000), ("ephemeralStorageGiB", 99999), ("shmGiB", 450)])
def test_what_is_too_much_becomes_what_a_pod_may_have(key: str, much: int) -> None:
    """A suggestion for half a node's pod is half a node, and leaves memory beside /dev/shm: it brings no warning of its own."""
    asked = role(tensorParallel=4, replicas=2, **{key: much}, **({"memoryGiB": 450} if key == "shmGiB" else {}))
    data = environment(aggregated(server=asked))
    (refusal,) = found(data, "pod-fits-node", f"models[0].server.{key}")
    assert refusal.corrections[0][refusal.path] is not None
    for correction in refusal.corrections:
        assert not [f.sentence() for f in check(corrected(data, correction)).findings if f.level is not Level.INFO], correction


def test_a_default_fits_its_own_node() -> None:
    """On a node of one GPU the sidecar's CPU comes out of the engine's share."""
    small = role(instanceType="p5.4xlarge", tensorParallel=1)
    pair = model(model="llama-3.1-8b-instruct", maxModelLen=8192, prefill=small, decode=small)
    assert not [f for f in check(environment(pair)).findings if f.id == "pod-fits-node"]


def test_measured_memory_has_no_range() -> None:
    """After a start there is one number: nothing lies between it and itself, and nothing is likely."""
    measured = {"weightsGiB": 33.88, "kvCacheGiB": 2.0}
    data = environment(aggregated(maxModelLen=16384, server=role(tensorParallel=2, calibration=measured)))
    (refusal,) = found(data, "context-fit", "models[0].maxModelLen")
    assert re.fullmatch(r"is more than the KV cache of server holds: [\d,]+ tokens at 163,840 bytes a GPU", refusal.message)
    assert re.fullmatch(r"at most [\d,]+", refusal.allowed)


@pytest.mark.parametrize(
    ("data", "rule", "path"),
    [
        (environment(model(), network={"zones": ["us-east-1a", "us-east-1b"], "gpuZone": "us-east-1c"}), "network-zones", "network.gpuZone"),
        (environment(model(prefill=role(capacity={"type": "spot"}))), "spot-serving", "models[0].prefill.capacity.type"),
    ],
)
def test_what_can_be_named_is_suggested(data: dict[str, Any], rule: str, path: str) -> None:
    """Where the right values are known, one of them is offered, and it ends the finding."""
    (said,) = found(data, rule, path)
    assert said.corrections
    for correction in said.corrections:
        assert not found(corrected(data, correction), rule, path)


def advice(data: dict[str, Any]) -> str:
    """What the only refusal for memory allows and suggests."""
    (refusal,) = [f for f in check(data).findings if f.id == "memory-fit" and f.level is Level.ERROR]
    return f"{refusal.allowed}; {refusal.fix}"


def test_alternatives_pass_the_other_rules() -> None:
    """FP8 experts of 1,536 columns are not cut in eight, and an engine of many GPUs is not put on nodes of one."""
    said = advice(environment(aggregated(model="qwen3-235b-a22b-instruct-fp8", server=role(tensorParallel=1, instanceType="p5.48xlarge"))))
    assert "tensorParallel 8 on p5.48xlarge" not in said
    assert "p5.4xlarge" not in said
    assert "48xlarge" in said


def test_the_field_that_takes_the_memory_is_named() -> None:
    """Where a step of many tokens, or a small share of memory, is why the model does not fit, that field and a value come first."""
    small = aggregated(maxModelLen=8192, gpuMemoryUtilization=0.4, server=role(tensorParallel=2))
    assert "set gpuMemoryUtilization: 0.9" in advice(environment(small))


def test_a_default_that_does_not_fit_is_not_to_be_left_out() -> None:
    """A disk that was not given cannot be lowered: the refusal says what else to do."""
    for finding in check(environment(aggregated(model="glm-5-fp8", server=role(instanceType="p5.4xlarge", tensorParallel=1)))).findings:
        assert finding.value is not None or "leave it out" not in finding.fix
