"""What a comparison says about a rollout: who gets requests, what waits, what waits in vain, and which engines end."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from changes import compared, difference_of, plan_of
from disagg_serving.comparison.base_plan import read_plan
from disagg_serving.document.difference import Change, Op
from disagg_serving.document.plan import PlanDocument
from disagg_serving.errors import Level
from disagg_serving.recording.plan import Plan
from disagg_serving.records import data_of

OTHER = {"generation": "b", "engine": "vllm-0.27.1-dlc"}
NOTHING: dict[str, Any] = {}
WAITING = {"models.0.candidate": OTHER}
ACTIVE = {"models.0.candidate": {**OTHER, "activate": True}}
MOVED = {"models.0.generation": "b", "models.0.engine": "vllm-0.27.1-dlc"}
TWO_NODES = {f"models.0.{role}.capacity": {"nodes": 2} for role in ("prefill", "decode")}
SERVER = {"instanceType": "p5.48xlarge", "tensorParallel": 8}
AGGREGATED = {"models.0.prefill": None, "models.0.decode": None, "models.0.server": SERVER}
AT_ONCE = "requests go to {0} at once, and nothing waits for it"
NEW, OLD = ("llama-70b-b-prefill", "llama-70b-b-decode"), ("llama-70b-prefill", "llama-70b-decode")


def scaled(least: int, most: int) -> dict[str, Any]:
    """The stack `prod` with prefill scaled between these numbers."""
    role = {"models.0.prefill.replicas": None, "models.0.prefill.autoscaling": {"minReplicaCount": least, "maxReplicaCount": most}}
    return {"autoscaling.prometheusAddress": "http://prometheus-operated.monitoring.svc:9090", **role}


def between(before: dict[str, Any], after: dict[str, Any]) -> Plan:
    """Two variants of the stack `prod`, compared."""
    plans = [plan_of("prod", yaml.safe_dump(variant)) for variant in (before, after)]
    return compared(plans[0], plans[1])


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """Changes between them."""
    return list(between(before, after).changes)


def about(found: list[Change], kind: str, name: str) -> Change:
    """The change of one object, by the last words of type and name."""
    (change,) = [c for c in found if c.type.endswith(f":{kind}") and c.name.endswith(f"/{name}")]
    return change


@pytest.mark.parametrize(
    ("before", "after", "sets", "expected"),
    [
        (NOTHING, WAITING, NEW, (Op.CREATE, "{0} is a candidate: no request goes to it", Level.INFO)),
        (NOTHING, {"models.0.candidate": {"generation": "b", "server": SERVER}}, ("llama-70b-b",), (Op.CREATE, "is a candidate", Level.INFO)),
        (WAITING, ACTIVE, NEW, (Op.UPDATE, "{0} takes the requests from now on", Level.INFO)),
        (WAITING, ACTIVE, OLD, (Op.DELETE, "all groups of {0} end", Level.WARNING)),
        (WAITING, NOTHING, NEW, (Op.DELETE, "the candidate {0} ends; no request went to it", Level.INFO)),
        (ACTIVE, WAITING, OLD, (Op.CREATE, AT_ONCE, Level.WARNING)),
        (ACTIVE, NOTHING, OLD, (Op.CREATE, AT_ONCE, Level.WARNING)),
        (MOVED, NOTHING, OLD, (Op.CREATE, AT_ONCE, Level.WARNING)),
        (NOTHING, AGGREGATED, ("llama-70b",), (Op.CREATE, AT_ONCE, Level.WARNING)),
        (AGGREGATED, NOTHING, OLD, (Op.CREATE, AT_ONCE, Level.WARNING)),
        (NOTHING, ACTIVE, NEW, (Op.CREATE, "`up` waits for {0} in vain: pool", Level.ERROR)),
        (NOTHING, MOVED, NEW, (Op.CREATE, "may have 8 GPUs, and both pairs need 16 while it waits", Level.ERROR)),
        (scaled(2, 2), {**scaled(2, 2), **ACTIVE}, NEW[1:], (Op.CREATE, "in vain", Level.ERROR)),
        (TWO_NODES, {**TWO_NODES, **ACTIVE}, NEW, (Op.CREATE, "`up` waits until {0} is available, beside the pair that serves", Level.INFO)),
    ],
)
def test_what_becomes_of_sets(before: dict[str, Any], after: dict[str, Any], sets: tuple[str, ...], expected: tuple[Op, str, Level]) -> None:
    """A candidate gets no request; a set that takes over from another does so at once, after it was waited for, or never."""
    found, (op, says, level) = changes(before, after), expected
    for name in sets:
        change = about(found, "LeaderWorkerSet", name)
        assert change.op is op
        assert says.format(name) in change.effect
        assert change.severity is level


def test_moving_the_candidates_fields_changes_nothing_that_runs() -> None:
    """The last step of a rollout says nothing about sets, since it changes none."""
    assert not [c for c in changes(ACTIVE, MOVED) if c.type.startswith("kubernetes:")]


def test_services_of_a_candidate_are_nobodys_way_in() -> None:
    """What led to a candidate alone may go; a Service of the model may not without a word."""
    assert about(changes(WAITING, ACTIVE), "Service", "llama-70b-b-decode-api").severity is Level.INFO
    assert about(changes(WAITING, NOTHING), "Service", "llama-70b-b-prefill-api").severity is Level.INFO
    assert about(changes(NOTHING, AGGREGATED), "Service", "llama-70b-decode-api").severity is Level.WARNING


@pytest.mark.parametrize("generation", ["a", "z"])
def test_a_candidate_does_not_hide_what_happens_to_the_pair_that_serves(generation: str) -> None:
    """A change of what both roles share is an outage, whatever a candidate beside them is called."""
    beside = {"models.0.candidate": {"generation": generation, "maxModelLen": 16384}}
    found = changes(beside, {**beside, "models.0.weights": {"revision": "0123456789abcdef"}})
    for name in OLD:
        assert "no answers until one of each role has loaded" in about(found, "LeaderWorkerSet", name).effect


def test_bounds_of_a_scaled_role() -> None:
    """A lower maximum ends engines whatever waits; other bounds are no loss."""
    lower = about(changes(scaled(2, 4), scaled(1, 2)), "ScaledObject", "llama-70b-prefill")
    assert "engines of llama-70b-prefill beyond 2 end at once" in lower.effect
    assert "down to 1 end where they are not missed" in lower.effect
    assert lower.severity is Level.WARNING
    higher = about(changes(scaled(1, 2), scaled(2, 4)), "ScaledObject", "llama-70b-prefill")
    assert "up to 2 more engines" in higher.effect
    assert "has 2 engines at the least" in higher.effect
    assert higher.severity is Level.INFO


@pytest.mark.parametrize(("before", "after"), [(NOTHING, scaled(2, 8)), (scaled(2, 2), scaled(2, 8)), (scaled(2, 8), NOTHING)])
def test_what_autoscaling_may_add_is_compared(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Least engines cost the same, most do not: the difference has nodes and cost at most, and what a month costs at least stays apart."""
    found = difference_of(between(before, after))
    (nodes,), (cost,) = found.placement, found.cost
    assert (nodes.subject, nodes.figure) == ("prefill-p5-48xlarge", "nodes at most")
    assert sorted([nodes.before, nodes.after], key=str) == [1, 4]
    assert (cost.subject, cost.figure) == ("total", "price at most")
    assert isinstance(cost.before, float)
    assert isinstance(cost.after, float)
    assert (cost.after > cost.before) == (after == scaled(2, 8))


def test_plans_of_older_versions_have_no_scaling() -> None:
    """A base that was recorded before there was autoscaling is compared by what it has."""
    old, new = plan_of("prod", yaml.safe_dump(NOTHING)), plan_of("prod", yaml.safe_dump(scaled(2, 8)))
    without = {k: v for k, v in data_of(old, PlanDocument).items() if k != "autoscaling"}
    found = difference_of(compared(read_plan(without), new))
    assert [d.figure for d in (*found.placement, *found.cost)] == ["nodes at most", "price at most"]
