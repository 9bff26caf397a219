"""Plans and findings for a terminal."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.text import Text
from rich.tree import Tree

from ..document.capacity import EngineCapacity
from ..document.cost import Cost, RoleCost
from ..document.placement import Autoscaling, PlacedPool
from ..document.resource import STACK_TYPE, Resource
from ..document.traffic import Forecast
from ..errors import Finding, Level, visible
from ..recording.plan import Plan
from .bars import Bar, BarChart
from .changes import difference_parts
from .figures import (
    ENGINE_NOTE,
    SCALING,
    Line,
    at_most,
    callbacks_of,
    cost_step,
    idle_nodes,
    notes_of,
    overview,
    price_of,
    resource_kinds,
    role_prices,
    scaling_cells,
    traffic_lines,
    usd,
    verdict_of,
    with_bars,
)
from .findings import finding_parts
from .sheets import Row, Sheet
from .spots import Spots
from .view import FindingView, counted
from .words import STYLES, short_type

PLAIN_WIDTH = 120


@dataclass(frozen=True)
class Shown:
    """What a reader wants to see of plans; neither verdict nor exit code depends on it."""

    resources: bool = False
    """The tree of resources, instead of their number by kind."""
    verdict: bool = False
    """Nothing but the verdict and findings."""
    findings: FindingView = field(default_factory=FindingView)


def render_text(  # noqa: PLR0913 (plans, and how a reader wants to see them)
    plans: Sequence[Plan],
    *,
    color: bool,
    width: int | None = None,
    shown: Shown | None = None,
    files: Mapping[str, Path] | None = None,
    ending: str = "",
) -> str:
    """All plans, several below a table of all and the worst first, then `ending`; colours only where `color`, no wider than the terminal.

    `files` are the stack files by stack, in which findings name their line.
    """
    lines = overview(plans) if len(plans) > 1 else []
    ordered = [line.plan for line in lines] or plans
    parts = [part for plan in ordered for part in (*_plan(plan, shown or Shown(), Spots((files or {}).get(plan.stack))), Text(""))]
    return to_text(Group(*_overview(lines), *parts[:-1], *([Text(ending, style="bold")] if ending else [])), color=color, width=width)


def render_findings(findings: Sequence[Finding], spots: Spots, view: FindingView, *, color: bool, width: int | None = None) -> str:
    """Findings and their count."""
    return to_text(Group(*finding_parts(findings, spots, view)), color=color, width=width)


def to_text(what: Any, *, color: bool, width: int | None) -> str:
    """Something of rich as text, without spaces at the ends of lines, and without signs that move the cursor, whatever a stack file holds."""
    out = io.StringIO()
    console = Console(file=out, width=width or PLAIN_WIDTH, force_terminal=color, no_color=None if color else True, highlight=False, emoji=False)
    shown = [Segment("\n".join(visible(line) for line in s.text.split("\n")), s.style) for s in console.render(what) if not s.control]
    console.print(Segments(shown), crop=False, end="")
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _overview(lines: Sequence[Line]) -> list[Any]:
    if not lines:
        return []
    rows = [_overview_row(line) for line in lines]
    return [Sheet(("stack", "verdict", "changes", "*USD a month"), rows), Text("")]


def _overview_row(line: Line) -> Row:
    style = STYLES[line.verdict.level] if line.verdict.level is not Level.INFO else ""
    return Row((visible(line.plan.stack), visible(line.verdict.sentence), line.changes, line.price), style)


def _plan(plan: Plan, shown: Shown, spots: Spots) -> list[Any]:
    if shown.verdict:
        return [headline(plan), *finding_parts(plan.checks, spots, shown.findings)]
    parts: list[Any] = [headline(plan), Text("")]
    if plan.difference is not None:
        parts += difference_parts(plan, plan.difference)
    if plan.placement:
        parts += [Text("Placement", style="bold"), *_placement(plan.placement), Text("")]
        parts += [Text("Memory", style="bold"), *_memory(plan.capacity), Text("")] if plan.capacity else []
        parts += [Text("Traffic", style="bold"), *_traffic(plan.forecast), Text("")] if plan.forecast else []
        parts += [Text("Cost", style="bold"), *_cost(plan.cost), Text("")]
        parts += [Text("Autoscaling", style="bold"), *_scaling(plan.autoscaling), Text("")] if plan.autoscaling.roles else []
    if plan.difference is None:
        parts += [*_resources(plan, tree=shown.resources), Text("")]
    if callbacks := callbacks_of(plan):
        parts += [Text(f"Not simulated: {callbacks} of the program ({ENGINE_NOTE})"), Text("")]
    return [*parts, Text("Checks", style="bold"), *finding_parts(plan.checks, spots, shown.findings)]


def headline(plan: Plan) -> Text:
    """The verdict in one line: whether the stack can be deployed, where its pods land, what it costs and, beside a base, what changes."""
    verdict = verdict_of(plan)
    facts = {fact.name: fact for fact in verdict.facts}
    more = [facts[name].value for name in ("Fits", "Costs") if name in facts]
    if "Costs" in facts and (change := cost_step(plan)):
        more[-1] += f" ({change})"
    if "Changes" in facts:
        more.insert(0, facts["Changes"].value if facts["Changes"].value != "none" else "no changes")
    style = STYLES[verdict.level] if verdict.level is not Level.INFO else "bold green"
    return Text.assemble((visible(f"{plan.stack}: "), "bold"), (visible(verdict.sentence), style), visible("".join(f"; {m}" for m in more)))


def _resources(plan: Plan, *, tree: bool) -> list[Any]:
    if not plan.resources:
        return [Text("Resources: none, the checks stop before any is declared")]
    if tree:
        return [Text(f"Resources ({len(plan.resources)})", style="bold"), _tree(plan)]
    return [Text(f"{counted(len(plan.resources), 'resource')}: {resource_kinds(plan)} (--resources shows them)")]


def _tree(plan: Plan) -> Tree:
    root = Tree(Text("pulumi:pulumi:Stack", style="dim"), guide_style="dim")
    stack = next((r.urn for r in plan.resources if r.type == STACK_TYPE), None)
    _branch(root, plan, stack)
    return root


def _branch(tree: Tree, plan: Plan, parent: str | None) -> None:
    children = sorted(plan.graph.children(parent), key=lambda r: (not r.real, short_type(r.type), r.name))
    leaves = [r for r in children if r.real]
    for kind in sorted({short_type(r.type) for r in leaves}):
        for r in (x for x in leaves if short_type(x.type) == kind):
            tree.add(_label(r))
    for r in (x for x in children if x not in leaves):
        _branch(tree.add(_label(r)), plan, r.urn)


def _label(r: Resource) -> Text:
    text = Text.assemble((short_type(r.type), "" if r.real else "bold"), " ", (visible(r.name), "green"))
    if notes := notes_of(r):
        text.append(f"  ({', '.join(notes)})", style="dim")
    return text


def _placement(pools: Sequence[PlacedPool]) -> list[Any]:
    parts: list[Any] = []
    for pool in pools:
        parts.append(Text.assemble(" ", (pool.pool, "green"), f"  {len(pool.nodes)} x {pool.instance_type}"))
        for i, node in enumerate(pool.nodes, 1):
            idle = f"; idle: {counted(node.idle_gpus, 'GPU')}, {node.idle_efa} EFA" if node.idle_gpus or node.idle_efa else ""
            parts.append(Padding(Text(f"node {i}: {', '.join(node.pods)}{idle}"), (0, 0, 0, 3)))
        if pool.idle_nodes:
            parts.append(Padding(Text(idle_nodes(pool.idle_nodes)), (0, 0, 0, 3)))
        if pool.unplaced:
            parts.append(Padding(Text(f"on no node: {', '.join(pool.unplaced)}", style="bold red"), (0, 0, 0, 3)))
    return parts


def _memory(engines: Sequence[EngineCapacity]) -> list[Any]:
    """Estimates with their error bars: GiB a GPU, tokens and requests of one engine."""
    headings = ("engine", "*budget", "*weights", "*overhead", "*KV cache", "*tokens", "*requests: longest", "*mean")
    note = "GiB a GPU; tokens and requests of one engine. Estimates, low and high in brackets; `disagg fit --explain` shows how."
    return [Sheet(headings, [_memory_row(e) for e in engines]), *_memory_bars(engines), Padding(Text(note, style="dim"), (0, 0, 0, 1))]


def _memory_row(e: EngineCapacity) -> Row:
    gib, mean = e.per_gpu, e.workload_concurrency
    plain = [f"{x:.1f}" for x in (gib.budget_gib, gib.weights_gib.mid, gib.overhead_gib.mid)]
    return Row((e.engine, *plain, with_bars(gib.kv_gib), f"{e.kv_tokens.mid:,.0f}", with_bars(e.max_concurrency), f"{mean.mid:.1f}" if mean else ""))


def _memory_bars(engines: Sequence[EngineCapacity]) -> list[Any]:
    """How the memory of a GPU is shared, on the scale of the largest budget."""
    bars = []
    for e in engines:
        gib = e.per_gpu
        parts = (("█", gib.weights_gib.mid), ("▒", gib.overhead_gib.mid), ("░", gib.kv_gib.low), ("·", gib.kv_gib.high - gib.kv_gib.low))
        bars.append(Bar(e.engine, parts))
    legend = Text(" █ weights  ▒ overhead  ░ KV cache at least  · KV cache at most", style="dim")
    return [legend, BarChart(bars, max(e.per_gpu.budget_gib for e in engines))]


def _traffic(forecasts: Sequence[Forecast]) -> list[Any]:
    lines = [f"  {line}" if i else line for f in forecasts for i, line in enumerate(traffic_lines(f))]
    return [Padding(Text(line), (0, 0, 0, 1)) for line in lines]


def _cost(cost: Cost) -> list[Any]:
    rows = [Row((line.item, str(line.quantity), usd(line.per_hour), usd(line.per_month), price_of(line))) for line in cost.lines]
    total = "total" if cost.complete else "total of what is known"
    rows.append(Row((total, "", usd(cost.per_hour), usd(cost.per_month), ""), "bold", last=True))
    notes = dict.fromkeys(f"{line.item}: {line.note}" for line in cost.lines if line.note)
    sheet = Sheet(("what", "*number", "*USD/h", "*USD/month", "price of"), rows)
    return [sheet, *(Padding(Text(note, style="dim"), (0, 0, 0, 1)) for note in notes), *_role_costs(cost.roles)]


def _scaling(scaling: Autoscaling) -> list[Any]:
    """Bounds and signals of scaled roles, then nodes and cost at most: what stands above is at least."""
    return [Sheet(SCALING, [Row(scaling_cells(r)) for r in scaling.roles]), Padding(Text(at_most(scaling)), (0, 0, 0, 1))]


def _role_costs(roles: Sequence[RoleCost]) -> list[Any]:
    headings = ("share of a role", "*GPUs", "*on demand USD/h", "*USD/month", "*Capacity Block USD/h", "*USD/month", "*price of")
    rows = [Row((r.engine, str(r.gpus), *role_prices(r), r.capacity_block.as_of if r.capacity_block else "")) for r in roles]
    bars = [Bar(r.engine, [("█", r.on_demand.per_hour)], f"{usd(r.on_demand.per_hour)} USD/h") for r in roles if r.on_demand]
    return [Text(""), Sheet(headings, rows), *([BarChart(bars)] if len(bars) > 1 else [])] if roles else []
