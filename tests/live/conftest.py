"""Fixtures of the live suite: one control plane for most tests, others where a test needs its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from disagg_serving import labels

from bench.build import go, tools
from bench.cluster import Cluster
from bench.control_plane import ControlPlane
from bench.instance_types import Reservation

RESERVED = Reservation("cr-0123456789abcdef0", "p5.48xlarge", "us-east-1a", 2)
WHOLE = Reservation("cr-0a1b2c3d4e5f60718", "p5en.48xlarge", "us-east-1a", 1)
"""What the stacks glm5-pp and glm5 name."""
SCARCE = Reservation("cr-0fedcba9876543210", "p5.48xlarge", "us-east-1a", 3)
"""One and a half groups of two nodes."""


CORE = ("test_admission", "test_engine", "test_failures", "test_placement", "test_traffic", "test_verify")
"""Files of the core: the plan equals the engine and destroys in order, the API server admits all objects, pods land as planned, groups survive
failures, requests pass the real Envoy, `disagg verify` finds faults. `make core` and .ci/run run these; `make live` runs all."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The live tests talk to their own programs on loopback and to nothing else; they are skipped where the real parts are not there."""
    missing = [t for t in tools() if not t.binary.exists()]
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            if item.path.stem in CORE:
                item.add_marker(pytest.mark.core)
            item.add_marker(pytest.mark.allow_hosts(["127.0.0.1"]))
            if lacking := [t.name for t in missing if t.core or not item.get_closest_marker("core")]:
                reason = f"not built: {', '.join(lacking)} (run `make live`)" if go() else "Go is not installed, so the real parts cannot be built"
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """A control plane with LWS and the stand-in, shared; each test leaves it without workloads and GPU nodes."""
    with ControlPlane(reservations=(RESERVED, WHOLE, SCARCE)) as running:
        yield running


@pytest.fixture(scope="module")
def own_plane() -> Iterator[ControlPlane]:
    """A control plane that only the engine writes to."""
    with ControlPlane(reservations=(RESERVED, WHOLE)) as running:
        yield running


@pytest.fixture
def cluster(plane: ControlPlane) -> Iterator[Cluster]:
    """The shared control plane, emptied after the test."""
    yield plane.cluster
    plane.faults([])
    clear(plane.cluster)


def clear(cluster: Cluster) -> None:
    """Remove workloads, pools and nodes of a test."""
    cluster.kubectl("delete", "leaderworkersets", "-A", "--all", "--wait=true")
    for kind in ("nodepools", "nodeclaims"):
        cluster.kubectl("delete", kind, "--all", "--wait=false")
    # of another class in the next test, which a Service cannot change to
    cluster.kubectl("delete", "services", "-A", "-l", f"{labels.MANAGED_BY}=disagg-serving", "--wait=true")
    cluster.until(lambda: not gpu_nodes(cluster) and not cluster.items("nodeclaims"), "nodes gone", 120)
    cluster.kubectl("delete", "nodeclasses", "--all")


def gpu_nodes(cluster: Cluster, pool: str | None = None) -> list[dict[str, Any]]:
    """Nodes that Karpenter made, of one pool or of all."""
    labelled = [n for n in cluster.items("nodes") if "karpenter.sh/nodepool" in n["metadata"].get("labels", {})]
    return [n for n in labelled if pool in (None, n["metadata"]["labels"]["karpenter.sh/nodepool"])]
