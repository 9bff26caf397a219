"""Figures of two plans side by side: capacity, placement, cost, findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import Finding, Level, sort_findings
from ..recording.difference import CheckChanges, Delta

Data = Mapping[str, Any]
TOTAL = "total"
_ORDER = {Level.ERROR: 0, Level.WARNING: 1, Level.INFO: 2}


def engine_of(entry: Data) -> str:
    """What an entry about a role is called: model, generation where there is one, and role."""
    return " ".join(entry[key] for key in ("model", "generation", "role") if key in entry)


def capacity_deltas(before: Sequence[Data], after: Sequence[Data]) -> list[Delta]:
    """What an engine of each model and role holds; less than before is a warning."""
    old, new = ({engine_of(e): _capacity(e) for e in entries} for entries in (before, after))
    return _deltas(old, new, lambda figure, was, is_: Level.WARNING if figure != "weights" and is_ < was else Level.INFO)


def _capacity(entry: Data) -> dict[str, tuple[Any, str]]:
    return {
        "KV tokens": (round(entry["kvTokens"]["mid"]), "an engine"),
        "weights": (round(entry["perGpu"]["weightsGiB"]["mid"], 1), "GiB a GPU"),
        "KV cache": (round(entry["perGpu"]["kvGiB"]["mid"], 1), "GiB a GPU"),
        "longest requests": (round(entry["maxConcurrency"]["mid"], 1), "an engine"),
    }


def placement_deltas(before: Sequence[Data], after: Sequence[Data]) -> list[Delta]:
    """Nodes and idle devices of each pool; pods without a node are an error."""
    old, new = ({p["pool"]: _placement(p) for p in pools} for pools in (before, after))
    return _deltas(old, new, lambda figure, was, is_: Level.ERROR if figure == "pods without a node" and is_ > was else Level.INFO)


def _placement(pool: Data) -> dict[str, tuple[Any, str]]:
    nodes = pool["nodes"]
    return {
        "nodes": (len(nodes), pool["instanceType"]),
        "pods": (sum(len(n["pods"]) for n in nodes), ""),
        "idle GPUs": (sum(n["idleGpus"] for n in nodes), ""),
        "pods without a node": (len(pool.get("unplaced", ())), ""),
    }


def cost_deltas(before: Data, after: Data) -> list[Delta]:
    """USD a month of each line and in total."""
    old, new = (_cost(c) for c in (before, after))
    return _deltas(old, new, lambda *_: Level.INFO)


def _cost(cost: Data) -> dict[str, dict[str, tuple[Any, str]]]:
    lines = {line["item"]: {"price": (line["perMonth"], "USD a month")} for line in cost.get("lines", ())}
    return {**lines, TOTAL: {"price": (cost.get("perMonth"), "USD a month")}} if lines else {}


def at_most_deltas(before: Data, after: Data) -> tuple[list[Delta], list[Delta]]:
    """Nodes, and USD a month in total, with all engines that autoscaling may add; nothing where neither plan has a scaled role."""
    if not any((plan.get("autoscaling") or {}).get("roles") for plan in (before, after)):
        return [], []
    old, new = ((plan.get("autoscaling") or {}).get("atMost") or plan for plan in (before, after))
    nodes = placement_deltas(old.get("placement", []), new.get("placement", []))
    total = [d for d in cost_deltas(old.get("cost") or {}, new.get("cost") or {}) if d.subject == TOTAL]
    return [_named(d) for d in nodes if d.figure == "nodes"], [_named(d) for d in total]


def _named(delta: Delta) -> Delta:
    return replace(delta, figure=f"{delta.figure} at most")


def _deltas(old: Mapping[str, Any], new: Mapping[str, Any], judge: Any) -> list[Delta]:
    found = []
    for subject in dict.fromkeys([*new, *old]):
        was, is_ = old.get(subject, {}), new.get(subject, {})
        both = subject in old and subject in new
        for figure in list(dict.fromkeys([*is_, *was]))[: None if both else 1]:
            (a, old_unit), (b, unit) = was.get(figure, (None, "")), is_.get(figure, (None, ""))
            if a == b and (old_unit == unit or None in (a, b)):
                continue
            if both and old_unit != unit and figure == "nodes":
                found.append(Delta(subject, "instance type", old_unit, unit))
            if a != b and not (a in (None, 0) and b in (None, 0)):
                level = judge(figure, a or 0, b or 0) if subject in new else Level.INFO
                found.append(Delta(subject, figure, a, b, unit or old_unit, level))
    return sorted(found, key=lambda d: _ORDER[d.severity])


def check_changes(before: Sequence[Data], after: Sequence[Data]) -> CheckChanges:
    """Findings by rule and place; one whose text changed is new, and its former text not gone."""
    old, new = ([finding_of(data) for data in findings] for findings in (before, after))
    known, places = {_text_of(f) for f in old}, {_place_of(f) for f in new}
    return CheckChanges(
        sort_findings(f for f in new if _text_of(f) not in known),
        sort_findings(f for f in old if _place_of(f) not in places),
        sort_findings(f for f in new if _text_of(f) in known),
    )


def _place_of(finding: Finding) -> tuple[str, str, Level]:
    return finding.id, finding.path, finding.level


def _text_of(finding: Finding) -> tuple[str, ...]:
    return *_place_of(finding), finding.message


def finding_of(data: Data) -> Finding:
    """A finding out of a plan's `checks`."""
    allowed, fix, reference, accepted = (str(data.get(key) or "") for key in ("allowed", "fix", "reference", "accepted"))
    corrections = tuple(data.get("corrections") or ())
    place = str(data["id"]), Level(data["level"]), str(data["path"])
    return Finding(*place, str(data["message"]), data.get("value"), allowed, fix, reference, corrections, accepted)
