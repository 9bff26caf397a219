"""The KV connector: its settings reach vLLM, what never ran on EFA is said, and host memory for KV is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from disagg_serving.catalog import Catalog
from disagg_serving.errors import Finding
from disagg_serving.forecast.capacities import capacity_of
from disagg_serving.planning.command_line import command_args
from disagg_serving.planning.pairs import identity_of
from disagg_serving.planning.shapes import Group
from disagg_serving.rules.evaluation import evaluate
from factories import aggregated, check, environment, layout, model, role

GIB = 2**30


def findings(data: dict[str, Any], *rules: str) -> list[Finding]:
    """What some rules say."""
    return [f for f in check(data).findings if f.id in rules]


def groups(**overrides: Any) -> dict[str, Group]:
    """The groups of a model by role."""
    return {g.role: g for g in layout(environment(model(**overrides))).groups}


def config(group: Group) -> dict[str, Any]:
    """What follows --kv-transfer-config."""
    (flag,) = (a for a in command_args(group, worker=False) if a.startswith("--kv-transfer-config="))
    found: dict[str, Any] = json.loads(flag.partition("=")[2])
    return found


def test_settings_reach_the_place_where_vllm_reads_them() -> None:
    """The failure policy is a field of the connector, which vLLM ignores among the extra ones, where the lease belongs."""
    of = groups(connector={"leaseSeconds": 90, "loadFailurePolicy": "recompute", "bufferDevice": "cpu"}, decode=role(memoryGiB=450))
    for group in of.values():
        found = config(group)
        assert found["kv_load_failure_policy"] == "recompute"
        assert found["kv_buffer_device"] == "cpu"
        assert found["kv_connector_extra_config"] == {"backends": ["LIBFABRIC"], "kv_lease_duration": 90}


def test_a_role_has_its_own_policy() -> None:
    """Decode alone loads KV, so its own setting wins over the model's."""
    of = groups(connector={"loadFailurePolicy": "fail"}, decode=role(connector={"loadFailurePolicy": "recompute"}))
    assert config(of["decode"])["kv_load_failure_policy"] == "recompute"
    assert config(of["prefill"])["kv_load_failure_policy"] == "fail"


def test_offload_stands_beside_nixl() -> None:
    """MultiConnector asks NIXL first, and host memory is that of one rank in bytes."""
    of = groups(prefill=role(connector={"offload": {"hostGiB": 100}}))
    found = config(of["prefill"])
    assert (found["kv_connector"], found["kv_role"]) == ("MultiConnector", "kv_producer")
    nixl, offload = found["kv_connector_extra_config"]["connectors"]
    assert (nixl["kv_connector"], nixl["kv_role"], nixl["kv_connector_extra_config"]["backends"]) == ("NixlConnector", "kv_producer", ["LIBFABRIC"])
    assert offload == {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"cpu_bytes_to_use": 100 * GIB}}
    assert config(of["decode"])["kv_connector"] == "NixlConnector"
    assert "engine_id" not in json.dumps(found)


def test_a_server_offloads_without_nixl() -> None:
    """There is no other role, so the offload is the only connector; without it there is none."""
    (group,) = layout(environment(aggregated(connector={"offload": {"hostGiB": 64}}))).groups
    assert config(group)["kv_connector"] == "OffloadingConnector"
    (plain,) = layout(environment(aggregated())).groups
    assert not [a for a in command_args(plain, worker=False) if a.startswith("--kv-transfer-config")]


def test_a_role_may_do_without_the_offload_of_the_model() -> None:
    """Null takes away on decode what the model says for both."""
    of = groups(connector={"offload": {"hostGiB": 100}}, decode=role(connector={"offload": None}))
    assert config(of["prefill"])["kv_connector"] == "MultiConnector"
    assert config(of["decode"])["kv_connector"] == "NixlConnector"


def test_offload_is_in_shared_memory_and_in_the_forecast() -> None:
    """The file in /dev/shm is as large as the KV of all ranks of a pod, and the forecast names the tokens in it."""
    offload = {"offload": {"hostGiB": 100}}
    of = groups(prefill=role(connector=offload))
    assert of["prefill"].shm_gib == of["decode"].shm_gib + 100
    held = capacity_of(of["prefill"])
    assert held is not None
    assert held.offloaded_tokens > 0
    ranks = model(model="deepseek-v3", maxModelLen=32768, prefill=None, decode=None, connector=offload)
    (wide,) = layout(
        environment({**ranks, "server": {"instanceType": "p5en.48xlarge", "tensorParallel": 1, "dataParallel": 16, "expertParallel": True}})
    ).groups
    assert (wide.size, wide.shm_gib) == (2, 64 + 8 * 100)


@pytest.mark.parametrize(
    ("fields", "path", "level"),
    [
        ({"prefill": role(connector={"offload": {"hostGiB": 500}})}, "models[0].prefill.connector.offload.hostGiB", "error"),
        ({"connector": {"offload": {"hostGiB": 500}}}, "models[0].connector.offload.hostGiB", "error"),
        ({"prefill": role(shmGiB=64, connector={"offload": {"hostGiB": 100}})}, "models[0].prefill.shmGiB", "error"),
        ({"prefill": role(memoryGiB=100, connector={"offload": {"hostGiB": 100}})}, "models[0].prefill.connector.offload.hostGiB", "error"),
        ({"connector": {"bufferDevice": "cpu"}, "decode": role(memoryGiB=40, shmGiB=8)}, "models[0].connector.bufferDevice", "error"),
    ],
)
def test_host_memory_for_kv_is_counted(fields: dict[str, Any], path: str, level: str) -> None:
    """What does not fit /dev/shm or the pod's memory stops the engine or gets it killed, so it is an error at what asks for it."""
    said = findings(environment(model(**fields)), "host-kv")
    assert (path, level) in {(f.path, f.level.value) for f in said}


