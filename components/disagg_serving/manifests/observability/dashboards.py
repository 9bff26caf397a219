"""Three dashboards a model: traffic of its roles, KV transfer (with prefill and decode), capacity against the plan."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ... import labels
from ...planning.observability import exposed, metric_names
from ...planning.shapes import Group, Layout, Served
from ..names import managed
from .capacity import capacity_dashboard
from .panels import Dashboard, Note, Panel, Query, Row, grafana
from .queries import CLIENTS, Queries, constant, pods_of

WINDOW = "$__rate_interval"
"""Grafana's own: long enough for the interval at which Prometheus reads."""


def build_dashboards(served: Served, groups: Sequence[Group], layout: Layout) -> list[dict[str, Any]]:
    """A model's dashboards as ConfigMaps that Grafana's sidecar finds."""
    asked = layout.spec.observability
    metadata = {"annotations": {labels.GRAFANA_FOLDER: asked.dashboard_folder}} if asked.dashboard_folder else {}
    objects = []
    for dashboard in dashboards(served, groups, layout):
        own = managed(dashboard.name, served)
        text = json.dumps(grafana(dashboard), indent=1, ensure_ascii=False) + "\n"
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {**own, "labels": {**own["labels"], **asked.dashboard_labels}, **metadata},
                "data": {f"{dashboard.name}.json": text},
            }
        )
    return objects


def dashboards(served: Served, groups: Sequence[Group], layout: Layout) -> list[Dashboard]:
    """A model's dashboards, without what its engine and router do not expose."""
    gpus = layout.spec.observability.has_gpu_metrics
    found = [serving_dashboard(served, groups, gpus=gpus), capacity_dashboard(served, groups, layout, WINDOW)]
    if served.spec.disaggregated:
        found.insert(1, transfer_dashboard(served))
    known = exposed(served, layout.spec)
    return [_without_unknown(d, known) for d in found]


def serving_dashboard(served: Served, groups: Sequence[Group], *, gpus: bool) -> Dashboard:
    """Traffic, latency and engines of the roles."""
    split, name = served.spec.disaggregated, served.spec.name
    rows = [Row("Engines", _engines(served, groups))]
    if served.spec.gateway.enabled:
        rows = [Row("Requests at the router", _router(served)), *rows]
    if gpus:
        rows.append(Row("GPUs", _gpus(groups)))
    return Dashboard(
        name,
        "serving",
        f"{name}: prefill and decode" if split else f"{name}: serving",
        "Requests from the router through prefill and decode." if split else "Requests from the router through the engines.",
        rows,
    )


def _router(served: Served) -> list[Panel]:
    q = Queries(served, WINDOW)
    work = served.spec.workload
    wanted = (Query(constant(work.requests_per_second), "workload of the plan", planned=True),) if work else ()
    requests = q.rate(q.router("llm_d_epp_request_total"))
    codes = q.rate(q.router("envoy_http_downstream_rq_xx", **CLIENTS), "envoy_response_code_class")
    panels = [
        Panel("Requests", "Requests a second, as the endpoint picker counts them.", (Query(requests, "requests"), *wanted), "reqps"),
        Panel(
            "Answers by code",
            "Answers of Envoy to clients by class of status code, and questions that the endpoint picker left without an answer.",
            (
                Query(codes, "{{envoy_response_code_class}}xx"),
                Query(q.rate(q.router("envoy_http_ext_proc_streams_failed", **CLIENTS)), "endpoint picker failed"),
            ),
            "reqps",
        ),
    ]
    if served.spec.disaggregated:
        decisions = q.rate(q.router("llm_d_epp_disagg_decision_total"), "decision_type")
        about = "How the endpoint picker split requests. decode-only means that prefill was not used."
        panels.append(Panel("Split of requests", about, (Query(decisions, "{{decision_type}}"),), "reqps"))
    panels += [
        _quantiles(q, "Time to first token", "From the request to the first byte of its answer.", "llm_d_epp_request_ttft_seconds", "router"),
        _quantiles(q, "Between tokens", "Between two chunks of a streamed answer.", "llm_d_epp_request_streaming_itl_seconds", "router"),
        _quantiles(q, "Whole request", "From the request to the end of its answer.", "llm_d_epp_request_duration_seconds", "router"),
    ]
    return panels


