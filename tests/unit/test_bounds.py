"""How many nodes a pool may have: what its roles state, each reservation counted once."""

from __future__ import annotations

from typing import Any

import pytest
from disagg_serving.errors import Finding
from disagg_serving.planning.shapes import Layout
from factories import check, environment, layout, model, role

FIRST, SECOND, THIRD = (f"cr-0123456789abcdef{n}" for n in range(3))
OTHER = {"generation": "b", "engine": "vllm-0.27.1-dlc"}
PROMETHEUS = {"prometheusAddress": "http://prometheus-operated.monitoring.svc:9090"}


def ids(*given: str, nodes: int = 1) -> dict[str, Any]:
    """A prefill role of two half-node engines on named reservations."""
    return role(tensorParallel=4, replicas=2, capacity={"type": "reserved", "reservationIds": list(given), "nodes": nodes})


def sized(**held: int) -> dict[str, Any]:
    """The same where each reservation says how many instances it holds."""
    known = {"first": FIRST, "second": SECOND, "third": THIRD}
    return role(
        tensorParallel=4, replicas=2, capacity={"type": "reserved", "reservations": [{"id": known[k], "instances": n} for k, n in held.items()]}
    )


def named(*roles: dict[str, Any]) -> set[str]:
    """Ids of all reservations of some roles."""
    capacities = [one["capacity"] for one in roles]
    return {i for c in capacities for i in (*c.get("reservationIds", ()), *(r["id"] for r in c.get("reservations", ())))}


def followed(now: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    """A model whose candidate has another prefill role."""
    return environment(model(prefill=now, candidate={**OTHER, "prefill": then, "decode": role()}))


def bound(of: Layout) -> int:
    """Most nodes of the reserved pool."""
    (pool,) = [p for p in of.pools if p.capacity_type == "reserved"]
    return pool.max_nodes


def about_capacity(data: dict[str, Any]) -> list[Finding]:
    """What is said about room and bounds."""
    return [f for f in check(data).findings if f.id in {"candidate-capacity", "group-capacity", "shared-pool"}]


@pytest.mark.parametrize(
    ("now", "then", "most"),
    [
        (ids(FIRST), ids(SECOND), 2),
        (sized(first=1), sized(second=1), 2),
        (sized(first=1), sized(second=2), 3),
        (ids(FIRST, nodes=2), ids(SECOND, nodes=3), 5),
        (ids(FIRST, nodes=2), ids(FIRST, nodes=2), 2),
        (sized(first=1, second=1), sized(first=1, second=1), 2),
        (ids(FIRST, SECOND, nodes=3), ids(SECOND, THIRD, nodes=3), 3),
    ],
)
def test_reservations_of_a_candidate_add_to_those_of_the_model(now: dict[str, Any], then: dict[str, Any], most: int) -> None:
    """A candidate that brings its own reservation has room beside the pair that serves, since one NodeClass names both; a shared one counts once."""
    both = followed(now, then)
    assert about_capacity(both) == []
    assert bound(layout(both)) == most
    assert {r for c in layout(both).node_classes for r in c.reservation_ids} == named(now, then)


@pytest.mark.parametrize(
    ("now", "then"), [(ids(FIRST), ids(FIRST)), (sized(first=1), sized(first=1)), (ids(FIRST, nodes=1), ids(FIRST, SECOND, nodes=1))]
)
def test_a_shared_reservation_holds_no_more_for_two(now: dict[str, Any], then: dict[str, Any]) -> None:
    """Where both pairs name the same reservation, what it holds has to suffice for both."""
    assert [f.id for f in about_capacity(followed(now, then))] == ["candidate-capacity"]


def test_different_bounds_of_one_reservation_are_a_fault() -> None:
    """Two numbers for the same reservation contradict each other; for two reservations each is its own."""
    assert "shared-pool" in {f.id for f in about_capacity(followed(ids(FIRST, nodes=2), ids(FIRST, nodes=3)))}


def test_two_models_with_reservations_of_their_own_share_a_pool() -> None:
    """Each model brings the nodes that it needs."""
    assert about_capacity(environment(model(prefill=ids(FIRST)), model(name="n", prefill=ids(SECOND)))) == []


@pytest.mark.parametrize(("nodes", "most"), [(3, 2), (4, 4)])
def test_the_most_engines_beside_others_are_named(nodes: int, most: int) -> None:
    """A role that grows on a shared pool is told the most that fits beside the other, and not the most that would fit alone or one."""

    def grows(name: str, top: int) -> dict[str, Any]:
        scaled = {"minReplicaCount": 1, "maxReplicaCount": top}
        return model(name=name, prefill=role(tensorParallel=4, autoscaling=scaled, capacity={"nodes": nodes}), decode=role(replicas=2))

    found = about_capacity(environment(grows("m", 4), grows("n", 9), autoscaling=PROMETHEUS))
    (refusal,) = [f for f in found if f.path.startswith("models[1]")]
    assert refusal.corrections[0] == {"models[1].prefill.autoscaling.maxReplicaCount": most}
    assert about_capacity(environment(grows("m", 4), grows("n", most), autoscaling=PROMETHEUS)) == []