def test_a_quarter_of_a_node_keeps_what_a_quarter_of_its_memory_holds() -> None:
    """Two of eight GPUs get 450 GiB, of which 400 may be KV; twice the GPUs may keep twice as much."""
    assert not findings(environment(model(prefill=role(connector={"offload": {"hostGiB": 400}}))), "host-kv", "pod-fits-node")
    half = role(tensorParallel=4, connector={"offload": {"hostGiB": 800}})
    assert not findings(environment(model(prefill=half, decode=role(tensorParallel=4))), "host-kv", "pod-fits-node")


@pytest.mark.parametrize("base", [{"mode": "push"}, {"leaseSeconds": 60}, {"bufferDevice": "cpu"}])
def test_what_both_roles_share_makes_another_pair(base: dict[str, Any]) -> None:
    """NIXL compares the direction; lease and buffers have to be known to both sides. The rest rolls in place."""

    def identity(**overrides: Any) -> str:
        of = layout(environment(model(**overrides)))
        return identity_of(of.groups_of(of.served[0]))

    assert identity(connector=base) != identity()
    assert identity(connector={"loadFailurePolicy": "recompute"}) == identity()


STAGES = {"prefill": role(pipelineParallel=2), "decode": role()}


def test_stages_on_prefill_need_the_push_connector() -> None:
    """A pull producer with stages starts and loses KV; with push they are taken, and marked as never run on EFA."""
    (refused,) = findings(environment(model(**STAGES)), "nixl-pipeline-parallel")
    assert refused.path == "models[0].prefill.pipelineParallel"
    pushed = environment(model(**STAGES, connector={"mode": "push"}))
    assert not findings(pushed, "nixl-pipeline-parallel")
    marked = findings(pushed, "connector-unverified")
    assert [f.path for f in marked] == ["models[0].connector.mode", "models[0].prefill.pipelineParallel"]
    assert all("unverified: never run on EFA" in f.message for f in marked)
    of = {g.role: g for g in layout(pushed).groups}
    assert {config(g)["kv_connector"] for g in of.values()} == {"NixlPushConnector"}
    assert "--pipeline-parallel-size=2" in command_args(of["prefill"], worker=False)


@pytest.mark.parametrize(
    "fields",
    [
        {"decode": role(pipelineParallel=2)},
        {"model": "gpt-oss-120b", "prefill": role(tensorParallel=2, pipelineParallel=2), "decode": role(tensorParallel=4)},
        {"model": "gpt-oss-120b", "engine": "vllm-0.27.1-dlc", "prefill": role(pipelineParallel=2)},
    ],
)
def test_stages_that_the_push_connector_refuses(fields: dict[str, Any]) -> None:
    """Decode never has stages; KV of sliding windows is cut from 0.33 on, and not for a decode of more GPUs."""
    assert findings(environment(model(connector={"mode": "push"}, **fields)), "nixl-pipeline-parallel")


def test_settings_without_effect_are_told() -> None:
    """Threads are UCX's, a server moves no KV, and prefill loads none."""
    said = {f.path for f in findings(environment(model(connector={"numThreads": 8})), "connector-settings")}
    assert said == {"models[0].connector.numThreads"}
    said = {f.path for f in findings(environment(aggregated(connector={"mode": "push"})), "connector-settings")}
    assert said == {"models[0].connector.mode"}
    said = {f.path for f in findings(environment(model(prefill=role(connector={"loadFailurePolicy": "fail"}))), "connector-settings")}
    assert said == {"models[0].prefill.connector.loadFailurePolicy"}
    assert not findings(environment(model(connector={"leaseSeconds": 60})), "connector-settings")


def test_lmcache_needs_an_image_that_is_known_to_hold_it(tmp_path: Path) -> None:
    """No pinned image is; an entry of one's own says so, and LMCache counts host memory by worker."""
    wanted = {"offload": {"hostGiB": 100, "backend": "lmcache"}}
    (refused,) = findings(environment(model(connector=wanted)), "engine-lmcache")
    assert (refused.path, refused.level.value) == ("models[0].connector.offload.backend", "error")
    assert "catalogDirs" in refused.fix
    entry = Catalog().engines["vllm-0.33.0-efa"].model_dump(by_alias=True, mode="json", exclude_none=True)
    folder = tmp_path / "own/engines"
    folder.mkdir(parents=True)
    own = {**entry, "id": "own", "image": "registry.example.com/vllm:v0.33.0-lmcache", "lmcache": "0.3.9"}
    (folder / "own.yaml").write_text(yaml.safe_dump(own), encoding="utf-8")
    data = environment(model(engine="own", connector=wanted), catalogDirs=["own"])
    evaluation = evaluate(data, tmp_path)
    assert not [f for f in evaluation.findings if f.id == "engine-lmcache"]
    (prefill, _) = evaluation.require_layout().groups
    offload = config(prefill)["kv_connector_extra_config"]["connectors"][1]
    assert offload["kv_connector"] == "LMCacheConnectorV1"
    assert offload["kv_connector_extra_config"] == {"lmcache.local_cpu": True, "lmcache.max_local_cpu_size": 50}
    assert prefill.shm_gib == 20
    hybrid = environment(model(model="gpt-oss-120b", engine="own", prefill=role(connector=wanted)), catalogDirs=["own"])
    assert [f.path for f in evaluate(hybrid, tmp_path).findings if f.id == "engine-lmcache"] == ["models[0].prefill.connector.offload.backend"]
