"""Plans and findings for a terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from ..document.capacity import EngineCapacity
from ..document.cost import Cost, RoleCost
from ..document.placement import Autoscaling, PlacedPool
from ..document.resource import STACK_TYPE, Resource
from ..document.traffic import Forecast
from ..errors import Finding, Level, visible
from ..recording.plan import Plan
from .changes import difference_parts
from .figures import (
    ENGINE_NOTE,
    SCALING,
    Line,
    at_most,
    callbacks_of,
    idle_nodes,
    notes_of,
    overview,
    price_of,
    role_prices,
    scaling_cells,
    traffic_lines,
    usd,
    with_bars,
)
from .words import STYLES, short_type

PLAIN_WIDTH = 120


def render_text(plans: Sequence[Plan], *, color: bool, width: int | None = None) -> str:
    """All plans, several below a table of all and the worst first; colours only where `color`, and no wider than the terminal."""
    lines = overview(plans) if len(plans) > 1 else []
    ordered = [line.plan for line in lines] or plans
    return to_text(Group(*_overview(lines), *(part for plan in ordered for part in _plan(plan))), color=color, width=width)


def render_findings(findings: Sequence[Finding], *, color: bool, width: int | None = None) -> str:
    """Findings and their count."""
    return to_text(Group(*_findings(findings)), color=color, width=width)


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
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    table.add_column("stack", overflow="fold")
    table.add_column("verdict", overflow="fold")
    table.add_column("changes", overflow="fold")
    table.add_column("USD a month", justify="right", no_wrap=True)
    for line in lines:
        sentence = Text(visible(line.verdict.sentence), STYLES[line.verdict.level] if line.verdict.level is not Level.INFO else "")
        table.add_row(visible(line.plan.stack), sentence, line.changes, line.price)
    return [table, Text("")]


def _plan(plan: Plan) -> list[Any]:
    parts: list[Any] = [Text(visible(f"{plan.project} / {plan.stack}"), style="bold"), Text("")]
    if plan.difference is not None:
        parts += difference_parts(plan, plan.difference)
    elif plan.resources:
        parts += [Text(f"Resources ({len(plan.resources)})", style="bold"), _resources(plan), Text("")]
    else:
        parts += [Text("Resources: none, the checks below stop before any is declared", style="bold"), Text("")]
    if callbacks := callbacks_of(plan):
        parts += [Text(f"Left to the engine: {callbacks}, {ENGINE_NOTE}"), Text("")]
    if plan.placement:
        parts += [Text("Placement", style="bold"), *_placement(plan.placement), Text("")]
        parts += [Text("Memory", style="bold"), *_memory(plan.capacity), Text("")] if plan.capacity else []
        parts += [Text("Traffic", style="bold"), *_traffic(plan.forecast), Text("")] if plan.forecast else []
        parts += [Text("Cost", style="bold"), *_cost(plan.cost), Text("")]
        parts += [Text("Autoscaling", style="bold"), *_scaling(plan.autoscaling), Text("")] if plan.autoscaling.roles else []
    return [*parts, Text("Checks", style="bold"), *_findings(plan.checks), Text("")]


def _resources(plan: Plan) -> Tree:
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
        parts.append(Text.assemble((pool.pool, "green"), f"  {len(pool.nodes)} x {pool.instance_type}"))
        for i, node in enumerate(pool.nodes, 1):
            idle = f"idle {node.idle_gpus} GPU, {node.idle_efa} EFA"
            parts.append(Padding(Text(f"node {i}: {idle}"), (0, 0, 0, 2)))
            parts.append(Padding(Text(", ".join(node.pods)), (0, 0, 0, 4)))
        if pool.idle_nodes:
            parts.append(Padding(Text(idle_nodes(pool.idle_nodes)), (0, 0, 0, 2)))
        if pool.unplaced:
            parts.append(Padding(Text(f"on no node: {', '.join(pool.unplaced)}", style="bold red"), (0, 0, 0, 2)))
    return parts


def _memory(engines: Sequence[EngineCapacity]) -> list[Any]:
    """Estimates with their error bars: GiB a GPU, tokens and requests of one engine."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    table.add_column("engine", overflow="fold")
    for heading in ("budget", "weights", "overhead", "KV cache", "tokens", "requests: longest", "mean"):
        table.add_column(heading, justify="right", no_wrap=True)
    for e in engines:
        gib, mean = e.per_gpu, e.workload_concurrency
        plain = [f"{gib.budget_gib:.1f}", f"{gib.weights_gib.mid:.1f}", f"{gib.overhead_gib.mid:.1f}"]
        table.add_row(
            e.engine,
            *plain,
            with_bars(gib.kv_gib),
            f"{e.kv_tokens.mid:,.0f}",
            with_bars(e.max_concurrency),
            f"{mean.mid:.1f}" if mean else "",
        )
    note = (
        "GiB a GPU, tokens and requests of one engine (of maxModelLen, and of the workload's mean length): estimates, low and high in brackets; "
        "`disagg fit --explain` shows how"
    )
    return [table, Padding(Text(note, style="dim"), (0, 0, 0, 1))]


def _traffic(forecasts: Sequence[Forecast]) -> list[Any]:
    lines = [f"  {line}" if i else line for f in forecasts for i, line in enumerate(traffic_lines(f))]
    return [Padding(Text(line), (0, 0, 0, 1)) for line in lines]


def _cost(cost: Cost) -> list[Any]:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    table.add_column("what", overflow="fold")
    for heading in ("number", "USD/h", "USD/month"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("price of", no_wrap=True)
    for line in cost.lines:
        table.add_row(line.item, str(line.quantity), usd(line.per_hour), usd(line.per_month), price_of(line))
    table.add_section()
    table.add_row("total" if cost.complete else "total of what is known", "", usd(cost.per_hour), usd(cost.per_month), "", style="bold")
    notes = dict.fromkeys(f"{line.item}: {line.note}" for line in cost.lines if line.note)
    return [table, *(Padding(Text(note, style="dim"), (0, 0, 0, 1)) for note in notes), *_role_costs(cost.roles)]


def _scaling(scaling: Autoscaling) -> list[Any]:
    """Bounds and signals of scaled roles, then nodes and cost at most: what stands above is at least."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    table.add_column(SCALING[0], overflow="fold")
    for heading in SCALING[1:]:
        table.add_column(heading, justify="right")
    for r in scaling.roles:
        table.add_row(*scaling_cells(r))
    return [table, Padding(Text(at_most(scaling)), (0, 0, 0, 1))]


def _role_costs(roles: Sequence[RoleCost]) -> list[Any]:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    table.add_column("share of a role", overflow="fold")
    for heading in ("GPUs", "on demand USD/h", "USD/month", "Capacity Block USD/h", "USD/month", "price of"):
        table.add_column(heading, justify="right")
    for role in roles:
        table.add_row(role.engine, str(role.gpus), *role_prices(role), role.capacity_block.as_of if role.capacity_block else "")
    return [Text(""), table] if roles else []


def _findings(findings: Sequence[Finding]) -> list[Any]:
    if not findings:
        return [Text("all checks passed", style="green")]
    parts: list[Any] = []
    for f in findings:
        parts.append(Text.assemble((f"{f.level:<8}", STYLES[f.level]), (f.id, "dim")))
        parts.append(Padding(Text(f.sentence()), (0, 0, 0, 8)))
    counts = {level: sum(f.level is level for f in findings) for level in Level}
    total = ", ".join(f"{n} {level if n == 1 or level is Level.INFO else level + 's'}" for level, n in counts.items() if n)
    return [*parts, Text(""), Text(total, style="bold")]
