"""`disagg verify` about engines over several nodes, on a control plane where nothing else runs."""

from __future__ import annotations

from disagg_serving import labels
from disagg_serving.verify import Point, Status, verify
from disagg_serving.verify.connection import Connection
from disagg_serving.verify.reader import read_snapshot
from live.test_placement import stack_layout
from live.workloads import deploy, settle

from bench.cluster import Cluster
from bench.control_plane import ControlPlane


def test_half_a_group(cluster: Cluster, plane: ControlPlane) -> None:
    """A group of two whose worker finds no node is called half a group, with the scheduler's reason, and nothing else fails in its set."""
    layout = stack_layout("glm5-pp")
    deploy(cluster, layout)
    settle(cluster, layout)
    worker = next(p for p in cluster.items("pods", "glm-5", f"{labels.LWS_WORKER_INDEX}=1"))
    cluster.cordon(worker["spec"]["nodeName"])
    cluster.delete("pod", "glm-5-0-1", "glm-5")
    connection = Connection(plane.kubeconfig, None)

    def halves() -> list[Point]:
        return [p for p in verify(layout, read_snapshot(connection, layout)) if p.id == "group-whole" and "half a group" in p.found]

    cluster.until(halves, "half a group")
    (point,) = halves()
    assert (point.status, point.subject) == (Status.FAILED, "glm-5/glm-5-0")
    assert "1 of 2 on nodes" in point.found
    assert "FailedScheduling" in point.found
    others = {p.id for p in verify(layout, read_snapshot(connection, layout)) if p.status is Status.FAILED and "glm-5-0" in p.subject}
    assert others == {"group-whole"}
