"""Plans as Markdown for a comment on GitHub: the verdict first, and never longer than a comment may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..document.capacity import EngineCapacity, Fit
from ..document.cost import Cost, RoleCost
from ..document.difference import Change, Difference, FigureChange
from ..document.plan import PlanDocument
from ..document.resource import STACK_TYPE
from ..errors import Finding, Level
from ..recording.plan import Plan
from . import figures
from .figures import OP_WORDS, figure, idle_nodes, notes_of, price_of, role_prices, step, traffic_lines, usd, with_bars
from .markup import code, fenced, prose
from .view import counted
from .words import short_type, values_of

COMMENT = 65_536
"""What a comment on GitHub may hold, in characters; counted here in bytes of UTF-8, which are never fewer."""
MARGIN = 1_536
"""Room for the mark by which a workflow finds its comment again."""
NOTE = 900
"""Room for what is said about cuts."""
SUMMARY = 40_000
"""Room for the table of several stacks."""
DETAILS = 4_000
"""Room without which details of a stack are left out: a verdict and its worst checks and changes."""
ALERTS = {Level.ERROR: "CAUTION", Level.WARNING: "WARNING", Level.INFO: "NOTE"}
LEVEL_WORDS = {Level.ERROR: "**error**", Level.WARNING: "warning", Level.INFO: "note"}
MOST_PATHS = 6
MESSAGE = 900


@dataclass(frozen=True)
class Part:
    """A piece of the plan: rows, the worst first, between a head and a foot. A low `rank` is kept longest, `noun` names the rows."""

    rank: int
    noun: str
    head: Sequence[str]
    rows: Sequence[str]
    foot: Sequence[str] = ()


def render_markdown(plans: Sequence[Plan]) -> str:
    """All plans in one text that a comment can hold; what does not fit is cut, the least important first, and counted.

    Several begin with a table of all; details follow, the worst stack first, as far as there is room.
    """
    if len(plans) == 1:
        return _fit(_parts(plans[0]), COMMENT - MARGIN, plans[0].stack)[0] + "\n"
    overview = figures.overview(plans)
    ordered = [line.plan for line in overview]
    summary = _summary(overview)
    left = COMMENT - MARGIN - NOTE - _size([summary])
    parts, wanted = [], 0
    for plan in ordered:
        found = _parts(plan)
        wanted += min(_size([line for p in found for line in (*p.head, *p.rows, *p.foot)]), DETAILS)
        if wanted > left:
            break
        parts.append(found)
    written: dict[int, str] = {}
    by_size = sorted(range(len(parts)), key=lambda i: sum(_size([*p.head, *p.rows, *p.foot]) for p in parts[i]))
    for position, i in enumerate(by_size):
        written[i], used = _fit(parts[i], left // (len(parts) - position), ordered[i].stack)
        left -= used
    lost = len(plans) - len(parts)
    tail = [f"> Cut to fit a comment: details of {counted(lost, 'stack')}. `disagg plan --all --format html` shows all."] if lost else []
    return "\n\n".join([summary, *(written[i] for i in sorted(written)), *tail]) + "\n"


def _summary(lines: Sequence[figures.Line]) -> str:
    """A table of all stacks, a short line each; hundreds fit, and what would be beyond even that is counted."""
    rows, left = [], SUMMARY
    for line in lines:
        level = line.verdict.level
        cells = [code(line.plan.stack, 80), LEVEL_WORDS[level] if level is not Level.INFO else "ok", prose(line.verdict.sentence)]
        row = _row([*cells, str(line.errors), str(line.warnings), line.changes, line.price])
        left -= _size([row])
        if left < 0:
            break
        rows.append(row)
    beyond = len(lines) - len(rows)
    more = ["", f"and {counted(beyond, 'more stack')}, none of them worse"] if beyond else []
    head = _table(["stack", "", "verdict", "*errors", "*warnings", "changes", "*USD a month"])
    return "\n".join([f"## {counted(len(lines), 'stack')}", "", *head, *rows, *more])


def _fit(parts: Sequence[Part], room: int, stack: str) -> tuple[str, int]:
    """The parts in their order, with as many rows as there is room for; an empty text when not even the verdict has room."""
    kept: dict[int, str] = {}
    cuts: list[str] = []
    whole = sum(_size([*p.head, *p.rows, *p.foot]) for p in parts)
    left = room if whole <= room else room - NOTE
    for i, part in sorted(enumerate(parts), key=lambda p: p[1].rank):
        frame = _size([*part.head, *part.foot])
        rows: list[str] = []
        size = frame
        for row in part.rows:
            if size + _size([row]) > left:
                break
            rows.append(row)
            size += _size([row])
        if frame <= left and (rows or not part.rows):
            kept[i] = "\n".join([*part.head, *rows, *part.foot])
            left -= size
        missing = len(part.rows) - len(rows) if i in kept else max(len(part.rows), 1)
        if missing:
            cuts.append(f"{missing:,} of {len(part.rows):,} {part.noun}" if len(part.rows) > 1 else part.noun)
    if 0 not in kept:
        return "", 0
    note = f"> Cut to fit a comment: {', '.join(cuts)}. {code(f'disagg plan {stack} --format html', 120)} shows all."
    text = "\n".join([*(kept[i] for i in sorted(kept)), *([note] if cuts else [])])
    return text, _size([text])


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)


def _parts(plan: Plan) -> list[Part]:
    new = {(f.id, f.path, f.message) for f in plan.difference.checks.new} if plan.difference else None
    worst = [f for f in plan.checks if f.level is not Level.INFO]
    notes = [f for f in plan.checks if f.level is Level.INFO]
    parts = [_verdict(plan)]
    if plan.difference:
        parts += _difference(plan.changes, plan.difference)
    if worst:
        parts.append(Part(2, "errors and warnings", ["### Checks", "", *_check_head(new)], [_check(f, new) for f in worst], [""]))
    if notes:
        parts.append(_folded(f"Notes ({len(notes)})", Part(6, "notes", _check_head(new), [_check(f, new) for f in notes])))
    if plan.layout:
        parts += [_topology(plan), _placement(plan), *_memory(plan), *_traffic(plan), *_cost(plan.cost), *_scaling(plan)]
    if plan.resources:
        parts.append(_resources(plan))
    return parts


def _folded(title: str, part: Part) -> Part:
    """A part that opens on a click; the title is the project's own words."""
    head = [f"<details><summary>{title}</summary>", "", *part.head]
    return replace(part, head=head, foot=[*part.foot, "", "</details>", ""])


