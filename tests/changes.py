"""The table of changes: what a person may do to a stack file, and what has to come out of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
from disagg_serving.comparison.compare import compare
from disagg_serving.document.difference import Change, Difference, Op
from disagg_serving.document.plan import PlanDocument
from disagg_serving.document.resource import Resource
from disagg_serving.recording.plan import Plan, make_plan
from recording import PROJECT

P = TypeVar("P", bound=PlanDocument)
SECRETS = frozenset({"disagg-serving:apiKey"})


@dataclass(frozen=True)
class Case:
    """One change: dotted paths of the environment with their values before and after, and what is expected of it."""

    name: str
    stack: str
    after: Mapping[str, Any]
    level: str
    expected: tuple[str, ...]
    says: str = ""
    before: Mapping[str, Any] = field(default_factory=dict)

    def plans(self) -> tuple[Plan, Plan]:
        """Both plans."""
        return plan_of(self.stack, yaml.safe_dump(dict(self.before))), plan_of(self.stack, yaml.safe_dump(dict(self.after)))


CASES = [
    Case(**{**data, "expected": tuple(data["expected"])})
    for data in yaml.safe_load((Path(__file__).parent / "data/changes.yaml").read_text(encoding="utf-8"))
]


@cache
def plan_of(stack: str, changes: str) -> Plan:
    """The plan of a shipped stack with changes, as YAML of dotted paths."""
    file = PROJECT.stack_file(stack)
    environment = deepcopy(file.environment)
    edit(environment, yaml.safe_load(changes))
    return make_plan(PROJECT, replace(file, environment=environment, secrets=SECRETS))


def compared(before: PlanDocument | None, after: P) -> P:
    """The second plan with what differs from the first."""
    return compare(before, after, "main", "0" * 40)


def difference_of(plan: PlanDocument) -> Difference:
    """What a plan that was compared says about it."""
    assert plan.difference is not None
    return plan.difference


def edit(environment: Any, changes: Mapping[str, Any]) -> None:
    """Set values at dotted paths; None removes one."""
    for path, value in changes.items():
        *way, last = path.split(".")
        place = environment
        for key in way:
            place = place[int(key)] if isinstance(place, list) else place.setdefault(key, {})
        if isinstance(place, list):
            place[int(last) :] = [value]
        elif value is None:
            place.pop(last, None)
        else:
            place[last] = value


def short(type_token: str) -> str:
    """The last word of a type."""
    return type_token.rsplit(":", 1)[1]


def managed(*plans: PlanDocument) -> dict[str, Resource]:
    """Resources of plans that a provider manages, by URN."""
    return {r.urn: r for p in plans for r in p.resources if r.real}


def operations(changes: Sequence[Change], plans: tuple[PlanDocument, PlanDocument]) -> set[str]:
    """`op Type name` of each change to a resource that a provider manages."""
    return {f"{c.op} {short(c.type)} {c.name}" for c in changes if c.urn in managed(*plans)}


def expanded(expected: tuple[str, ...], plans: tuple[PlanDocument, PlanDocument]) -> set[str]:
    """Expectations with `all` replaced by every name of the type; a rename has its new name."""
    found = set()
    for line in expected:
        op, kind, name = line.split(" ", 2)
        among = managed(plans[1]) if op == Op.RENAME else managed(*plans)
        names = {r.name for r in among.values() if short(r.type) == kind} if name == "all" else {name}
        found |= {f"{op} {kind} {n}" for n in names}
    return found
