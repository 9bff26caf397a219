"""The fifteen checks that users of the peers needed (T1 to T15): what fails, by which rule, and what passes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from disagg_serving.corrections import corrected
from disagg_serving.errors import Level
from disagg_serving.forecast.cost import now
from disagg_serving.manifests.bundle import build_all
from factories import aggregated, check, environment, existing_cluster, layout, model, role

ZONE_NODES = {"gpuZone": "us-east-1a", "existing": {"gpuSubnetIds": ["subnet-1"]}}
WIDE: dict[str, Any] = {"tensorParallel": 8, "dataParallel": 2, "expertParallel": True}
RESERVED = {"type": "reserved", "reservationIds": ["cr-0123456789abcdef0"], "nodes": 1}

BLOCK = "cr-0123456789abcdef0"
H200, B200 = "p5en.48xlarge", "p6-b200.48xlarge"
H200_NODE = role(instanceType=H200, tensorParallel=8)
SPECULATIVE = {"method": "ngram", "numSpeculativeTokens": 2}


def reserved(nodes: int = 1, **known: Any) -> dict[str, Any]:
    """An environment whose decode has a reservation of which this is known."""
    one = {"id": "cr-0123456789abcdef0", **known}
    return environment(model(decode=role(tensorParallel=8, replicas=1, capacity={"type": "reserved", "nodes": nodes, "reservations": [one]})))


def blocks(*ids: str) -> dict[str, Any]:
    """An environment whose decode has these Capacity Blocks."""
    known = [{"id": one, "type": "capacity-block", "endsAt": "2099-01-01T00:00:00Z"} for one in ids]
    return environment(model(decode=role(tensorParallel=8, replicas=1, capacity={"type": "reserved", "nodes": 1, "reservations": known})))


def mixed(decode: str) -> dict[str, Any]:
    """An environment whose prefill runs on H200, with decode on nodes of this type."""
    sides = {"prefill": H200_NODE, "decode": role(instanceType=decode, tensorParallel=8)}
    return environment(model(model="deepseek-v3", maxModelLen=16384, **sides))


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
    Check(
        "T1 KV moved by another backend",
        environment(model(extraArgs=['--kv-transfer-config={"kv_connector_extra_config":{"backends":["UCX"]}}'])),
        "extra-args",
        "set by the project",
    ),
    Check("T1 UCX settings", environment(model(extraEnv={"UCX_TLS": "tcp"})), "efa-env", "LIBFABRIC"),
    Check("T2 network cards of one's own", environment(model(), nodePools={"networkInterfaces": 4}), "unknown-key", "networkInterfaces"),
    Check("T2 EFA asked by hand", environment(model(decode=role(efa=16))), "unknown-key", "decode.efa"),
    Check(
        "T3 side channel on localhost", environment(model(extraEnv={"VLLM_NIXL_SIDE_CHANNEL_HOST": "localhost"})), "extra-env", "set by the project"
    ),
    Check(
        "T4 roles with images of their own", environment(model(decode=role(imageDigest="sha256:" + "0" * 64))), "unknown-key", "decode.imageDigest"
    ),
    *(
        Check(f"T4 roles with their own {key}", environment(model(decode=role(**{key: value}))), "unknown-key", f"decode.{key}")
        for key, value in (("model", "qwen3-32b"), ("revision", "0" * 40), ("blockSize", 16), ("dtype", "float16"), ("speculative", SPECULATIVE))
    ),
    *(
        Check(f"T4 {flag} beside the pair's own", environment(model(extraArgs=[flag])), "extra-args", "set by the project")
        for flag in ("--revision=main", "--block-size=16", "--kv-cache-dtype=fp8", "--speculative-config={}", "--dtype=float16")
    ),
    Check("T4 roles whose GPUs choose other KV layouts", mixed(B200), "pd-kv-layout", "use p5en.48xlarge", mixed(H200)),
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
    Check(
        "T8 reservation on an on-demand role",
        environment(model(decode=role(capacity={**RESERVED, "type": "on-demand"}))),
        "reservations",
        "remove capacity.reservationIds",
        environment(model(decode=role(capacity=RESERVED))),
    ),
    Check(
        "T8 reserved role without a reservation",
        environment(model(decode=role(capacity={"type": "reserved", "nodes": 1}))),
        "reservations",
        "reservationIds: is required with reserved",
        environment(model(decode=role(capacity=RESERVED))),
    ),
    Check(
        "T8 GPU nodes in no zone of the network",
        environment(model(), network={"zones": ["us-east-1a", "us-east-1b"], "gpuZone": "us-east-1c"}),
        "network-zones",
        "allowed: us-east-1a, us-east-1b",
    ),
    Check("T9 port of one's own", environment(model(extraArgs=["--port=8000"])), "extra-args", "set by the project"),
    Check("T10 probe of one's own", environment(model(decode=role(startupProbe={"failureThreshold": 3}))), "unknown-key", "startupProbe"),
    Check(
        "T10 waiting for less than a start takes",
        environment(model(waitForReadySeconds=600)),
        "ready-wait",
        "72.7 GB from Hugging Face (allowed: 1680 or more)",
        environment(model(waitForReadySeconds=1680)),
    ),
    Check("T10 engine's patience", environment(model(extraEnv={"VLLM_ENGINE_READY_TIMEOUT_S": "600"})), "extra-env", "set by the project"),
    Check("T11 controller of no exact version", environment(model(), lws={"version": "latest"}), "schema", "an exact version such as 0.11.1"),
    Check(
        "T11 controller older than its objects",
        environment(model(), lws={"version": "0.5.0"}),
        "lws-version",
        'use "0.11.1"',
        environment(model(), lws={"version": "0.9.0"}),
    ),
    Check("T11 surge of one's own", environment(model(decode=role(maxSurge=1))), "unknown-key", "maxSurge"),
    Check(
        "T11 outage while the only engine is made anew",
        environment(model(decode=role(tensorParallel=8, replicas=1, capacity=RESERVED))),
        "template-outage",
        "interrupts serving",
        environment(model(decode=role(tensorParallel=4, replicas=2, capacity=RESERVED), prefill=role(replicas=2))),
    ),
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
    Check("T12 other type", reserved(instanceType="p5e.48xlarge"), "reservation-place", "allowed: p5.48xlarge", reserved(instanceType="p5.48xlarge")),
    Check("T12 other zone", reserved(zone="us-east-1b"), "reservation-place", "allowed: us-east-1a", reserved(zone="us-east-1a")),
    Check("T12 fewer instances", reserved(nodes=2, instances=1), "reservation-place", "at most 1", reserved(nodes=2, instances=2)),
    Check("T12 over", reserved(endsAt="2020-01-01T00:00:00Z"), "reservation-end", "is over", reserved(endsAt="2099-01-01T00:00:00Z")),
    Check(
        "T12 near its end",
        reserved(type="capacity-block", endsAt=(now() + timedelta(hours=12)).strftime("%Y-%m-%dT%H:%M:%SZ")),
        "reservation-end",
        "no pod starts on its nodes from",
        reserved(type="capacity-block", endsAt="2099-01-01T00:00:00Z"),
    ),
    Check(
        "T12 two blocks", blocks("cr-0123456789abcdef0", "cr-0123456789abcdef1"), "capacity-blocks", "one at a time", blocks("cr-0123456789abcdef0")
    ),
    Check("T12 open reservations", environment(model(decode=role(capacity=RESERVED))), "open-reservations", "ends the use of open"),
    Check(
        "T13 nodes that end before a model has started",
        environment(aggregated(model="glm-5-fp8", server=H200_NODE), nodePools={"expireAfterHours": 1}),
        "node-life",
        "use 3",
        environment(aggregated(model="glm-5-fp8", server=H200_NODE), nodePools={"expireAfterHours": 3}),
    ),
    Check(
        "T13 nodes that go while a group is made anew",
        environment(model(), nodePools={"consolidateAfterMinutes": 1}),
        "node-idle",
        "use 5",
        environment(model(), nodePools={"consolidateAfterMinutes": 5}),
    ),
    Check(
        "T13 window without an end",
        environment(model(), nodePools={"maintenanceWindow": {"hours": 168}}),
        "schema",
        "at most 167",
        environment(model(), nodePools={"maintenanceWindow": {"hours": 6}}),
    ),
    Check(
        "T13 nodes older than Auto Mode lets them be",
        environment(model(), nodePools={"expireAfterHours": 500}),
        "node-life",
        "at most 480",
        environment(model(), nodePools={"expireAfterHours": 480}),
    ),
    Check("T14 shared memory as large as memory", environment(model(decode=role(memoryGiB=64, shmGiB=64))), "pod-fits-node", "at most 63"),
    Check(
        "T14 little shared memory",
        environment(model(prefill=role(tensorParallel=8), decode=role(tensorParallel=8, shmGiB=1))),
        "host-memory",
        "64 or more",
        environment(model(prefill=role(tensorParallel=8), decode=role(tensorParallel=8, shmGiB=64))),
    ),
    Check(
        "T14 little memory beside 32 EFA devices",
        environment(model(prefill=role(tensorParallel=8), decode=role(tensorParallel=8, memoryGiB=100))),
        "host-memory",
        "192 or more",
        environment(model(prefill=role(tensorParallel=8), decode=role(tensorParallel=8, memoryGiB=192))),
    ),
    Check("T14 huge pages of EFA", environment(model(extraEnv={"FI_EFA_USE_HUGE_PAGE": "1"})), "efa-env", "do not reserve"),
    Check("T14 hugepages", environment(model(decode=role(hugepages="5Gi"))), "unknown-key", "hugepages"),
    Check(
        "T15 plugin that the release lacks",
        environment(model(gateway={"routing": {"decode": [{"type": "pd-filter"}]}})),
        "router-plugins",
        "is not a plugin of llm-d-router-0.10.0",
        environment(model(gateway={"routing": {"decode": [{"type": "active-request-scorer"}]}})),
    ),
    Check("T15 engine by a floating tag", environment(model(engine="vllm/vllm-openai:latest")), "catalog", "vllm-0.33.0-efa"),
    Check("T15 router's main", environment(model(), router={"version": "main"}), "catalog", "llm-d-router-0.10.0"),
    Check("T15 digest that is a tag", environment(model(imageDigest="latest")), "schema", "sha256:"),
    Check(
        "T15 chart by a floating tag",
        environment(model(), lws={"chart": "oci://registry.example.com/charts/lws:main"}),
        "chart-source",
        'use "oci://registry.example.com/charts/lws"',
        environment(model(), lws={"chart": "oci://registry.example.com/charts/lws"}),
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


def test_services_named_vllm_set_no_variables_in_pods() -> None:
    """T14: a Service called vllm would set VLLM_PORT in every pod of its namespace; no pod reads the Services' variables."""
    made = build_all(layout(environment(model(name="vllm"))))
    groups = [o for o in made if o["kind"] == "LeaderWorkerSet"]
    assert groups
    for group in groups:
        template = group["spec"]["leaderWorkerTemplate"]
        for pod in (template.get("leaderTemplate"), template["workerTemplate"]):
            assert pod is None or pod["spec"]["enableServiceLinks"] is False


@pytest.mark.parametrize("chart", ["oci://localhost:5000/charts/lws", "oci://registry.example.com/charts/lws", "./charts/lws", "./charts/lws:old"])
def test_a_port_is_no_tag(chart: str) -> None:
    """T15: a registry may have a port, and a folder any name."""
    assert not [f for f in check(environment(model(), lws={"chart": chart})).findings if f.id == "chart-source"]


def test_every_check_of_the_peers_is_in_the_table() -> None:
    """T1 to T15, none left out."""
    assert {check.id.split()[0] for check in CHECKS} >= {f"T{n}" for n in range(1, 16)}


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
