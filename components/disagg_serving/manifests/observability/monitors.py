"""What Prometheus reads: leaders of each role and the router.

Decode leaders are read on the sidecar's port, which hands /metrics through to vLLM; vLLM's own port behind it is closed to Prometheus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...planning.shapes import API_PORT, Group, Served
from ...spec import ObservabilitySpec
from ..names import leader_selector, managed, pair_name, router_labels
from ..network_policy import PICKER_METRICS_PORT, PROXY_READY_PORT

ROUTER = "router"
ENVOY_PATH = "/stats/prometheus"


def build_monitors(served: Served, groups: Sequence[Group], asked: ObservabilitySpec) -> list[dict[str, Any]]:
    """PodMonitors of one pair: one a role, and of the pair that serves one of the router with the endpoint picker and Envoy.

    Series of a candidate that waits have another `model`, so that no dashboard, alert or autoscaler of the model takes them for its own.
    """
    read: list[tuple[str, str, Mapping[str, str], dict[int, str]]] = [(g.name, g.role, leader_selector(g), {API_PORT: "/metrics"}) for g in groups]
    if served.spec.gateway.enabled and served.live:
        read.append((f"{served.spec.name}-router", ROUTER, router_labels(served), {PICKER_METRICS_PORT: "/metrics", PROXY_READY_PORT: ENVOY_PATH}))
    found = []
    for name, role, pods, ports in read:
        added = {"model": pair_name(served), "role": role}
        found.append(pod_monitor(managed(name, served), pods, [endpoint(port, path, asked, added) for port, path in ports.items()], asked))
    return found


def endpoint(port: int, path: str, asked: ObservabilitySpec, added: Mapping[str, str], **more: Any) -> dict[str, Any]:
    """An endpoint by the number of its port: containers of one pod may name theirs alike. `added` are labels of its series."""
    relabelings = [{"targetLabel": label, "replacement": value} for label, value in added.items()]
    relabeled = {"relabelings": relabelings} if relabelings else {}
    return {"portNumber": port, "path": path, "interval": f"{asked.scrape_interval_seconds}s", **relabeled, **more}


def pod_monitor(metadata: Mapping[str, Any], pods: Mapping[str, str], endpoints: Sequence[Any], asked: ObservabilitySpec) -> dict[str, Any]:
    """A PodMonitor for the pods of its own namespace with these labels."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {**metadata, "labels": {**metadata["labels"], **asked.labels}},
        "spec": {"selector": {"matchLabels": dict(pods)}, "podMetricsEndpoints": list(endpoints)},
    }
