from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from disagg_serving import labels
from disagg_serving.catalog import Catalog, load_catalog
from disagg_serving.manifests.bundle import build_all
from disagg_serving.manifests.node_pools import network_interfaces
from disagg_serving.planning.shapes import Group, Layout
from disagg_serving.recording.plan import placement_of
from disagg_serving.rules.evaluation import evaluate_file
from disagg_serving.spec.stack_file import find_project
from disagg_serving.yaml_io import to_yaml
from factories import SHIPPED, STACKS, aggregated, environment, existing_cluster, layout, model, role

UNITS = {"Mi": 1, "Gi": 1024, "Ti": 1024 * 1024}
CATALOG: Catalog = load_catalog()

MADE_UP: dict[str, dict[str, Any]] = {
    "other sizes": environment(model(prefill=role(cpu=3.5, memoryGiB=77, ephemeralStorageGiB=300), decode=role(tensorParallel=8, shmGiB=9))),
    "shared pool": environment(
        aggregated(name="a"),
        aggregated(name="b", server=role(tensorParallel=4, replicas=3)),
        aggregated(name="c", server=role(tensorParallel=16, replicas=2)),
    ),
    "reserved and spot": environment(
        model(
            prefill=role(capacity={"type": "reserved", "reservationIds": ["cr-0123456789abcdef0"], "nodes": 2}),
            decode=role(capacity={"type": "spot"}, instanceType="p6-b300.48xlarge"),
        )
    ),
    "without Auto Mode": existing_cluster(
        model(
            prefill=role(nodeSelector={"pool": "p"}, tolerations=[{"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoExecute"}]),
            decode=role(nodeSelector={"pool": "d"}),
        ),
        autoMode=False,
    ),
}


def layout_of(case: str) -> Layout:
    """The layout of a shipped stack or of an environment above."""
    if case in MADE_UP:
        return layout(MADE_UP[case])
    project = find_project(SHIPPED)
    return evaluate_file(project.stack_file(case), project.root).require_layout()


def rendered(case: str) -> list[dict[str, Any]]:
    """Its objects as `disagg render` writes them, read back from YAML."""
    return [yaml.safe_load(to_yaml(o)) for o in build_all(layout_of(case))]


