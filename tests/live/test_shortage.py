"""Groups for which there are not enough nodes: what is said, what is counted as ready, and what the project's own check prevents."""

from __future__ import annotations

from typing import Any

import pytest
from disagg_serving import labels
from factories import aggregated, check, environment, layout, role
from live.conftest import SCARCE, gpu_nodes
from live.workloads import deploy, is_available, is_ready, messages, pods, set_status, settle, uids

from bench.cluster import Cluster
from bench.control_plane import ControlPlane

PATIENCE = 20
"""Seconds in which a complete set of groups becomes ready several times over."""


def wide(**overrides: Any) -> dict[str, Any]:
    """A model whose engine takes two nodes."""
    return aggregated(name="wide", model="glm-5-fp8", maxModelLen=65536, server=role(tensorParallel=8, pipelineParallel=2, **overrides))


def test_second_node_of_a_group_is_refused(plane: ControlPlane, cluster: Cluster) -> None:
    """A group that gets one of two nodes says so by events and pods, and its set counts nothing as ready; it heals once there is capacity."""
    wanted = layout(environment(wide()))
    plane.faults([{"match": {labels.INSTANCE_TYPE: "p5.48xlarge"}, "allow": 1}])
    deploy(cluster, wanted)
    cluster.until(lambda: sorted(p["status"]["phase"] for p in pods(cluster)) == ["Pending", "Running"], "one pod of two")
    cluster.until(lambda: messages(cluster, "InsufficientCapacityError"), "the refusal as an event")
    assert any("p5.48xlarge" in m for m in messages(cluster, "InsufficientCapacityError"))
    (pending,) = [p["metadata"]["name"] for p in pods(cluster) if p["status"]["phase"] == "Pending"]
    cluster.until(lambda: messages(cluster, "FailedScheduling", pending), "the pod's own event")
    status = set_status(cluster, "wide")
    assert status["replicas"] == 1
    assert not status.get("readyReplicas")
    assert not is_available(cluster, "wide")
    assert len(gpu_nodes(cluster)) == 1
    kept = uids(cluster, "wide")
    plane.faults([])
    settle(cluster, wanted)
    cluster.until(lambda: set_status(cluster, "wide").get("readyReplicas") == 1 and is_available(cluster, "wide"), "the set available")
    assert uids(cluster, "wide") == kept


def scarce(nodes: int) -> dict[str, Any]:
    """Two groups of two nodes on a reservation that is said to hold `nodes`."""
    capacity = {"type": "reserved", "reservationIds": [SCARCE.id], "nodes": nodes}
    return environment(wide(replicas=2, capacity=capacity))


def test_one_and_a_half_groups_are_refused_before() -> None:
    """The check refuses two groups on the three nodes of the reservation, and accepts them on four."""
    found = [f for f in check(scarce(SCARCE.count)).findings if f.level == "error"]
    assert [(f.id, f.path) for f in found] == [("group-capacity", "models[0].server.capacity.nodes")]
    assert "needs 4 nodes" in found[0].message
    assert check(scarce(4)).ok


def test_one_and_a_half_groups_never_complete(cluster: Cluster) -> None:
    """What that rule prevents: with the reservation overstated, a half group takes a reserved node and never serves.

    There is no gang scheduling, so the fourth pod waits without end while its group's other pod holds a whole p5.48xlarge.
    """
    wanted = layout(scarce(4))
    deploy(cluster, wanted)
    cluster.until(lambda: sum(is_ready(p) for p in pods(cluster)) == SCARCE.count, "three of four pods ready")
    with pytest.raises(AssertionError, match="all pods ready"):
        settle(cluster, wanted, PATIENCE)
    nodes = gpu_nodes(cluster)
    assert len(nodes) == SCARCE.count
    assert {n["metadata"]["labels"][labels.CAPACITY_TYPE] for n in nodes} == {"reserved"}
    ready = {p["metadata"]["name"]: p["spec"]["nodeName"] for p in pods(cluster) if is_ready(p)}
    halves = [set(group) & set(ready) for group in wanted.groups[0].pods() if not set(group) <= set(ready)]
    assert [len(half) for half in halves] == [1]
    assert len(set(ready.values())) == SCARCE.count
    assert set_status(cluster, "wide").get("readyReplicas", 0) == 1
    (waiting,) = [p for p in pods(cluster) if not p["spec"].get("nodeName")]
    assert messages(cluster, "FailedScheduling", waiting["metadata"]["name"])
