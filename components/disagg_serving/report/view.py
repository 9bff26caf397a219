"""Which findings a reader wants to see, and their number in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import Finding, Level


@dataclass(frozen=True)
class FindingView:
    """Which findings a reader wants to see. Errors are always shown, and what is not shown is counted."""

    notes: bool = True
    """Notes in full, instead of their rules in a line."""
    only: frozenset[str] = frozenset()
    """Rules whose findings are shown; all where empty."""
    hidden: frozenset[Level] = frozenset()

    def shows(self, finding: Finding) -> bool:
        """Whether a reader wants to see this one."""
        wanted = (not self.only or finding.id in self.only) and finding.level not in self.hidden
        return wanted or finding.level is Level.ERROR

    def left_out(self, findings: Sequence[Finding]) -> str:
        """How many findings are not shown; empty where all are."""
        number = sum(not self.shows(f) for f in findings)
        return f"; {number:,} not shown" if number else ""


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 node`, `2 nodes`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def levels(findings: Sequence[Finding]) -> str:
    """How many errors, warnings and notes there are."""
    of = Counter(f.level for f in findings)
    words = {Level.ERROR: "error", Level.WARNING: "warning", Level.INFO: "note"}
    return ", ".join(counted(of[level], word) for level, word in words.items() if of[level]) or "all pass"