def _table(columns: Sequence[str], numbers: int = 0) -> list[str]:
    """Head of a table whose last `numbers` columns are aligned on their digits; a `*` before a name aligns that one."""
    names = [c.removeprefix("*") for c in columns]
    right = [c.startswith("*") or i >= len(columns) - numbers for i, c in enumerate(columns)]
    return [_row(names), _row(["---:" if r else "---" for r in right])]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _verdict(plan: Plan) -> Part:
    verdict = figures.verdict_of(plan)
    rows = [_row([f"**{f.name}**", f"**{prose(f.value)}**" if f.level else prose(f.value), prose(f.detail)]) for f in verdict.facts]
    notes = [line for note in plan.difference.notes for line in (">", f"> {prose(note)}")] if plan.difference else []
    since = f" since {code(plan.difference.base, 80)}" if plan.difference else ""
    head = [f"## Plan of {code(plan.stack, 80)}{since}", "", f"> [!{ALERTS[verdict.level]}]", f"> **{prose(verdict.sentence)}**", *notes, ""]
    return Part(0, "the verdict", [*head, "| | | |", "|---|---|---|", *rows, ""], [])


def _difference(changes: Sequence[Change], difference: Difference) -> list[Part]:
    grave = [c for c in changes if c.severity is not Level.INFO]
    mild = [c for c in changes if c.severity is Level.INFO]
    deltas = [*difference.placement, *difference.capacity, *difference.cost]
    gone = difference.checks.gone
    parts = []
    if grave:
        parts.append(Part(1, "changes to look at", ["### Changes", ""], [_change(c) for c in grave], [""]))
    if deltas:
        rows = [_delta(d) for d in sorted(deltas, key=lambda d: d.severity.rank)]
        head = ["### Figures that differ", "", *_table(["of", "figure", "before", "after", "change"], 3)]
        parts.append(Part(3, "figures that differ", head, rows, [""]))
    if mild:
        title = f"{'Other changes' if grave else 'Changes'} ({len(mild)})"
        parts.append(_folded(title, Part(3, "other changes", [], [_change(c) for c in mild])))
    if gone:
        parts.append(
            _folded(f"Findings that are gone ({len(gone)})", Part(4, "findings that are gone", _check_head(None), [_check(f, None) for f in gone]))
        )
    return parts


