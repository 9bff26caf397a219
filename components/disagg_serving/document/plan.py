"""The plan of one stack, whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import Finding, Level
from ..records import Record
from .capacity import EngineCapacity
from .cost import Cost
from .difference import Change, Difference, Op
from .placement import Autoscaling, PlacedPool
from .resource import Resource
from .traffic import Forecast

Callback = Literal["transforms", "invokeTransforms", "hooks", "stateMigrations"]


@dataclass(frozen=True, kw_only=True)
class PlanDocument(Record):
    """The plan of one stack, as `disagg plan STACK --format json` prints it; `--all` prints a list of these."""

    version: Literal[1] = 1
    """Grows when a key is renamed, removed or means something else; new keys do not change it."""
    project: str
    stack: str
    providers: Mapping[str, Mapping[str, Any]]
    """Configuration of default providers, credentials as `<secret>`."""
    resources: Sequence[Resource]
    callbacks: Mapping[Callback, int]
    """Functions of the program that only the engine calls, by kind; kinds that there are none of are left out."""
    checks: Sequence[Finding]
    """Worst first."""
    capacity: Sequence[EngineCapacity]
    """An entry a role whose memory is known."""
    forecast: Sequence[Forecast]
    placement: Sequence[PlacedPool]
    cost: Cost
    autoscaling: Autoscaling
    changes: Sequence[Change] = ()
    """Worst first; empty without `--base`."""
    difference: Difference | None = None
    """Null without `--base`."""
    topology: str
    """Mermaid flowchart, empty where nothing is placed."""

    def severities(self) -> set[Level]:
        """The levels that occur among findings, changes and figures that differ."""
        difference = self.difference
        deltas = (*difference.capacity, *difference.placement, *difference.cost) if difference else ()
        return {f.level for f in self.checks} | {c.severity for c in self.changes} | {d.severity for d in deltas}

    def operations(self) -> Mapping[Op, int]:
        """How many changes there are of each operation, without those that do not occur."""
        found = {op: sum(c.op is op for c in self.changes) for op in Op}
        return {op: n for op, n in found.items() if n}
