"""Roles whose engines have data-parallel ranks that share experts, on one node and over several."""

from __future__ import annotations

import re
from typing import Any

import pytest
from disagg_serving import labels
from disagg_serving.errors import Finding, Level
from disagg_serving.forecast.capacities import capacities, capacity_of
from disagg_serving.forecast.cost import cost_of
from disagg_serving.forecast.situation import situation_of
from disagg_serving.forecast.traffic import forecast_of
from disagg_serving.manifests.bundle import build_all
from disagg_serving.manifests.engine import SIDE_CHANNEL_PORT
from disagg_serving.manifests.gateway import router_values
from disagg_serving.manifests.names import leader_selector
from disagg_serving.planning.command_line import DATA_PARALLEL_PORT, MASTER_PORT, command_args, streamer_config
from disagg_serving.planning.shapes import API_PORT, BEHIND_SIDECAR_PORT, Group, Layout, fills
from factories import aggregated, check, environment, example, layout, model, role

H200, H100 = "p5en.48xlarge", "p5.48xlarge"
WIDE: dict[str, Any] = {"tensorParallel": 8, "dataParallel": 2, "expertParallel": True}
RANKS: dict[str, Any] = {"instanceType": H200, "tensorParallel": 1, "dataParallel": 8, "expertParallel": True, "maxNumBatchedTokens": 2048}


def glm(**overrides: Any) -> dict[str, Any]:
    """GLM-5 split on H100."""
    sides = {"prefill": role(**WIDE), "decode": role(**WIDE)}
    return model(**{"model": "glm-5-fp8", "maxModelLen": 16384, "kvCacheDtype": "fp8", **sides, **overrides})


def deepseek(server: dict[str, Any], **overrides: Any) -> dict[str, Any]:
    """DeepSeek in one role."""
    return aggregated(model="deepseek-v3.2", maxModelLen=16384, kvCacheDtype="fp8", server=server, **overrides)


def said(data: dict[str, Any], rule: str) -> list[Finding]:
    """What a rule says."""
    return [f for f in check(data).findings if f.id == rule]


def of_role(wanted: Layout, name: str) -> Group:
    """The group of a role."""
    (group,) = [g for g in wanted.groups if g.role == name]
    return group


@pytest.mark.parametrize(
    ("data", "size", "gpus", "efa"),
    [
        (deepseek(role(**RANKS)), 1, 8, 0),
        (deepseek(role(**{**RANKS, "dataParallel": 16})), 2, 8, 16),
        (aggregated(model="gpt-oss-120b", server=role(tensorParallel=1, dataParallel=4, expertParallel=True)), 1, 4, 0),
        (aggregated(model="glm-5-fp8", maxModelLen=16384, kvCacheDtype="fp8", server=role(**WIDE)), 2, 8, 32),
    ],
)
def test_ranks_count_as_gpus_of_the_engine(data: dict[str, Any], size: int, gpus: int, efa: int) -> None:
    """An engine takes tensorParallel x dataParallel GPUs: part of a node, one, or a group over whole ones, which then talk over EFA."""
    (group,) = layout(environment(data)).groups
    assert (group.size, group.engine_requests.gpus, group.engine_requests.efa) == (size, gpus, efa)


def test_leader_and_worker_of_ranks_over_nodes() -> None:
    """Both run the same engine; the leader alone serves, and the worker finds it by its name while it listens on its own address."""
    group = of_role(example("glm5-wide-ep", "prod"), "decode")
    leader, worker = command_args(group, worker=False), command_args(group, worker=True)
    assert set(leader) - set(worker) == {"--port=8200", "--data-parallel-address=$(VLLM_HOST_IP)"}
    assert set(worker) - set(leader) == {"--headless", "--data-parallel-address=$(LWS_LEADER_ADDRESS)"}
    assert {
        "--tensor-parallel-size=8", "--data-parallel-size=2", "--enable-expert-parallel", "--all2all-backend=allgather_reducescatter",
        "--nnodes=$(LWS_GROUP_SIZE)", "--node-rank=$(LWS_WORKER_INDEX)", f"--data-parallel-rpc-port={DATA_PARALLEL_PORT}",
    } <= set(leader)  # fmt: skip
    # internal load balancing: one endpoint that knows all ranks; no other mode may come in
    assert [a for a in leader if "-lb" in a or "-rank=" in a.replace("--node-rank=", "")] == []


