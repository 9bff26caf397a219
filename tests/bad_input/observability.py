"""Settings of what is watched that break a rule."""

from __future__ import annotations

from typing import Any

from factories import aggregated, environment, existing_cluster, model

from .case import OLD_ENGINE, Case

AT = "observability"
WITH_LABELS = {"podMonitors": True, "dashboards": True}


def watched(**asked: Any) -> dict[str, Any]:
    """An environment with this block."""
    return environment(model(), observability=asked)


def other_engine() -> dict[str, Any]:
    """An environment whose engine has an entry in a folder of its own, and no list of metrics."""
    return environment(aggregated(engine="old"), catalogDirs=["mine"], observability=WITH_LABELS)


OBSERVABILITY_CASES = [
    Case("misspelt block of monitors", watched(podMonitor=True), f"{AT}.podMonitor", allowed="podMonitors", fix="did you mean podMonitors"),
    Case("exporter of another kind", watched(dcgmExporter="operator"), f"{AT}.dcgmExporter", "operator", "none, chart"),
    Case("scraping too often", watched(podMonitors=True, scrapeIntervalSeconds=1), f"{AT}.scrapeIntervalSeconds", "1", "at least 5"),
    Case("label that is none", watched(podMonitors=True, labels={"release": "a b"}), f"{AT}.labels.release", "a b", "a label value"),
    Case("dashboards without monitors", watched(dashboards=True), f"{AT}.podMonitors", "false", "true", "use true"),
    Case("alerts without monitors", watched(alerts=True), f"{AT}.podMonitors", "false", "true", "use true", "find no series"),
    Case("labels of nothing", watched(labels={"release": "x"}), f"{AT}.labels", says="without podMonitors or alerts", fix="remove it"),
    Case("interval of nothing", watched(scrapeIntervalSeconds=30), f"{AT}.scrapeIntervalSeconds", says="without podMonitors", fix="remove it"),
    Case("folder of nothing", watched(podMonitors=True, dashboardFolder="x"), f"{AT}.dashboardFolder", says="without dashboards", fix="remove it"),
    Case("dashboard labels of nothing", watched(dashboardLabels={"x": "y"}), f"{AT}.dashboardLabels", says="without dashboards", fix="remove it"),
    *(
        Case(f"label of the owner: {key}", watched(podMonitors=True, labels={key: "x"}), f"{AT}.labels.{key}", "", "labels of your own", "remove it")
        for key in ("app.kubernetes.io/managed-by", "app.kubernetes.io/part-of", "app.kubernetes.io/name")
    ),
    Case(
        "label of the owner on dashboards",
        watched(podMonitors=True, dashboards=True, dashboardLabels={"app.kubernetes.io/managed-by": "x"}),
        f"{AT}.dashboardLabels.app.kubernetes.io/managed-by",
        "",
        "labels of your own",
        "remove it",
    ),
    Case("chart of nothing", watched(dcgmChart="oci://a/b"), f"{AT}.dcgmChart", says="without dcgmExporter: chart", fix="remove it"),
    Case("GPU metrics that nobody reads", watched(dcgmExporter="existing"), f"{AT}.dcgmExporter", "existing", "none, chart", "remove it"),
    Case(
        "engine without a list of metrics",
        other_engine(),
        "models[0].engine",
        "old",
        "vllm-0.33.0",
        "add that file to folder metrics of one of catalogDirs",
        files={"mine/engines/old.yaml": OLD_ENGINE},
    ),
    Case(
        "faulty list of metrics",
        other_engine(),
        "mine/metrics/vllm-0.1.0.yaml: metrics[0].type",
        "meter",
        "gauge",
        files={
            "mine/engines/old.yaml": OLD_ENGINE,
            "mine/metrics/vllm-0.1.0.yaml": {
                "id": "vllm-0.1.0",
                "component": "vllm",
                "version": "0.1.0",
                "source": ["here"],
                "checked": "2026-11-30",
                "metrics": [{"name": "a", "type": "meter", "meaning": "x"}],
            },
        },
    ),
    Case(
        "model in the exporter's namespace",
        environment(model(namespace="dcgm-exporter"), observability={"dcgmExporter": "chart"}),
        "models[0].namespace",
        "dcgm-exporter",
        "a namespace of its own",
        "choose another",
    ),
    Case(
        "dashboards of an existing cluster without monitors",
        {**existing_cluster(), "observability": {"dashboards": True}},
        f"{AT}.podMonitors",
        "false",
        "true",
        "use true",
    ),
]