def _engines(served: Served, groups: Sequence[Group]) -> list[Panel]:
    q = Queries(served, WINDOW)
    roles = [g.role for g in groups]
    prompts, answers = ("prefill", "decode") if served.spec.disaggregated else ("server", "server")

    def of_pods(metric: str, how: str = "sum", **more: str) -> tuple[Query, ...]:
        return tuple(Query(f"{how} by (pod) ({q.of(metric, role, **more)})", "{{pod}}") for role in roles)

    hits = " / ".join(q.rate(q.of(f"vllm:prefix_cache_{what}_total", prompts)) for what in ("hits", "queries"))
    stages = [("waits", "vllm:request_queue_time_seconds", prompts), ("prefill", "vllm:request_prefill_time_seconds", prompts)]
    if served.spec.disaggregated:
        stages += [("KV transfer", "vllm:nixl_xfer_time_seconds", answers), ("waits for decode", "vllm:request_queue_time_seconds", answers)]
    return [
        Panel(
            "Tokens",
            "Prompt tokens that were processed and tokens that were generated, a second.",
            (
                Query(q.rate(q.of("vllm:prompt_tokens_total", prompts)), f"prompt, {prompts}"),
                Query(q.rate(q.of("vllm:generation_tokens_total", answers)), f"generated, {answers}"),
            ),
        ),
        Panel(
            "Where the first token waits",
            "95th percentile of each stage before the first token.",
            tuple(Query(q.quantile(0.95, metric, role), stage) for stage, metric, role in stages),
            "s",
        ),
        _quantiles(q, "Between tokens, at the engine", "Between two tokens of an answer.", "vllm:inter_token_latency_seconds", answers),
        Panel("Requests in the batch", "Requests that an engine computes.", of_pods("vllm:num_requests_running")),
        Panel(
            "Requests waiting for capacity",
            "Requests that wait for room in the batch or in the KV cache; those that wait for a transfer are not among them.",
            of_pods("vllm:num_requests_waiting_by_reason", reason="capacity"),
        ),
        Panel("KV cache", "Part of an engine's KV blocks in use.", of_pods("vllm:kv_cache_usage_perc", "avg"), "percentunit", highest=1),
        Panel("Prefix cache", "Part of the prompt tokens that the engine's prefix cache had.", (Query(hits, prompts),), "percentunit", highest=1),
        Panel(
            "Preemptions",
            "Requests a second that were thrown out of the batch because KV blocks ran out.",
            tuple(Query(q.rate(q.of("vllm:num_preemptions_total", role), "pod"), "{{pod}}") for role in roles),
            "reqps",
        ),
        Panel(
            "Engines that answer",
            "Engines whose metrics can be read, against the replicas of the plan; of a scaled role against its least and its most.",
            tuple(query for g in groups for query in (Query(f"sum({q.of('up', g.role)})", g.role), *_planned(g))),
        ),
    ]


def _planned(group: Group) -> tuple[Query, ...]:
    """How many engines of a role the plan has."""
    spec = group.spec
    if spec.autoscaling is None:
        return (Query(constant(group.replicas), f"{group.role}, planned", planned=True),)
    bounds = {"at least": spec.least_replicas, "at most": spec.most_replicas}
    return tuple(Query(constant(number), f"{group.role}, {word}", planned=True) for word, number in bounds.items())


