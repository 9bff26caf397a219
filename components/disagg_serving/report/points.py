"""The points of `disagg verify` for a terminal: what failed and what could not be seen in full, what is ok in one line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..verify.points import Point, Status
from .text import to_text

STYLES = {Status.FAILED: "bold red", Status.UNKNOWN: "yellow", Status.OK: "green"}


def render_points(points: Sequence[Point], server: str, *, color: bool, width: int | None = None) -> str:
    """All points, and their count."""
    parts: list[Any] = [Text(f"cluster {server}", style="bold"), Text("")]
    for point in (p for p in points if p.status is not Status.OK):
        parts.append(Text.assemble((f"{point.status:<8}", STYLES[point.status]), (point.id, "dim"), "  ", point.subject))
        rows = (("expected", point.expected), ("found", point.found), ("do", point.fix))
        parts += [Padding(Text(f"{name}: {text}"), (0, 0, 0, 8)) for name, text in rows if text]
    passed = Counter(p.id for p in points if p.status is Status.OK)
    if passed:
        table = Table(box=None, padding=(0, 1), show_header=False, show_edge=False)
        for name, number in passed.items():
            only = next(p for p in points if p.id == name and p.status is Status.OK)
            table.add_row(
                Text("ok", style="green"), Text(name, style="dim"), str(number), Text(f"{only.subject}: {only.found}" if number == 1 else "")
            )
        parts += [table, Text("")]
    counts = Counter(p.status for p in points)
    return to_text(Group(*parts, Text(", ".join(f"{counts[s]} {s}" for s in Status if counts[s]), style="bold")), color=color, width=width)
