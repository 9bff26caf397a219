"""Credentials that EKS puts into a pod at its admission: whoever was admitted too early is replaced by a new pod, never restarted in place."""

from __future__ import annotations

import pytest
from disagg_serving import labels
from disagg_serving.manifests.names import MIRROR_LABELS
from disagg_serving.planning.shapes import Layout
from factories import aggregated, environment, layout, role
from live.workloads import deploy, is_ready, objects_of, pods, settle

from bench.cluster import Cluster
from bench.control_plane import ControlPlane

WEIGHTS = {"revision": "0" * 40, "s3": {"bucket": "b-123"}}
RESTARTED = [{"op": "replace", "path": "/status/containerStatuses/0/restartCount", "value": 1}]
FAILED = {"status": {"phase": "Failed"}}
NOWHERE = {"no-node": "has-this"}


def streaming(**weights: bool) -> Layout:
    """An engine in one pod that streams its weights."""
    return layout(environment(aggregated(name="stream", server=role(), weights={**WEIGHTS, **weights})))


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane) -> Cluster:
    """The shared control plane with that engine."""
    deploy(plane.cluster, streaming())
    settle(plane.cluster, streaming())
    return plane.cluster


def test_engine_that_fails_is_a_new_pod(cluster: Cluster) -> None:
    """Its container ends for want of credentials and is restarted, upon which the controller of LeaderWorkerSets makes another pod."""
    (before,) = pods(cluster, "stream")
    name = before["metadata"]["name"]
    cluster.patch("pods/status", name, RESTARTED, "stream")

    def replaced() -> bool:
        now = pods(cluster, "stream")
        return len(now) == 1 and is_ready(now[0]) and now[0]["metadata"]["uid"] != before["metadata"]["uid"]

    cluster.until(replaced, "a new pod of the same name")


def test_copy_that_fails_is_a_new_pod(cluster: Cluster) -> None:
    """The Job's pod never restarts its container: after it has failed the Job makes another one."""
    (job,) = (o for o in objects_of(streaming(mirror=True)) if o["kind"] == "Job")
    # the bench ends a Job's pod at once, so this one gets no node
    job["spec"]["template"]["spec"]["nodeSelector"] = NOWHERE
    cluster.apply([job])
    selector = f"{labels.APP_NAME}={MIRROR_LABELS[labels.APP_NAME]}"

    def uids() -> set[str]:
        return {p["metadata"]["uid"] for p in cluster.items("pods", "stream", selector)}

    cluster.until(lambda: len(uids()) == 1, "the Job's pod")
    (first,) = cluster.items("pods", "stream", selector)
    assert first["spec"]["restartPolicy"] == "Never"
    cluster.patch("pods/status", first["metadata"]["name"], FAILED, "stream")
    cluster.until(lambda: bool(uids() - {first["metadata"]["uid"]}), "a second try in another pod", 90)
