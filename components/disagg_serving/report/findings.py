"""Findings for a terminal: errors and warnings in full, notes in a line, and the line of the stack file that each is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.padding import Padding
from rich.text import Text

from ..errors import Finding, Level, visible
from .spots import Spots
from .view import FindingView, counted, levels
from .words import STYLES


def finding_parts(findings: Sequence[Finding], spots: Spots, view: FindingView) -> list[Any]:
    """Findings, the worst first, then how many there are and how many of them are not shown."""
    if not findings:
        return [Text("all checks passed", style="green")]
    shown = [f for f in findings if view.shows(f)]
    folded = [] if view.notes or view.only else [f for f in shown if f.level is Level.INFO]
    parts = [part for f in shown if f not in folded for part in _finding(f, spots)]
    if folded:
        rules = ", ".join(dict.fromkeys(f.id for f in folded))
        parts.append(Text(f"{counted(len(folded), 'note')} (--notes): {rules}"))
    return [*parts, Text(levels(findings) + view.left_out(findings), style="bold")]


def _finding(f: Finding, spots: Spots) -> list[Any]:
    where = spots.line(f)
    head = Text.assemble((f"{f.level:<8}", STYLES[f.level]), (f.id, "dim"), (visible(f"  {where}") if where else "", "dim"))
    return [head, Padding(Text(f.sentence()), (0, 0, 0, 8))]