def _change(change: Change) -> str:
    former = f", formerly {code(change.former.rpartition('::')[2])}" if change.former else ""
    weight = f"{LEVEL_WORDS[change.severity]}, " if change.severity is not Level.INFO else ""
    mark = f"{weight}{OP_WORDS[change.op]}"
    effect = f": {prose(change.effect, MESSAGE)}" if change.effect else ""
    lines = [f"- {mark} {code(short_type(change.type), 120)} {code(change.name, 160)}{former}{effect}"]
    for path in change.paths[:MOST_PATHS]:
        forced = ", **forces the replacement**" if path.forces_replacement else ""
        before, after = values_of(path)
        lines.append(f"  - {code(path.path, 160)}: {code(before)} → {code(after)}{forced}")
    if len(change.paths) > MOST_PATHS:
        lines.append(f"  - and {len(change.paths) - MOST_PATHS:,} more paths")
    return "\n".join(lines)


def _delta(delta: FigureChange) -> str:
    mark = "**" if delta.severity is not Level.INFO else ""
    unit = f" {prose(delta.unit, 40)}" if delta.unit else ""
    values = [prose(figure(delta.before), 80), f"{mark}{prose(figure(delta.after), 80)}{mark}", step(delta)]
    return _row([code(delta.subject, 160), prose(delta.figure, 80) + unit, *values])


def _check_head(new: object) -> list[str]:
    return _table(["level", "rule", "finding", *(["since the base"] if new is not None else [])])


def _check(finding: Finding, new: set[tuple[str, str, str]] | None) -> str:
    place = f"{code(finding.path, 160)}: " if finding.path else ""
    cells = [LEVEL_WORDS[finding.level], code(finding.id), place + prose(finding.reason(), MESSAGE)]
    if new is not None:
        cells.append("**new**" if (finding.id, finding.path, finding.message) in new else "")
    return _row(cells)


def _topology(plan: PlanDocument) -> Part:
    return Part(3, "the picture", ["### Topology", "", *fenced(plan.topology, "mermaid"), ""], [])


def _placement(plan: PlanDocument) -> Part:
    rows = []
    for pool in plan.placement:
        cells = [code(pool.pool, 160), code(pool.instance_type)]
        for i, node in enumerate(pool.nodes, 1):
            names = ", ".join(code(p, 80) for p in node.pods)
            rows.append(_row([*cells, str(i), names, str(node.idle_gpus), str(node.idle_efa)]))
        if pool.idle_nodes:
            rows.append(_row([*cells, "idle", idle_nodes(pool.idle_nodes), "", ""]))
        if pool.unplaced:
            rows.insert(0, _row([*cells, "**none**", ", ".join(code(p, 80) for p in pool.unplaced[:20]), "", ""]))
    head = ["### Placement", "", *_table(["pool", "instance type", "*node", "pods", "*idle GPUs", "*idle EFA"])]
    return Part(4, "nodes", head, rows, [""])


