"""Which metrics a model's parts expose, and what a query reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from ..pins import DCGM_CHART
from ..spec import EnvironmentSpec
from .shapes import Served

COMMON = ("kube-state-metrics-2.20.0", "prometheus-3.16.0")
"""Lists of what kube-prometheus-stack brings."""
VERSIONED = {
    "vllm:num_requests_kv_fetch_by_stage": "the panel of loads by stage",
    "vllm:nixl_num_notifications_after_expiry_total": "the alert KvReadAfterExpiry and its line of a panel",
}
"""Metrics that not every listed engine has, with what is left out without them."""
EXPORTER_NAMESPACE = "dcgm-exporter"
"""Namespace of the DCGM exporter that is installed; its own, because it needs rights that nothing else should have."""

_NOT_NAMES = (
    re.compile(r'"(?:[^"\\]|\\.)*"'),
    re.compile(r"\{[^}]*\}"),
    re.compile(r"\[[^\]]*\]"),
    re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)"),
)
_NAME = re.compile(r"(?<![\w.:])[a-zA-Z_:][\w:]*+(?!\s*\()")
_WORDS = frozenset({"and", "or", "unless", "bool", "offset", "group_left", "group_right"})


def list_ids(served: Served, spec: EnvironmentSpec) -> Iterator[tuple[str, str]]:
    """Ids of the lists that a model's queries are checked against, each with the place in the stack file that asks for it."""
    yield f"{served.engine.engine}-{served.engine.version}", f"{served.path}.engine"
    if served.spec.gateway.enabled:
        yield served.router_id, "router.version"
        yield "envoy-" + _release(served.router.images.proxy.tag), "router.version"
    if spec.observability.has_gpu_metrics:
        yield f"dcgm-exporter-{DCGM_CHART.version}", "observability.dcgmExporter"
    yield from ((common, "observability") for common in COMMON)


def exposed(served: Served, spec: EnvironmentSpec) -> frozenset[str]:
    """Names of all series that a model's queries may read. Raises SpecError for a faulty list; an unknown one has none."""
    lists = [served.metric_lists[i] for i, _ in list_ids(served, spec) if i in served.metric_lists]
    return frozenset(name for known in lists for metric in known.metrics for name in metric.series)


@cache
def metric_names(expression: str) -> frozenset[str]:
    """Names of the metrics that an expression of ours reads; it knows the part of PromQL that they are written in."""
    for part in _NOT_NAMES:
        expression = part.sub(" ", expression)
    return frozenset(_NAME.findall(expression)) - _WORDS


def _release(tag: str) -> str:
    found = re.search(r"\d+\.\d+\.\d+", tag)
    return found.group() if found else tag
