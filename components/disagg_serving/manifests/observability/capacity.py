"""The dashboard that shows what runs beside what the plan says it can hold."""

from __future__ import annotations

from collections.abc import Sequence

from ...forecast.capacities import capacity_of
from ...forecast.fit import Capacity
from ...forecast.traffic import forecast_of
from ...planning.shapes import Group, Layout, Served, block_size_of
from .panels import Dashboard, Note, Panel, Query, Row
from .queries import Queries, constant, pods_of

MIB_A_GIB = 1024


def capacity_dashboard(served: Served, groups: Sequence[Group], layout: Layout, window: str) -> Dashboard:
    """Memory and traffic of the roles against the plan. The plan's figures are constants: they change with the stack file."""
    name, gpus = served.spec.name, layout.spec.observability.has_gpu_metrics
    rows = [Row(f"Memory: {g.role}", _memory(g, window, gpus=gpus)) for g in groups]
    if served.spec.workload is not None:
        rows.append(Row("Traffic", _traffic(served, layout, window)))
    about = "What runs, beside what the plan says it can hold. Dashed lines are figures of the plan."
    return Dashboard(name, "capacity", f"{name}: capacity against the plan", about, rows)


def _memory(group: Group, window: str, *, gpus: bool) -> list[Panel | Note]:
    plan = capacity_of(group)
    if plan is None:
        return [Note("The plan does not know the memory of these engines.")]
    q = Queries(group.served, window)
    used, tokens = q.of("vllm:kv_cache_usage_perc", group.role), plan.engine_tokens
    panels: list[Panel | Note] = [
        Panel(
            "KV tokens in use",
            "Tokens in the KV cache of each engine: its use times the tokens of the plan's middle estimate.",
            (
                Query(f"avg by (pod) ({used}) * {tokens.mid:.0f}", "{{pod}}"),
                *(Query(constant(round(value)), f"{which} of the plan", planned=True) for which, value in _estimates(plan)),
            ),
            columns=12,
        ),
        Panel(
            "Requests in the batch",
            "Requests that each engine computes, and how many the plan gives room.",
            (Query(f"sum by (pod) ({q.of('vllm:num_requests_running', group.role)})", "{{pod}}"), *_room(group, plan)),
            columns=12,
        ),
        Panel(
            "KV blocks that engines report",
            _blocks(group, plan),
            (Query(f"max by (pod, num_gpu_blocks, block_size) ({q.of('vllm:cache_config_info', group.role)})", ""),),
            columns=12,
            table=("pod", "num_gpu_blocks", "block_size"),
        ),
    ]
    if gpus:
        memory = f"max by (pod) ({pods_of([group], 'DCGM_FI_DEV_FB_USED')}) / {MIB_A_GIB}"
        panels.append(
            Panel(
                "Memory of a GPU",
                "Used memory of the fullest GPU of each pod. The budget is what vLLM may use; its driver's share comes on top.",
                (Query(memory, "{{pod}}"), Query(constant(round(plan.budget_gib, 2)), "budget of the plan", planned=True)),
                "gbytes",
                columns=12,
            )
        )
    return panels


def _estimates(plan: Capacity) -> list[tuple[str, float]]:
    """Low, middle and high estimate, or the one figure where it was measured."""
    tokens = plan.engine_tokens
    if tokens.low == tokens.high:
        return [("tokens", tokens.mid)]
    return [("low estimate", tokens.low), ("tokens", tokens.mid), ("high estimate", tokens.high)]


def _room(group: Group, plan: Capacity) -> list[Query]:
    work = group.served.spec.workload
    found = [Query(constant(round(plan.engine_concurrency.mid, 1)), "of the greatest length", planned=True)]
    if work is not None:
        mean = plan.concurrency_at(work.input_tokens + work.output_tokens).mid
        found.append(Query(constant(round(mean, 1)), "of the workload's mean length", planned=True))
    return found


def _blocks(group: Group, plan: Capacity) -> str:
    size = block_size_of(group.served)
    finder = "a rank" if plan.ranks > 1 else "an engine"
    note = f"num_gpu_blocks x block_size is what {finder} found at its start; `calibration` takes it and makes the plan exact."
    tokens = f"The plan says {plan.kv_tokens.mid:,.0f} tokens ({plan.kv_tokens.low:,.0f} to {plan.kv_tokens.high:,.0f})"
    blocks = f", {plan.kv_tokens.mid / size:,.0f} blocks of {size}" if size else ""
    return f"{tokens}{blocks}{', for each data-parallel rank' if plan.ranks > 1 else ''}. {note}"


def _traffic(served: Served, layout: Layout, window: str) -> list[Panel | Note]:
    work = served.spec.workload
    if work is None:
        return []
    q = Queries(served, window)
    ends = "decode" if served.spec.disaggregated else "server"
    done = q.rate(q.of("vllm:request_success_total", ends))
    forecast = forecast_of(layout, served)
    rates = forecast.requests_per_second if forecast else None
    capacity = [Query(constant(rates.capacity), "what the roles can do", planned=True)] if rates else []
    return [
        Panel(
            "Requests",
            "Requests a second that end, against the workload of the plan" + (" and what the measured rates allow." if rates else "."),
            (Query(done, "requests"), Query(constant(work.requests_per_second), "workload", planned=True), *capacity),
            "reqps",
        ),
        Panel(
            "Prompt length",
            "Mean tokens of a prompt. Where it differs from the workload, so does everything that the plan says about traffic.",
            (Query(q.mean("vllm:request_prompt_tokens", ends), "mean"), Query(constant(work.input_tokens), "workload", planned=True)),
        ),
        Panel(
            "Answer length",
            "Mean tokens of an answer.",
            (Query(q.mean("vllm:request_generation_tokens", ends), "mean"), Query(constant(work.output_tokens), "workload", planned=True)),
        ),
    ]
