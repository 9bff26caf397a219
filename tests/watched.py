"""Environments that are watched, and every expression that is made for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from disagg_serving.manifests.bundle import build_all
from disagg_serving.planning.shapes import Layout
from factories import aggregated, environment, existing_cluster, layout, model, role

ALL = {"podMonitors": True, "dashboards": True, "alerts": True, "dcgmExporter": "chart", "labels": {"release": "stack"}}
WORKLOAD = {"inputTokens": 8000, "outputTokens": 1000, "requestsPerSecond": 2}
RATES = [{"inputTokens": 8000, "tokensPerSecondPerGPU": 3000}]
RESERVED = {"type": "reserved", "reservationIds": ["cr-0123456789abcdef0"], "nodes": 4}
OLD = "vllm-0.27.1-dlc"
WINDOW = "$__rate_interval"
"""Grafana's variable, which is no PromQL."""


def pair(**overrides: Any) -> dict[str, Any]:
    """A model with prefill and decode of unequal engines, a workload and measured rates."""
    prefill = role(tensorParallel=4, replicas=2, measuredRates=RATES)
    return model(**{"prefill": prefill, "decode": role(replicas=4, measuredRates=RATES), "workload": WORKLOAD, **overrides})


def groups(**overrides: Any) -> dict[str, Any]:
    """A model whose engines are groups of two pods."""
    server = role(tensorParallel=8, pipelineParallel=2, replicas=2, capacity=RESERVED)
    return aggregated(model="glm-5-fp8", name="big", workload=WORKLOAD, server=server, **overrides)


ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "prefill and decode": environment(pair(), observability=ALL),
    "prefill and decode, older engine": environment(pair(engine=OLD), observability=ALL),
    "prefill by prefix": environment(
        pair(gateway={"routing": {"disaggregation": "prefixBased", "nonCachedTokens": 512}}), observability={**ALL, "dcgmExporter": "existing"}
    ),
    "groups": environment(groups(), observability=ALL),
    "no router, no workload": environment(aggregated(gateway={"enabled": False}), observability={**ALL, "dcgmExporter": "none"}),
    "scaled, with a candidate": environment(
        pair(
            decode=role(autoscaling={"minReplicaCount": 3, "maxReplicaCount": 7}),
            candidate={"generation": "b", "engine": OLD},
        ),
        autoscaling={"prometheusAddress": "http://prometheus-operated.monitoring.svc:9090"},
        observability=ALL,
    ),
    "two models": environment(pair(name="a"), aggregated(name="b"), observability=ALL),
    "without Auto Mode": {
        **existing_cluster(model(prefill=role(nodeSelector={"pool": "p"}), decode=role(nodeSelector={"pool": "d"})), autoMode=False),
        "observability": ALL,
    },
}


def watched(name: str) -> Layout:
    """The layout of one of them."""
    return layout(ENVIRONMENTS[name])


def objects(wanted: Layout, kind: str) -> list[dict[str, Any]]:
    """Its objects of a kind, in apply order."""
    return [o for o in build_all(wanted) if o["kind"] == kind]


def dashboards(wanted: Layout) -> dict[str, Any]:
    """Its dashboards as Grafana reads them, by the name of their ConfigMap."""
    found = {}
    for o in objects(wanted, "ConfigMap"):
        if "grafana_dashboard" in o["metadata"].get("labels", {}):
            (text,) = o["data"].values()
            found[o["metadata"]["name"]] = json.loads(text)
    return found


def rules(wanted: Layout, model_name: str | None = None) -> list[dict[str, Any]]:
    """Its alerts, of one model or of all."""
    made = [o for o in objects(wanted, "PrometheusRule") if model_name in (None, o["metadata"]["namespace"])]
    return [r for o in made for g in o["spec"]["groups"] for r in g["rules"]]


def expressions(wanted: Layout) -> Iterator[tuple[str, str, str]]:
    """Every query of dashboards and alerts: namespace, place, and PromQL without Grafana's variable."""
    for o in objects(wanted, "ConfigMap"):
        name, namespace = o["metadata"]["name"], o["metadata"]["namespace"]
        for panel in dashboards(wanted).get(name, {}).get("panels", []):
            for target in panel.get("targets", []):
                yield namespace, f"{name}: {panel['title']}", target["expr"].replace(WINDOW, "5m")
    for o in objects(wanted, "PrometheusRule"):
        for group in o["spec"]["groups"]:
            for r in group["rules"]:
                yield o["metadata"]["namespace"], r["alert"], r["expr"]
