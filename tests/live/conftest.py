"""Fixtures of the live suite: each worker of pytest has one control plane, which every file finds as it was at the start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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

CRDS = "customresourcedefinitions"
EVERYWHERE = ("namespaces", "priorityclasses", "clusterroles", "clusterrolebindings", "nodes", "nodeclasses", CRDS)
"""Kinds without a namespace that tests make objects of."""
WORKLOADS = {"leaderworkersets": None, "statefulsets": labels.LWS_NAME, "pods": labels.LWS_NAME, "nodeclaims": None, "nodes": None}
"""What runs, with the label by which it is known."""

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


@dataclass(frozen=True)
class Shared:
    """The control plane of a worker, and the names of what no namespace holds, by kind, as they were at its start."""

    plane: ControlPlane
    first: dict[str, set[str]]

    def wipe(self) -> None:
        """Remove everything that was not there at the start."""
        cluster = self.plane.cluster
        self.plane.faults([])
        clear(cluster)
        surplus = [(kind, n) for kind, first in self.first.items() for n in names(cluster, kind) - first]
        for kind, name in surplus:
            cluster.delete(kind, name, wait=False)
        cluster.until(lambda: all(names(cluster, kind) <= first for kind, first in self.first.items()), "what tests made gone", 120)
        cluster.delete_all("events", namespace="default", wait=False)
        if any(kind == CRDS for kind, _ in surplus):
            cluster.api.forget()


@pytest.fixture(scope="session")
def shared() -> Iterator[Shared]:
    """A control plane with LWS and the stand-in."""
    with ControlPlane(reservations=(RESERVED, WHOLE, SCARCE)) as running:
        yield Shared(running, {kind: names(running.cluster, kind) for kind in EVERYWHERE})


@pytest.fixture(scope="module")
def plane(shared: Shared) -> Iterator[ControlPlane]:
    """The shared control plane, as it was at the start again after the file."""
    yield shared.plane
    shared.wipe()


@pytest.fixture
def wiped(shared: Shared) -> Iterator[None]:
    """The shared control plane as it was at the start again after the test, also where the test failed."""
    yield
    shared.wipe()


@pytest.fixture
def cluster(plane: ControlPlane) -> Iterator[Cluster]:
    """The shared control plane, emptied after the test."""
    yield plane.cluster
    plane.faults([])
    clear(plane.cluster)


def clear(cluster: Cluster) -> None:
    """Remove workloads, pools and nodes of a test, at once: what ends in order, and how long that takes, tests look at before."""
    cluster.delete_all("leaderworkersets", "nodepools", wait=False)
    # of another class in the next test, which a Service cannot change to
    cluster.delete_all("services", selector=f"{labels.MANAGED_BY}=disagg-serving", wait=False)
    cluster.until(lambda: not [left for kind in WORKLOADS for left in remove(cluster, kind)], "workloads and nodes gone", 120)
    cluster.delete_all("nodeclasses")


def remove(cluster: Cluster, kind: str) -> list[str]:
    """Delete all of a kind without waiting for anybody; the names of what was still there."""
    found = gpu_nodes(cluster) if kind == "nodes" else cluster.items(kind, selector=WORKLOADS[kind])
    for one in found:
        cluster.end(kind, one["metadata"]["name"], one["metadata"].get("namespace"))
    return [one["metadata"]["name"] for one in found]


def names(cluster: Cluster, kind: str) -> set[str]:
    """Names of all objects of a kind that is in no namespace."""
    return {one["metadata"]["name"] for one in cluster.items(kind)}


def gpu_nodes(cluster: Cluster, pool: str | None = None) -> list[dict[str, Any]]:
    """Nodes that Karpenter made, of one pool or of all."""
    labelled = [n for n in cluster.items("nodes") if "karpenter.sh/nodepool" in n["metadata"].get("labels", {})]
    return [n for n in labelled if pool in (None, n["metadata"]["labels"]["karpenter.sh/nodepool"])]
