"""What the pods are like that the LWS controller makes, and which of them Services and budgets select."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from disagg_serving import labels
from disagg_serving.manifests.serving import build_pod_template
from disagg_serving.planning.shapes import Group, Layout
from factories import aggregated, environment, layout, model, role
from live.conftest import clear
from live.workloads import deploy, endpoints_of, pods, settle

from bench.cluster import Cluster
from bench.control_plane import ControlPlane

LWS_VARIABLES = ["LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"]
SPREAD = ["--nnodes=$(LWS_GROUP_SIZE)", "--node-rank=$(LWS_WORKER_INDEX)", "--master-addr=$(LWS_LEADER_ADDRESS)"]


@pytest.fixture(scope="module")
def deployed(plane: ControlPlane) -> Iterator[Layout]:
    """Prefill and decode in pods of their own, and two engines over two nodes each."""
    wide = role(tensorParallel=8, pipelineParallel=2, replicas=2)
    split = model(name="split", prefill=role(replicas=2), decode=role(replicas=2))
    wanted = layout(environment(split, aggregated(name="wide", model="glm-5-fp8", maxModelLen=65536, server=wide)))
    deploy(plane.cluster, wanted)
    settle(plane.cluster, wanted)
    yield wanted
    clear(plane.cluster)


@pytest.fixture
def cluster(plane: ControlPlane, deployed: Layout) -> Cluster:
    """The shared control plane with the pods of `deployed`."""
    assert deployed.groups
    return plane.cluster


def created(cluster: Cluster, wanted: Layout) -> Iterator[tuple[Group, str, int, dict[str, Any]]]:
    """Each pod with its group, the name of its leader and its index; none is missing."""
    found = {p["metadata"]["name"]: p for p in pods(cluster)}
    for group in wanted.groups:
        for engine in group.pods():
            for index, name in enumerate(engine):
                yield group, engine[0], index, found.pop(name)
    assert found == {}


def containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Containers and native sidecars of a pod."""
    return [*spec.get("initContainers", []), *spec["containers"]]


def test_lws_variables_stand_first(cluster: Cluster, deployed: Layout) -> None:
    """The LWS variables come before ours in every container and sidecar, so that ours and args may refer to them; ours follow unchanged."""
    sidecars = 0
    for group, leader, index, pod in created(cluster, deployed):
        ours = containers(build_pod_template(group, worker=index > 0)["spec"])
        sidecars += len(ours) - 1
        for container, template in zip(containers(pod["spec"]), ours, strict=True):
            env = container["env"]
            assert [e["name"] for e in env[:3]] == LWS_VARIABLES
            values = {e["name"]: e["value"] for e in env[:3]}
            assert values["LWS_LEADER_ADDRESS"] == f"{leader}.{group.name}.{group.namespace}"
            assert (values["LWS_GROUP_SIZE"], values["LWS_WORKER_INDEX"]) == (str(group.size), str(index))
            assert [e["name"] for e in env[3:]] == [e["name"] for e in template.get("env", [])]
            plain = {e["name"]: e["value"] for e in template.get("env", []) if "value" in e}
            assert {e["name"]: e["value"] for e in env[3:] if "value" in e} == plain
    assert sidecars == 2


def test_args_are_as_written(cluster: Cluster, deployed: Layout) -> None:
    """`$(LWS_...)` reaches the pods as it is written, for the kubelet to expand; nothing on the way expands, escapes or reorders args."""
    spread = 0
    for group, _, index, pod in created(cluster, deployed):
        ours = containers(build_pod_template(group, worker=index > 0)["spec"])
        assert [c["args"] for c in containers(pod["spec"])] == [c["args"] for c in ours]
        (engine,) = pod["spec"]["containers"]
        assert [a for a in engine["args"] if "$(LWS_" in a] == (SPREAD if group.size > 1 else [])
        assert ("--headless" in engine["args"]) == (index > 0)
        spread += group.size > 1
    assert spread == 4


def test_pods_carry_the_labels_of_the_plan(cluster: Cluster, deployed: Layout) -> None:
    """The labels that routers and budgets read are on the pods, leaders and workers alike, and so are node selector and tolerations."""
    for group, _, index, pod in created(cluster, deployed):
        carried = pod["metadata"]["labels"]
        wanted = {**group.labels, labels.LWS_NAME: group.name, labels.LWS_WORKER_INDEX: str(index)}
        assert {key: carried.get(key) for key in wanted} == wanted
        assert pod["metadata"]["annotations"][labels.DO_NOT_DISRUPT] == "true"
        assert pod["spec"]["nodeSelector"] == dict(group.node_selector)
        assert [t for t in group.tolerations if t not in pod["spec"]["tolerations"]] == []


def test_services_reach_leaders_only(cluster: Cluster, deployed: Layout) -> None:
    """The EndpointSlices of a role's Service hold exactly the leaders: workers of a group over several nodes answer no HTTP."""
    for group in deployed.groups:
        leaders = {engine[0] for engine in group.pods()}
        found = endpoints_of(cluster, group, leaders)
        addresses = {p["metadata"]["name"]: p["status"]["podIP"] for p in pods(cluster, group.name)}
        assert {name: e["addresses"] for name, e in found.items()} == {name: [addresses[name]] for name in leaders}
        assert all(e["conditions"]["ready"] for e in found.values())
    assert {g.size for g in deployed.groups} == {1, 2}


def test_budgets_count_all_pods(cluster: Cluster, deployed: Layout) -> None:
    """A role's PodDisruptionBudget counts leaders and workers, since the loss of either ends the engine, and allows one eviction."""
    for group in deployed.groups:
        count = group.size * group.spec.replicas
        wait_for_budget(cluster, group, (count, count, count - 1, 1))


def wait_for_budget(cluster: Cluster, group: Group, wanted: tuple[int, ...]) -> None:
    """Wait until a role's budget has counted its pods like this."""
    cluster.until(lambda: budget(cluster, group) == wanted, f"budget of {group.name}: {wanted}")


def budget(cluster: Cluster, group: Group) -> tuple[int, ...]:
    """Pods that a budget expects, that are healthy, that it wants, and evictions that it allows."""
    status = cluster.get("pdb", group.name, group.namespace)["status"]
    return tuple(int(status[key]) for key in ("expectedPods", "currentHealthy", "desiredHealthy", "disruptionsAllowed"))
