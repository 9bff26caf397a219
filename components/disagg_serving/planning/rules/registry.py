"""The one list of checks: a pure function a rule, from spec, catalogue and layout to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from ...catalog import Catalog
from ...errors import Finding, Level
from ...spec import EnvironmentSpec, RoleSpec
from ...spec.serving import RoleName
from ..objects import Declared
from ..shapes import Layout, Served


class Stage(StrEnum):
    """When a rule runs: on the form (before a layout can be built), on the layout, or on the objects that a program declares."""

    FORM = "form"
    LAYOUT = "layout"
    OBJECTS = "objects"


@dataclass(frozen=True)
class StackContext:
    """What a stack file says outside the environment: the region, and the names of encrypted and of plain keys (None: no file)."""

    region: str | None = None
    secrets: frozenset[str] | None = None
    plain: frozenset[str] = frozenset()


NO_STACK = StackContext()


@dataclass(frozen=True)
class Subject:
    """What the rules look at. `layout` is there only in the layout stage, `objects` only in theirs."""

    spec: EnvironmentSpec
    catalog: Catalog
    served: list[Served]
    stack: StackContext = NO_STACK
    layout: Layout | None = None
    objects: Sequence[Declared] = ()

    def roles(self) -> Iterator[tuple[Served, RoleName, RoleSpec, str]]:
        """Every role of every model whose names are known, with its path."""
        for served in self.served:
            for name, role in served.spec.roles.items():
                yield served, name, role, f"{served.path}.{name}"

    def with_layout(self, layout: Layout) -> Subject:
        """The same subject for the layout stage."""
        return replace(self, layout=layout)


@dataclass(frozen=True)
class Rule:
    """A check: `id` and `level` of its findings, what it is about, and where the fact comes from.

    An error of a rule that is not `firm` can be accepted in the stack file, with a reason; then it is a warning.
    """

    id: str
    level: Level
    stage: Stage
    summary: str
    reference: str
    check: Callable[[Subject], Iterable[Fault]] = field(repr=False)
    firm: bool = False

    def run(self, subject: Subject) -> list[Finding]:
        """The rule's findings about `subject`."""
        return [Finding(self.id, f.level or self.level, f.path, f.message, f.value, f.allowed, f.fix, self.reference) for f in self.check(subject)]


@dataclass(frozen=True)
class Fault:
    """What a rule's function returns: a finding without what the rule itself knows. `level` only where it differs."""

    path: str
    message: str
    value: Any = None
    allowed: str = ""
    fix: str = ""
    level: Level | None = None


_RULES: dict[str, Rule] = {}


def rule(
    rule_id: str, level: Level, stage: Stage, reference: str, *, firm: bool = False
) -> Callable[[Callable[[Subject], Iterable[Fault]]], Callable[[Subject], Iterable[Fault]]]:
    """Register a function as a rule; its docstring is the summary.

    `firm` ones guard secrets, or what must hold before anything can be rendered.
    """

    def register(check: Callable[[Subject], Iterable[Fault]]) -> Callable[[Subject], Iterable[Fault]]:
        if rule_id in _RULES:
            raise ValueError(f"rule {rule_id} is registered twice")
        _RULES[rule_id] = Rule(rule_id, level, stage, " ".join((check.__doc__ or "").split()), reference, check, firm)
        return check

    return register


def rules() -> list[Rule]:
    """All rules, by id."""
    from . import balance, calibration, capacity, engine, environment, gateway, memory, objects, observability, parallel, roles, weights  # noqa: F401, PLC0415 (importing registers; here it makes no cycle)

    return [_RULES[rule_id] for rule_id in sorted(_RULES)]


def run_stage(subject: Subject, stage: Stage) -> list[Finding]:
    """The findings of all rules of one stage."""
    return [finding for r in rules() if r.stage is stage for finding in r.run(subject)]


def check_objects(objects: Sequence[Declared]) -> list[Finding]:
    """The findings about objects that a program declares, whoever wrote them."""
    nothing = EnvironmentSpec.model_construct(models=[])
    return run_stage(Subject(nothing, Catalog(), [], objects=objects), Stage.OBJECTS)
