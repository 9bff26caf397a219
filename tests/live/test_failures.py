"""What happens when pods, containers, nodes or the LWS controller go: an engine over two nodes beside two lone ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from disagg_serving import labels
from disagg_serving.planning.shapes import Layout
from factories import aggregated, environment, layout, role
from live.conftest import clear, gpu_nodes
from live.workloads import deploy, is_available, is_ready, messages, pods, settle, uids

from bench.api import ApiError
from bench.cluster import Cluster
from bench.control_plane import ControlPlane

LEADER, WORKER = "wide-0", "wide-0-1"
LONE = ("lone-0", "lone-1")
DRAIN_DEADLINE = "karpenter.sh/nodeclaim-termination-timestamp"


@pytest.fixture(scope="module")
def deployed(plane: ControlPlane) -> Iterator[Layout]:
    """One group of two nodes and two engines in one pod each, for all tests of this module.

    Four nodes are allowed, as rule `mixed-pods` asks: with the three that first fit needs, the lone pods sometimes took a node each and
    the group's second pod stayed Pending.
    """
    server = role(tensorParallel=8, pipelineParallel=2, capacity={"nodes": 4})
    wide = aggregated(name="wide", model="glm-5-fp8", maxModelLen=65536, server=server)
    wanted = layout(environment(wide, aggregated(name="lone", server=role(replicas=2))))
    deploy(plane.cluster, wanted)
    yield wanted
    plane.faults([])
    clear(plane.cluster)


@pytest.fixture
def cluster(plane: ControlPlane, deployed: Layout) -> Cluster:
    """The shared control plane with all pods ready, whatever the test before did to them."""
    settle(plane.cluster, deployed)
    plane.cluster.until(lambda: is_available(plane.cluster, "wide") and is_available(plane.cluster, "lone"), "both sets available")
    return plane.cluster


def recreated(cluster: Cluster, before: dict[str, str]) -> bool:
    """Whether the same pods are there and ready, each as a new one."""
    now = {p["metadata"]["name"]: p for p in pods(cluster) if p["metadata"]["name"] in before}
    return set(now) == set(before) and all(is_ready(p) and p["metadata"]["uid"] != before[n] for n, p in now.items())


def delete(cluster: Cluster, pod: str) -> None:
    """Delete a pod."""
    cluster.delete("pod", pod, pod.split("-", maxsplit=1)[0], wait=False)


@pytest.mark.parametrize("pod", [LEADER, WORKER])
def test_group_is_recreated_whole(cluster: Cluster, pod: str) -> None:
    """A leader or worker that is deleted takes its whole group with it, since NCCL cannot let one rank join again; others stay."""
    wide, lone = uids(cluster, "wide"), uids(cluster, "lone")
    delete(cluster, pod)
    cluster.until(lambda: recreated(cluster, wide), f"both pods of the group new after {pod}")
    assert uids(cluster, "lone") == lone


def test_lone_pod_is_replaced_alone(cluster: Cluster) -> None:
    """An engine in one pod that is deleted comes back by itself; its neighbour in the same set keeps serving."""
    before = uids(cluster)
    delete(cluster, LONE[0])
    cluster.until(lambda: recreated(cluster, {LONE[0]: before[LONE[0]]}), "the pod new")
    after = uids(cluster)
    assert {n for n in before if before[n] != after[n]} == {LONE[0]}


@pytest.mark.parametrize("pod", [LEADER, WORKER])
def test_restarted_container(cluster: Cluster, pod: str) -> None:
    """A container that restarts keeps its pod and so its weights where the engine is alone, and recreates the group where it is not.

    The lone one restarts first, so that the controller has seen it by the time it has recreated the group.
    """
    wide, lone = uids(cluster, "wide"), uids(cluster, "lone")
    restarted = [{"op": "replace", "path": "/status/containerStatuses/0/restartCount", "value": 1}]
    for name in (LONE[0], pod):
        cluster.patch("pods/status", name, restarted, name.split("-")[0])
    cluster.until(lambda: recreated(cluster, wide), "both pods of the group new")
    assert uids(cluster, "lone") == lone
    (kept,) = [p for p in pods(cluster, "lone") if p["metadata"]["name"] == LONE[0]]
    assert kept["status"]["containerStatuses"][0]["restartCount"] == 1
    assert kept["metadata"].get("deletionTimestamp") is None


def test_controller_restart_touches_no_pod(plane: ControlPlane, cluster: Cluster) -> None:
    """An LWS controller that is killed and started again makes and restarts no pod, and then does its work: a third replica comes."""
    before = steady(cluster)
    plane.programs.stop("lws")
    assert states(cluster) == before
    plane.start_lws()
    cluster.scale("lws", "lone", "lone", 3)
    cluster.until(lambda: any(p["metadata"]["name"] == "lone-2" and is_ready(p) for p in pods(cluster)), "the third replica")
    assert {name: state for name, state in states(cluster).items() if name != "lone-2"} == before
    cluster.scale("lws", "lone", "lone", 2)
    cluster.until(lambda: set(uids(cluster, "lone")) == set(LONE), "two replicas again")
    assert states(cluster) == before


def steady(cluster: Cluster) -> dict[str, tuple[str, int]]:
    """The states, once no group is being made anew: then all pods are ready for a moment before the last ones of the former group go."""
    cluster.until(lambda: whole(cluster), "each worker made for the leader that is there")
    return states(cluster)


def whole(cluster: Cluster) -> bool:
    """Whether no pod is ending, and each group's workers are those of its leader: the leader owns their StatefulSet, which owns them."""
    found = {p["metadata"]["name"]: p["metadata"] for p in pods(cluster)}
    sets = {s["metadata"]["name"]: s["metadata"] for s in cluster.items("statefulsets", selector=labels.LWS_NAME)}
    ending = any("deletionTimestamp" in m for m in (*found.values(), *sets.values()))
    return not ending and owner(found[WORKER]) == sets[LEADER]["uid"] and owner(sets[LEADER]) == found[LEADER]["uid"]


