"""What a change to a stack file does, against the table of changes: operation of every resource, effect, weight."""

from __future__ import annotations

import pytest
from changes import CASES, Case, compared, difference_of, expanded, operations
from disagg_serving.comparison.effects.weigh import worst_first
from disagg_serving.comparison.replacements import is_known
from disagg_serving.document.difference import Op
from disagg_serving.errors import Level
from disagg_serving.recording.plan import Plan
from factories import STACKS
from recording import stack_graph


def found_by(case: Case) -> Plan:
    """The plan of a case's second state, compared with that of the first."""
    return compared(*case.plans())


def test_the_table_is_large_enough() -> None:
    """At least 30 kinds of change, all five operations and all three weights are in it."""
    assert len({c.name for c in CASES}) == len(CASES) >= 30
    assert {line.split()[0] for c in CASES for line in c.expected} == {str(op) for op in Op}
    assert {c.level for c in CASES} == {str(level) for level in Level}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_change(case: Case) -> None:
    """Exactly these resources change in this way, the worst stands first, and its meaning for what runs is said."""
    plans, found = case.plans(), found_by(case)
    assert all(p.resources for p in plans)
    assert not [f for p in plans for f in p.checks if f.level is Level.ERROR], "the engine would not get as far as a change"
    assert operations(found.changes, plans) == expanded(case.expected, plans)
    assert str(min((c.severity for c in found.changes), key=list(Level).index, default=Level.INFO)) == case.level
    assert not case.says or any(case.says in c.effect for c in found.changes)
    by_urn = {r.urn: r for p in plans for r in p.resources}
    assert list(found.changes) == sorted(found.changes, key=lambda c: worst_first(c, by_urn[c.urn]))
    assert difference_of(found).unchanged + len([c for c in found.changes if c.op is not Op.DELETE]) == len(plans[1].resources) - 1


@pytest.mark.parametrize("case", [c for c in CASES if not (c.before or c.expected or c.says)], ids=lambda c: c.name)
def test_no_change(case: Case) -> None:
    """Two recordings of the same are equal: nothing in a plan depends on time or order."""
    plan = found_by(case)
    found = difference_of(plan)
    assert not plan.changes
    assert not found.notes
    assert not (*found.capacity, *found.placement, *found.cost, *found.checks.new, *found.checks.gone)


@pytest.mark.parametrize("case", [c for c in CASES if c.name in ("range of the network", "cluster version up")], ids=lambda c: c.name)
def test_aws_verdicts_name_the_table(case: Case) -> None:
    """Whoever reads that an AWS resource is replaced also reads that a dated table says so, and that pulumi-eks is not expanded."""
    notes = " ".join(difference_of(found_by(case)).notes)
    assert "follows a table of 2026-" in notes
    assert "compared by its inputs alone, as the engine expands it: Cluster" in notes


@pytest.mark.parametrize("stack", STACKS)
def test_the_table_of_replacements_knows_every_type(stack: str) -> None:
    """A resource type that the project begins to use needs an entry in replacements.yaml, or changes to it are only guessed."""
    types = {r.type for r in stack_graph(stack).resources.values() if (r.custom or r.remote) and not r.type.startswith("pulumi:pulumi:")}
    assert {t for t in types if not is_known(t)} == set()


def test_another_zone_needs_room_in_the_pool() -> None:
    """A pool that is full makes no node in the new zone before the old ones are empty, so the rollout would stand still: the plan says so."""
    (case,) = [c for c in CASES if c.name == "zone of the GPU nodes"]
    pools = [c for c in found_by(case).changes if c.type == "kubernetes:karpenter.sh/v1:NodePool"]
    assert len(pools) == 2
    for pool in pools:
        assert "pods wait for nodes in us-east-1b, while those in us-east-1a count against the limit of 8 GPUs" in pool.effect
        assert "the rollout stands still" in pool.effect
    (other,) = [c for c in CASES if c.name == "one more zone"]
    assert not [c for c in found_by(other).changes if "stands still" in c.effect]
