"""How many engines a rolling update starts beside the old ones: only where GPUs stay idle anyway."""

from __future__ import annotations

from typing import Any

import pytest
from disagg_serving.manifests.bundle import build_all
from factories import RESERVED, aggregated, check, environment, layout, role


def surges(data: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """The maxSurge and maxUnavailable of each set."""
    sets = {o["metadata"]["name"]: o for o in build_all(layout(data)) if o["kind"] == "LeaderWorkerSet"}
    rolling = {n: o["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"] for n, o in sets.items()}
    return {name: (r["maxSurge"], r["maxUnavailable"]) for name, r in rolling.items()}


@pytest.mark.parametrize(
    ("server", "surge"),
    [
        (role(tensorParallel=8), 0),
        (role(tensorParallel=4), 1),
        (role(tensorParallel=4, replicas=2), 0),
        (role(tensorParallel=4, replicas=3), 1),
        (role(tensorParallel=8, capacity={**RESERVED, "nodes": 1}), 0),
        (role(tensorParallel=8, capacity={**RESERVED, "nodes": 2}), 1),
        # EC2 may refuse the second node, and the update would hang
        (role(tensorParallel=8, capacity={"nodes": 2}), 0),
    ],
)
def test_surge_needs_idle_room(server: dict[str, Any], surge: int) -> None:
    """A new engine starts beside the old ones only on GPUs that stay idle anyway; else one at a time ends first."""
    assert surges(environment(aggregated(server=server))) == {"m": (surge, 1 - surge)}


def test_room_is_given_once() -> None:
    """Two models that share idle room do not both count on it, since both may roll together."""
    two = [aggregated(name=n, server=role(tensorParallel=2, replicas=r)) for n, r in (("a", 2), ("b", 1))]
    assert surges(environment(*two)) == {"a": (1, 0), "b": (0, 1)}


def test_pods_of_different_size_leave_no_sure_room() -> None:
    """The scheduler may spread small pods so that no place for a large one is left, and the update would hang."""
    two = [aggregated(name="a", server=role(tensorParallel=4)), aggregated(name="b", server=role(tensorParallel=2))]
    assert surges(environment(*two)) == {"a": (0, 1), "b": (0, 1)}


def test_a_group_surges_whole() -> None:
    """Engines over two nodes need two idle ones."""
    glm = {"model": "glm-5-fp8", "maxModelLen": 65536}
    for nodes, surge in ((2, 0), (3, 0), (4, 1)):
        server = role(tensorParallel=8, pipelineParallel=2, capacity={**RESERVED, "nodes": nodes})
        assert surges(environment(aggregated(**glm, server=server))) == {"m": (surge, 1 - surge)}


def test_outage_is_announced_only_where_there_is_one() -> None:
    """A lone engine with room for a second is replaced without an outage, and the plan does not threaten with one."""
    for gpus, told in ((8, True), (4, False)):
        found = check(environment(aggregated(server=role(tensorParallel=gpus)))).findings
        assert any(f.id == "template-outage" for f in found) is told