def owner(metadata: dict[str, Any]) -> str:
    """The uid of an object's only owner."""
    (found,) = metadata["ownerReferences"]
    return str(found["uid"])


def states(cluster: Cluster) -> dict[str, tuple[str, int]]:
    """Identity and container restarts of every pod."""
    return {p["metadata"]["name"]: (p["metadata"]["uid"], sum(c["restartCount"] for c in p["status"]["containerStatuses"])) for p in pods(cluster)}


def test_budget_holds_a_second_eviction(plane: ControlPlane, cluster: Cluster) -> None:
    """While an evicted engine is not back, its set's PodDisruptionBudget refuses the next eviction; once it is back it allows one again.

    The evicted pod is kept from coming back: all nodes are cordoned, and the cloud has no other.
    """
    cluster.until(lambda: allowed(cluster, "lone") == 1, "one eviction allowed")
    plane.faults([{"match": {}, "allow": 0}])
    cluster.cordon(*node_names(cluster))
    try:
        before = uids(cluster, "lone")
        evict(cluster, LONE[0])
        with pytest.raises(ApiError, match=r"TooManyRequests.*disruption budget"):
            evict(cluster, LONE[1])
        cluster.until(lambda: uids(cluster, "lone").get(LONE[0]) not in {None, before[LONE[0]]}, "the evicted pod made again")
        cluster.until(lambda: allowed(cluster, "lone") == 0 and healthy(cluster, "lone") == 1, "the budget has seen it")
        with pytest.raises(ApiError, match=r"TooManyRequests.*disruption budget"):
            evict(cluster, LONE[1])
        assert uids(cluster, "lone")[LONE[1]] == before[LONE[1]]
    finally:
        cluster.cordon(*node_names(cluster), on=False)
        plane.faults([])
    cluster.until(lambda: allowed(cluster, "lone") == 1, "one eviction allowed again")
    evict(cluster, LONE[1])
    cluster.until(lambda: recreated(cluster, before), "both pods new, one after the other")


def node_names(cluster: Cluster) -> list[str]:
    """Names of the nodes that Karpenter made."""
    return [n["metadata"]["name"] for n in gpu_nodes(cluster)]


def evict(cluster: Cluster, pod: str) -> None:
    """Ask for an eviction, as a drain does. Raises ApiError if it is refused."""
    namespace = pod.split("-", maxsplit=1)[0]
    body: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
    cluster.api.call("POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", body=body)


def allowed(cluster: Cluster, name: str) -> int:
    """Evictions that a set's budget allows now."""
    return int(cluster.get("pdb", name, name)["status"]["disruptionsAllowed"])


def healthy(cluster: Cluster, name: str) -> int:
    """Pods of a set that its budget counts as healthy."""
    return int(cluster.get("pdb", name, name)["status"]["currentHealthy"])


def test_deleted_node_is_replaced(cluster: Cluster) -> None:
    """A node that is taken away waits for its engine until the pool's grace period ends; then the whole group comes back, on a new node.

    The end of the period is brought forward by the annotation in which Karpenter keeps it.
    """
    wide, lone = uids(cluster, "wide"), uids(cluster, "lone")
    (worker,) = [p for p in pods(cluster, "wide") if p["metadata"]["name"] == WORKER]
    gone = worker["spec"]["nodeName"]
    (claim,) = [c["metadata"]["name"] for c in cluster.items("nodeclaims") if c["status"]["nodeName"] == gone]
    cluster.delete("nodeclaim", claim, wait=False)
    cluster.until(lambda: any("waiting to be evicted" in m for m in messages(cluster, "FailedDraining", gone)), "the drain waits")
    assert uids(cluster, "wide") == wide
    cluster.patch("nodeclaim", claim, {"metadata": {"annotations": {DRAIN_DEADLINE: "2024-01-01T00:00:00Z"}}})
    cluster.until(lambda: recreated(cluster, wide), "both pods of the group new")
    cluster.until(lambda: gone not in node_names(cluster), "the old node gone")
    placed = {p["metadata"]["name"]: p["spec"]["nodeName"] for p in pods(cluster, "wide")}
    assert gone not in placed.values()
    assert len(set(placed.values())) == 2
    assert uids(cluster, "lone") == lone
