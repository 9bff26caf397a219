"""The LWS chart through the real provider on a control plane where nothing else brings the controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from live.workloads import pods

from bench.control_plane import LWS_CRDS, ControlPlane
from bench.engine import for_stack, lws_chart


@pytest.fixture(scope="module")
def bare_plane() -> Iterator[ControlPlane]:
    """A control plane without LWS."""
    with ControlPlane(lws=False) as running:
        yield running


def test_chart_installs_upgrades_and_leaves_its_crds(bare_plane: ControlPlane, tmp_path: Path) -> None:
    """The chart brings CRDs and controller; a new chart version keeps existing sets; a destroy keeps the CRDs, and a new up finds them."""
    cluster, chart = bare_plane.cluster, lws_chart(tmp_path)
    engine = for_stack("local", bare_plane.kubeconfig, tmp_path / "engine", {"chart": str(chart)})
    engine.up()
    cluster.established(*LWS_CRDS)
    deployment = cluster.get("deployment", "lws-controller-manager", "lws-system")
    assert deployment["spec"]["replicas"] == 2
    budget = cluster.get("pdb", "lws-controller", "lws-system")
    assert budget["spec"]["selector"]["matchLabels"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()

    before = {s["metadata"]["name"]: s["metadata"]["uid"] for s in cluster.items("lws")}
    meta = yaml.safe_load((chart / "Chart.yaml").read_text())
    (chart / "Chart.yaml").write_text(yaml.safe_dump({**meta, "version": "0.9.1", "appVersion": "0.9.1"}))
    changed = [s for s in engine.up() if s.op == "update"]
    assert changed
    assert {s["metadata"]["name"]: s["metadata"]["uid"] for s in cluster.items("lws")} == before
    assert len(before) == 2

    engine.destroy()
    assert not cluster.items("lws")
    assert set(LWS_CRDS) <= {c["metadata"]["name"] for c in cluster.items("crd")}
    assert {s.op for s in engine.up()} >= {"create"}
    engine.destroy()
    assert not pods(cluster)
