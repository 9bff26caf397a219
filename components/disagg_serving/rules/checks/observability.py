"""Rules about what is watched."""

from __future__ import annotations

from collections.abc import Iterator

from ... import labels
from ...errors import Level
from ...phrases import either, say
from ...planning.observability import VERSIONED, exposed, list_ids
from ..registry import Fault, Stage, Subject, remove, rule, use

OWNER_KEYS = {labels.MANAGED_BY, labels.PART_OF, labels.COMPONENT, labels.APP_NAME, labels.APP_INSTANCE}
"""Labels by which objects are told to be the project's, or which it may come to set."""
OPERATOR = "the Prometheus operator, for example by kube-prometheus-stack"


@rule("observability-operator", Level.WARNING, Stage.FORM, "https://prometheus-operator.dev/docs/api-reference/api/")
def operator(s: Subject) -> Iterator[Fault]:
    """PodMonitors and alerts need the Prometheus operator's kinds, which a cluster that this stack makes has not at its first `up`."""
    asked = s.spec.observability
    if s.spec.existing_cluster is None:
        for key, wanted in (("podMonitors", asked.pod_monitors), ("alerts", asked.alerts)):
            if wanted:
                message = "fails on a new cluster, where nothing has installed the operator yet"
                fix = "make the cluster without it, install the operator, then turn it on"
                yield Fault(f"observability.{key}", message, True, f"true where there is {OPERATOR}", fix)


@rule("observability-unused", Level.ERROR, Stage.FORM, "our choice: docs/observability.md", firm=True)
def unused(s: Subject) -> Iterator[Fault]:
    """What is set for dashboards, monitors or the exporter's chart has an effect, and takes no label of the project's own."""
    asked = s.spec.observability
    scrapes = asked.pod_monitors or asked.alerts
    idle = {
        "labels": (not scrapes, say("without {podMonitors} or {alerts}")),
        "scrape_interval_seconds": (not asked.pod_monitors, say("without {podMonitors}")),
        "dashboard_labels": (not asked.dashboards, "without dashboards"),
        "dashboard_folder": (not asked.dashboards, "without dashboards"),
        "dcgm_chart": (asked.dcgm_exporter != "chart", say("without {dcgmExporter}: chart")),
    }
    for field, (has_none, why) in idle.items():
        if has_none and field in asked.model_fields_set:
            alias = type(asked).model_fields[field].alias
            place = f"observability.{alias}"
            yield Fault(place, say("has no effect {}", why), None, "without it", ways=[remove(place)])
    for field in ("labels", "dashboard_labels"):
        alias = type(asked).model_fields[field].alias
        for key in sorted(OWNER_KEYS & getattr(asked, field).keys()):
            place = f"observability.{alias}.{key}"
            yield Fault(place, "is set by the project and says whose an object is", None, "labels of your own", ways=[remove(place)])
    if asked.dcgm_exporter == "existing" and not asked.reads_metrics:
        place, message = "observability.dcgmExporter", "has no effect without dashboards or alerts"
        yield Fault(place, message, "existing", "none, chart", ways=[remove(place)])


@rule("observability-labels", Level.ERROR, Stage.FORM, "our choice: docs/observability.md")
def label_source(s: Subject) -> Iterator[Fault]:
    """Dashboards and alerts read labels that the PodMonitors add."""
    asked = s.spec.observability
    if asked.reads_metrics and not asked.pod_monitors:
        message = "is off, so dashboards and alerts find no series with the labels model and role"
        place, advice = "observability.podMonitors", say("{} where your own monitors add them", either("accept it", "accept it (in an Environment)"))
        yield Fault(place, message, False, "true", advice, ways=[use(place, True)])


@rule(
    "observability-metrics",
    Level.ERROR,
    Stage.FORM,
    "docs/observability.md",
    firm=True,
)
def metrics_known(s: Subject) -> Iterator[Fault]:
    """The metrics of the engine, router and Envoy that run are listed, so that no panel and no alert reads one that is not there."""
    if not s.spec.observability.reads_metrics:
        return
    for served in s.served:
        for list_id, path in list_ids(served, s.spec):
            if list_id in served.metric_lists:
                _ = served.metric_lists[list_id].metrics  # a list of the user's own may be faulty
            else:
                message = f"has no list of metrics {list_id}.yaml, so queries cannot be checked against it"
                fix = say("add that file to folder metrics of one of {catalogDirs}, or turn {dashboards} and {alerts} off")
                yield Fault(path, message, served.spec.engine if path.endswith("engine") else None, ", ".join(served.metric_lists), fix)


@rule("observability-left-out", Level.INFO, Stage.FORM, "docs/observability.md")
def left_out(s: Subject) -> Iterator[Fault]:
    """What an engine does not measure is left out of dashboards and alerts, and said."""
    if not s.spec.observability.reads_metrics:
        return
    for served in s.served:
        if all(list_id in served.metric_lists for list_id, _ in list_ids(served, s.spec)) and served.spec.disaggregated:
            for metric, loses in VERSIONED.items():
                if metric not in exposed(served, s.spec):
                    message = f"has no {metric}, which leaves out {loses}"
                    yield Fault(f"{served.path}.engine", message, served.spec.engine, level=Level.INFO)


@rule(
    "observability-dcgm",
    Level.WARNING,
    Stage.FORM,
    "https://github.com/NVIDIA/dcgm-exporter/issues/612 https://github.com/NVIDIA/dcgm-exporter/issues/636 "
    "https://github.com/bottlerocket-os/bottlerocket/issues/3992 https://github.com/aws-observability/helm-charts/issues/217",
)
def dcgm_unproven(s: Subject) -> Iterator[Fault]:
    """The DCGM exporter needs rights that nothing else here has, and whether it starts on a node of Auto Mode shows only there."""
    if s.spec.observability.dcgm_exporter != "chart":
        return
    unproven = ", and was not tried on Auto Mode" if s.spec.makes_pools else ""
    message = f"runs with SYS_ADMIN and a folder of the kubelet{unproven}"
    fix = "look at its log after the first start (docs/observability.md)"
    yield Fault("observability.dcgmExporter", message, "chart", "none, existing", fix)
