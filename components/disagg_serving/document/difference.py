"""What a change to the code or to a stack file does: two plans of one stack compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ..errors import Finding, Level
from ..records import Record

NEW_ID = "<computed anew>"
"""What a computed value becomes when the resource that it comes from is made anew."""
TOTAL = "total"
"""The subject of a figure of all lines of cost together."""


class Op(StrEnum):
    """What the engine will do to a resource. A rename is one change of two URNs: `former` goes, `urn` comes."""

    CREATE = "create"
    DELETE = "delete"
    UPDATE = "update"
    REPLACE = "replace"
    RENAME = "rename"


@dataclass(frozen=True)
class PathChange(Record):
    """A value that differs; null is a value that is not there."""

    path: str
    """Of the inputs (`spec.replicas`), or an option (`options.protect`)."""
    before: Any
    after: Any
    forces_replacement: bool = False


@dataclass(frozen=True)
class Change(Record):
    """What happens to one resource."""

    urn: str
    type: str
    name: str
    op: Op
    paths: Sequence[PathChange] = ()
    effect: str = ""
    """What it means for what runs; empty where there is nothing to say."""
    severity: Level = Level.INFO
    former: str | None = None
    """URN before a rename."""


@dataclass(frozen=True)
class FigureChange(Record):
    """A figure that differs; null where one revision has no such."""

    subject: str
    """Of what: `llama-70b decode`, a pool, a line of cost."""
    figure: str
    before: float | str | None
    after: float | str | None
    unit: str = ""
    severity: Level = Level.INFO


@dataclass(frozen=True)
class CheckChanges(Record):
    """Findings that only this revision has, that only the base has, and that both have; each worst first."""

    new: Sequence[Finding] = ()
    gone: Sequence[Finding] = ()
    same: Sequence[Finding] = ()


@dataclass(frozen=True)
class Difference(Record):
    """What differs from the base, beside `changes`; each list worst first."""

    base: str
    """The revision as asked for."""
    commit: str
    """The one that was recorded, empty where there is none."""
    compared: bool = True
    """False where only the checks could be compared."""
    notes: Sequence[str] = ()
    """What a reader has to know about the comparison."""
    unchanged: int = 0
    """Resources."""
    capacity: Sequence[FigureChange] = ()
    placement: Sequence[FigureChange] = ()
    cost: Sequence[FigureChange] = ()
    checks: CheckChanges = field(default_factory=CheckChanges)
