"""Plans and findings for a terminal."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from ...errors import Finding, Level
from ..graph import Resource
from ..plan import Plan

STYLES = {Level.ERROR: "bold red", Level.WARNING: "yellow", Level.INFO: "cyan"}
PLAIN_WIDTH = 120
REMOTE_NOTE = "expanded by the engine"


def render_text(plans: Sequence[Plan], *, color: bool, width: int | None = None) -> str:
    """All plans; colours only where `color`, and no wider than the terminal."""
    return to_text(Group(*(part for plan in plans for part in _plan(plan))), color=color, width=width)


def render_findings(findings: Sequence[Finding], *, color: bool, width: int | None = None) -> str:
    """Findings and their count."""
    return to_text(Group(*_findings(findings)), color=color, width=width)


def to_text(what: Any, *, color: bool, width: int | None) -> str:
    """Something of rich as text, without spaces at the ends of lines."""
    out = io.StringIO()
    console = Console(file=out, width=width or PLAIN_WIDTH, force_terminal=color, no_color=None if color else True, highlight=False, emoji=False)
    console.print(what)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _plan(plan: Plan) -> list[Any]:
    data = plan.as_dict()
    parts: list[Any] = [Text(f"{plan.project} / {plan.stack}", style="bold"), Text("")]
    if plan.graph.resources:
        parts += [Text(f"Resources ({len(plan.graph.resources)})", style="bold"), _resources(plan), Text("")]
    else:
        parts += [Text("Resources: none, the checks below stop before any is declared", style="bold"), Text("")]
    if data["placement"]:
        parts += [Text("Placement", style="bold"), *_placement(data["placement"]), Text("")]
        parts += [Text("Memory", style="bold"), *_memory(data["capacity"]), Text("")] if data["capacity"] else []
        parts += [Text("Traffic", style="bold"), *_traffic(data["forecast"]), Text("")] if data["forecast"] else []
        parts += [Text("Cost", style="bold"), *_cost(data["cost"]), Text("")]
    return [*parts, Text("Checks", style="bold"), *_findings(plan.findings), Text("")]


def _resources(plan: Plan) -> Tree:
    root = Tree(Text("pulumi:pulumi:Stack", style="dim"), guide_style="dim")
    stack = next((r.urn for r in plan.graph.resources.values() if r.type == "pulumi:pulumi:Stack"), None)
    _branch(root, plan, stack)
    return root


def _branch(tree: Tree, plan: Plan, parent: str | None) -> None:
    children = sorted(plan.graph.children(parent), key=lambda r: (not r.custom and not r.remote, _short(r.type), r.name))
    leaves = [r for r in children if r.custom or r.remote]
    for kind in sorted({_short(r.type) for r in leaves}):
        for r in (x for x in leaves if _short(x.type) == kind):
            tree.add(_label(r))
    for r in (x for x in children if x not in leaves):
        _branch(tree.add(_label(r)), plan, r.urn)


def _label(r: Resource) -> Text:
    text = Text.assemble((_short(r.type), "" if r.custom or r.remote else "bold"), " ", (r.name, "green"))
    notes = [word for word, on in (("protected", r.options.get("protect")), (REMOTE_NOTE, r.remote)) if on]
    if notes:
        text.append(f"  ({', '.join(notes)})", style="dim")
    return text


def _short(type_token: str) -> str:
    package, *_, name = type_token.split(":")
    return f"{'' if package in ('disagg-serving', 'kubernetes') else package + ' '}{name}"


def _placement(pools: Sequence[dict[str, Any]]) -> list[Any]:
    parts: list[Any] = []
    for pool in pools:
        nodes = len(pool["nodes"])
        parts.append(Text.assemble((pool["pool"], "green"), f"  {nodes} x {pool['instanceType']}"))
        for i, node in enumerate(pool["nodes"], 1):
            idle = f"idle {node['idleGpus']} GPU, {node['idleEfa']} EFA"
            parts.append(Padding(Text(f"node {i}: {idle}"), (0, 0, 0, 2)))
            parts.append(Padding(Text(", ".join(node["pods"])), (0, 0, 0, 4)))
        if "unplaced" in pool:
            parts.append(Padding(Text(f"on no node: {', '.join(pool['unplaced'])}", style="bold red"), (0, 0, 0, 2)))
    return parts


def _memory(entries: Sequence[dict[str, Any]]) -> list[Any]:
    """Estimates with their error bars: GiB a GPU, tokens and requests of one engine."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    table.add_column("engine", overflow="fold")
    for heading in ("budget", "weights", "overhead", "KV cache", "tokens", "requests: longest", "mean"):
        table.add_column(heading, justify="right", no_wrap=True)
    for e in entries:
        gib, tokens, requests, mean = e["perGpu"], e["kvTokens"], e["maxConcurrency"], e.get("workloadConcurrency")
        plain = [f"{gib['budgetGiB']:.1f}", f"{gib['weightsGiB']['mid']:.1f}", f"{gib['overheadGiB']['mid']:.1f}"]
        table.add_row(
            f"{e['model']} {e['role']}", *plain, _bars(gib["kvGiB"]), f"{tokens['mid']:,.0f}", _bars(requests), f"{mean['mid']:.1f}" if mean else ""
        )
    note = (
        "GiB a GPU, tokens and requests of one engine (of maxModelLen, and of the workload's mean length): estimates, low and high in brackets; "
        "`disagg fit --explain` shows how"
    )
    return [table, Padding(Text(note, style="dim"), (0, 0, 0, 1))]


