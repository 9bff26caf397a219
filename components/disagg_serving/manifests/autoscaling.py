"""KEDA's chart and a ScaledObject a scaled role: what Prometheus is asked, and how fast the number of engines follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import labels
from ..forecast.autoscaling import Signal, pace, signals
from ..pins import keda_images
from ..planning.image_sources import located
from ..planning.scaling import scaled
from ..planning.shapes import Group
from ..spec import AutoscalingSpec
from .lws import is_local
from .names import managed
from .picker import IN_FLIGHT

CHART_RELEASE = "keda"
QUEUE_WINDOW = "2m"
"""Mean of the queue: at one instant it is often empty under steady load."""
DOWN_PERIOD = 300
"""Seconds between two engines that are removed, so that the others take their load one after the other (llm-d's guides)."""


def installs_keda(spec: AutoscalingSpec, groups: Sequence[Group]) -> bool:
    """Whether KEDA's chart is installed: where a role is scaled and nobody else has installed it."""
    return spec.install == "chart" and bool(scaled(groups))


def build_keda_base(spec: AutoscalingSpec) -> dict[str, Any]:
    """KEDA's namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": spec.namespace, "labels": {labels.MANAGED_BY: labels.OWNER}}}


def keda_chart(spec: AutoscalingSpec, sources: Mapping[str, str]) -> tuple[str, str | None]:
    """Chart, from where it is read, and version; a chart in a folder or archive has none."""
    return (spec.chart, None) if is_local(spec.chart) else (located(spec.chart, sources), spec.version)


def keda_chart_values(spec: AutoscalingSpec, sources: Mapping[str, str]) -> dict[str, Any]:
    """Values of the chart: rights over LeaderWorkerSets and its own secrets alone, where the chart's default is everything that scales."""
    images = {}
    for key, image in keda_images(spec.version).items():
        if (moved := located(image, sources)) != image:
            repository, tag = moved.rsplit(":", 1)
            registry, name = repository.split("/", 1)
            images[key] = {"registry": registry, "repository": name, "tag": tag}
    return {
        # pinned tags do not change
        "image": {"pullPolicy": "IfNotPresent", **images},
        "rbac": {"scaledRefKinds": [{"apiGroup": "leaderworkerset.x-k8s.io", "kind": "leaderworkersets"}]},
        "permissions": {"operator": {"restrict": {"secret": True}}},
    }


def build_scaled_objects(groups: Sequence[Group], spec: AutoscalingSpec) -> list[dict[str, Any]]:
    """The ScaledObjects of the scaled ones among these groups."""
    return [build_scaled_object(group, spec) for group in scaled(groups)]


def build_scaled_object(group: Group, spec: AutoscalingSpec) -> dict[str, Any]:
    """ScaledObject `keda.sh/v1alpha1` of one role, on the scale subresource of its LeaderWorkerSet; KEDA makes the HorizontalPodAutoscaler."""
    steps = pace(group)
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": managed(group.name, group.served),
        "spec": {
            "scaleTargetRef": {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": group.name},
            "minReplicaCount": group.spec.least_replicas,
            "maxReplicaCount": group.spec.most_replicas,
            "triggers": [_trigger(group, signal, spec.prometheus_address) for signal in signals(group)],
            "advanced": {
                "horizontalPodAutoscalerConfig": {
                    "behavior": {
                        "scaleUp": {"stabilizationWindowSeconds": 0, "policies": [_one_in(steps.up_period)]},
                        "scaleDown": {"stabilizationWindowSeconds": steps.down_window, "policies": [_one_in(DOWN_PERIOD)]},
                    }
                }
            },
        },
    }


def query_of(group: Group, signal: Signal) -> str:
    """PromQL of one signal: the sum over a role's engines, one series without labels, which KEDA asks for.

    A leader's metrics have a series for each data-parallel rank: requests of the ranks add up, shares of their KV caches do not.
    No series means that nothing is known, not that nothing is to do; then the query is empty, and the number of engines stays as it is.
    """
    pods = f'namespace="{group.namespace}",pod=~"{group.name}-[0-9]+"'
    if signal.name == "kvCacheUsage":
        return f"sum(avg by (pod) (vllm:kv_cache_usage_perc{{{pods}}}))"
    if signal.name == "waitingRequests":
        return f"sum(avg_over_time(vllm:num_requests_waiting{{{pods}}}[{QUEUE_WINDOW}]))"
    return f"({_tokens_in_flight(group)}) / {signal.rate:.0f}"


def _tokens_in_flight(group: Group) -> str:
    """Tokens of prompts that engines have been sent and have not read.

    Routers up to v0.10.0 go on publishing the last value of an endpoint that is gone (https://github.com/llm-d/llm-d-router/issues/2529), so
    that a role would never shrink: only endpoints count that the router sees now. The series of the tokens begin with the first request; until
    then it is 0 for a router that knows its endpoints.
    """
    names = f"{group.name}-[0-9]+(-rank-[0-9]+)?"
    tokens = f'llm_d_epp_inflight_tokens{{namespace="{group.namespace}",producer_name="{IN_FLIGHT}",endpoint_name=~"{names}"}}'
    seen = f'llm_d_epp_per_endpoint_queue_size{{namespace="{group.namespace}",model_server_endpoint=~"{names}"}}'

    def by_engine(series: str, label: str) -> str:
        return f'label_replace({series}, "engine", "$1", "{label}", "(.+)")'

    alive = f"{by_engine(tokens, 'endpoint_name')} and on (engine) {by_engine(seen, 'model_server_endpoint')}"
    return f"sum({alive}) or 0 * sum({seen})"


def _trigger(group: Group, signal: Signal, address: str | None) -> dict[str, Any]:
    return {
        "type": "prometheus",
        "name": signal.name,
        # wanted engines = value / threshold, whatever their number is now
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": address,
            "query": query_of(group, signal),
            "threshold": f"{signal.threshold:g}",
            "ignoreNullValues": "false",
        },
    }


def _one_in(seconds: int) -> dict[str, Any]:
    return {"type": "Pods", "value": 1, "periodSeconds": seconds}
