"""Figures as words, the same in every format that people read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..document.capacity import Bars, Fit
from ..document.cost import CostLine, RoleCost
from ..document.difference import TOTAL, FigureChange, Op
from ..document.placement import Autoscaling, ScaledRole
from ..document.plan import Callback, PlanDocument
from ..document.resource import Resource
from ..document.traffic import Forecast
from ..errors import Level
from ..recording.plan import Plan
from .view import counted, levels

REMOTE_NOTE = "expanded by the engine"
OP_WORDS = {Op.CREATE: "created", Op.DELETE: "deleted", Op.UPDATE: "updated", Op.REPLACE: "replaced", Op.RENAME: "renamed"}
OP_ORDER = (Op.REPLACE, Op.DELETE, Op.RENAME, Op.UPDATE, Op.CREATE)


def usd(amount: float | None) -> str:
    """An amount with two digits, small ones with three."""
    if amount is None:
        return "unknown"
    return f"{amount:,.3f}" if 0 < amount < 1 else f"{amount:,.2f}"


def with_bars(bars: Bars) -> str:
    """An estimate with its low and high end."""
    return f"{bars.mid:.1f} ({bars.low:.1f}-{bars.high:.1f})"


def role_prices(role: RoleCost) -> list[str]:
    """USD an hour and a month of a role, on demand and then in a Capacity Block."""
    prices = (role.on_demand, role.capacity_block)
    return [usd(amount) for price in prices for amount in ((price.per_hour, price.per_month) if price else (None, None))]


def notes_of(resource: Resource) -> list[str]:
    """What to know about a resource besides its type and name."""
    return [word for word, on in (("protected", resource.options.get("protect")), (REMOTE_NOTE, resource.remote)) if on]


CALLBACKS: Mapping[Callback, tuple[str, str]] = {
    "transforms": ("transform", "transforms"),
    "invokeTransforms": ("transform of look-ups", "transforms of look-ups"),
    "hooks": ("hook", "hooks"),
    "stateMigrations": ("state migration", "state migrations"),
}
ENGINE_NOTE = "`pulumi preview` shows what they change"


def callbacks_of(plan: PlanDocument) -> str:
    """How many functions of the program only the engine calls, by kind; empty where there are none."""
    return ", ".join(counted(plan.callbacks[kind], *nouns) for kind, nouns in CALLBACKS.items() if kind in plan.callbacks)


def traffic_lines(forecast: Forecast) -> list[str]:
    """What measured rates say about one model, and what remains a bound without them; lines after the first belong to it."""
    if forecast.problem:
        return [f"{forecast.model}: {forecast.problem}"]
    lines = []
    rate, busy = forecast.requests_per_second, forecast.utilisation
    if rate and busy:
        able = f"{rate.kind} {rate.capacity:g}" if rate.high is None else f"range {rate.low:.3g} to {rate.high:.3g}"
        lines.append(
            f"{forecast.model}: {rate.wanted:g} requests/s wanted, {able}, bound by {forecast.bound_by}; "
            f"prefill busy {busy.prefill:.0%}, decode {busy.decode:.0%}"
        )
        lines += forecast.other_forms
        if forecast.prefill_wait_seconds is not None:
            lines.append(f"a prompt waits {forecast.prefill_wait_seconds:.2g} s for prefill (M/D/1), before it is calculated")
    else:
        sides = forecast.unmeasured
        of_one = f" of {sides[0]}" if len(sides) == 1 else ""
        fields = ", ".join(f"{side}.measuredRates" for side in sides)
        lines.append(f"{forecast.model}: no measured rates{of_one}, so only bounds of throughput ({fields})")
        lines += forecast.bounds
    if forecast.in_flight:
        lines.append(forecast.in_flight.text)
    if moved := forecast.kv_transfer:
        ways = "; ".join(f"{s.name} {_between(s.seconds)} s" for s in moved.scenarios)
        lines.append(f"KV of a prompt: {moved.bytes / 1e9:.2f} GB, moved in {ways}")
    if forecast.usd_per_million_tokens is not None:
        lines.append(f"{forecast.usd_per_million_tokens:.2f} USD for a million tokens, of prompt and answer together, at that capacity")
    return lines


SCALING = ("role", "least", "most", "an engine carries", "serves after", "added every", "removed after")
"""Columns of `scaling_cells`."""


def scaling_cells(role: ScaledRole) -> list[str]:
    """Bounds, signals and pace of a scaled role."""
    carried = ", ".join(f"{s.name} {s.threshold:g}" for s in role.signals)
    seconds = [f"{number} s" for number in (role.ready_seconds, role.scale_up_period_seconds, role.scale_down_window_seconds)]
    return [role.engine, str(role.min_replica_count), str(role.max_replica_count), carried, *seconds]


def price_of(line: CostLine) -> str:
    """Day and region of a price, and whether it stands for one of another region."""
    where = f", taken from {line.region}" if line.other_region else f" {line.region or ''}".rstrip()
    return f"{line.as_of or ''}{where}"


def idle_nodes(number: int) -> str:
    """Reserved nodes without a pod."""
    return f"{counted(number, 'more node')} reserved and paid for, without a pod"


def at_most(scaling: Autoscaling) -> str:
    """Nodes and cost of all roles at their most, empty where none is scaled; placement and cost of the plan are at their least."""
    if scaling.at_most is None:
        return ""
    nodes = ", ".join(f"{len(p.nodes)} x {p.instance_type} in {p.pool}" for p in scaling.at_most.placement)
    cost = scaling.at_most.cost
    known = "" if cost.complete else " of what is known"
    return f"at most: {nodes}; {usd(cost.per_hour)} USD/h, {usd(cost.per_month)} USD/month{known}. Placement and cost above: at least."


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


def verdict_of(plan: Plan) -> Verdict:
    """The verdict on a plan."""
    errors = sum(f.level is Level.ERROR for f in plan.checks)
    warnings = sum(f.level is Level.WARNING for f in plan.checks)
    drastic = [c for c in plan.changes if c.severity is not Level.INFO]
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
        *_not_simulated(plan),
        Fact("Checks", levels(plan.checks), "", Level.ERROR if errors else Level.WARNING if warnings else None),
    ]
    return Verdict(level, sentence, [*facts, *([_fits(plan), _costs(plan)] if plan.layout else [])])


def _makes(plan: Plan) -> Fact:
    if plan.difference is not None and not plan.difference.compared:
        why = f"{plan.difference.base} cannot be planned" if plan.resources else "the checks stop before any resource is declared"
        return Fact("Changes", "not compared", why, Level.ERROR)
    if plan.difference is not None:
        count = plan.operations()
        words = ", ".join(f"{count[op]:,} {OP_WORDS[op]}" for op in OP_ORDER if op in count)
        worst = next((c for c in plan.changes if c.effect), None)
        return Fact(
            "Changes",
            words or "none",
            f"{plan.difference.unchanged:,} unchanged since {plan.difference.base}",
            worst.severity if worst and worst.severity is not Level.INFO else None,
        )
    if not plan.resources:
        return Fact("Makes", "nothing", "the checks stop before any resource is declared", Level.ERROR)
    return Fact("Makes", counted(len(plan.resources), "resource"), resource_kinds(plan))


def resource_kinds(plan: PlanDocument) -> str:
    """How many resources there are of each provider."""
    packages = Counter(r.type.split(":")[0] for r in plan.resources if r.real)
    return ", ".join(f"{n:,} {name}" for name, n in packages.most_common() if name != "pulumi")


def _not_simulated(plan: Plan) -> list[Fact]:
    return [Fact("Not simulated", text, ENGINE_NOTE)] if (text := callbacks_of(plan)) else []


def _fits(plan: Plan) -> Fact:
    nodes = [n for pool in plan.placement for n in pool.nodes]
    left = sum(len(pool.unplaced) for pool in plan.placement)
    small = [e.engine for e in plan.capacity if e.fits is Fit.NO]
    value = f"{counted(sum(len(n.pods) for n in nodes), 'pod')} on {counted(len(nodes), 'node')}"
    idle = f"{counted(sum(n.idle_gpus for n in nodes), 'GPU')} and {sum(n.idle_efa for n in nodes):,} EFA idle"
    if left:
        return Fact("Fits", f"{counted(left, 'pod')} on no node", value, Level.ERROR)
    if small:
        return Fact("Fits", f"not in the memory of {counted(len(small), 'engine')}", ", ".join(small[:3]), Level.ERROR)
    return Fact("Fits", value, idle)


def _costs(plan: Plan) -> Fact:
    cost, most = plan.cost, plan.autoscaling.at_most
    change = cost_step(plan)
    details = [f"{usd(cost.per_hour)} USD an hour"] + ["without what has no known price"] * (not cost.complete)
    if most:
        details.append(f"{most.cost.per_month:,.0f} a month at most, with all engines that autoscaling may add")
    if change:
        details.insert(0, f"{change} a month")
    return Fact("Costs", f"{cost.per_month:,.0f} USD a month", ", ".join(details))


def cost_step(plan: PlanDocument) -> str:
    """How much the cost of a month grows or shrinks since the base; empty without one, or where it stays."""
    changes = plan.difference.cost if plan.difference else ()
    return next((step(d) for d in changes if d.subject == TOTAL and d.figure == "price"), "")


def figure(value: float | str | None) -> str:
    """A figure of a difference; none where one revision has no such."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    return f"{value:,.2f}" if value != int(value) else f"{int(value):,}"


def step(delta: FigureChange) -> str:
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
    lines = [_line(plan) for plan in plans]
    return sorted(lines, key=lambda line: (line.verdict.level.rank, *(-n for n in _grave(line.plan))))


def _line(plan: Plan) -> Line:
    count = plan.operations()
    changes = ", ".join(f"{count[op]:,} {OP_WORDS[op]}" for op in OP_ORDER if op in count)
    changes = changes if plan.difference is None or plan.difference.compared else "not compared"
    errors, warnings = (sum(f.level is level for f in plan.checks) for level in (Level.ERROR, Level.WARNING))
    return Line(plan, verdict_of(plan), errors, warnings, changes, f"{plan.cost.per_month:,.0f}" if plan.layout else "")


def _grave(plan: Plan) -> tuple[int, int]:
    """Errors and warnings among findings and changes."""
    found = [*(f.level for f in plan.checks), *(c.severity for c in plan.changes)]
    return found.count(Level.ERROR), found.count(Level.WARNING)
