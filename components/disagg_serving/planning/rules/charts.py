"""Rules about where charts come from."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...errors import Level
from ..sources import OCI
from .registry import Fault, Stage, Subject, rule, use

TAG = re.compile(r":[^/:@]+$")


@rule("chart-source", Level.ERROR, Stage.FORM, "Helm: an OCI chart's tag is its version, which has a field; disagg-serving: nothing floats")
def chart_source(s: Subject) -> Iterator[Fault]:
    """A chart in a registry is named without a tag: its version is pinned beside it, and a tag such as main would float."""
    given = {
        "lws.chart": s.spec.lws.chart,
        "router.chart": s.spec.router.chart,
        "autoscaling.chart": s.spec.autoscaling.chart,
        "observability.dcgmChart": s.spec.observability.dcgm_chart,
    }
    for path, chart in given.items():
        if chart and chart.startswith(OCI) and (tag := TAG.search(chart, len(OCI))) and "/" in chart[len(OCI) : tag.start()]:
            yield Fault(path, f"has the tag {tag[0][1:]} beside a version", chart, "a chart without a tag", ways=[use(path, chart[: tag.start()])])
