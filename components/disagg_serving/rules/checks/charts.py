"""Rules about charts: where they come from, and whether their release can do what is asked of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...errors import Level
from ...pins import LWS_CHART
from ...planning.image_sources import OCI
from ...planning.shapes import group_size
from ..registry import Fault, Stage, Subject, rule, use

OLDEST_LWS = (0, 9, 0)
"""The release that brought RecreateGroupAfterStart, and the one that the tests of a real control plane run."""
TAG = re.compile(r":[^/:@]+$")


@rule("chart-source", Level.ERROR, Stage.FORM, "https://helm.sh/docs/topics/registries/")
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


@rule(
    "lws-version",
    Level.ERROR,
    Stage.FORM,
    "https://github.com/kubernetes-sigs/lws/blob/v0.9.0/api/leaderworkerset/v1/leaderworkerset_types.go (RecreateGroupAfterStart)",
)
def lws_version(s: Subject) -> Iterator[Fault]:
    """The LeaderWorkerSet controller knows the restart policy of groups over several nodes; what is older is not tested either."""
    lws = s.spec.lws
    if lws.install == "chart" and tuple(map(int, re.split(r"[-+]", lws.version)[0].split("."))) < OLDEST_LWS:
        oldest = ".".join(map(str, OLDEST_LWS))
        wide = any(group_size(role, served.instances[name]) > 1 for served, name, role, _ in s.roles())
        message = "does not know how groups over several nodes restart" if wide else "is older than any release that was tested"
        level = None if wide else Level.WARNING
        yield Fault("lws.version", message, lws.version, f"{oldest} or newer", level=level, ways=[use("lws.version", LWS_CHART.version)])
