"""Plans as one HTML file that needs nothing else: no network, no other file, no code but its own."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ..document.difference import Change, Op
from ..document.resource import STACK_TYPE, Resource
from ..errors import Finding, Level, visible
from ..recording.picture import instances_of, scenes_of
from ..recording.plan import Plan
from ..rules import rules
from ..rules.form import FORM_CHECKS
from ..yaml_io import to_yaml
from .figures import (
    OP_ORDER,
    OP_WORDS,
    SCALING,
    at_most,
    figure,
    idle_nodes,
    notes_of,
    overview,
    price_of,
    scaling_cells,
    step,
    traffic_lines,
    usd,
    verdict_of,
)
from .view import counted
from .words import short_type, values_of

TEMPLATES = Path(__file__).parent / "templates"
SIGNS = {Level.ERROR: "✕", Level.WARNING: "!", Level.INFO: "✓"}
WIDTH = 1000
"""Width of a memory bar in its own units."""


def render_html(plans: Sequence[Plan]) -> str:
    """All plans as a page, several below a table of all and the worst first.

    Style and script stand inside, and the page's policy allows exactly these two by their hashes.
    """
    style, script = ((TEMPLATES / name).read_text(encoding="utf-8").strip() for name in ("report.css", "report.js"))
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; base-uri 'none'; form-action 'none'"
    template = _environment().get_template("report.html.j2")
    lines = overview(plans)
    views = [_view(line.plan, i) for i, line in enumerate(lines)]
    return template.render(plans=views, lines=lines, style=style, script=script, policy=policy)


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown
    )
    environment.filters["with_code"] = _with_code
    words = {"usd": usd, "counted": counted, "figure": figure, "step": step, "idle_nodes": idle_nodes, "price_of": price_of}
    environment.globals.update(words, op_words=OP_WORDS, width=WIDTH, signs=SIGNS)
    return environment


def _shown(value: Any) -> Any:
    """Texts without signs that turn the reading direction or hide; lines of code keep their ends."""
    if type(value) is str and not value.isprintable():
        return "\n".join(visible(line.replace("\t", "    ")) for line in value.split("\n"))
    return value


def _with_code(text: str) -> Markup:
    """A sentence of ours, in which backticks mark code; whatever stands between them stays a text."""
    parts = re.split(r"`([^`]+)`", _shown(text))
    return Markup().join(Markup("<code>{}</code>").format(part) if i % 2 else escape(part) for i, part in enumerate(parts))


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _view(plan: Plan, index: int) -> dict[str, Any]:
    """What the template shows of one plan; `id` is the beginning of the ids of its elements."""
    scaled = plan.autoscaling.roles
    new = {(f.id, f.path, f.message) for f in plan.difference.checks.new} if plan.difference else set()
    return {
        "id": f"p{index}",
        "plan": plan,
        "verdict": verdict_of(plan),
        "difference": plan.difference,
        "changes": [_change(c) for c in plan.changes],
        "findings": [_finding(f, new=(f.id, f.path, f.message) in new) for f in plan.checks],
        "scenes": scenes_of(plan.layout) if plan.layout else [],
        "memory": _memory(plan),
        "scaling": {"columns": SCALING, "rows": [scaling_cells(r) for r in scaled], "total": at_most(plan.autoscaling)} if scaled else None,
        "traffic": [traffic_lines(f) for f in plan.forecast],
        "resources": _resources(plan),
    }


def _finding(finding: Finding, *, new: bool) -> dict[str, Any]:
    summaries = FORM_CHECKS | {r.id: r.summary for r in rules()}
    return {"finding": finding, "said": finding.reason(), "summary": summaries.get(finding.id, ""), "new": new}


def _change(change: Change) -> dict[str, Any]:
    paths = [
        {"path": p.path, "before": before, "after": after, "forces": p.forces_replacement} for p in change.paths for before, after in [values_of(p)]
    ]
    return {"change": change, "word": OP_WORDS[change.op], "type": short_type(change.type), "paths": paths, "former": _name(change.former)}


def _name(urn: str | None) -> str:
    return urn.rpartition("::")[2] if urn else ""


def _memory(plan: Plan) -> list[dict[str, Any]]:
    """The bar of each engine's GPU: segments by their start and length, and the ends of the estimate of the KV cache."""
    if plan.layout is None:
        return []
    instances, found = instances_of(plan.layout), []
    for entry in plan.capacity:
        instance, gib = instances[entry.model, entry.generation, entry.role], entry.per_gpu
        gpu, total = instance.gpu, instance.gpu.memory_gib_torch
        parts = [("weights", gib.weights_gib.mid), ("overhead", gib.overhead_gib.mid), ("kv", max(gib.kv_gib.mid, 0))]
        start, segments = 0.0, []
        for kind, size in parts:
            segments.append({"kind": kind, "x": _unit(start, total), "width": _unit(start + size, total) - _unit(start, total)})
            start += size
        low, high = (_unit(gib.budget_gib - kv, total) for kv in (gib.kv_gib.high, gib.kv_gib.low))
        found.append(
            {"entry": entry, "gpu": gpu.name.upper(), "instance": instance.id, "total": total, "segments": segments, "low": low, "high": high}
            | {"budget": _unit(gib.budget_gib, total)}
        )
    return found


def _unit(gib: float, total: float) -> float:
    return round(min(max(gib / total, 0), 1) * WIDTH, 1)


@dataclass(frozen=True)
class ResourceRow:
    """A resource as the page lists it, with what happens to it since the base."""

    urn: str
    type: str
    name: str
    change: Mapping[str, Any] | None
    op: Op | None
    word: str
    parent: str = ""
    notes: Sequence[str] = ()
    inputs: str = ""
    options: str = ""
    needs: Sequence[str] = ()


def _resources(plan: Plan) -> list[ResourceRow]:
    """All resources, with what a base revision does to them; those that go come first, then what changes, then the rest by type."""
    changes = {c.urn: c for c in plan.changes}
    rows = [_resource(r, changes.get(r.urn), plan) for r in plan.resources if r.type != STACK_TYPE]
    gone = [c for urn, c in changes.items() if urn not in plan.graph.resources]
    rows += [ResourceRow(c.urn, short_type(c.type), c.name, _change(c), c.op, OP_WORDS[c.op]) for c in gone]
    return sorted(rows, key=lambda r: (OP_ORDER.index(r.op) if r.op else len(OP_ORDER), r.parent, r.type, r.name))


def _resource(resource: Resource, change: Change | None, plan: Plan) -> ResourceRow:
    graph = plan.graph.resources
    parent = graph.get(resource.parent or "")
    return ResourceRow(
        resource.urn,
        short_type(resource.type),
        resource.name,
        _change(change) if change else None,
        change.op if change else None,
        OP_WORDS[change.op] if change else "",
        parent=f"{short_type(parent.type)} {parent.name}" if parent and parent.type != STACK_TYPE else "",
        notes=notes_of(resource),
        inputs=to_yaml(dict(resource.inputs)) if resource.inputs else "",
        options=to_yaml(dict(resource.options)) if resource.options else "",
        needs=[f"{short_type(graph[u].type)} {graph[u].name}" if u in graph else u for u in resource.depends_on],
    )
