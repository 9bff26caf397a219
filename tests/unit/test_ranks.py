"""Figures of an engine with data-parallel ranks: what its ranks add up to, and what is a mean over them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from disagg_serving.forecast.autoscaling import signals
from disagg_serving.forecast.capacities import capacity_of
from disagg_serving.forecast.traffic import forecast_of
from disagg_serving.load.results import Result, Sample, judge_decode, judge_prefill
from disagg_serving.load.runs import RunKind, first_runs
from disagg_serving.manifests.autoscaling import query_of
from disagg_serving.manifests.observability.alerts import alerts
from disagg_serving.manifests.picker import profiles
from disagg_serving.planning.shapes import Group, Layout
from disagg_serving.spec import EnvironmentSpec
from disagg_serving.verify.metrics import NOTHING
from factories import aggregated, environment, example, layout, role
from promql_parser import AggregateExpr, parse
from watched import ALL, dashboards


def of_role(wanted: Layout, name: str) -> Group:
    """The group of a role."""
    (group,) = [g for g in wanted.groups if g.role == name]
    return group


def test_autoscaling_counts_a_cache_once_for_all_ranks() -> None:
    """An engine of 16 ranks that each use 5 % is used by 5 % and not by 80 %, while requests that wait for its ranks add up."""
    scaled = {"minReplicaCount": 1, "maxReplicaCount": 2, "waitingRequests": 4, "kvCacheUsage": 0.8}
    wide = role(instanceType="p5en.48xlarge", tensorParallel=1, dataParallel=16, expertParallel=True, maxNumBatchedTokens=2048, autoscaling=scaled)
    data = environment(
        aggregated(model="deepseek-v3.2", maxModelLen=16384, kvCacheDtype="fp8", server=wide),
        autoscaling={"prometheusAddress": "http://prometheus.monitoring.svc:9090"},
    )
    (group,) = layout(data).groups
    queries = {s.name: parse(query_of(group, s)) for s in signals(group)}
    over_engines, over_queues = queries["kvCacheUsage"], queries["waitingRequests"]
    assert isinstance(over_engines, AggregateExpr)
    assert isinstance(over_queues, AggregateExpr)
    over_ranks = over_engines.expr
    assert isinstance(over_ranks, AggregateExpr)
    assert over_ranks.modifier is not None
    assert [str(over_engines.op), str(over_ranks.op), over_ranks.modifier.labels] == ["sum", "avg", ["pod"]]
    assert not isinstance(over_queues.expr, AggregateExpr)


def test_dashboards_show_engines_and_not_ranks() -> None:
    """Tokens and requests of the plan's lines are the engine's, like what runs beside them; shares are a mean over its ranks."""
    wanted = example("deepseek-wide-ep", "wide")
    spec = wanted.spec.model_copy(update={"observability": EnvironmentSpec.model_validate(environment(observability=ALL)).observability})
    shown = panels_of(replace(wanted, spec=spec))
    for group in wanted.groups:
        plan = capacity_of(group)
        assert plan is not None
        assert plan.ranks == group.spec.data_parallel > 1
        row = shown[f"Memory: {group.role}"]
        tokens, requests = ({t["expr"] for t in row[title]["targets"]} for title in ("KV tokens in use", "Requests in the batch"))
        assert f"vector({plan.engine_tokens.mid:.0f})" in tokens
        assert f"vector({plan.kv_tokens.mid:.0f})" not in tokens
        assert any(e.startswith("avg by (pod)") and e.endswith(f"* {plan.engine_tokens.mid:.0f}") for e in tokens)
        assert f"vector({round(plan.engine_concurrency.mid, 1):g})" in requests
        assert "a rank found at its start" in row["KV blocks that engines report"]["description"]
        assert "for each data-parallel rank" in row["KV blocks that engines report"]["description"]
    assert all(t["expr"].startswith("avg by (pod)") for t in shown["Engines"]["KV cache"]["targets"])
    (full, *_) = [a for a in alerts(wanted.served[0], wanted.groups, replace(wanted, spec=spec)) if a.name == "KvCacheNearFull"]
    assert full.summary == "the KV cache of a data-parallel rank of {{ $labels.pod }} is nearly full"


def panels_of(wanted: Layout) -> dict[str, dict[str, Any]]:
    """Panels of the serving and capacity dashboards by row and title."""
    found: dict[str, dict[str, Any]] = {}
    for kind in ("serving", "capacity"):
        for panel in dashboards(wanted)[f"deepseek-{kind}"]["panels"]:
            if panel["type"] == "row":
                row = found.setdefault(panel["title"], {})
            else:
                row[panel["title"]] = panel
    return found


def test_load_runs_fill_every_rank() -> None:
    """Decode gets what all its ranks hold and prefill a queue for each of its ranks; fewer would measure engines that idle."""
    wanted = example("deepseek-wide-ep", "wide")
    prefill, decode = first_runs(wanted, wanted.served[0], (RunKind.PREFILL, RunKind.DECODE), 7)
    plan = capacity_of(of_role(wanted, "decode"))
    assert plan is not None
    assert decode.concurrency == 16 * int(plan.kv_tokens.mid / 8400)
    assert prefill.concurrency == 8 * 8 * 2
    (forecast,) = [forecast_of(wanted, s) for s in wanted.served]
    assert forecast is not None
    assert f"at a batch of {int(plan.kv_tokens.mid / 8400)} on each of 16 ranks" in forecast.bounds[1]


def test_a_prefill_rate_needs_a_queue_at_every_rank() -> None:
    """Prompts that wait for one of 16 ranks say nothing about the others."""
    wanted = example("deepseek-wide-ep", "wide")
    served, group = wanted.served[0], of_role(wanted, "prefill")
    (run,) = first_runs(wanted, served, (RunKind.PREFILL,), 7)
    result = Result(100, run.requests, 0, run.requests * run.input_tokens, run.requests, 1, {})
    few, enough = ([Sample(replace(NOTHING, waiting=waiting), NOTHING)] * 10 for waiting in (15.0, 16.0))
    assert "waited for prefill in 0%" in judge_prefill(run, result, few, group).reason
    assert judge_prefill(run, result, enough, group).rate == pytest.approx(run.requests * 8000 / 100 / 16)


def test_a_decode_rate_needs_the_batch_of_the_engine() -> None:
    """A batch that fills one rank of 16 is no full engine."""
    wanted = example("deepseek-wide-ep", "wide")
    served, group = wanted.served[0], of_role(wanted, "decode")
    (run,) = first_runs(wanted, served, (RunKind.DECODE,), 7)
    result = Result(100, run.requests, 0, run.requests * run.input_tokens, run.requests * 800, 1, {"tpot": {"mean": 20.0}})
    assert run.concurrency is not None
    one, all_ranks = ([Sample(NOTHING, replace(NOTHING, running=float(running)))] * 10 for running in (run.concurrency // 16, run.concurrency))
    assert "decode had its batch" in judge_decode(run, result, one, group, 30).reason
    assert judge_decode(run, result, all_ranks, group, 30).rate == pytest.approx(run.requests * 800 / 100 / 16)


def test_the_example_routes_by_what_the_router_counts() -> None:
    """Where engines of a role share traffic, no scorer of the example reads load from metrics, of which the router sees one rank's."""
    wanted = example("deepseek-wide-ep", "wide")
    shared = [g.role for g in wanted.groups if g.replicas > 1]
    assert shared == ["prefill"]
    assert [p.type for p in profiles(wanted.served[0])["prefill"]] == ["active-request-scorer", "prefix-cache-scorer"]
