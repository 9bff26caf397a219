"""The LeaderWorkerSet controller: what goes around its chart, and the chart's values."""

from __future__ import annotations

from typing import Any

from .. import labels
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


def chart_values(spec: LwsSpec) -> dict[str, Any]:
    """Values of the chart: two replicas, since its webhooks fail closed and a lone controller's restart blocks new pods."""
    return {"replicaCount": spec.replicas}