def one(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    """The object of a kind and name."""
    (found,) = [o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name]
    return found


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """All objects of a kind."""
    return [o for o in objects if o["kind"] == kind]


def templates(lws: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The pod templates of a LeaderWorkerSet: leader and, with more than one pod a group, worker."""
    t = lws["spec"]["leaderWorkerTemplate"]
    return {"leader": t["leaderTemplate"], "worker": t["workerTemplate"]} if "leaderTemplate" in t else {"leader": t["workerTemplate"]}


def engine(template: dict[str, Any]) -> dict[str, Any]:
    """The vLLM container."""
    (container,) = template["spec"]["containers"]
    assert container["name"] == "vllm"
    return dict(container)


def mib(text: str) -> int:
    """A quantity of memory in MiB."""
    return int(text[:-2]) * UNITS[text[-2:]]


def millis(text: str) -> int:
    """A quantity of CPU in millicores."""
    return int(text[:-1]) if text.endswith("m") else int(text) * 1000


def flags(container: dict[str, Any]) -> dict[str, str]:
    """Command line flags by name."""
    return {a.partition("=")[0]: a.partition("=")[2] for a in container["args"] if a.startswith("--")}


EXPECTED = [
    ("prod", "llama-70b-prefill", "4", "16", "90", "900Gi", 1, "None", 8000),
    ("prod", "llama-70b-decode", "2", "8", "45", "450Gi", 1, "None", 8200),
    ("glm5-pp", "glm-5", "8", "32", "180", "1800Gi", 2, "RecreateGroupAfterStart", 8000),
]


@pytest.mark.parametrize(("stack", "name", "gpu", "efa", "cpu", "memory", "size", "restart", "port"), EXPECTED)
def test_pods_ask_for_their_share_of_the_node(  # noqa: PLR0913, PLR0917 (a row of the table)
    stack: str, name: str, gpu: str, efa: str, cpu: str, memory: str, size: int, restart: str, port: int
) -> None:
    """The reference layouts ask for the GPUs, EFA devices, CPU and memory that fill p5.48xlarge nodes and leave room for DaemonSets."""
    lws = one(rendered(stack), "LeaderWorkerSet", name)
    template = lws["spec"]["leaderWorkerTemplate"]
    assert (template["size"], template["restartPolicy"]) == (size, restart)
    assert lws["spec"]["startupPolicy"] == "LeaderCreated"
    for pod in templates(lws).values():
        resources = engine(pod)["resources"]
        assert {k: resources["requests"][k] for k in (labels.GPU, labels.EFA, "cpu", "memory")} == {
            labels.GPU: gpu,
            labels.EFA: efa,
            "cpu": cpu,
            "memory": memory,
        }
        assert resources["limits"] == {labels.GPU: gpu, labels.EFA: efa}
    leader = engine(templates(lws)["leader"])
    assert leader["ports"] == [{"name": "http", "containerPort": port}]
    assert flags(leader)["--port"] == str(port)
    assert leader["readinessProbe"]["httpGet"] == {"path": "/health", "port": port}


def test_decode_is_behind_the_sidecar_and_prefill_is_not() -> None:
    """The routing sidecar stands on decode's port 8000 as a native sidecar and sends to vLLM on 8200; prefill is reached directly."""
    objects = rendered("prod")
    decode = templates(one(objects, "LeaderWorkerSet", "llama-70b-decode"))["leader"]
    (sidecar,) = decode["spec"]["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["ports"] == [{"name": "http", "containerPort": 8000}]
    assert {"--port=8000", "--model-server-port=8200"} <= set(sidecar["args"])
    assert "initContainers" not in templates(one(objects, "LeaderWorkerSet", "llama-70b-prefill"))["leader"]["spec"]


def test_roles_move_kv_by_nixl_over_efa() -> None:
    """Prefill produces and decode consumes KV over libfabric, from the same model string, and a failed load fails the request."""
    objects = rendered("prod")
    prefill, decode = (engine(templates(one(objects, "LeaderWorkerSet", f"llama-70b-{r}"))["leader"]) for r in ("prefill", "decode"))
    for container, kv_role in ((prefill, "kv_producer"), (decode, "kv_consumer")):
        assert container["command"] == ["vllm", "serve"]
        assert json.loads(flags(container)["--kv-transfer-config"]) == {
            "kv_connector": "NixlConnector",
            "kv_role": kv_role,
            "kv_load_failure_policy": "fail",
            "kv_connector_extra_config": {"backends": ["LIBFABRIC"]},
        }
    assert prefill["args"][0] == decode["args"][0] == CATALOG.models["llama-3.3-70b-instruct-fp8"].repository
    assert prefill["image"] == decode["image"]
    same = ("--block-size", "--max-model-len", "--served-model-name", "--shutdown-timeout")
    assert [flags(prefill)[f] for f in same] == [flags(decode)[f] for f in same]
    assert (flags(prefill)["--tensor-parallel-size"], flags(decode)["--tensor-parallel-size"]) == ("4", "2")


def test_prod_leaves_no_device_idle() -> None:
    """The reference layout uses all 8 GPUs and all 32 EFA devices of both nodes, by the plan and by the manifests added up."""
    found = placement_of(layout_of("prod"))
    assert [(p.pool, [(n.idle_gpus, n.idle_efa) for n in p.nodes]) for p in found] == [
        ("decode-p5-48xlarge", [(0, 0)]),
        ("prefill-p5-48xlarge", [(0, 0)]),
    ]
    for lws in of_kind(rendered("prod"), "LeaderWorkerSet"):
        limits = engine(templates(lws)["leader"])["resources"]["limits"]
        assert {k: int(v) * lws["spec"]["replicas"] for k, v in limits.items()} == {labels.GPU: 8, labels.EFA: 32}


def test_the_playbooks_glm5_is_one_group_over_two_nodes() -> None:
    """The playbook's 744B model is one LeaderWorkerSet of two whole nodes: the leader serves, the worker is headless and dials its leader."""
    objects = rendered("glm5-pp")
    (lws,) = of_kind(objects, "LeaderWorkerSet")
    assert (lws["spec"]["replicas"], lws["spec"]["leaderWorkerTemplate"]["size"]) == (1, 2)
    leader, worker = (engine(t) for t in templates(lws).values())
    shared = {
        "--nnodes": "$(LWS_GROUP_SIZE)",
        "--node-rank": "$(LWS_WORKER_INDEX)",
        "--master-addr": "$(LWS_LEADER_ADDRESS)",
        "--tensor-parallel-size": "8",
        "--pipeline-parallel-size": "2",
    }
    for container in (leader, worker):
        assert shared.items() <= flags(container).items()
        assert container["resources"]["limits"] == {labels.GPU: "8", labels.EFA: "32"}
    assert set(flags(leader)) - set(flags(worker)) == {"--port"}
    assert set(flags(worker)) - set(flags(leader)) == {"--headless"}
    assert "ports" not in worker
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert leader[probe]["httpGet"]["path"] == "/health"
        assert "httpGet" not in worker[probe]
        assert f"os.environ['LWS_LEADER_ADDRESS'],{flags(leader)['--master-port']}" in worker[probe]["exec"]["command"][-1]
    (pool,) = placement_of(layout_of("glm5-pp"))
    assert [n.pods for n in pool.nodes] == [["glm-5-0"], ["glm-5-0-1"]]


@pytest.mark.parametrize("case", [*STACKS, *MADE_UP])
def test_pods_are_set_up_for_vllm_and_efa(case: str) -> None:
    """Settings without which pods do not start, do not use EFA, or lose requests; and none that is known to break them."""
    for lws in of_kind(rendered(case), "LeaderWorkerSet"):
        for template in templates(lws).values():
            pod, container = template["spec"], engine(template)
            env = {e["name"]: e.get("value") or e["valueFrom"]["fieldRef"]["fieldPath"] for e in container["env"]}
            efa = labels.EFA in container["resources"]["limits"]
            assert {"FI_PROVIDER": "efa", "NCCL_NET_PLUGIN": "ofi", "NCCL_TUNER_PLUGIN": "ofi"}.items() <= env.items() or not efa
            assert efa == ("FI_PROVIDER" in env)
            assert env["VLLM_HOST_IP"] == "status.podIP"
            assert (env["VLLM_NO_USAGE_STATS"], env["NCCL_DEBUG"], env["NCCL_DEBUG_SUBSYS"]) == ("1", "INFO", "INIT,NET")
            assert env["HF_HOME"].startswith(next(m["mountPath"] for m in container["volumeMounts"] if m["name"] == "weights"))
            assert {"USER", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "VLLM_ENGINE_READY_TIMEOUT_S"} <= env.keys()
            assert not env.keys() & {"NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_NCHANNELS", "VLLM_SERVER_DEV_MODE"}
            if "--kv-transfer-config" in flags(container):
                assert (env["VLLM_NIXL_SIDE_CHANNEL_HOST"], env["VLLM_NIXL_SIDE_CHANNEL_PORT"]) == ("status.podIP", "5600")
            security = container["securityContext"]
            assert security.get("capabilities", {"add": []})["add"] == (["IPC_LOCK"] if efa else [])
            assert "privileged" not in security
            assert not pod.keys() & {"hostNetwork", "hostIPC", "hostPID"}
            assert (pod["enableServiceLinks"], pod["automountServiceAccountToken"]) == (False, False)
            assert not any("hugepages" in r for r in container["resources"]["requests"])
            sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"]
            assert sleep > 0
            assert pod["terminationGracePeriodSeconds"] >= sleep + int(flags(container)["--shutdown-timeout"]) + 15
            assert template["metadata"]["annotations"][labels.DO_NOT_DISRUPT] == "true"


@pytest.mark.parametrize(("stack", "name", "size"), [("prod", "llama-70b-prefill", "20Gi"), ("glm5", "glm-5", "64Gi")])
def test_shared_memory_grows_with_the_pod(stack: str, name: str, size: str) -> None:
    """Shared memory counts as memory: 20 GiB are enough up to four GPUs, a whole node gets 64."""
    pod = templates(one(rendered(stack), "LeaderWorkerSet", name))["leader"]["spec"]
    (shm,) = [v["emptyDir"] for v in pod["volumes"] if v["name"] == "shm"]
    assert shm == {"medium": "Memory", "sizeLimit": size}


@pytest.mark.parametrize("case", [*STACKS, *MADE_UP])
def test_the_disk_holds_the_checkpoint(case: str) -> None:
    """A pod that downloads weights asks for a tenth more disk than they need, one that streams for scratch; startup waits as long as that takes."""
    shape = layout_of(case)
    for group in shape.groups:
        container = engine(templates(one(rendered(case), "LeaderWorkerSet", group.name))["leader"])
        checkpoint_gib = group.served.facts.checkpoint_gb * 1e9 / 2**30
        disk_gib, streams = mib(container["resources"]["requests"][labels.EPHEMERAL_STORAGE]) / 1024, group.served.weights_uri is not None
        assert disk_gib == 20 if streams else disk_gib >= 1.1 * checkpoint_gib
        probe = container["startupProbe"]
        env = {e["name"]: e.get("value") for e in container["env"]}
        assert probe["periodSeconds"] * probe["failureThreshold"] == int(env["VLLM_ENGINE_READY_TIMEOUT_S"] or 0)
        assert probe["periodSeconds"] * probe["failureThreshold"] > 600 + group.served.facts.checkpoint_gb / (0.5 if streams else 0.15)


@pytest.mark.parametrize("instance", list(CATALOG.instances))
def test_interfaces_are_what_the_instance_has(instance: str) -> None:
    """A NodeClass has card 0 / device 0 for pod addresses and one efa-only interface a device, each on a place of its own."""
    facts = CATALOG.instances[instance]
    found = network_interfaces(facts)
    places = [(i["networkCardIndex"], i["deviceIndex"]) for i in found]
    assert len(set(places)) == len(places)
    assert [p for p, i in zip(places, found, strict=True) if i["interfaceType"] == "interface"] == [(0, 0)]
    efa = [i for i in found if i["interfaceType"] == "efa-only"]
    assert len(efa) == facts.efa.count
    assert len({i["networkCardIndex"] for i in efa}) == len(efa)
    assert {i["networkCardIndex"] for i in found} == set(range(facts.efa.network_cards))
    assert [i for i in efa if "secondaryIPv4PrefixCount" in i] == []


def test_p5_48xlarge_has_all_its_efa_devices() -> None:
    """The rendered NodeClass of p5.48xlarge has one `interface` and 32 `efa-only` interfaces, a disk below its NVMe, and no name `default`."""
    node_class = one(rendered("prod"), "NodeClass", "p5-48xlarge")
    interfaces = node_class["spec"]["advancedNetworking"]["networkInterfaces"]
    assert [i["interfaceType"] for i in interfaces] == ["interface", *["efa-only"] * 32]
    assert mib(node_class["spec"]["ephemeralStorage"]["size"]) / 1024 < CATALOG.instances["p5.48xlarge"].allocatable.nvme_gib == 28312


@pytest.mark.parametrize("case", [*STACKS, *MADE_UP])
def test_services_and_budgets_select_their_own_pods(case: str) -> None:
    """A Service selects the leaders of one set and a disruption budget all its pods, both in the set's namespace."""
    objects = rendered(case)
    sets = {(o["metadata"]["namespace"], o["metadata"]["name"]): o for o in of_kind(objects, "LeaderWorkerSet")}
    inside = [o for o in of_kind(objects, "Service") if o["spec"]["type"] == "ClusterIP"]
    services = {(o["metadata"]["namespace"], o["spec"]["selector"][labels.LWS_NAME]): o for o in inside}
    pdbs = {
        (o["metadata"]["namespace"], o["spec"]["selector"]["matchLabels"][labels.LWS_NAME]): o
        for o in of_kind(objects, "PodDisruptionBudget")
        if o["metadata"]["name"] != "lws-controller"
    }
    assert services.keys() == pdbs.keys() == sets.keys()
    for key, service in services.items():
        identity = templates(sets[key])["leader"]["metadata"]["labels"][labels.IDENTITY]
        assert service["spec"]["selector"] == {labels.LWS_NAME: key[1], labels.LWS_WORKER_INDEX: "0", labels.IDENTITY: identity}
        assert service["metadata"]["annotations"] == {labels.SKIP_AWAIT: "true"}
        (port,) = service["spec"]["ports"]
        assert (port["port"], port["targetPort"]) == (8000, 8000)
        pod = templates(sets[key])["leader"]["spec"]
        open_ports = [p["containerPort"] for c in (*pod.get("initContainers", []), *pod["containers"]) for p in c["ports"]]
        assert port["targetPort"] in open_ports
        assert pdbs[key]["spec"] == {"maxUnavailable": 1, "selector": {"matchLabels": {labels.LWS_NAME: key[1]}}}
        assert service["metadata"]["name"] != key[1], "the controller makes a headless Service of that name itself"


def tolerates(toleration: dict[str, str], taint: dict[str, str]) -> bool:
    """Whether a toleration matches a taint, by Kubernetes' rules."""
    value = toleration.get("operator", "Equal") == "Exists" or toleration.get("value", "") == taint.get("value", "")
    return toleration.get("key", taint["key"]) == taint["key"] and value and toleration.get("effect", taint["effect"]) == taint["effect"]


@pytest.mark.parametrize("case", [*STACKS, *MADE_UP])
def test_pods_go_to_the_pool_that_is_made_for_them(case: str) -> None:
    """By Kubernetes' own rules every pod matches exactly one rendered NodePool, whose every node is of one type in one zone."""
    objects, shape = rendered(case), layout_of(case)
    pools = of_kind(objects, "NodePool")
    assert bool(pools) == shape.spec.makes_pools
    for lws in of_kind(objects, "LeaderWorkerSet") if pools else ():
        for pod in (t["spec"] for t in templates(lws).values()):
            fitting = []
            for pool in pools:
                node = pool["spec"]["template"]
                requirements = {r["key"]: r["values"] for r in node["spec"]["requirements"]}
                assert all(len(v) == 1 for v in requirements.values())
                offered = {**node["metadata"]["labels"], **{k: v[0] for k, v in requirements.items()}}
                if pod["nodeSelector"].items() <= offered.items() and all(
                    any(tolerates(t, taint) for t in pod["tolerations"]) for taint in node["spec"]["taints"]
                ):
                    fitting.append(offered)
            (offered,) = fitting
            group = next(g for g in shape.groups if g.name == lws["metadata"]["name"])
            assert offered[labels.INSTANCE_TYPE] == group.instance.id
            assert offered[labels.ZONE] == shape.spec.network.zone


@pytest.mark.parametrize("case", [*STACKS, *MADE_UP])
def test_manifests_say_what_the_planner_assumes(case: str) -> None:
    """The placement simulation and the rendered pods have the same requests, selectors, tolerations, labels and pools."""
    objects, shape = rendered(case), layout_of(case)
    sets = of_kind(objects, "LeaderWorkerSet")
    assert {(o["metadata"]["namespace"], o["metadata"]["name"]) for o in sets} == {(g.namespace, g.name) for g in shape.groups}
    for group in shape.groups:
        lws = one(objects, "LeaderWorkerSet", group.name)
        assert (lws["spec"]["replicas"], lws["spec"]["leaderWorkerTemplate"]["size"]) == (group.spec.replicas, group.size)
        assert len(templates(lws)) == min(group.size, 2)
        for kind, template in templates(lws).items():
            pod = template["spec"]
            assert pod["nodeSelector"] == dict(group.node_selector)
            assert pod["tolerations"] == [dict(t) for t in group.tolerations]
            assert template["metadata"]["labels"] == dict(group.labels)
            assert requests(pod, worker=kind == "worker") == planned(group, worker=kind == "worker")
            assert pod["nodeSelector"].get(labels.ZONE) == (shape.spec.network.zone if group.pool else None)
    for pool in shape.pools:
        spec = one(objects, "NodePool", pool.name)["spec"]
        node = spec["template"]
        assert node["metadata"]["labels"] == dict(pool.labels)
        assert node["spec"]["taints"] == [dict(t) for t in pool.taints]
        assert {r["key"]: r["values"] for r in node["spec"]["requirements"]} == {
            labels.INSTANCE_TYPE: [pool.instance.id],
            labels.CAPACITY_TYPE: [pool.capacity_type],
            labels.ZONE: [pool.zone],
            labels.ARCH: [pool.instance.architecture],
        }
        assert spec["limits"] == {labels.GPU: str(pool.max_nodes * pool.room.gpus)}
        node_class = one(objects, "NodeClass", node["spec"]["nodeClassRef"]["name"])["spec"]
        interfaces = node_class["advancedNetworking"]["networkInterfaces"]
        assert sum(i["interfaceType"] == "efa-only" for i in interfaces) == pool.room.efa
        assert mib(node_class["ephemeralStorage"]["size"]) / 1024 < pool.room.disk_gib
        assert tuple(t["id"] for t in node_class.get("capacityReservationSelectorTerms", [])) == next(
            c.reservation_ids for c in shape.node_classes if c.name == pool.node_class
        )


def requests(pod: dict[str, Any], *, worker: bool) -> dict[str, int]:
    """What the scheduler counts for a pod: its containers and native sidecars."""
    assert not (worker and "initContainers" in pod)
    total = {"cpu": 0, "memory": 0, "disk": 0, "gpu": 0, "efa": 0}
    for container in (*pod.get("initContainers", []), *pod["containers"]):
        asked = container["resources"]["requests"]
        total["cpu"] += millis(asked["cpu"])
        total["memory"] += mib(asked["memory"])
        total["disk"] += mib(asked.get(labels.EPHEMERAL_STORAGE, "0Gi")) // 1024
        total["gpu"] += int(asked.get(labels.GPU, 0))
        total["efa"] += int(asked.get(labels.EFA, 0))
    return total


def planned(group: Group, *, worker: bool) -> dict[str, int]:
    """What the planner counts for it."""
    r = group.engine_requests if worker else group.pod_requests
    return {"cpu": r.cpu_millis, "memory": r.memory_mib, "disk": r.disk_gib, "gpu": r.gpus, "efa": r.efa}