def _gpus(groups: Sequence[Group]) -> list[Panel]:
    def of_pods(metric: str, how: str) -> tuple[Query, ...]:
        return (Query(f"{how} by (pod) ({pods_of(groups, metric)})", "{{pod}}"),)

    return [
        Panel(
            "Tensor cores", "Part of the cycles in which tensor cores were active.", of_pods("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "avg"), "percentunit"
        ),
        Panel("GPU memory", "Part of the cycles in which GPU memory moved.", of_pods("DCGM_FI_PROF_DRAM_ACTIVE", "avg"), "percentunit"),
        Panel("Power", "Watts of a pod's GPUs together.", of_pods("DCGM_FI_DEV_POWER_USAGE", "sum"), "watt"),
    ]


def transfer_dashboard(served: Served) -> Dashboard:
    """KV on its way from prefill to decode. Decode reads, so transfers are counted there; prefill knows whose KV nobody fetched."""
    q = Queries(served, WINDOW)
    count, size, time = (q.of(f"vllm:nixl_{m}", "decode") for m in ("xfer_time_seconds_count", "bytes_transferred_sum", "xfer_time_seconds_sum"))
    moved = [
        Panel("Transfers", "KV transfers a second, a decode pod.", (Query(q.rate(count, "pod"), "{{pod}}"),), "reqps"),
        Panel("Bytes", "KV bytes a second, a decode pod.", (Query(q.rate(size, "pod"), "{{pod}}"),), "Bps"),
        Panel(
            "Speed of a transfer",
            "Bytes of transfers over the time that they took. Transfers that run side by side each count their own time.",
            (Query(f"{q.rate(size, 'pod')} / {q.rate(time, 'pod')}", "{{pod}}"),),
            "Bps",
        ),
        _quantiles(q, "Duration", "Of a transfer.", "vllm:nixl_xfer_time_seconds", "decode"),
        _quantiles(q, "Time to post", "Until a transfer is handed to NIXL.", "vllm:nixl_post_time_seconds", "decode"),
        Panel(
            "Size of a transfer",
            "Mean bytes of a transfer: the KV that decode did not have.",
            (Query(q.mean("vllm:nixl_bytes_transferred", "decode", "pod"), "{{pod}}"),),
            "bytes",
        ),
    ]
    failures = [
        Panel(
            "Failed",
            "Transfers and notifications that failed, in the last ten minutes.",
            (
                *(Query(_in_ten_minutes(q.of("vllm:nixl_num_failed_transfers_total", r)), "transfers, {{pod}}") for r in ("prefill", "decode")),
                Query(_in_ten_minutes(q.of("vllm:nixl_num_failed_notifications_total", "decode")), "notifications, {{pod}}"),
            ),
        ),
        Panel(
            "Not fetched in time",
            "Requests whose KV prefill gave up before decode had read it, and reads that ended after that, in the last ten minutes.",
            (
                Query(_in_ten_minutes(q.of("vllm:nixl_num_kv_expired_reqs_total", "prefill")), "given up, {{pod}}"),
                Query(_in_ten_minutes(q.of("vllm:nixl_num_notifications_after_expiry_total", "prefill")), "read too late, {{pod}}"),
            ),
        ),
        Panel(
            "Descriptors of a transfer",
            "Mean number of pieces: many small ones are slow to post.",
            (Query(q.mean("vllm:nixl_num_descriptors", "decode", "pod"), "{{pod}}"),),
        ),
    ]
    waiting = [
        Panel(
            "Loads by stage",
            "Requests that wait on decode pods, by how far the load of their KV is.",
            (Query(f"sum by (stage) ({q.of('vllm:num_requests_kv_fetch_by_stage', 'decode')})", "{{stage}}"),),
        ),
        Panel(
            "Requests waiting for a transfer",
            "Requests on decode pods that wait for something other than capacity: with NIXL, for their KV.",
            (Query(f"sum by (pod) ({q.of('vllm:num_requests_waiting_by_reason', 'decode', reason='deferred')})", "{{pod}}"),),
        ),
        Panel(
            "Prompt tokens on decode, by source",
            "Where the KV of prompts on decode pods comes from: computed there, cached there, or transferred.",
            (Query(q.rate(q.of("vllm:prompt_tokens_by_source_total", "decode"), "source"), "{{source}}"),),
        ),
    ]
    name = served.spec.name
    about = "KV cache on its way from prefill to decode, as NIXL's connector in vLLM counts it."
    rows = [Row("Transfers", moved), Row("Failures", failures), Row("Waiting", waiting)]
    return Dashboard(name, "kv-transfer", f"{name}: KV transfer", about, rows)


def _in_ten_minutes(series: str) -> str:
    return f"sum by (pod) (increase({series}[10m]))"


def _quantiles(q: Queries, title: str, description: str, metric: str, role: str) -> Panel:
    shares = {0.5: "median", 0.95: "95 %", 0.99: "99 %"}
    return Panel(title, description, tuple(Query(q.quantile(share, metric, role), legend) for share, legend in shares.items()), "s")


def _without_unknown(dashboard: Dashboard, known: frozenset[str]) -> Dashboard:
    """The dashboard without queries whose metrics nothing exposes, and a note that says which panels went."""
    rows, gone = [], []
    for row in dashboard.rows:
        kept: list[Panel | Note] = []
        for panel in row.panels:
            queries = () if isinstance(panel, Note) else tuple(q for q in panel.queries if metric_names(q.expression) <= known)
            if isinstance(panel, Note):
                kept.append(panel)
            elif any(not q.planned for q in queries):
                kept.append(replace(panel, queries=queries))
            else:
                gone.append(panel.title)
        rows.append(replace(row, panels=kept))
    if gone:
        rows[-1] = replace(
            rows[-1], panels=[*rows[-1].panels, Note(f"Left out, because this engine or router has no such metrics: {', '.join(gone)}.")]
        )
    return replace(dashboard, rows=rows)
