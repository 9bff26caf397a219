"""Namespaces of installed charts that are somebody else's."""

from __future__ import annotations

from typing import Any

from factories import environment, model, role

from .case import Case, one

OWN = "a namespace of its own"
SCALED = model(decode=role(autoscaling={"maxReplicaCount": 2}))
PROMETHEUS = {"prometheusAddress": "http://prometheus-operated.monitoring.svc:9090"}


def keda(namespace: str, **overrides: Any) -> dict[str, Any]:
    """An environment that installs KEDA into this namespace."""
    return environment(SCALED, autoscaling={**PROMETHEUS, "namespace": namespace}, **overrides)


NAMESPACE_CASES = [
    *(
        Case(f"{chart} in {space}", data, path, space, OWN, "remove it", "belongs to the system")
        for space in ("default", "kube-system", "kube-public", "kube-node-lease")
        for chart, path, data in (
            ("LWS", "lws.namespace", environment(lws={"namespace": space})),
            ("KEDA", "autoscaling.namespace", keda(space)),
        )
    ),
    Case("LWS beside Prometheus", environment(lws={"namespace": "monitoring"}), "lws.namespace", "monitoring", OWN, "remove it", "Prometheus"),
    Case("KEDA beside Prometheus", keda("monitoring"), "autoscaling.namespace", "monitoring", OWN, "remove it", "that of Prometheus"),
    Case("KEDA beside LWS", keda("lws-system"), "autoscaling.namespace", "lws-system", OWN, "remove it", "the LeaderWorkerSet controller"),
    Case("LWS beside KEDA", keda("keda", lws={"namespace": "keda"}), "autoscaling.namespace", "keda", OWN, "remove lws.namespace"),
    Case(
        "LWS beside the DCGM exporter",
        environment(lws={"namespace": "dcgm-exporter"}, observability={"dcgmExporter": "chart"}),
        "lws.namespace",
        "dcgm-exporter",
        OWN,
        "remove it",
    ),
    Case("KEDA beside a model", {**keda("m"), "lws": {"install": "existing"}}, "models[0].namespace", "m", OWN, "models[].namespace"),
    Case("model beside an LWS of somebody", one(namespace="lws-system"), "models[0].namespace", "lws-system", OWN, "choose another"),
]
