"""A PrometheusRule a model. Every alert says what it means; docs/observability.md says what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ...planning.observability import exposed, metric_names
from ...planning.shapes import Group, Layout, Served
from ...planning.startup import startup_budget_seconds
from ...spec import NodePoolsSpec
from ..names import managed
from .queries import CLIENTS, Queries, or_zero, pods_of

WINDOW = "10m"
KV_FULL = 0.95
"""Above it the next long request preempts another."""
ERROR_SHARE, DECODE_ONLY_SHARE = 0.05, 0.05
EXPIRY_LEAD_HOURS = 24
"""How long before a node's end the alert comes, at most: a working day to move its engines at a time of one's own."""
NODE_REGISTRATION_SECONDS = 600
"""A NodeClaim's age counts from before its node is registered; a p5 needs minutes to boot."""
ROUTER_TARGETS = 2
"""Endpoint picker and Envoy."""


@dataclass(frozen=True)
class Alert:
    """An alert. It is there while `expression` has been true for `minutes`."""

    name: str
    expression: str
    minutes: int
    severity: Literal["critical", "warning"]
    summary: str
    description: str
    labels: Mapping[str, str] = field(default_factory=dict)


def build_rule(served: Served, groups: Sequence[Group], layout: Layout) -> dict[str, Any]:
    """The PrometheusRule of a model."""
    metadata = managed(f"{served.spec.name}-alerts", served)
    rules = [
        {
            "alert": a.name,
            "expr": a.expression,
            "for": f"{a.minutes}m",
            "labels": {"severity": a.severity, "model": served.spec.name, **a.labels},
            "annotations": {"summary": a.summary, "description": a.description},
        }
        for a in alerts(served, groups, layout)
    ]
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {**metadata, "labels": {**metadata["labels"], **layout.spec.observability.labels}},
        "spec": {"groups": [{"name": f"{served.spec.name}-alerts", "rules": rules}]},
    }


def alerts(served: Served, groups: Sequence[Group], layout: Layout) -> list[Alert]:
    """The alerts of a model, without those whose metrics its engine and router do not expose."""
    known = exposed(served, layout.spec)
    return [a for a in _all(served, groups, layout) if metric_names(a.expression) <= known]


def _all(served: Served, groups: Sequence[Group], layout: Layout) -> Iterator[Alert]:
    if served.spec.disaggregated:
        yield from _transfers(served)
        yield from _prefill_unused(served)
    yield from _engines(served, groups)
    waiting = [g for candidate in layout.candidates_of(served) for g in layout.groups_of(candidate)]
    yield from _half_groups([*groups, *waiting])
    yield from _nodes(groups, layout)
    if served.spec.gateway.enabled:
        yield from _router(served)
    if layout.spec.observability.has_gpu_metrics:
        yield from _gpus(groups)


def _transfers(served: Served) -> Iterator[Alert]:
    q = Queries(served, WINDOW)
    failed = [q.increase(q.of("vllm:nixl_num_failed_transfers_total", role), "namespace, pod") for role in ("prefill", "decode")]
    yield Alert(
        "KvTransfersFailing",
        " > 0 or ".join(failed) + " > 0",
        1,
        "critical",
        "KV transfers of {{ $labels.pod }} fail",
        "{{ $value | humanize }} transfers failed in ten minutes. Each is a request that ended with an error.",
    )
    yield Alert(
        "KvExpired",
        f"{q.increase(q.of('vllm:nixl_num_kv_expired_reqs_total', 'prefill'), 'namespace, pod')} > 0",
        1,
        "warning",
        "KV on {{ $labels.pod }} was not fetched in time",
        "{{ $value | humanize }} requests in ten minutes: decode did not come for their KV within its lease, or a client went away in between.",
    )
    yield Alert(
        "KvReadAfterExpiry",
        f"{q.increase(q.of('vllm:nixl_num_notifications_after_expiry_total', 'prefill'), 'namespace, pod')} > 0",
        1,
        "critical",
        "KV of {{ $labels.pod }} was read after it had been given up",
        "{{ $value | humanize }} reads in ten minutes. Their blocks may have held another request's KV, so answers may be wrong.",
    )


def _prefill_unused(served: Served) -> Iterator[Alert]:
    q = Queries(served, WINDOW)
    by_prefix = served.spec.gateway.enabled and served.spec.gateway.routing.disaggregation == "prefixBased"
    prefill, decode = (q.rate(q.of("vllm:request_success_total", role)) for role in ("prefill", "decode"))
    yield Alert(
        "PrefillUnused",
        f"{decode} > 0 and {or_zero(prefill)} == 0",
        15,
        "warning" if by_prefix else "critical",
        f"decode of {served.spec.name} answers and prefill does nothing",
        "Requests end on decode pods and none on prefill pods: decode computes prompts itself, and prefill's GPUs stand idle.",
    )
    if served.spec.gateway.enabled and not by_prefix:
        decisions = "llm_d_epp_disagg_decision_total"
        alone, total = q.rate(q.router(decisions, decision_type="decode-only")), q.rate(q.router(decisions))
        yield Alert(
            "DecodeOnlyTraffic",
            f"{alone} / {total} > {DECODE_ONLY_SHARE:g}",
            10,
            "warning",
            f"the router of {served.spec.name} sends requests past prefill",
            "{{ $value | humanizePercentage }} of the requests went to decode alone, though all are to be split: no prefill pod was ready.",
        )


