"""Figures as words, the same in every format that people read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..comparison.deltas import TOTAL, engine_of
from ..errors import Finding, Level
from ..recording.difference import Delta, Op
from ..recording.graph import Resource
from ..recording.plan import Plan

REMOTE_NOTE = "expanded by the engine"
OP_WORDS = {Op.CREATE: "created", Op.DELETE: "deleted", Op.UPDATE: "updated", Op.REPLACE: "replaced", Op.RENAME: "renamed"}
OP_ORDER = (Op.REPLACE, Op.DELETE, Op.RENAME, Op.UPDATE, Op.CREATE)


def usd(amount: float | None) -> str:
    """An amount with two digits, small ones with three."""
    if amount is None:
        return "unknown"
    return f"{amount:,.3f}" if 0 < amount < 1 else f"{amount:,.2f}"


def with_bars(bars: Mapping[str, float]) -> str:
    """An estimate with its low and high end."""
    return f"{bars['mid']:.1f} ({bars['low']:.1f}-{bars['high']:.1f})"


def notes_of(resource: Resource) -> list[str]:
    """What to know about a resource besides its type and name."""
    return [word for word, on in (("protected", resource.options.get("protect")), (REMOTE_NOTE, resource.remote)) if on]


CALLBACKS = {"transforms": "transform", "invokeTransforms": "transform of look-ups", "hooks": "hook", "stateMigrations": "state migration"}
ENGINE_NOTE = "not run here; pulumi preview shows what comes of it"


def callbacks_of(plan: Plan) -> str:
    """How many functions of the program only the engine calls, by kind; empty where there are none."""
    count = plan.graph.callbacks
    plurals = {"invokeTransforms": "transforms of look-ups"}
    return ", ".join(counted(count[kind], noun, plurals.get(kind, "")) for kind, noun in CALLBACKS.items() if kind in count)


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 node`, `2 nodes`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def levels(findings: Sequence[Finding]) -> str:
    """How many errors, warnings and notes there are."""
    of = Counter(f.level for f in findings)
    words = {Level.ERROR: "error", Level.WARNING: "warning", Level.INFO: "note"}
    return ", ".join(counted(of[level], word) for level, word in words.items() if of[level]) or "all pass"


def traffic_lines(forecast: Mapping[str, Any]) -> list[str]:
    """What measured rates say about one model, and what remains a bound without them; lines after the first belong to it."""
    if "problem" in forecast:
        return [f"{forecast['model']}: {forecast['problem']}"]
    lines = []
    if "requestsPerSecond" in forecast:
        rate, busy = forecast["requestsPerSecond"], forecast["utilisation"]
        lines.append(
            f"{forecast['model']}: {rate['wanted']:g} requests/s wanted, {rate['kind']} {rate['capacity']:g}, bound by {forecast['boundBy']}; "
            f"prefill busy {busy['prefill']:.0%}, decode {busy['decode']:.0%}"
        )
        if forecast["prefillWaitSeconds"] is not None:
            lines.append(f"a prompt waits {forecast['prefillWaitSeconds']:.2g} s for prefill (M/D/1), before it is calculated")
    else:
        sides = forecast["unmeasured"]
        of_one = f" of {sides[0]}" if len(sides) == 1 else ""
        fields = ", ".join(f"{side}.measuredRates" for side in sides)
        lines.append(f"{forecast['model']}: no measured rates{of_one}, so only bounds of throughput ({fields})")
        lines += forecast["bounds"]
    if "kvTransfer" in forecast:
        moved = "; ".join(f"{s['name']} {_between(s['seconds'])} s" for s in forecast["kvTransfer"]["scenarios"])
        lines.append(f"KV of a prompt: {forecast['kvTransfer']['bytes'] / 1e9:.2f} GB, moved in {moved}")
    if "usdPerMillionTokens" in forecast:
        lines.append(f"{forecast['usdPerMillionTokens']:.2f} USD for a million tokens, of prompt and answer together, at that capacity")
    return lines


SCALING = ("role", "least", "most", "an engine carries", "serves after", "added every", "removed after")
"""Columns of `scaling_cells`."""


def scaling_cells(role: Mapping[str, Any]) -> list[str]:
    """Bounds, signals and pace of a scaled role."""
    carried = ", ".join(f"{s['name']} {s['threshold']:g}" for s in role["signals"])
    seconds = [f"{role[key]} s" for key in ("readySeconds", "scaleUpPeriodSeconds", "scaleDownWindowSeconds")]
    return [engine_of(role), str(role["minReplicaCount"]), str(role["maxReplicaCount"]), carried, *seconds]


def at_most(scaling: Mapping[str, Any]) -> str:
    """Nodes and cost of all roles at their most; placement and cost of the plan are at their least."""
    nodes = ", ".join(f"{len(p['nodes'])} x {p['instanceType']} in {p['pool']}" for p in scaling["atMost"]["placement"])
    cost = scaling["atMost"]["cost"]
    known = "" if cost["complete"] else " of what is known"
    return f"at most: {nodes}; {usd(cost['perHour'])} USD/h, {usd(cost['perMonth'])} USD/month{known}. Placement and cost above: at least."


def _between(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2g}" if low == high else f"{low:.2g} to {high:.2g}"


@dataclass(frozen=True)
class Fact:
    """One line of the verdict."""

    name: str
    value: str
    detail: str = ""
    level: Level | None = None


@dataclass(frozen=True)
class Verdict:
    """What a reviewer reads first: one sentence, and what happens, what fails, whether it fits and what it costs."""

    level: Level
    sentence: str
    facts: Sequence[Fact]


def verdict_of(plan: Plan, data: Mapping[str, Any]) -> Verdict:
    """The verdict on a plan and its data."""
    errors = sum(f.level is Level.ERROR for f in plan.findings)
    warnings = sum(f.level is Level.WARNING for f in plan.findings)
    drastic = [c for c in plan.difference.changes if c.severity is not Level.INFO] if plan.difference else []
    if errors:
        sentence = f"Cannot be deployed: {counted(errors, 'check fails', 'checks fail')}"
    elif any(c.severity is Level.ERROR for c in drastic):
        number = sum(c.severity is Level.ERROR for c in drastic)
        sentence = f"Passes the checks, but {counted(number, 'change breaks', 'changes break')} what runs"
    elif warnings or drastic:
        parts = [counted(warnings, "warning")] * bool(warnings) + [counted(len(drastic), "change", "changes") + " to look at"] * bool(drastic)
        sentence = f"Can be deployed, with {' and '.join(parts)}"
    else:
        sentence = "Can be deployed"
    level = Level.ERROR if errors or any(c.severity is Level.ERROR for c in drastic) else Level.WARNING if warnings or drastic else Level.INFO
    facts = [
        _makes(plan),
        *_left_to_the_engine(plan),
        Fact("Checks", levels(plan.findings), "", Level.ERROR if errors else Level.WARNING if warnings else None),
    ]
    return Verdict(level, sentence, [*facts, *([_fits(data), _costs(plan, data)] if plan.layout else [])])


def _makes(plan: Plan) -> Fact:
    if plan.difference is not None and not plan.difference.compared:
        why = f"{plan.difference.base} cannot be planned" if plan.graph.resources else "the checks stop before any resource is declared"
        return Fact("Changes", "not compared", why, Level.ERROR)
    if plan.difference is not None:
        count = plan.difference.count()
        words = ", ".join(f"{count[op]:,} {OP_WORDS[op]}" for op in OP_ORDER if op in count)
        worst = next((c for c in plan.difference.changes if c.effect), None)
        return Fact(
            "Changes",
            words or "none",
            f"{plan.difference.unchanged:,} unchanged since {plan.difference.base}",
            worst.severity if worst and worst.severity is not Level.INFO else None,
        )
    resources = plan.graph.resources.values()
    if not resources:
        return Fact("Makes", "nothing", "the checks stop before any resource is declared", Level.ERROR)
    packages = Counter(r.type.split(":")[0] for r in resources if r.custom or r.remote)
    return Fact("Makes", counted(len(resources), "resource"), ", ".join(f"{n:,} {name}" for name, n in packages.most_common() if name != "pulumi"))


def _left_to_the_engine(plan: Plan) -> list[Fact]:
    return [Fact("Left to the engine", text, ENGINE_NOTE)] if (text := callbacks_of(plan)) else []


def _fits(data: Mapping[str, Any]) -> Fact:
    nodes = [n for pool in data["placement"] for n in pool["nodes"]]
    left = sum(len(pool.get("unplaced", ())) for pool in data["placement"])
    small = [engine_of(e) for e in data["capacity"] if e["fits"] == "no"]
    value = f"{counted(sum(len(n['pods']) for n in nodes), 'pod')} on {counted(len(nodes), 'node')}"
    idle = f"{counted(sum(n['idleGpus'] for n in nodes), 'GPU')} and {sum(n['idleEfa'] for n in nodes):,} EFA idle"
    if left:
        return Fact("Fits", f"{counted(left, 'pod')} on no node", value, Level.ERROR)
    if small:
        return Fact("Fits", f"not in the memory of {counted(len(small), 'engine')}", ", ".join(small[:3]), Level.ERROR)
    return Fact("Fits", value, idle)


def _costs(plan: Plan, data: Mapping[str, Any]) -> Fact:
    cost = data["cost"]
    changes = plan.difference.cost if plan.difference else ()
    change = next((step(d) for d in changes if d.subject == TOTAL and d.figure == "price"), "")
    details = [f"{usd(cost['perHour'])} USD an hour"] + ["without what has no known price"] * (not cost["complete"])
    if data["autoscaling"]["roles"]:
        details.append(f"{data['autoscaling']['atMost']['cost']['perMonth']:,.0f} a month at most, with all engines that autoscaling may add")
    if change:
        details.insert(0, f"{change} a month")
    return Fact("Costs", f"{cost['perMonth']:,.0f} USD a month", ", ".join(details))


def figure(value: float | str | None) -> str:
    """A figure of a difference; none where one revision has no such."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    return f"{value:,.2f}" if value != int(value) else f"{int(value):,}"


