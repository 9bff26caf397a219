"""What is watched: monitors, dashboards, alerts and the DCGM exporter of an environment."""

from __future__ import annotations

from typing import Any

from ...planning.shapes import Layout
from .alerts import build_rule
from .dashboards import build_dashboards
from .dcgm import build_exporter_base, build_exporter_monitor
from .monitors import build_monitors

__all__ = ["build_observability"]


def build_observability(layout: Layout) -> list[dict[str, Any]]:
    """Every object that was asked for, in apply order; the DCGM exporter's chart comes after its namespace and is not among them."""
    asked = layout.spec.observability
    objects = build_exporter_base(layout) if asked.dcgm_exporter == "chart" else []
    for served in layout.served:
        groups = layout.groups_of(served)
        for pair in (served, *layout.candidates_of(served)) if asked.pod_monitors else ():
            objects += build_monitors(pair, layout.groups_of(pair), asked)
        objects += [build_rule(served, groups, layout)] if asked.alerts else []
        objects += build_dashboards(served, groups, layout) if asked.dashboards else []
    if asked.pod_monitors and asked.dcgm_exporter == "chart":
        objects.append(build_exporter_monitor(asked))
    return objects