def _bars(bars: dict[str, float]) -> str:
    return f"{bars['mid']:.1f} ({bars['low']:.1f}-{bars['high']:.1f})"


def _traffic(forecasts: Sequence[dict[str, Any]]) -> list[Any]:
    """What measured rates say, and what remains a bound without them."""
    lines = []
    for f in forecasts:
        if "problem" in f:
            lines.append(f"{f['model']}: {f['problem']}")
            continue
        if "requestsPerSecond" in f:
            rate, busy = f["requestsPerSecond"], f["utilisation"]
            lines.append(
                f"{f['model']}: {rate['wanted']:g} requests/s wanted, {rate['kind']} {rate['capacity']:g}, bound by {f['boundBy']}; prefill busy "
                f"{busy['prefill']:.0%}, decode {busy['decode']:.0%}"
            )
            if f["prefillWaitSeconds"] is not None:
                lines.append(f"  a prompt waits {f['prefillWaitSeconds']:.2g} s for prefill (M/D/1), before it is calculated")
        else:
            lines.append(f"{f['model']}: no measured rates, so only bounds of throughput (prefill.measuredRates, decode.measuredRates)")
            lines += [f"  {bound}" for bound in f["bounds"]]
        if "kvTransfer" in f:
            moved = "; ".join(f"{s['name']} {_span(s['seconds'])} s" for s in f["kvTransfer"]["scenarios"])
            lines.append(f"  KV of a prompt: {f['kvTransfer']['bytes'] / 1e9:.2f} GB, moved in {moved}")
        if "usdPerMillionTokens" in f:
            lines.append(f"  {f['usdPerMillionTokens']:.2f} USD for a million tokens at that capacity")
    return [Padding(Text(line), (0, 0, 0, 1)) for line in lines]


def _span(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2g}" if low == high else f"{low:.2g} to {high:.2g}"


def _cost(cost: dict[str, Any]) -> list[Any]:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    table.add_column("what", overflow="fold")
    for heading in ("number", "USD/h", "USD/month"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("price of", no_wrap=True)
    for line in cost["lines"]:
        dated = " ".join(part for part in (line["asOf"], line["region"]) if part)
        table.add_row(line["item"], str(line["quantity"]), _usd(line["perHour"]), _usd(line["perMonth"]), dated)
    table.add_section()
    table.add_row("total" if cost["complete"] else "total of what is known", "", _usd(cost["perHour"]), _usd(cost["perMonth"]), "", style="bold")
    notes = dict.fromkeys(f"{line['item']}: {line['note']}" for line in cost["lines"] if line["note"])
    return [table, *(Padding(Text(note, style="dim"), (0, 0, 0, 1)) for note in notes), *_role_costs(cost["roles"])]


def _role_costs(roles: Sequence[Mapping[str, Any]]) -> list[Any]:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    table.add_column("share of a role", overflow="fold")
    for heading in ("GPUs", "on demand USD/h", "USD/month", "Capacity Block USD/h", "USD/month", "price of"):
        table.add_column(heading, justify="right")
    for line in roles:
        demand, block = line["onDemand"] or {}, line["capacityBlock"] or {}
        prices = [_usd(price.get(unit)) for price in (demand, block) for unit in ("perHour", "perMonth")]
        table.add_row(f"{line['model']} {line['role']}", str(line["gpus"]), *prices, block.get("asOf", ""))
    return [Text(""), table] if roles else []


def _usd(amount: float | None) -> str:
    if amount is None:
        return "unknown"
    return f"{amount:,.3f}" if 0 < amount < 1 else f"{amount:,.2f}"


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
