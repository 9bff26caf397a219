"""Figures of two plans side by side: capacity, placement, cost, findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..document.capacity import EngineCapacity
from ..document.cost import Cost
from ..document.difference import TOTAL, CheckChanges, FigureChange
from ..document.placement import PlacedPool
from ..document.plan import PlanDocument
from ..errors import Finding, Level, sort_findings

Figures = Mapping[str, tuple[float | None, str]]
"""Figures by name, with their units."""


def compare_capacity(before: Sequence[EngineCapacity], after: Sequence[EngineCapacity]) -> list[FigureChange]:
    """What an engine of each model and role holds; less than before is a warning."""
    old, new = ({e.engine: _capacity(e) for e in entries} for entries in (before, after))
    return _changes(old, new, lambda figure, grows: Level.WARNING if figure != "weights" and not grows else Level.INFO)


def _capacity(held: EngineCapacity) -> Figures:
    return {
        "KV tokens": (round(held.kv_tokens.mid), "an engine"),
        "weights": (round(held.per_gpu.weights_gib.mid, 1), "GiB a GPU"),
        "KV cache": (round(held.per_gpu.kv_gib.mid, 1), "GiB a GPU"),
        "longest requests": (round(held.max_concurrency.mid, 1), "an engine"),
    }


def compare_placement(before: Sequence[PlacedPool], after: Sequence[PlacedPool]) -> list[FigureChange]:
    """Nodes and idle devices of each pool; pods without a node are an error."""
    old, new = ({p.pool: _placement(p) for p in pools} for pools in (before, after))
    return _changes(old, new, lambda figure, grows: Level.ERROR if figure == "pods without a node" and grows else Level.INFO)


def _placement(pool: PlacedPool) -> Figures:
    return {
        "nodes": (len(pool.nodes), pool.instance_type),
        "pods": (sum(len(n.pods) for n in pool.nodes), ""),
        "idle GPUs": (sum(n.idle_gpus for n in pool.nodes), ""),
        "pods without a node": (len(pool.unplaced), ""),
    }


def compare_cost(before: Cost, after: Cost) -> list[FigureChange]:
    """USD a month of each line and in total."""
    return _changes(_cost(before), _cost(after), lambda *_: Level.INFO)


def _cost(cost: Cost) -> dict[str, Figures]:
    lines: dict[str, Figures] = {line.item: {"price": (line.per_month, "USD a month")} for line in cost.lines}
    return {**lines, TOTAL: {"price": (cost.per_month, "USD a month")}} if lines else {}


def compare_at_most(before: PlanDocument, after: PlanDocument) -> tuple[list[FigureChange], list[FigureChange]]:
    """Nodes, and USD a month in total, with all engines that autoscaling may add; nothing where neither plan has a scaled role."""
    if not (before.autoscaling.roles or after.autoscaling.roles):
        return [], []
    old, new = (plan.autoscaling.at_most or plan for plan in (before, after))
    nodes = [d for d in compare_placement(old.placement, new.placement) if d.figure == "nodes"]
    total = [d for d in compare_cost(old.cost, new.cost) if d.subject == TOTAL]
    return [_named(d) for d in nodes], [_named(d) for d in total]


def _named(delta: FigureChange) -> FigureChange:
    return replace(delta, figure=f"{delta.figure} at most")


def _changes(old: Mapping[str, Figures], new: Mapping[str, Figures], judge: Callable[[str, bool], Level]) -> list[FigureChange]:
    """What differs, worst first; `judge` weighs a figure that grows or shrinks. Of a subject that only one plan has, the first figure stands."""
    found = []
    for subject in dict.fromkeys([*new, *old]):
        was, is_ = old.get(subject, {}), new.get(subject, {})
        both = subject in old and subject in new
        for figure in list(dict.fromkeys([*is_, *was]))[: None if both else 1]:
            (a, old_unit), (b, unit) = was.get(figure, (None, "")), is_.get(figure, (None, ""))
            if a == b and (old_unit == unit or None in (a, b)):
                continue
            if both and old_unit != unit and figure == "nodes":
                found.append(FigureChange(subject, "instance type", old_unit, unit))
            if a != b and not (a in (None, 0) and b in (None, 0)):
                level = judge(figure, (b or 0) > (a or 0)) if subject in new else Level.INFO
                found.append(FigureChange(subject, figure, a, b, unit or old_unit, level))
    return sorted(found, key=lambda d: d.severity.rank)


def compare_checks(before: Sequence[Finding], after: Sequence[Finding]) -> CheckChanges:
    """Findings by rule and place; one whose text changed is new, and its former text not gone."""
    known, places = {_text_of(f) for f in before}, {_place_of(f) for f in after}
    return CheckChanges(
        sort_findings(f for f in after if _text_of(f) not in known),
        sort_findings(f for f in before if _place_of(f) not in places),
        sort_findings(f for f in after if _text_of(f) in known),
    )


def _place_of(finding: Finding) -> tuple[str, str, Level]:
    return finding.id, finding.path, finding.level


def _text_of(finding: Finding) -> tuple[str, ...]:
    return *_place_of(finding), finding.message
