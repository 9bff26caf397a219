from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from disagg_serving import labels
from disagg_serving.catalog import Catalog
from disagg_serving.forecast.capacities import capacities
from disagg_serving.forecast.cost import cost_of
from disagg_serving.manifests.bundle import build_all
from disagg_serving.planning.shapes import Layout
from disagg_serving.rules.evaluation import evaluate_file
from disagg_serving.spec.stack_file import find_project
from factories import SHIPPED, STACKS, aggregated, check, environment, existing_cluster, layout, model, role

RESERVED = {"type": "reserved", "reservationIds": ["cr-0123456789abcdef0", "cr-0123456789abcdef1"], "nodes": 4}
MADE = {
    "prefill and decode": environment(),
    "server in one pod": environment(aggregated()),
    "server over two nodes": environment(aggregated(server=role(tensorParallel=8, pipelineParallel=2))),
    "prefill and decode over two nodes": environment(model(prefill=role(tensorParallel=16), decode=role(tensorParallel=16, replicas=2))),
    "reserved nodes": environment(model(prefill=role(capacity=RESERVED), decode=role(capacity={"type": "spot"}))),
    "every instance type": environment(
        *(
            aggregated(name=f"m{i}", model="qwen3-32b", maxModelLen=8192, server=role(instanceType=instance, tensorParallel=1, capacity={"nodes": 2}))
            for i, instance in enumerate(Catalog().instances)
        )
    ),
    "own flags and variables": environment(
        model(extraArgs=["--seed=1"], extraEnv={"FOO": "bar"}, weights={"tokenKey": "hfToken"}, waitForReadySeconds=900, drainSeconds=600)
    ),
    "multi-head latent attention": environment(
        model(
            model="deepseek-r1", maxModelLen=32768, **{side: role(instanceType="p5en.48xlarge", tensorParallel=8) for side in ("prefill", "decode")}
        )
    ),
    "existing cluster": existing_cluster(),
    "existing nodes": existing_cluster(
        model(prefill=role(nodeSelector={"pool": "a"}), decode=role(nodeSelector={"pool": "b"}, tolerations=[{"key": "gpu"}])), autoMode=False
    ),
}


def _stack(name: str) -> Layout:
    project = find_project(SHIPPED)
    return evaluate_file(project.stack_file(name), project.root).require_layout()


@pytest.fixture(params=[*STACKS, *MADE], scope="module")
def made(request: pytest.FixtureRequest) -> Layout:
    """The layout of each stack of the project, and of some more environments."""
    return _stack(request.param) if request.param in STACKS else layout(MADE[request.param])


@pytest.fixture
def objects(made: Layout) -> list[dict[str, Any]]:
    """Its Kubernetes objects."""
    return build_all(made)


