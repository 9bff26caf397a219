"""A difference for a terminal: changes first, the worst first, each with its values before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.padding import Padding
from rich.text import Text

from ..document.difference import Change, Difference, FigureChange, Op, PathChange
from ..document.plan import PlanDocument
from ..errors import Finding, Level, visible
from .sheets import Row, Sheet
from .words import STYLES, short_type, values_of

SHOWN_PATHS = 12
OP_STYLES = {Op.CREATE: "green", Op.DELETE: "red", Op.UPDATE: "yellow", Op.REPLACE: "bold red", Op.RENAME: "magenta"}


def difference_parts(plan: PlanDocument, difference: Difference) -> list[Any]:
    """What stands above the rest of a plan."""
    counts = ", ".join(f"{n} to {op}" for op, n in plan.operations().items()) or "no resource changes"
    since = f"{difference.base} ({difference.commit[:10]})" if difference.commit else difference.base
    summary = f"{counts}, {difference.unchanged} unchanged" if difference.compared else "resources and figures are not compared"
    parts: list[Any] = [Text.assemble((f"Changes since {visible(since)}", "bold"), f"  {summary}")]
    parts += [Padding(Text(visible(note), style="dim"), (0, 0, 0, 2)) for note in difference.notes]
    for change in plan.changes:
        parts += _change(change)
    deltas = [("capacity", difference.capacity), ("placement", difference.placement), ("cost", difference.cost)]
    if any(found for _, found in deltas):
        parts += [Text(""), _deltas(deltas)]
    checks = difference.checks
    for word, findings in (("new", checks.new), ("gone", checks.gone)):
        parts += [Text(""), *_findings(word, findings)] if findings else []
    return [*parts, Text("")]


def _change(change: Change) -> list[Any]:
    head = Text.assemble(
        (f"{change.severity:<8}", STYLES[change.severity]),
        (f"{change.op:<8}", OP_STYLES[change.op]),
        f"{short_type(change.type)} ",
        (visible(change.name), "bold"),
    )
    below = [Text(visible(change.effect))] if change.effect else []
    below += [_path(p) for p in change.paths[:SHOWN_PATHS]]
    if len(change.paths) > SHOWN_PATHS:
        below.append(Text(f"and {len(change.paths) - SHOWN_PATHS} more, all in --format json", style="dim"))
    return [head, *(Padding(text, (0, 0, 0, 16)) for text in below)]


def _path(change: PathChange) -> Text:
    forced = "  (replaces it)" if change.forces_replacement else ""
    before, after = values_of(change)
    return Text.assemble((visible(change.path), "cyan"), ": ", before, " -> ", after, (forced, "red"))


def _deltas(groups: Sequence[tuple[str, Sequence[FigureChange]]]) -> Sheet:
    headings = ("differs", "of", "figure", "*before", "*after", "unit")
    return Sheet(headings, [_delta(name, d) for name, deltas in groups for d in deltas])


def _delta(name: str, d: FigureChange) -> Row:
    style = STYLES[d.severity] if d.severity is not Level.INFO else ""
    return Row((name, visible(d.subject), visible(d.figure), _number(d.before), _number(d.after), visible(d.unit)), style)


def _number(value: float | str | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, (int, float)) else visible(value)


def _findings(word: str, findings: Sequence[Finding]) -> list[Any]:
    def line(f: Finding) -> Text:
        sentence = visible(f"{f.path}: {f.message}" if f.path else f.message)
        return Text.assemble((f"{word:<5}", "bold"), (f"{f.level:<8}", STYLES[f.level]), (visible(f"[{f.id}] "), "dim"), sentence)

    return [line(f) for f in findings]
