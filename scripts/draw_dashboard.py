"""Draws a dashboard as SVG, with made-up curves: what stands where, and how live lines lie beside those of the plan. It is not Grafana.

scripts/generate.py writes the one that the documentation shows.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from disagg_serving.manifests.observability.dashboards import dashboards
from disagg_serving.manifests.observability.panels import COLUMNS, grafana
from disagg_serving.planning.shapes import Layout
from disagg_serving.rules.evaluation import evaluate_file

from scripts.pictures import ROOT, SHIPPED

COLUMN, LINE, GAP, POINTS = 50, 30, 6, 60
COLORS = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#b877d9", "#f2495c")
PLAN_COLOR = "#9fa7b3"
STYLE = "text{font:11px sans-serif;fill:#ccccdc}.t{font-size:13px;font-weight:600}.a{font-size:9px;fill:#8e8e9a}.p{fill:#181b1f;stroke:#2c3235}"
NOTE = "drawn from the dashboard's JSON by scripts/draw_dashboard.py; curves are made up, dashed lines are figures of the plan"


def draw(dashboard: dict[str, Any], layout: Layout) -> str:
    """The whole dashboard."""
    bottom = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in dashboard["panels"])
    width, height = COLUMNS * COLUMN, bottom * LINE + 50
    parts = [f'<rect width="{width}" height="{height}" fill="#111217"/>', _text(10, 24, dashboard["title"], "t"), _text(10, height - 6, NOTE, "a")]
    for panel in dashboard["panels"]:
        parts += _panel(panel, layout)
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">\n<style>{STYLE}</style>\n{body}\n</svg>\n'


def _panel(panel: dict[str, Any], layout: Layout) -> Iterator[str]:
    place = panel["gridPos"]
    x, y = place["x"] * COLUMN, place["y"] * LINE + 30
    width, height = place["w"] * COLUMN - GAP, place["h"] * LINE - GAP
    if panel["type"] == "row":
        yield _text(x + 8, y + 20, f"▾ {panel['title']}", "t")
        return
    yield f'<rect class="p" x="{x + GAP / 2}" y="{y}" width="{width}" height="{height}" rx="2"/>'
    yield _text(x + 12, y + 18, panel["title"], "t")
    if panel["type"] == "table":
        planned = int(re.search(r"([\d,]+) blocks of", panel["description"])[1].replace(",", ""))  # type: ignore[index]
        made_up = [(p, str(planned + random.Random(p).randint(-60, 60)), "128") for p in _pods(panel, layout)]  # noqa: S311 (made up)
        rows = [("pod", "num_gpu_blocks", "block_size"), *made_up]
        for i, cells in enumerate(rows):
            yield from (_text(x + 14 + j * width / 3, y + 44 + 20 * i, cell, "a" if i == 0 else "") for j, cell in enumerate(cells))
        return
    curves = list(_curves(panel, layout))
    top = 1.15 * max(max(values) for _, values, _ in curves)
    left, right, up, down = x + 56, x + width - 8, y + 30, y + height - 38
    for step in range(5):
        level = down - (down - up) * step / 4
        yield f'<line x1="{left}" x2="{right}" y1="{level:.0f}" y2="{level:.0f}" stroke="#22252b"/>'
        yield _text(x + 10, level + 3, _shown(top * step / 4, panel["fieldConfig"]["defaults"]["unit"]), "a")
    at = left
    for i, (name, values, planned) in enumerate(curves):
        color = PLAN_COLOR if planned else COLORS[i % len(COLORS)]
        points = " ".join(f"{left + (right - left) * j / (POINTS - 1):.0f},{down - (down - up) * v / top:.0f}" for j, v in enumerate(values))
        dashes = ' stroke-dasharray="8 6"' if planned else ""
        yield f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.4"{dashes}/>'
        if planned:
            yield _text(right - 5 * len(name), down - (down - up) * values[0] / top - 3, name, "a")
            continue
        if at + 7 * len(name) < right:
            yield f'<rect x="{at}" y="{y + height - 22}" width="10" height="3" fill="{color}"/>' + _text(at + 14, y + height - 17, name, "a")
        at += 30 + 5 * len(name)


def _curves(panel: dict[str, Any], layout: Layout) -> Iterator[tuple[str, list[float], bool]]:
    planned = [float(found[1]) for t in panel["targets"] if (found := re.fullmatch(r"vector\((.+)\)", t["expr"]))]
    base = 0.6 * planned[0] if planned else {"percentunit": 0.5, "s": 0.2}.get(panel["fieldConfig"]["defaults"]["unit"], 5.0)
    for target in panel["targets"]:
        constant = re.fullmatch(r"vector\((.+)\)", target["expr"])
        if constant:
            yield target["legendFormat"], [float(constant[1])] * POINTS, True
            continue
        names = _pods({"targets": [target]}, layout) if "{{pod}}" in target["legendFormat"] else [target["legendFormat"]]
        for name in names:
            chance = random.Random(name + target["expr"])  # noqa: S311 (made up)
            values, value = [], base * chance.uniform(0.8, 1.2)
            for _ in range(POINTS):
                value += (base - value) * 0.15 + chance.uniform(-0.12, 0.12) * base
                values.append(max(value, 0.0))
            yield name, values, False


def _pods(panel: dict[str, Any], layout: Layout) -> list[str]:
    asked = " ".join(t["expr"] for t in panel["targets"])
    groups = [g for g in layout.groups if f'role="{g.role}"' in asked or f"{g.name}-[" in asked]
    return [f"{g.name}-{i}" for g in groups for i in range(g.spec.replicas)]


def _shown(value: float, unit: str) -> str:
    if unit == "percentunit":
        return f"{value:.0%}"
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g} {letter}"
    return f"{value:.3g}{ {'s': ' s', 'reqps': ' /s', 'gbytes': ' GiB'}.get(unit, '') }"


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}"' + (f' class="{style}"' if style else "") + f">{escape(text)}</text>"


def drawn(stack: str, kind: str) -> str:
    """One dashboard of a shipped stack, with everything turned on."""
    file = SHIPPED.stack_file(stack)
    asked = {"podMonitors": True, "dashboards": True, "dcgmExporter": "chart"}
    watched = replace(file, environment={**file.environment, "observability": asked})
    layout = evaluate_file(watched, SHIPPED.root).require_layout()
    served = layout.served[0]
    (wanted,) = [d for d in dashboards(served, layout.groups_of(served), layout) if d.kind == kind]
    return draw(json.loads(json.dumps(grafana(wanted))), layout)


def pictures() -> dict[Path, str]:
    """The picture of docs/observability.md by its file."""
    return {ROOT / "docs/observability.svg": drawn("prod", "capacity")}