def test_ranks_on_one_node_need_no_addresses() -> None:
    """Inside a node the ranks find each other by themselves."""
    args = command_args(of_role(layout(environment(deepseek(role(**RANKS)))), "server"), worker=False)
    assert "--data-parallel-size=8" in args
    assert [a for a in args if a.startswith(("--nnodes", "--data-parallel-address", "--data-parallel-rpc-port", "--headless"))] == []


def test_each_rank_announces_where_its_kv_is() -> None:
    """Every pod announces its own address and the same base port, to which vLLM adds the rank; no rank's port is one of the others."""
    sets = [o for o in build_all(example("deepseek-wide-ep", "wide")) if o["kind"] == "LeaderWorkerSet"]
    pods = [t for o in sets for t in o["spec"]["leaderWorkerTemplate"].values() if isinstance(t, dict)]
    assert len(pods) == 3
    for pod in pods:
        env = {e["name"]: e for e in pod["spec"]["containers"][0]["env"]}
        assert env["VLLM_NIXL_SIDE_CHANNEL_HOST"]["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
        assert env["VLLM_NIXL_SIDE_CHANNEL_PORT"]["value"] == str(SIDE_CHANNEL_PORT)
    most = max(f.le for f in _bounds("data_parallel"))
    assert {API_PORT, BEHIND_SIDECAR_PORT, MASTER_PORT, DATA_PARALLEL_PORT}.isdisjoint(range(SIDE_CHANNEL_PORT, SIDE_CHANNEL_PORT + most))


def _bounds(field: str) -> list[Any]:
    from disagg_serving.spec import RoleSpec

    return [m for m in RoleSpec.model_fields[field].metadata if hasattr(m, "le")]


def test_leaders_alone_serve() -> None:
    """Services, router and policies select leaders; workers have no port, no sidecar and no HTTP probe, and the sidecar knows no ranks."""
    wanted = example("glm5-wide-ep", "prod")
    objects = build_all(wanted)
    for group in wanted.groups:
        (service,) = [o for o in objects if o["kind"] == "Service" and o["metadata"]["name"] == f"{group.name}-api"]
        assert service["spec"]["selector"] == leader_selector(group)
        assert leader_selector(group).items() >= {labels.LWS_NAME: group.name, labels.LWS_WORKER_INDEX: "0"}.items()
        (manifest,) = [o for o in objects if o["kind"] == "LeaderWorkerSet" and o["metadata"]["name"] == group.name]
        template = manifest["spec"]["leaderWorkerTemplate"]
        worker = template["workerTemplate"]["spec"]
        assert "initContainers" not in worker
        assert "ports" not in worker["containers"][0]
        assert "httpGet" not in worker["containers"][0]["readinessProbe"]
        for sidecar in template["leaderTemplate"]["spec"].get("initContainers", []):
            assert [a for a in sidecar["args"] if "data-parallel" in a] == []
    chosen = router_values(wanted.served[0], wanted.groups)["router"]["modelServers"]
    assert chosen["matchLabels"][labels.LWS_WORKER_INDEX] == "0"
    assert chosen["targetPorts"] == [{"number": API_PORT}]


def test_a_group_restarts_and_rolls_whole() -> None:
    """A rank that is lost cannot join again, so its group is made anew; an update replaces one group at a time, in place."""
    for manifest in build_all(example("glm5-wide-ep", "prod")):
        if manifest["kind"] == "LeaderWorkerSet":
            assert manifest["spec"]["leaderWorkerTemplate"]["restartPolicy"] == "RecreateGroupAfterStart"
            assert manifest["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"] == {"maxUnavailable": 1, "maxSurge": 0}
            assert manifest["spec"]["startupPolicy"] == "LeaderCreated"


def test_the_plan_counts_all_ranks() -> None:
    """Tokens and requests of a plan are those of the engine, each rank of which holds a cache of its own; a request fits one of them."""
    wanted = example("deepseek-wide-ep", "wide")
    for group, entry in zip(wanted.groups, capacities(wanted), strict=True):
        found = capacity_of(group)
        assert found is not None
        assert found.ranks == group.spec.data_parallel
        assert entry.kv_tokens.mid == found.kv_tokens.mid * found.ranks
        assert entry.max_concurrency.mid == pytest.approx(found.max_concurrency.mid * found.ranks)
        assert entry.workload_concurrency is not None
        assert entry.workload_concurrency.mid > entry.max_concurrency.mid
        assert entry.longest_request <= found.kv_tokens.mid


def test_wider_experts_leave_more_cache() -> None:
    """Over twice the ranks each GPU holds half of the experts, so one engine of 16 holds more than two of eight."""
    eight, sixteen = (capacity_of(layout(environment(deepseek(role(**{**RANKS, "dataParallel": n})))).groups[0]) for n in (8, 16))
    assert eight is not None
    assert sixteen is not None
    assert sixteen.weights_gib.mid < eight.weights_gib.mid * 0.7
    assert sixteen.engine_tokens.mid > 2.5 * eight.engine_tokens.mid


def test_deep_ep_keeps_buffers() -> None:
    """Wide EP by DeepEP is calculated with what was seen with it; the default backend with the parts that it is made of."""
    over = {**RANKS, "dataParallel": 16}
    plain, deep = (capacity_of(layout(environment(deepseek(role(**over, **more)))).groups[0]) for more in ({}, {"all2allBackend": "deepep_v2"}))
    assert plain is not None
    assert deep is not None
    assert deep.overhead_gib.mid == 23
    assert plain.overhead_gib.mid < 15
    assert plain.overhead_gib.high - plain.overhead_gib.mid >= 6


def test_kv_goes_from_rank_to_rank() -> None:
    """A request's KV is on the GPUs of one rank, so one transfer has their network and all ranks together that of all GPUs."""
    both = {"prefill": role(**RANKS), "decode": role(**RANKS)}
    work = {"inputTokens": 8000, "outputTokens": 800, "requestsPerSecond": 1}
    wanted = layout(environment(model(model="deepseek-v3.2", maxModelLen=16384, kvCacheDtype="fp8", workload=work, **both)))
    known = situation_of(wanted, wanted.served[0])
    assert known is not None
    assert known.transfer is not None
    good = known.transfer.scenario("good")
    assert good is not None
    assert good.seconds[0] == pytest.approx(known.transfer.kv.wire / 50e9 / 0.9)
    assert good.saturation[0] == pytest.approx(8 * 50e9 * 0.9 / known.transfer.kv.wire)


def test_a_prompt_waits_for_a_rank() -> None:
    """At the same rate of the GPUs a prompt takes a rank eight times as long as it would take all of them, and waits so much longer."""
    rates = [{"inputTokens": 8000, "tokensPerSecondPerGPU": 2000}]
    work = {"inputTokens": 8000, "outputTokens": 800, "requestsPerSecond": 1}

    def waited(cut: dict[str, Any]) -> float:
        engine = role(instanceType=H200, measuredRates=rates, maxNumBatchedTokens=2048, **cut)
        wanted = layout(
            environment(model(model="deepseek-v3.2", maxModelLen=16384, kvCacheDtype="fp8", workload=work, prefill=engine, decode=engine))
        )
        found = forecast_of(wanted, wanted.served[0])
        assert found is not None
        assert found.prefill_wait_seconds is not None
        return found.prefill_wait_seconds

    assert waited({"tensorParallel": 1, "dataParallel": 8, "expertParallel": True}) == pytest.approx(8 * waited({"tensorParallel": 8}))


def test_all_gpus_are_paid() -> None:
    """Costs of a role count the GPUs of all ranks."""
    (entry,) = cost_of(layout(environment(deepseek(role(**{**RANKS, "dataParallel": 16}, replicas=2))))).roles
    assert entry.gpus == 32


def test_ranks_read_weights_by_themselves() -> None:
    """Shared reading is known to work among the tensor-parallel GPUs of one pod only."""
    one = layout(environment(deepseek(role(instanceType=H200, tensorParallel=8)))).groups[0]
    assert streamer_config(one)["distributed"] is True
    assert "distributed" not in streamer_config(layout(environment(deepseek(role(**RANKS)))).groups[0])


def test_the_roles_may_have_different_ranks() -> None:
    """Peers agree on the KV of one rank, not on their number: prefill of 8 feeds decode of 16, and one of tensor parallelism."""
    for decode in ({**RANKS, "dataParallel": 16}, {"instanceType": H200, "tensorParallel": 8}):
        data = model(model="deepseek-v3.2", maxModelLen=16384, kvCacheDtype="fp8", prefill=role(**RANKS), decode=role(**decode))
        assert check(environment(data)).ok, [f.sentence() for f in check(environment(data)).findings]


@pytest.mark.parametrize(
    ("server", "level", "says"),
    [
        ({"tensorParallel": 2, "dataParallel": 2, "instanceType": H200}, "warning", "slices each expert over 4 GPUs"),
        ({**WIDE, "pipelineParallel": 2, "instanceType": H200}, "warning", "in no published recipe"),
        (WIDE, None, ""),
    ],
)
def test_data_parallelism_of_models_with_experts(server: dict[str, Any], level: str | None, says: str) -> None:
    """Ranks that slice experts, or that have stages, start but are not what one wants."""
    found = said(environment(aggregated(model="glm-5-fp8", maxModelLen=4096, server=role(**server))), "data-parallel")
    assert [str(f.level) for f in found] == ([level] if level else [])
    assert all(says in f.message for f in found)


def test_ranks_do_not_lie_across_nodes() -> None:
    """Ranks divide a node or are whole nodes, and all together fill the nodes of the group."""
    assert [n for n in range(1, 17) if fills(8, 1, n)] == [1, 2, 4, 8, 16]
    assert [n for n in range(1, 7) if fills(8, 4, n)] == [1, 2, 4, 6]
    assert fills(8, 16, 3)
    assert not fills(8, 6, 4)
    (found,) = said(environment(deepseek(role(**{**RANKS, "dataParallel": 12}))), "tensor-parallel")
    assert found.fix == "use 8"
    assert check(environment(deepseek(role(**{**RANKS, "dataParallel": 8})))).ok


@pytest.mark.parametrize("backend", ["deepep_high_throughput", "deepep_low_latency", "nixl_ep", "moonep", "flashinfer_nvlink_one_sided"])
def test_backends_that_do_not_work_over_efa(backend: str) -> None:
    """What needs InfiniBand or NVLink is refused between nodes and left alone inside one."""
    (found,) = said(environment(deepseek(role(**{**RANKS, "dataParallel": 16}, all2allBackend=backend))), "all-to-all")
    assert str(found.level) == "error"
    assert found.allowed == "allgather_reducescatter, deepep_v2"
    assert not said(environment(deepseek(role(**RANKS, all2allBackend=backend))), "all-to-all")


def test_deep_ep_needs_the_image_that_carries_it() -> None:
    """The image with DeepEP for EFA takes deepep_v2, the one without does not; what vLLM dropped is refused everywhere."""
    over = role(**{**RANKS, "dataParallel": 16}, all2allBackend="deepep_v2")
    assert not said(environment(deepseek(over)), "all-to-all")
    (found,) = said(environment(deepseek(over, engine="vllm-0.27.1-dlc")), "all-to-all")
    assert found.allowed == "allgather_reducescatter"
    for backend in ("pplx", "naive"):
        (found,) = said(environment(deepseek(role(**RANKS, all2allBackend=backend))), "all-to-all")
        assert "was removed" in found.message


def test_a_backend_without_ranks_does_nothing() -> None:
    """Without ranks that share experts nothing is exchanged by it."""
    (found,) = said(environment(deepseek(role(instanceType=H200, tensorParallel=8, all2allBackend="deepep_v2"))), "all-to-all")
    assert str(found.level) == "warning"


def test_infiniband_is_not_asked_for_by_a_variable() -> None:
    """IBGDA is refused where pods of one engine are on several nodes, and only there."""
    wide, one = role(**{**RANKS, "dataParallel": 16}), role(**RANKS)
    assert said(environment(deepseek(wide, extraEnv={"NVSHMEM_IB_ENABLE_IBGDA": "1"})), "all-to-all")
    assert not said(environment(deepseek(wide, extraEnv={"NVSHMEM_IB_ENABLE_IBGDA": "0"})), "all-to-all")
    assert not said(environment(deepseek(one, extraEnv={"NVSHMEM_IB_ENABLE_IBGDA": "1"})), "all-to-all")


@pytest.mark.parametrize(
    "flag",
    [
        "--data-parallel-size=4",
        "--data-parallel-hybrid-lb",
        "--data_parallel_external_lb",
        "--data-parallel-rank=1",
        "--all2all-backend=pplx",
        "--data-par=2",
    ],
)
def test_load_balancing_of_ranks_is_not_asked_for_by_flags(flag: str) -> None:
    """Another mode would need other Services, ports and selectors than those that are made."""
    assert "is set by the project" in said(environment(glm(extraArgs=[flag])), "extra-args")[0].message


@pytest.mark.parametrize("name", ["VLLM_DP_SIZE", "VLLM_DP_MASTER_IP", "VLLM_ALL2ALL_BACKEND"])
def test_ranks_are_not_asked_for_by_variables(name: str) -> None:
    """The engine would read them beside the flags."""
    assert "is set by the project" in said(environment(glm(extraEnv={name: "1"})), "extra-env")[0].message


def test_ranks_are_advised_where_tensor_parallelism_copies() -> None:
    """What is advised instead of copies of the latent holds as many tokens as it says, on the same GPUs; where it does not fit, nothing is."""
    split = {"prefill": role(instanceType=H200, tensorParallel=8), "decode": role(instanceType=H200, tensorParallel=8)}
    (found, _) = said(environment(model(model="deepseek-v3.2", maxModelLen=16384, kvCacheDtype="fp8", **split)), "latent-copies")
    said_so = re.search(r"with tensorParallel (\d), dataParallel (\d) and expertParallel the same GPUs hold ([\d,]+)", found.message)
    assert said_so
    advised = role(instanceType=H200, tensorParallel=int(said_so[1]), dataParallel=int(said_so[2]), expertParallel=True)
    done = layout(environment(model(model="deepseek-v3.2", maxModelLen=16384, kvCacheDtype="fp8", prefill=advised, decode=advised)))
    now = capacity_of(done.groups[0])
    assert now is not None
    assert f"{now.engine_tokens.mid:,.0f}" == said_so[3]
    assert (found.level, bool(found.corrections)) == (Level.WARNING, True)
    assert [(f.level, f.fix) for f in said(environment(glm()), "latent-copies")] == [(Level.INFO, "")] * 2


def test_stages_are_advised_where_ranks_do_not_fit() -> None:
    """One engine of GLM-5 on H200: two stages of four GPUs hold nearly twice the tokens of eight copies."""
    server = role(instanceType=H200, tensorParallel=8)
    (found,) = said(environment(aggregated(model="glm-5-fp8", maxModelLen=202752, server=server)), "latent-copies")
    assert "with tensorParallel 4 and pipelineParallel 2 the same GPUs hold" in found.message
    assert found.corrections == ({"models[0].server.tensorParallel": 4, "models[0].server.pipelineParallel": 2},)


def test_h100_is_answered_with_ranks() -> None:
    """GLM-5 split on one node of H100 does not fit; what is proposed first for each role is the engine of the example."""
    one = role(instanceType=H100, tensorParallel=8)
    found = said(environment(glm(prefill=one, decode=one)), "memory-fit")
    assert len(found) == 2
    assert all(f.fix.startswith("use tensorParallel 8 with dataParallel 2 and expertParallel on p5.48xlarge, or ") for f in found)
    assert check(environment(glm())).ok


def test_every_variable_of_a_command_line_is_there() -> None:
    """The kubelet leaves a variable that it does not know as it stands: each is of the container's environment or of LWS."""
    of_lws = {"LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"}
    for manifest in build_all(example("deepseek-wide-ep", "wide")):
        for template in manifest.get("spec", {}).get("leaderWorkerTemplate", {}).values():
            for container in template["spec"]["containers"] if isinstance(template, dict) else ():
                used = {name for arg in container["args"] for name in re.findall(r"\$\((\w+)\)", arg)}
                assert used <= of_lws | {e["name"] for e in container["env"]}