def _memory(plan: PlanDocument) -> list[Part]:
    if not plan.capacity:
        return []
    columns = ["engine", "budget", "weights", "overhead", "KV cache (low-high)", "tokens", "longest requests (low-high)", "mean requests"]
    rows = [_memory_row(e) for e in plan.capacity]
    note = (
        "GiB a GPU; tokens and requests of one engine, of maxModelLen and of the workload's mean length. Estimates: `disagg fit --explain` shows how."
    )
    return [Part(4, "engines", ["### Memory", "", *_table(columns, 7)], rows, ["", note, ""])]


def _memory_row(engine: EngineCapacity) -> str:
    gib, mean = engine.per_gpu, engine.workload_concurrency
    kv = with_bars(gib.kv_gib)
    figures_ = [f"{gib.budget_gib:.1f}", f"{gib.weights_gib.mid:.1f}", f"{gib.overhead_gib.mid:.1f}"]
    cells = [*figures_, kv if engine.fits is not Fit.NO else f"**{kv}**", f"{engine.kv_tokens.mid:,.0f}", with_bars(engine.max_concurrency)]
    return _row([code(engine.engine, 160), *cells, f"{mean.mid:.1f}" if mean else ""])


def _traffic(plan: PlanDocument) -> list[Part]:
    rows = []
    for forecast in plan.forecast:
        first, *others = traffic_lines(forecast)
        rows.append("\n".join([f"- {prose(first, MESSAGE)}", *(f"  - {prose(line, MESSAGE)}" for line in others)]))
    return [Part(5, "models' traffic", ["### Traffic", ""], rows, [""])] if rows else []


def _cost(cost: Cost) -> list[Part]:
    rows = [_row([prose(c.item), str(c.quantity), usd(c.per_hour), usd(c.per_month), prose(price_of(c))]) for c in cost.lines]
    total = "total" if cost.complete else "total of what is known"
    sums = _row([f"**{total}**", "", f"**{usd(cost.per_hour)}**", f"**{usd(cost.per_month)}**", ""])
    notes = dict.fromkeys(f"- {prose(c.item)}: {prose(c.note)}" for c in cost.lines if c.note)
    head = [*_table(["what", "*number", "*USD an hour", "*USD a month", "price of"]), sums]
    title = f"Cost: {usd(cost.per_hour)} USD an hour, {cost.per_month:,.0f} a month"
    lines = _folded(title, Part(5, "lines of cost", head, rows, ["", *list(notes)[:12]]))
    columns = ["share of a role", "GPUs", "on demand USD an hour", "USD a month", "Capacity Block USD an hour", "USD a month"]
    roles = [_role_cost(role) for role in cost.roles]
    return [lines, _folded("Cost of each role", Part(6, "shares of roles", _table(columns, 5), roles))] if roles else [lines]


def _scaling(plan: PlanDocument) -> list[Part]:
    scaling = plan.autoscaling
    if not scaling.roles:
        return []
    rows = [_row([code(cells[0], 160), *(prose(cell) for cell in cells[1:])]) for cells in map(figures.scaling_cells, scaling.roles)]
    head = ["### Autoscaling", "", *_table(figures.SCALING, len(figures.SCALING) - 1)]
    return [Part(4, "scaled roles", head, rows, ["", prose(figures.at_most(scaling), MESSAGE), ""])]


def _role_cost(role: RoleCost) -> str:
    return _row([code(role.engine, 160), str(role.gpus), *role_prices(role)])


def _resources(plan: PlanDocument) -> Part:
    shown = sorted(plan.resources, key=lambda r: (r.real, short_type(r.type), r.name))
    resources = [r for r in shown if r.type != STACK_TYPE]
    rows = [_row([code(short_type(r.type), 120), code(r.name, 160), prose(", ".join(notes_of(r)))]) for r in resources]
    return _folded(f"Resources ({len(rows):,})", Part(7, "resources", _table(["type", "name", ""]), rows))
