"""Dashboards as typed panels, and their form in Grafana (schema of Grafana 11)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

SCHEMA_VERSION = 41
UID_LIMIT = 40
"""Longest that Grafana takes."""
COLUMNS, HEIGHT = 24, 8
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

Unit = Literal["short", "s", "reqps", "percentunit", "bytes", "Bps", "gbytes", "watt", "none"]
"""Grafana's names of units; `gbytes` are GiB."""


@dataclass(frozen=True)
class Query:
    """A line of a panel. `planned` lines are dashed: figures of the plan and not of Prometheus."""

    expression: str
    legend: str
    planned: bool = False


@dataclass(frozen=True)
class Panel:
    """A graph over time, or with `table` the labels of a metric's newest values."""

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: Unit = "short"
    columns: int = 8
    highest: float | None = None
    table: tuple[str, ...] = ()


@dataclass(frozen=True)
class Note:
    """A text over the whole width."""

    text: str


@dataclass(frozen=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: Sequence[Panel | Note]


@dataclass(frozen=True)
class Dashboard:
    """A dashboard of a model; `kind` is the rest of its name."""

    model: str
    kind: str
    title: str
    description: str
    rows: Sequence[Row]

    @property
    def name(self) -> str:
        """Name of its ConfigMap."""
        return f"{self.model}-{self.kind}"

    @property
    def uid(self) -> str:
        """Its address in Grafana, which stays the same when it changes."""
        if len(self.name) <= UID_LIMIT:
            return self.name
        digest = hashlib.sha256(self.name.encode()).hexdigest()[:8]
        return f"{self.name[: UID_LIMIT - len(digest) - 1]}-{digest}"


def grafana(dashboard: Dashboard) -> dict[str, Any]:
    """The dashboard as Grafana's JSON; panels flow from left to right."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["disagg-serving", dashboard.model],
        "schemaVersion": SCHEMA_VERSION,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]},
        "panels": _panels(dashboard.rows),
    }


def _panels(rows: Sequence[Row]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        found.append({"type": "row", "title": row.title, "collapsed": False, "panels": [], **_place(len(found), 0, y, COLUMNS, 1)})
        y, x, line = y + 1, 0, 0
        for panel in row.panels:
            width, height = (COLUMNS, 3) if isinstance(panel, Note) else (panel.columns, HEIGHT)
            if x + width > COLUMNS:
                x, y, line = 0, y + line, 0
            place = _place(len(found), x, y, width, height)
            found.append({**(_note(panel) if isinstance(panel, Note) else _panel(panel)), **place})
            x, line = x + width, max(line, height)
        y += line
    return found


def _place(number: int, x: int, y: int, width: int, height: int) -> dict[str, Any]:
    return {"id": number + 1, "gridPos": {"x": x, "y": y, "w": width, "h": height}}


def _note(note: Note) -> dict[str, Any]:
    return {"type": "text", "title": "", "options": {"mode": "markdown", "content": note.text}}


def _panel(panel: Panel) -> dict[str, Any]:
    how = {"format": "table", "instant": True} if panel.table else {"range": True}
    names = [chr(ord("A") + i) for i in range(len(panel.queries))]
    common = {
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "targets": [
            {"refId": name, "datasource": DATASOURCE, "expr": q.expression, "legendFormat": q.legend, **how}
            for name, q in zip(names, panel.queries, strict=True)
        ],
    }
    if panel.table:
        shown = {"id": "filterFieldsByName", "options": {"include": {"names": list(panel.table)}}}
        return {
            "type": "table",
            **common,
            "fieldConfig": {"defaults": {}, "overrides": []},
            "options": {"showHeader": True},
            "transformations": [shown],
        }
    planned = [name for name, q in zip(names, panel.queries, strict=True) if q.planned]
    return {
        "type": "timeseries",
        **common,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                **({"max": panel.highest} if panel.highest is not None else {}),
                "custom": {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 8, "showPoints": "never", "spanNulls": False},
            },
            "overrides": [_dashed(name) for name in planned],
        },
        "options": {
            "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }


def _dashed(name: str) -> dict[str, Any]:
    return {
        "matcher": {"id": "byFrameRefID", "options": name},
        "properties": [{"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 8]}}, {"id": "custom.fillOpacity", "value": 0}],
    }
