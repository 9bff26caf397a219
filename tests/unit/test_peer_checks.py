"""The fifteen checks that users of the peers needed (T1 to T15): what fails, by which rule, and what passes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from disagg_serving.corrections import corrected
from disagg_serving.errors import Level
from factories import aggregated, check, environment, existing_cluster, model, role

ZONE_NODES = {"gpuZone": "us-east-1a", "existing": {"gpuSubnetIds": ["subnet-1"]}}
WIDE: dict[str, Any] = {"tensorParallel": 8, "dataParallel": 2, "expertParallel": True}
RESERVED = {"type": "reserved", "reservationIds": ["cr-0123456789abcdef0"], "nodes": 1}


@dataclass(frozen=True)
class Check:
    """A check: bad input, the rule and words that answer it, and the corrected input."""

    id: str
    bad: dict[str, Any]
    rule: str
    says: str
    good: dict[str, Any] = field(default_factory=lambda: environment(model()))


CHECKS = [
    Check("T1 image without EFA", environment(model(engine="vllm-0.33.0")), "engine-libfabric", "use vllm-0.33.0-efa"),
    Check("T2 EFA asked by hand", environment(model(decode=role(efa=16))), "unknown-key", "decode.efa"),
    Check(
        "T3 side channel on localhost", environment(model(extraEnv={"VLLM_NIXL_SIDE_CHANNEL_HOST": "localhost"})), "extra-env", "set by the project"
    ),
    Check(
        "T4 roles with images of their own", environment(model(decode=role(imageDigest="sha256:" + "0" * 64))), "unknown-key", "decode.imageDigest"
    ),
    Check("T4 roles with KV dtypes of their own", environment(model(decode=role(kvCacheDtype="fp8"))), "unknown-key", "decode.kvCacheDtype"),
    Check(
        "T5 more prefill GPUs than KV heads",
        environment(model(prefill=role(tensorParallel=16), decode=role(tensorParallel=8))),
        "pd-tensor-parallel",
        "16 or more",
        environment(model(prefill=role(tensorParallel=8), decode=role(tensorParallel=8))),
    ),
    Check("T6 pipeline stages in a role", environment(model(decode=role(pipelineParallel=2))), "nixl-pipeline-parallel", "allowed: 1"),
    Check(
        "T7 exchange over InfiniBand",
        environment(aggregated(model="glm-5-fp8", maxModelLen=16384, server=role(**WIDE, all2allBackend="deepep_high_throughput"))),
        "all-to-all",
        "allgather_reducescatter",
        environment(aggregated(model="glm-5-fp8", maxModelLen=16384, server=role(**WIDE))),
    ),
    Check("T8 selector against made pools", environment(model(decode=role(nodeSelector={"a": "b"}))), "node-selector", "without it"),
    Check("T9 port of one's own", environment(model(extraArgs=["--port=8000"])), "extra-args", "set by the project"),
    Check("T10 probe of one's own", environment(model(decode=role(startupProbe={"failureThreshold": 3}))), "unknown-key", "startupProbe"),
    Check(
        "T11 groups beyond what is reserved",
        environment(model(decode=role(tensorParallel=8, replicas=2, capacity=RESERVED))),
        "group-capacity",
        "at least 2",
        environment(model(decode=role(tensorParallel=8, replicas=1, capacity=RESERVED))),
    ),
    Check(
        "T12 offering instead of a reservation",
        environment(model(decode=role(capacity={**RESERVED, "reservationIds": ["cb-0123456789abcdef0"]}))),
        "reservations",
        "starts with cr-",
        environment(model(decode=role(capacity=RESERVED))),
    ),
    Check(
        "T13 nodes older than Auto Mode lets them be",
        environment(model(), nodePools={"expireAfterHours": 500}),
        "node-life",
        "at most 480",
        environment(model(), nodePools={"expireAfterHours": 480}),
    ),
    Check("T14 shared memory as large as memory", environment(model(decode=role(memoryGiB=64, shmGiB=64))), "pod-fits-node", "at most 63"),
    Check("T14 hugepages", environment(model(decode=role(hugepages="5Gi"))), "unknown-key", "hugepages"),
    Check(
        "T15 plugin that the release lacks",
        environment(model(gateway={"routing": {"decode": [{"type": "pd-filter"}]}})),
        "router-plugins",
        "is not a plugin of llm-d-router-0.10.0",
        environment(model(gateway={"routing": {"decode": [{"type": "active-request-scorer"}]}})),
    ),
    Check(
        "quota hint",
        environment(model()),
        "quota",
        "L-417A185B",
        existing_cluster(model(prefill=role(capacity={"type": "spot"}), decode=role(capacity={"type": "spot"}))),
    ),
    Check(
        "memory",
        environment(aggregated(model="glm-5-fp8", server=role(tensorParallel=8))),
        "memory-fit",
        "weights",
        environment(aggregated(model="glm-5-fp8", server=role(instanceType="p5en.48xlarge", tensorParallel=8))),
    ),
]


@pytest.mark.parametrize("one", CHECKS, ids=lambda c: c.id)
def test_what_users_of_the_peers_needed(one: Check) -> None:
    """The failing spec is answered by its rule with the value that would be right; the corrected one is not."""
    found = [f for f in check(one.bad).findings if f.id == one.rule]
    assert found, [f.sentence() for f in check(one.bad).findings]
    assert any(one.says in f.sentence() for f in found), [f.sentence() for f in found]
    corrected = check(one.good)
    assert corrected.ok, [f.sentence() for f in corrected.findings if f.level is Level.ERROR]
    assert one.rule not in {f.id for f in corrected.findings}


def test_the_playbooks_layout_is_a_warning() -> None:
    """Prefill of four GPUs and decode of two is possible with 8 KV heads and unusual; for latent attention it is nothing to speak of."""
    playbook = {"prefill": role(tensorParallel=4), "decode": role(tensorParallel=2)}
    levels = {str(f.level) for f in check(environment(model(**playbook))).findings if f.id == "pd-tensor-parallel"}
    assert levels == {"warning"}
    latent = {side: role(instanceType="p6-b300.48xlarge", tensorParallel=tp) for side, tp in (("prefill", 8), ("decode", 4))}
    result = check(environment(model(model="deepseek-r1", maxModelLen=16384, **latent)))
    assert result.ok, [f.sentence() for f in result.findings]
    assert not [f for f in result.findings if f.id == "pd-tensor-parallel"]


def test_alternatives_pass_the_check() -> None:
    """What a refusal for memory suggests is accepted when it is done, also by every other rule."""
    bad = environment(aggregated(model="glm-5-fp8", server=role(tensorParallel=8)))
    (refusal,) = [f for f in check(bad).findings if f.id == "memory-fit"]
    assert "use tensorParallel 8 on p5en.48xlarge" in refusal.fix
    for correction in refusal.corrections:
        result = check(corrected(bad, correction))
        assert result.ok, (correction, [f.sentence() for f in result.findings if f.level is Level.ERROR])
        assert not [f for f in result.findings if f.id in {"memory-fit", "context-fit"}], correction