def step(delta: Delta) -> str:
    """How much a figure grows or shrinks, where both are numbers."""
    if isinstance(delta.before, str) or isinstance(delta.after, str) or delta.before is None or delta.after is None:
        return ""
    grown = delta.after - delta.before
    share = f" ({grown / delta.before:+.0%})" if delta.before else ""
    return f"{'+' if grown > 0 else ''}{figure(grown)}{share}"


@dataclass(frozen=True)
class Line:
    """One stack among several: its plan, verdict, number of errors and warnings, changes in words (empty for none) and price a month, if known."""

    plan: Plan
    verdict: Verdict
    errors: int
    warnings: int
    changes: str
    price: str


def overview(plans: Sequence[Plan]) -> list[Line]:
    """A line a stack, the worst first: what makes one of two stacks with like verdicts the worse is how much is wrong and breaks."""
    lines = [_line(plan, plan.as_dict()) for plan in plans]
    return sorted(lines, key=lambda line: (tuple(Level).index(line.verdict.level), *(-n for n in _grave(line.plan))))


def _line(plan: Plan, data: Mapping[str, Any]) -> Line:
    count = plan.difference.count() if plan.difference else {}
    changes = ", ".join(f"{count[op]:,} {OP_WORDS[op]}" for op in OP_ORDER if op in count)
    changes = changes if plan.difference is None or plan.difference.compared else "not compared"
    errors, warnings = (sum(f.level is level for f in plan.findings) for level in (Level.ERROR, Level.WARNING))
    return Line(plan, verdict_of(plan, data), errors, warnings, changes, f"{data['cost']['perMonth']:,.0f}" if plan.layout else "")


def _grave(plan: Plan) -> tuple[int, int]:
    """Errors and warnings among findings and changes."""
    found = [*(f.level for f in plan.findings), *(c.severity for c in (plan.difference.changes if plan.difference else ()))]
    return found.count(Level.ERROR), found.count(Level.WARNING)