def _engines(served: Served, groups: Sequence[Group]) -> Iterator[Alert]:
    q = Queries(served, WINDOW)
    for group in groups:
        role, name = group.role, group.name
        answering, of_role = q.of("up", role), {"role": role}
        cache = "KV cache of a data-parallel rank" if group.spec.data_parallel > 1 else "KV cache"
        yield Alert(
            "EnginesMissing",
            f"{or_zero(f'sum({answering})')} < {group.replicas}",
            startup_budget_seconds(served) // 60 + 10,
            "critical",
            f"engines of {name} are missing",
            f"{{{{ $value }}}} of {group.replicas} engines can be read, for longer than a start takes.",
            of_role,
        )
        yield Alert(
            "KvCacheNearFull",
            f"max by (namespace, pod) ({q.of('vllm:kv_cache_usage_perc', role)}) > {KV_FULL:g}",
            10,
            "warning",
            f"the {cache} of {{{{ $labels.pod }}}} is nearly full",
            "{{ $value | humanizePercentage }} of the KV blocks are in use: the next long request waits, or throws another out.",
            of_role,
        )
        yield Alert(
            "RequestsPreempted",
            f"{q.increase(q.of('vllm:num_preemptions_total', role), 'namespace, pod')} > 0",
            15,
            "warning",
            "requests of {{ $labels.pod }} are thrown out of the batch",
            "{{ $value | humanize }} in ten minutes. Each is computed again from its beginning.",
            of_role,
        )
        yield Alert(
            "RequestsWaiting",
            f"sum({q.of('vllm:num_requests_waiting_by_reason', role, reason='capacity')}) > 0",
            15,
            "warning",
            f"requests of {name} wait for capacity",
            "{{ $value }} requests have no room in a batch or in a KV cache.",
            of_role,
        )


def _half_groups(groups: Sequence[Group]) -> Iterator[Alert]:
    """Of candidates, too: half a group holds GPUs whether requests are meant for it or not."""
    for group in groups:
        if group.size > 1:
            scheduled = pods_of([group], "kube_pod_status_scheduled", condition="true")
            placed = f'sum by (namespace, group) (label_replace({scheduled}, "group", "$1", "pod", "({group.name}-[0-9]+)(-[0-9]+)?"))'
            yield Alert(
                "GroupHalfScheduled",
                f"{placed} > 0 < {group.size}",
                15,
                "critical",
                "{{ $labels.group }} has only a part of its pods on nodes",
                f"{{{{ $value }}}} of {group.size} pods have a node. They hold their GPUs and wait for the others.",
                {"role": group.role},
            )


def _nodes(groups: Sequence[Group], layout: Layout) -> Iterator[Alert]:
    if layout.pools:
        lasts, lead = _node_life(layout.settings)
        where = f"group by (node) ({pods_of(groups, 'kube_pod_info')})"
        yield Alert(
            "NodeExpiresSoon",
            f"(max by (node) (kube_node_created) + {lasts} - time()) < {lead} and on (node) {where}",
            5,
            "warning",
            "node {{ $labels.node }} ends soon",
            "In {{ $value | humanizeDuration }} its age reaches nodePools.expireAfterHours; its engines stay terminationGraceHours more, then move.",
        )


def _node_life(settings: NodePoolsSpec) -> tuple[int, int]:
    """Seconds from a node's registration to its end, and how long before it the alert comes."""
    hours = settings.expire_after_hours
    return hours * 3600 - NODE_REGISTRATION_SECONDS, round(min(EXPIRY_LEAD_HOURS, hours / 2) * 3600)


def _router(served: Served) -> Iterator[Alert]:
    q = Queries(served, "5m")
    codes, answering = "envoy_http_downstream_rq_xx", q.router("up")
    failed, total = q.rate(q.router(codes, **CLIENTS, envoy_response_code_class="5")), q.rate(q.router(codes, **CLIENTS))
    yield Alert(
        "RouterErrors",
        f"{failed} / {total} > {ERROR_SHARE:g}",
        5,
        "critical",
        f"the router of {served.spec.name} answers with errors",
        "{{ $value | humanizePercentage }} of the answers have status 5xx.",
    )
    yield Alert(
        "RouterDown",
        f"{or_zero(f'sum({answering})')} < {ROUTER_TARGETS}",
        5,
        "critical",
        f"the router of {served.spec.name} cannot be read",
        "Endpoint picker or Envoy does not answer. Without the picker, Envoy refuses every request.",
    )


def _gpus(groups: Sequence[Group]) -> Iterator[Alert]:
    rows, last = (pods_of(groups, metric) for metric in ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_XID_ERRORS"))
    of_gpu = "max by (namespace, pod, Hostname, gpu)"
    yield Alert(
        "GpuFault",
        f"{of_gpu} ({rows}) > 0 or {of_gpu} ({last} > 0 and changes({last}[30m]) > 0)",
        1,
        "warning",
        "GPU {{ $labels.gpu }} of {{ $labels.Hostname }} reports a fault",
        "A memory row could not be replaced (1), or the driver reported XID {{ $value }} to {{ $labels.pod }}.",
    )