def sets_of(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The LeaderWorkerSets, of which there is one at least."""
    found = [o for o in objects if o["kind"] == "LeaderWorkerSet"]
    assert found
    return found


def templates_of(objects: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any], bool]]:
    """Every pod template with its LeaderWorkerSet, and whether it is of a worker beside a leader."""
    for manifest in sets_of(objects):
        template = manifest["spec"]["leaderWorkerTemplate"]
        if "leaderTemplate" in template:
            yield manifest, template["leaderTemplate"], False
        yield manifest, template["workerTemplate"], "leaderTemplate" in template


def engine_of(template: dict[str, Any]) -> dict[str, Any]:
    """The vLLM container of a pod template."""
    (found,) = [c for c in template["spec"]["containers"] if c["name"] == "vllm"]
    return dict(found)


def engines_of(objects: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], bool]]:
    """The vLLM container of every pod template, and whether it is a worker's."""
    for _, template, worker in templates_of(objects):
        yield engine_of(template), worker


def variables(engine: dict[str, Any]) -> dict[str, Any]:
    """Environment variables by name; each is set once."""
    found = {e["name"]: e.get("value", e.get("valueFrom")) for e in engine["env"]}
    assert len(found) == len(engine["env"])
    return found


def keys_in(value: Any) -> Iterator[str]:
    """All keys of nested data."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys_in(inner)


def errors(data: Any, path: str) -> list[str]:
    """Ids of the errors about a place."""
    return [f.id for f in check(data).findings if f.level == "error" and f.path == path]


def test_taints_are_tolerated(made: Layout, objects: list[dict[str, Any]]) -> None:
    """Fault (a), role taints that no pod tolerates: pools and pods get both from `role_taints`."""
    pools = {o["metadata"]["name"]: o["spec"]["template"]["spec"]["taints"] for o in objects if o["kind"] == "NodePool"}
    assert bool(pools) == made.spec.makes_pools
    for manifest, template, _ in templates_of(objects):
        pod = template["spec"]
        assert pod["tolerations"], manifest["metadata"]["name"]
        if not pools:
            continue
        for taint in pools[pod["nodeSelector"][labels.POOL]]:
            exact = {"key": taint["key"], "operator": "Equal", "value": taint["value"], "effect": taint["effect"]}
            assert exact in pod["tolerations"]


def test_roles_do_not_tolerate_each_other(objects: list[dict[str, Any]]) -> None:
    """Fault (a), the other way: no pod tolerates the taint of another role, since `_tolerations` knows only the pod's own role."""
    for manifest, template, _ in templates_of(objects):
        values = {t.get("value") for t in template["spec"]["tolerations"] if t["key"] == labels.ROLE}
        assert values <= {template["metadata"]["labels"][labels.COMPONENT]}, manifest["metadata"]["name"]


def test_gpu_requests_have_limits(objects: list[dict[str, Any]]) -> None:
    """Fault (b), GPU requests without limits, which the API server refuses: `build_container` writes one mapping of devices into both."""
    for engine, _ in engines_of(objects):
        requests, limits = engine["resources"]["requests"], engine["resources"]["limits"]
        devices = {key: value for key, value in requests.items() if "/" in key}
        assert devices == limits
        assert int(limits[labels.GPU]) >= 1


def test_engines_over_several_nodes_find_each_other(objects: list[dict[str, Any]]) -> None:
    """Fault (c), several nodes without --nnodes, --node-rank, --master-addr or --headless: `command_args` derives them from the group's size."""
    for manifest, template, worker in templates_of(objects):
        args, size = engine_of(template)["args"], manifest["spec"]["leaderWorkerTemplate"]["size"]
        spread = {"--nnodes=$(LWS_GROUP_SIZE)", "--node-rank=$(LWS_WORKER_INDEX)", "--master-addr=$(LWS_LEADER_ADDRESS)", "--master-port=29501"}
        assert spread & set(args) == (spread if size > 1 else set())
        assert ("--headless" in args) == worker
        assert worker <= (size > 1)
        assert any(a.startswith("--port=") for a in args) == (not worker)


@pytest.mark.parametrize("flag", ["--nnodes=2", "--node-rank=1", "--master-addr=x", "--master_port=1", "--headless", "-n=2", "-r=0"])
def test_flags_of_several_nodes_cannot_be_given(flag: str) -> None:
    """Fault (c): rule `extra-args` refuses the flags that `command_args` derives, so that a spec cannot contradict them."""
    assert errors(environment(model(extraArgs=[flag])), "models[0].extraArgs[0]") == ["extra-args"]


def test_groups_have_as_many_pods_as_their_parallelism(made: Layout, objects: list[dict[str, Any]]) -> None:
    """Fault (c), size and parallelism that disagree: both come from `world_size`; rule `tensor-parallel` refuses what fills no whole nodes."""
    sizes = {(o["metadata"]["namespace"], o["metadata"]["name"]): o["spec"]["leaderWorkerTemplate"]["size"] for o in sets_of(objects)}
    for group in made.groups:
        gpus = sizes[group.namespace, group.name] * group.engine_requests.gpus
        assert gpus == group.spec.tensor_parallel * group.spec.pipeline_parallel
    assert errors(environment(aggregated(server=role(tensorParallel=12))), "models[0].server.tensorParallel").count("tensor-parallel") == 1


def test_volumes_stand_in_the_pod_spec(objects: list[dict[str, Any]]) -> None:
    """Fault (d), volumes beside `spec`, which are dropped in silence: `build_pod_template` puts them into it, and every mount has one."""
    for _, template, _ in templates_of(objects):
        assert set(template) == {"metadata", "spec"}
        volumes = {v["name"] for v in template["spec"]["volumes"]}
        mounts = [m["name"] for c in template["spec"]["containers"] for m in c["volumeMounts"]]
        assert sorted(mounts) == sorted(volumes) == ["shm", "weights"]


def test_pods_that_talk_ask_for_efa(made: Layout, objects: list[dict[str, Any]]) -> None:
    """Fault (e), no EFA on P/D or multi-node pods, which fall back to TCP: `build_group` adds the GPUs' share of the node's devices."""
    instances = {(g.namespace, g.name): g.instance for g in made.groups}
    for manifest, template, _ in templates_of(objects):
        engine, size = engine_of(template), manifest["spec"]["leaderWorkerTemplate"]["size"]
        talks = size > 1 or template["metadata"]["labels"][labels.COMPONENT] != "server"
        limits, env = engine["resources"]["limits"], variables(engine)
        assert (labels.EFA in limits) == talks
        assert (env.get("FI_PROVIDER") == "efa") == talks
        assert ("IPC_LOCK" in engine["securityContext"].get("capabilities", {}).get("add", [])) == talks
        if talks:
            instance = instances[manifest["metadata"]["namespace"], manifest["metadata"]["name"]]
            share = instance.efa.count * int(limits[labels.GPU]) / instance.gpu.count
            assert int(limits[labels.EFA]) == share >= 1


def test_node_classes_carry_the_efa_devices(made: Layout, objects: list[dict[str, Any]]) -> None:
    """Fault (e), nodes without the devices that pods ask for: `network_interfaces` makes one interface for each of the catalogue's devices."""
    classes = {o["metadata"]["name"]: o["spec"]["advancedNetworking"]["networkInterfaces"] for o in objects if o["kind"] == "NodeClass"}
    assert len(classes) == len(made.node_classes)
    for shape in made.node_classes:
        interfaces = classes[shape.name]
        assert sum(i["interfaceType"] == "efa-only" for i in interfaces) == shape.instance.efa.count
        assert len({(i["networkCardIndex"], i["deviceIndex"]) for i in interfaces}) == len(interfaces)
        assert [i for i in interfaces if i["networkCardIndex"] == i["deviceIndex"] == 0] == [interfaces[0]]


def test_no_node_class_is_named_default(made: Layout, objects: list[dict[str, Any]]) -> None:
    """Fault (f), a NodeClass `default`, which Auto Mode owns: `node_class_name` starts with the instance type."""
    classes = [o["metadata"]["name"] for o in objects if o["kind"] == "NodeClass"]
    assert "default" not in classes
    assert {o["spec"]["template"]["spec"]["nodeClassRef"]["name"] for o in objects if o["kind"] == "NodePool"} == set(classes)
    assert all(any(name.startswith(g.spec.instance_type.replace(".", "-")) for g in made.groups) for name in classes)


def test_pools_name_the_exact_instance_type(made: Layout, objects: list[dict[str, Any]]) -> None:
    """Fault (g), the family p5, which holds p5.4xlarge with one GPU: `build_node_pool` requires the type, and only catalogue ids are one."""
    asked = {g.pool: g.spec.instance_type for g in made.groups}
    for pool in (o for o in objects if o["kind"] == "NodePool"):
        requirements = {r["key"]: (r["operator"], r["values"]) for r in pool["spec"]["template"]["spec"]["requirements"]}
        assert requirements["node.kubernetes.io/instance-type"] == ("In", [asked[pool["metadata"]["name"]]])
        assert [key for key in requirements if "family" in key or "instance-category" in key] == []


def test_a_family_is_no_instance_type() -> None:
    """Fault (g): a family in place of a type is refused when it is looked up in the catalogue."""
    assert errors(environment(model(prefill=role(instanceType="p5"))), "models[0].prefill.instanceType") == ["catalog"]


def test_nccl_is_not_tuned_by_hand(objects: list[dict[str, Any]]) -> None:
    """Fault (h), NCCL_ALGO, NCCL_PROTO or NCCL_MIN_NCHANNELS, which make the OFI tuner refuse to load: no builder sets them."""
    for engine, _ in engines_of(objects):
        assert {"NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_NCHANNELS"} & set(variables(engine)) == set()


@pytest.mark.parametrize("name", ["NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_NCHANNELS"])
def test_nccl_cannot_be_tuned_by_hand(name: str) -> None:
    """Fault (h): rule `extra-env` refuses the variables."""
    assert errors(environment(model(extraEnv={name: "1"})), f"models[0].extraEnv.{name}") == ["extra-env"]


def test_every_engine_has_probes(objects: list[dict[str, Any]]) -> None:
    """Fault (i), no probes: `build_container` always adds all three, and the first waits as long as the engine itself may take to load."""
    for engine, _ in engines_of(objects):
        startup = engine["startupProbe"]
        budget = startup["periodSeconds"] * startup["failureThreshold"]
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(engine)
        assert budget == int(variables(engine)["VLLM_ENGINE_READY_TIMEOUT_S"]) >= 15 * 60


def test_weights_are_where_the_volume_is(made: Layout, objects: list[dict[str, Any]]) -> None:
    """Fault (j), weights downloaded outside their volume: HF_HOME and the mount are one constant, and rule `extra-env` guards HF_HOME."""
    disks = {(g.namespace, g.name): 0 if g.served.weights_uri else g.served.facts.checkpoint_gb * 1e9 / 2**30 for g in made.groups}
    for manifest, template, _ in templates_of(objects):
        engine = engine_of(template)
        (mount,) = [m["mountPath"] for m in engine["volumeMounts"] if m["name"] == "weights"]
        (volume,) = [v["emptyDir"] for v in template["spec"]["volumes"] if v["name"] == "weights"]
        assert variables(engine)["HF_HOME"].startswith(f"{mount}/")
        assert variables(engine)["VLLM_CACHE_ROOT"].startswith(f"{mount}/")
        assert volume["sizeLimit"] == engine["resources"]["requests"]["ephemeral-storage"]
        assert int(volume["sizeLimit"].removesuffix("Gi")) > disks[manifest["metadata"]["namespace"], manifest["metadata"]["name"]]
    assert errors(environment(model(extraEnv={"HF_HOME": "/root"})), "models[0].extraEnv.HF_HOME") == ["extra-env"]


def test_headless_workers_have_no_http_probes(objects: list[dict[str, Any]]) -> None:
    """Fault (k), httpGet on headless workers, which have no server and are killed: `_probes` lets workers dial their leader instead."""
    for engine, worker in engines_of(objects):
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert ("httpGet" in engine[probe], "exec" in engine[probe]) == (not worker, worker)
        assert ("ports" in engine) == (not worker)
        if not worker:
            port = engine["startupProbe"]["httpGet"]["port"]
            assert f"--port={port}" in engine["args"]
            assert [p["containerPort"] for p in engine["ports"]] == [port]


def test_services_select_leaders_only(objects: list[dict[str, Any]]) -> None:
    """Fault (k), requests to headless workers: `leader_selector` takes the pod of index 0 of each group."""
    services = [o for o in objects if o["kind"] == "Service" and o["spec"]["type"] == "ClusterIP"]
    assert {s["spec"]["selector"][labels.LWS_NAME] for s in services} == {o["metadata"]["name"] for o in sets_of(objects)}
    assert {s["spec"]["selector"][labels.LWS_WORKER_INDEX] for s in services} == {"0"}


def test_groups_start_and_restart_without_deadlock(objects: list[dict[str, Any]]) -> None:
    """Fault (l), RecreateGroupOnPodRestart and LeaderReady: `build_leader_worker_set` writes both policies, and no field of a spec does."""
    for manifest in sets_of(objects):
        template = manifest["spec"]["leaderWorkerTemplate"]
        assert manifest["spec"]["startupPolicy"] == "LeaderCreated"
        leader = template.get("leaderTemplate") or template["workerTemplate"]
        streams = leader["spec"]["containers"][0]["args"][0].startswith("s3://")
        assert template["restartPolicy"] == ("RecreateGroupAfterStart" if template["size"] > 1 or streams else "None")
    assert errors(environment(model(startupPolicy="LeaderReady")), "models[0].startupPolicy") == ["unknown-key"]


def test_side_channel_is_the_pods_address(objects: list[dict[str, Any]]) -> None:
    """Fault (m), P/D whose side channel is localhost: `environment` takes status.podIP, and rule `extra-env` guards the variable."""
    pod_ip = {"fieldRef": {"fieldPath": "status.podIP"}}
    for _, template, _ in templates_of(objects):
        env = variables(engine_of(template))
        split = template["metadata"]["labels"][labels.COMPONENT] != "server"
        assert env.get("VLLM_NIXL_SIDE_CHANNEL_HOST") == (pod_ip if split else None)
        assert env["VLLM_HOST_IP"] == pod_ip
        assert ("VLLM_NIXL_SIDE_CHANNEL_PORT" in env) == split
    name = "VLLM_NIXL_SIDE_CHANNEL_HOST"
    assert errors(environment(model(extraEnv={name: "localhost"})), f"models[0].extraEnv.{name}") == ["extra-env"]


def test_both_roles_agree_on_kv(made: Layout, objects: list[dict[str, Any]]) -> None:
    """Fault (m), roles whose KV layouts differ: what NIXL hashes stands once in `ModelSpec`, and connector and backend are constants."""
    pairs = [s for s in made.served if s.spec.disaggregated]
    for served in pairs:
        shared, kinds = [], []
        for name in (f"{served.spec.name}-prefill", f"{served.spec.name}-decode"):
            (manifest,) = [o for o in sets_of(objects) if o["metadata"]["name"] == name]
            args = engine_of(manifest["spec"]["leaderWorkerTemplate"]["workerTemplate"])["args"]
            flags = dict(a.split("=", 1) for a in args if "=" in a)
            connector = json.loads(flags["--kv-transfer-config"])
            kinds.append(connector.pop("kv_role"))
            shared.append((args[0], connector, [flags.get(f) for f in ("--block-size", "--kv-cache-dtype", "--dtype", "--max-model-len")]))
        assert shared[0] == shared[1]
        assert shared[0][1]["kv_connector"] == "NixlConnector"
        assert shared[0][1]["kv_connector_extra_config"] == {"backends": ["LIBFABRIC"]}
        assert kinds == ["kv_producer", "kv_consumer"]
    flagged = [engine for engine, _ in engines_of(objects) if any(a.startswith("--kv-transfer-config") for a in engine["args"])]
    assert bool(flagged) == bool(pairs)


@pytest.mark.parametrize(
    "served",
    [model(), aggregated(server=role(tensorParallel=16)), aggregated(server=role(tensorParallel=8, pipelineParallel=2))],
    ids=["prefill and decode", "tensor parallel", "pipeline parallel"],
)
def test_image_without_libfabric_is_refused(served: dict[str, Any]) -> None:
    """Fault (n), pods with EFA devices on an image that cannot use them: rule `engine-libfabric` refuses P/D and engines over several nodes."""
    assert errors(environment({**served, "engine": "vllm-0.33.0"}), "models[0].engine") == ["engine-libfabric"]
    assert errors(environment(served), "models[0].engine") == []


def test_image_without_libfabric_serves_alone() -> None:
    """Fault (n), the other way: an engine inside one node needs no libfabric, so that rule `engine-libfabric` lets it pass, without EFA."""
    made = layout(environment(aggregated(engine="vllm-0.33.0")))
    assert [g.uses_efa for g in made.groups] == [False]


def test_pods_with_efa_run_images_with_libfabric(made: Layout, objects: list[dict[str, Any]]) -> None:
    """Fault (n): every pod that asks for EFA devices runs an image that the catalogue knows to carry libfabric."""
    able = {engine.image for engine in Catalog().engines.values() if engine.libfabric}
    with_efa = [engine["image"] for engine, _ in engines_of(objects) if labels.EFA in engine["resources"]["limits"]]
    assert set(with_efa) <= able
    assert bool(with_efa) == any(g.uses_efa for g in made.groups)


def test_services_set_no_variables(objects: list[dict[str, Any]]) -> None:
    """Fault (o), enableServiceLinks, by which a Service named vllm sets VLLM_PORT: `build_pod_template` turns it off in every pod."""
    for _, template, _ in templates_of(objects):
        assert template["spec"]["enableServiceLinks"] is False
    assert list(keys_in(sets_of(objects))).count("enableServiceLinks") == sum(1 for _ in templates_of(objects))


def test_one_node_is_the_better_form_of_glm5() -> None:
    """The shipped form of the 744B model holds its workload on one node, and more tokens for the money than the playbook's two."""
    forms = {name: _stack(name) for name in ("glm5", "glm5-pp")}
    engines = {name: capacities(found)[0] for name, found in forms.items()}
    costs = {name: cost_of(found).per_hour for name, found in forms.items()}
    assert {name: group.size for name, found in forms.items() for group in found.groups} == {"glm5": 1, "glm5-pp": 2}
    assert engines["glm5"].fits == engines["glm5-pp"].fits == "fits"
    assert engines["glm5"].kv_tokens.low / costs["glm5"] > engines["glm5-pp"].kv_tokens.mid / costs["glm5-pp"]
