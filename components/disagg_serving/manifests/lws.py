"""The LeaderWorkerSet controller: what goes around its chart, and the chart's values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import labels
from ..pins import lws_image
from ..planning.image_sources import located
from ..spec import LwsSpec

CHART_RELEASE = "lws"
CONTROLLER_LABELS = {"control-plane": "controller-manager"}


def build_lws_base(spec: LwsSpec) -> list[dict[str, Any]]:
    """The controller's namespace and a disruption budget, which its chart does not bring."""
    if spec.install == "existing":
        return []
    managed = {labels.MANAGED_BY: labels.OWNER}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": spec.namespace, "labels": managed}},
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "lws-controller", "namespace": spec.namespace, "labels": managed},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": dict(CONTROLLER_LABELS)}},
        },
    ]


def is_local(chart: str) -> bool:
    """Whether a chart is a folder or archive and not in a registry."""
    return "://" not in chart and (chart.endswith(".tgz") or chart.startswith((".", "/")) or Path(chart).is_dir())


def lws_chart(spec: LwsSpec, sources: Mapping[str, str]) -> tuple[str, str | None]:
    """Chart, from where it is read, and version; a chart in a folder or archive has none."""
    return (spec.chart, None) if is_local(spec.chart) else (located(spec.chart, sources), spec.version)


def chart_values(spec: LwsSpec, sources: Mapping[str, str]) -> dict[str, Any]:
    """Values of the chart: two replicas, since its webhooks fail closed and a lone controller's restart blocks new pods.

    The image is named only where it comes from a mirror.
    """
    image = located(lws_image(spec.version), sources)
    repository, tag = image.rsplit(":", 1)
    moved = {"image": {"manager": {"repository": repository, "tag": tag}}} if image != lws_image(spec.version) else {}
    return {"replicaCount": spec.replicas, **moved}
