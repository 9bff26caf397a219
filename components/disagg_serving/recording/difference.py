"""What a change to the code or to a stack file does: two plans of one stack compared, as data that every output format reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ..errors import Finding, Level
from ..records import data_of

NEW_ID = "<computed anew>"
"""What a computed value becomes when the resource that it comes from is made anew."""


class Op(StrEnum):
    """What the engine will do to a resource. A rename is one change of two URNs: `former` goes, `urn` comes."""

    CREATE = "create"
    DELETE = "delete"
    UPDATE = "update"
    REPLACE = "replace"
    RENAME = "rename"


@dataclass(frozen=True)
class PathChange:
    """One value of a resource's inputs (`spec.replicas`) or options (`options.protect`); None is a value that is not there."""

    path: str
    before: Any
    after: Any
    forces_replacement: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain data with the keys of `plan --format json`."""
        return {"path": self.path, "before": self.before, "after": self.after, "forcesReplacement": self.forces_replacement}


@dataclass(frozen=True)
class Change:
    """What happens to one resource, and what that means for what runs: `effect` is a sentence, empty where there is nothing to say."""

    urn: str
    type: str
    name: str
    op: Op
    paths: Sequence[PathChange] = ()
    effect: str = ""
    severity: Level = Level.INFO
    former: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data with the keys of `plan --format json`."""
        return {
            "urn": self.urn,
            "type": self.type,
            "name": self.name,
            "op": str(self.op),
            "paths": [p.as_dict() for p in self.paths],
            "effect": self.effect,
            "severity": str(self.severity),
            "former": self.former,
        }


@dataclass(frozen=True)
class Delta:
    """A figure of the plan that differs: of what (`llama-70b decode`), which (`KV tokens an engine`), and both values.

    None stands where one revision has no such figure.
    """

    subject: str
    figure: str
    before: float | str | None
    after: float | str | None
    unit: str = ""
    severity: Level = Level.INFO

    def as_dict(self) -> dict[str, Any]:
        """Plain data with the keys of `plan --format json`."""
        return {
            "subject": self.subject,
            "figure": self.figure,
            "before": self.before,
            "after": self.after,
            "unit": self.unit,
            "severity": str(self.severity),
        }


@dataclass(frozen=True)
class CheckChanges:
    """Findings that only the head has, that only the base had, and that both have; each worst first."""

    new: Sequence[Finding] = ()
    gone: Sequence[Finding] = ()
    same: Sequence[Finding] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data with the keys of `plan --format json`."""
        return {"new": data_of(self.new), "gone": data_of(self.gone), "same": data_of(self.same)}


@dataclass(frozen=True)
class Difference:
    """All that differs between the base and what is in the working folder.

    `base` is the revision as it was asked for, `commit` the one that was recorded (empty where there was none to record), `notes` what a
    reader has to know about the comparison, `compared` is false where nothing but the checks could be. Changes, and the deltas of each
    list, stand worst first.
    """

    base: str
    commit: str
    notes: Sequence[str] = ()
    changes: Sequence[Change] = ()
    unchanged: int = 0
    capacity: Sequence[Delta] = ()
    placement: Sequence[Delta] = ()
    cost: Sequence[Delta] = ()
    checks: CheckChanges = field(default_factory=CheckChanges)
    compared: bool = True

    def severities(self) -> set[Level]:
        """The levels that occur among changes and deltas; findings count in the plan's own checks."""
        return {c.severity for c in self.changes} | {d.severity for d in (*self.capacity, *self.placement, *self.cost)}

    def count(self) -> Mapping[Op, int]:
        """How many changes there are of each operation, without those that do not occur."""
        found = {op: sum(c.op is op for c in self.changes) for op in Op}
        return {op: n for op, n in found.items() if n}

    def as_dict(self) -> dict[str, Any]:
        """Plain data: `difference` of `plan --format json`; the changes themselves are its `changes`."""
        return {
            "base": self.base,
            "commit": self.commit,
            "compared": self.compared,
            "notes": list(self.notes),
            "unchanged": self.unchanged,
            "capacity": [d.as_dict() for d in self.capacity],
            "placement": [d.as_dict() for d in self.placement],
            "cost": [d.as_dict() for d in self.cost],
            "checks": self.checks.as_dict(),
        }
