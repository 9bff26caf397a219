"""`disagg verify` about roles that KEDA scales, with the documented rights, on a control plane that has KEDA's CRDs and no KEDA."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from disagg_serving.planning.shapes import Layout
from disagg_serving.verify import Point, Status, verify
from disagg_serving.verify.connection import Connection
from disagg_serving.verify.reader import read_snapshot
from factories import environment, layout, model, role
from live.keda import SCALED_OBJECTS, install_crds
from live.test_verify import documented_role, kubeconfig_of
from live.workloads import deploy, settle

from bench.cluster import Cluster
from bench.control_plane import ControlPlane

BOUNDS = {"minReplicaCount": 2, "maxReplicaCount": 4}
SET, OBJECT = ("set-replicas", "LeaderWorkerSet m/m-decode"), ("scaled-object", "ScaledObject m/m-decode")
MADE = "object", OBJECT[1]
READY = {"type": "Ready", "status": "True", "reason": "ScaledObjectReady", "message": "ScaledObject is defined correctly and is ready for scaling"}


@pytest.fixture
def scaling(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster that knows ScaledObjects, and has none afterwards."""
    install_crds(cluster)
    yield cluster
    cluster.delete_all(SCALED_OBJECTS)


def scaled_layout() -> Layout:
    """One engine of prefill, and decode between two and four."""
    data = environment(model(decode=role(autoscaling=BOUNDS)), autoscaling={"prometheusAddress": "http://prometheus-operated.monitoring.svc:9090"})
    return layout(data)


def run(cluster: Cluster, wanted: Layout) -> None:
    """Make the environment, and raise the scaled set to its least, as KEDA does at once."""
    deploy(cluster, wanted)
    cluster.scale("leaderworkersets", "m-decode", "m", 2)
    settle(cluster, wanted)


def points(connection: Connection, wanted: Layout) -> dict[tuple[str, str], Point]:
    """What verify says about scaling."""
    found = {(p.id, p.subject): p for p in verify(wanted, read_snapshot(connection, wanted))}
    return {key: found[key] for key in (SET, OBJECT, MADE)}


def keda_says(cluster: Cluster, *conditions: dict[str, Any]) -> None:
    """Write the status that KEDA's operator would, through the subresource that it uses."""
    cluster.patch(f"{SCALED_OBJECTS}/status", "m-decode", {"status": {"conditions": list(conditions)}}, "m")


def test_what_keda_says_is_read_with_the_documented_rights(scaling: Cluster, plane: ControlPlane, tmp_path: Path) -> None:
    """A number between the bounds and a ScaledObject that KEDA serves are ok; what KEDA cannot do, and a number beyond, fail by themselves."""
    wanted = scaled_layout()
    run(scaling, wanted)
    reader = Connection(kubeconfig_of(plane, documented_role(), tmp_path / "scaling-reader.json"), None)

    unseen = points(reader, wanted)
    assert {key: p.status for key, p in unseen.items()} == {SET: Status.OK, OBJECT: Status.FAILED, MADE: Status.OK}
    assert unseen[OBJECT].found == "KEDA has not looked at it"

    keda_says(scaling, READY, {"type": "Active", "status": "False"}, {"type": "Paused", "status": "False"})
    for engines in (2, 3, 4):
        scaling.scale("leaderworkersets", "m-decode", "m", engines)
        found = points(reader, wanted)
        assert {p.status for p in found.values()} == {Status.OK}, found
        assert (found[SET].expected, found[SET].found) == ("2 to 4", str(engines))

    scaling.scale("leaderworkersets", "m-decode", "m", 5)
    assert {key for key, p in points(reader, wanted).items() if p.status is Status.FAILED} == {SET}
    scaling.scale("leaderworkersets", "m-decode", "m", 2)

    keda_says(scaling, {"type": "Ready", "status": "False", "reason": "ScaledObjectCheckFailed", "message": "error requesting prometheus"})
    failing = points(reader, wanted)
    assert {key for key, p in failing.items() if p.status is Status.FAILED} == {OBJECT}
    assert "ScaledObjectCheckFailed: error requesting prometheus" in failing[OBJECT].found
    keda_says(scaling, READY, {"type": "Paused", "status": "True", "reason": "ScaledObjectPaused"})
    assert points(reader, wanted)[OBJECT].found == "paused (ScaledObjectPaused)"

    scaling.patch(SCALED_OBJECTS, "m-decode", {"spec": {"maxReplicaCount": 9}}, "m")
    assert points(reader, wanted)[MADE].status is Status.FAILED


def test_without_the_right_to_read_scaledobjects_it_is_unknown(scaling: Cluster, plane: ControlPlane, tmp_path: Path) -> None:
    """Whoever may not read KEDA's objects is told so, and nothing about them is called ok or failed."""
    wanted = scaled_layout()
    run(scaling, wanted)
    rights = documented_role()
    rights["rules"] = [r for r in rights["rules"] if r["apiGroups"] != ["keda.sh"]]
    found = points(Connection(kubeconfig_of(plane, rights, tmp_path / "no-scaling.json"), None), wanted)
    assert found[OBJECT].status is found[MADE].status is Status.UNKNOWN
    assert "not allowed" in found[OBJECT].found
