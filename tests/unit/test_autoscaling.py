"""Scaled roles: signals and queries, pace, and what placement, pools, quota and cost count with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
import yaml
from disagg_serving.errors import Level
from disagg_serving.forecast.autoscaling import BACKLOG_SECONDS, KV_CACHE_USAGE, WAITING_REQUESTS, pace, signals
from disagg_serving.forecast.cost import cost_of
from disagg_serving.manifests.autoscaling import build_scaled_object, keda_chart, keda_chart_values, query_of
from disagg_serving.manifests.bundle import build_all, charts, images
from disagg_serving.manifests.gateway import CONFIG_FILE, router_values
from disagg_serving.manifests.picker import IN_FLIGHT
from disagg_serving.pins import KEDA_CHART
from disagg_serving.planning.image_sources import in_repository
from disagg_serving.planning.placement import place
from disagg_serving.planning.scaling import at_most
from disagg_serving.planning.shapes import Group, Layout
from disagg_serving.planning.startup import startup_budget_seconds
from factories import ROOT, aggregated, check, environment, layout, model, role

METRICS = ROOT / "components/disagg_serving/catalog/metrics"
PROMETHEUS = {"prometheusAddress": "http://prometheus-operated.monitoring.svc:9090"}
BOUNDS = {"minReplicaCount": 1, "maxReplicaCount": 4}
RATES = [{"inputTokens": 4000, "tokensPerSecondPerGPU": 6000}, {"inputTokens": 8000, "tokensPerSecondPerGPU": 5000}]
WORK = {"inputTokens": 8000, "outputTokens": 500, "requestsPerSecond": 2}
TARGET_LABELS = {"namespace", "pod"}
"""What Prometheus itself adds to a series of a pod."""


def made(one: dict[str, Any], **overrides: Any) -> Layout:
    """The layout of an environment with this model and a Prometheus."""
    return layout(environment(one, autoscaling=PROMETHEUS, **overrides))


def group(one: dict[str, Any], side: str) -> Group:
    """One role of a model."""
    (found,) = [g for g in made(one).groups if g.role == side]
    return found


def on(one: dict[str, Any], side: str) -> dict[str, float]:
    """Signals of a role with their thresholds."""
    return {s.name: s.threshold for s in signals(group(one, side))}


def test_each_role_is_scaled_on_what_binds_it() -> None:
    """Prompts count by the time that they wait where a rate is known, else by the queue; answers by KV cache; one role that does both by both."""
    scaled = role(autoscaling=BOUNDS)
    measured = role(autoscaling=BOUNDS, measuredRates=RATES)
    assert on(model(prefill=scaled), "prefill") == {"waitingRequests": WAITING_REQUESTS}
    assert on(model(prefill=measured), "prefill") == {"backlogSeconds": BACKLOG_SECONDS}
    assert on(model(prefill=measured, gateway={"enabled": False}), "prefill") == {"waitingRequests": WAITING_REQUESTS}
    assert on(model(decode=measured), "decode") == {"kvCacheUsage": KV_CACHE_USAGE}
    assert on(aggregated(server=scaled), "server") == {"waitingRequests": WAITING_REQUESTS, "kvCacheUsage": KV_CACHE_USAGE}
    assert on(aggregated(server=measured), "server") == {"backlogSeconds": BACKLOG_SECONDS, "kvCacheUsage": KV_CACHE_USAGE}
    assert on(model(), "decode") == {}


def test_thresholds_choose_their_signals() -> None:
    """A threshold of the stack file is the signal that is used, and no other."""
    own = role(autoscaling={**BOUNDS, "waitingRequests": 2})
    assert on(model(decode=own), "decode") == {"waitingRequests": 2}
    assert on(aggregated(server=role(autoscaling={**BOUNDS, "kvCacheUsage": 0.6})), "server") == {"kvCacheUsage": 0.6}


def test_seconds_are_tokens_over_the_rate_of_a_whole_engine() -> None:
    """The divisor is the rate a GPU times the engine's GPUs, at the workload's prompt; without a workload the slowest."""
    measured = role(tensorParallel=4, autoscaling=BOUNDS, measuredRates=RATES)
    decode = role(tensorParallel=4)
    (at_work,) = signals(group(model(prefill=measured, decode=decode, workload={**WORK, "inputTokens": 4000}), "prefill"))
    (without,) = signals(group(model(prefill=measured, decode=decode), "prefill"))
    assert (at_work.rate, without.rate) == (6000 * 4, 5000 * 4)
    assert query_of(group(model(prefill=measured, decode=decode), "prefill"), without).endswith(" / 20000")


def test_a_rate_that_does_not_reach_is_not_used() -> None:
    """For prompts far from every measurement the queue is the signal, and the plan says why."""
    one = model(prefill=role(autoscaling=BOUNDS, measuredRates=RATES), workload={**WORK, "inputTokens": 100})
    assert on(one, "prefill") == {"waitingRequests": WAITING_REQUESTS}
    assert any("no measured rate reaches" in f.message for f in check(environment(one, autoscaling=PROMETHEUS)).findings)


CASES = {
    "tokens": (model(prefill=role(autoscaling=BOUNDS, measuredRates=RATES)), "prefill"),
    "queue": (model(prefill=role(autoscaling=BOUNDS)), "prefill"),
    "KV cache": (model(decode=role(autoscaling=BOUNDS)), "decode"),
    "groups of two pods": (
        aggregated(
            model="glm-5-fp8",
            maxModelLen=131072,
            kvCacheDtype="fp8",
            server=role(tensorParallel=8, pipelineParallel=2, autoscaling={"maxReplicaCount": 2}),
        ),
        "server",
    ),
}


def selectors(node: Any) -> Iterator[Any]:
    """Every selector of a parsed query."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for name in ("expr", "lhs", "rhs", "vector_selector"):
        if isinstance(inner := getattr(node, name, None), promql_parser.Expr):
            yield from selectors(inner)
    for inner in getattr(node, "args", None) or ():
        yield from selectors(inner)


def listed(engine: str) -> dict[str, set[str]]:
    """Series with their labels that the pinned engine and router expose, as their dated lists say."""
    files = (METRICS / f"{engine}.yaml", METRICS / "llm-d-router-0.10.0.yaml")
    return {m["name"]: set(m["labels"]) for f in files for m in yaml.safe_load(f.read_text())["metrics"]}


@pytest.mark.parametrize("engine", ["vllm-0.33.0", "vllm-0.27.1"])
@pytest.mark.parametrize("case", CASES)
def test_queries_ask_for_what_there_is(case: str, engine: str) -> None:
    """Queries are PromQL, and every metric and label in them is in the dated list of what engine and router expose."""
    known, one = listed(engine), group(*CASES[case])
    for signal in signals(one):
        found = list(selectors(promql_parser.parse(query_of(one, signal))))
        assert found
        for selector in found:
            assert selector.name in known
            assert {m.name for m in selector.matchers.matchers} <= known[selector.name] | TARGET_LABELS


@pytest.mark.parametrize("case", CASES)
def test_queries_see_the_leaders_of_one_role_alone(case: str) -> None:
    """Pods are matched by whole names: not those of the other role, not workers, and not a model whose name begins alike."""
    one = group(*CASES[case])
    name = one.name
    for signal in signals(one):
        for selector in selectors(promql_parser.parse(query_of(one, signal))):
            by_label = {m.name: m.value for m in selector.matchers.matchers}
            assert by_label["namespace"] == one.namespace
            pattern = next(v for k, v in by_label.items() if k in ("pod", "endpoint_name", "model_server_endpoint"))
            leader, rank = f"{name}-3", "-rank-0" if "rank" in pattern else ""
            assert re.fullmatch(pattern, leader + rank)
            others = (f"{name}-3-1{rank}", f"x{leader}{rank}", f"{name}-x-3{rank}", f"{name}2-3{rank}")
            assert not any(re.fullmatch(pattern, other) for other in others)


def test_no_data_keeps_the_number() -> None:
    """A query without series is an error to KEDA, so a broken Prometheus neither adds nor removes engines; nothing turns it into a zero."""
    for one in CASES.values():
        for trigger in build_scaled_object(group(*one), made(one[0]).spec.autoscaling)["spec"]["triggers"]:
            assert trigger["metadata"]["ignoreNullValues"] == "false"
            assert "vector(" not in trigger["metadata"]["query"]
            assert trigger["metricType"] == "AverageValue"
            assert trigger["metadata"]["serverAddress"] == PROMETHEUS["prometheusAddress"]


def test_the_router_counts_tokens_only_where_somebody_asks() -> None:
    """The plugin that publishes tokens in flight is listed once, under its own name, for roles that are scaled on it."""

    def listed_by(one: dict[str, Any]) -> list[dict[str, Any]]:
        wanted = made(one)
        values = router_values(wanted.served[0], wanted.groups)["router"]["epp"]["pluginsCustomConfig"][CONFIG_FILE]
        return [p for p in yaml.safe_load(values)["plugins"] if p["type"] == IN_FLIGHT]

    assert listed_by(model(prefill=role(autoscaling=BOUNDS, measuredRates=RATES))) == [{"type": IN_FLIGHT}]
    assert listed_by(model(prefill=role(autoscaling=BOUNDS))) == []
    routed = {"routing": {"prefill": [{"type": IN_FLIGHT, "parameters": {"outputRatio": 2}}]}}
    both = listed_by(model(gateway=routed, prefill=role(autoscaling=BOUNDS, measuredRates=RATES)))
    assert [p.get("name", p["type"]) for p in both] == [IN_FLIGHT, f"{IN_FLIGHT}-2"]


def test_pace_follows_the_time_to_load() -> None:
    """A larger model is added more slowly and kept longer, up to what a HorizontalPodAutoscaler can express; the stack file may say otherwise."""
    small = group(aggregated(model="llama-3.1-8b-instruct", server=role(tensorParallel=1, autoscaling=BOUNDS)), "server")
    large = group(*CASES["groups of two pods"])
    assert pace(small).up_period < pace(large).up_period <= 1800
    assert pace(small).down_window == startup_budget_seconds(small.served) < pace(large).down_window <= 3600
    own = group(aggregated(server=role(autoscaling={**BOUNDS, "scaleUpPeriodSeconds": 60, "scaleDownWindowSeconds": 0})), "server")
    assert (pace(own).up_period, pace(own).down_window) == (60, 0)
    behavior = build_scaled_object(own, made(CASES["queue"][0]).spec.autoscaling)["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleUp"]["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 60}]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] == 0


def test_capacity_is_counted_at_most_and_placement_at_least() -> None:
    """Pools and quota hold the most engines; the plan's placement and cost are at least, and at most beside it."""
    wanted = made(model(decode=role(autoscaling={"minReplicaCount": 2, "maxReplicaCount": 8})))
    pools = {p.role: p for p in wanted.pools}
    assert pools["decode"].max_nodes == 2
    limits = {o["metadata"]["labels"]["app.kubernetes.io/component"]: o["spec"]["limits"] for o in build_all(wanted) if o["kind"] == "NodePool"}
    assert limits["decode"] == {"nvidia.com/gpu": "16"}
    nodes = {pool: len(found) for pool, _, found in place(wanted)}
    full = {pool: len(found) for pool, _, found in place(at_most(wanted))}
    assert (nodes["decode-p5-48xlarge"], full["decode-p5-48xlarge"]) == (1, 2)
    assert cost_of(at_most(wanted)).per_hour > cost_of(wanted).per_hour
    quota = next(
        f
        for f in check(environment(wanted.served[0].spec.model_dump(by_alias=True, exclude_unset=True), autoscaling=PROMETHEUS)).findings
        if f.id == "quota"
    )
    assert f"{3 * 192} vCPUs" in quota.message


def test_the_number_is_left_to_the_autoscaler() -> None:
    """A scaled LeaderWorkerSet is rendered without replicas, a fixed one with them."""
    sets = {o["metadata"]["name"]: o["spec"] for o in build_all(made(model(decode=role(autoscaling=BOUNDS)))) if o["kind"] == "LeaderWorkerSet"}
    assert "replicas" not in sets["m-decode"]
    assert sets["m-prefill"]["replicas"] == 1


def test_keda_is_installed_only_for_scaled_roles() -> None:
    """Without a scaled role, or where KEDA is there, nothing of it is installed."""
    scaled = model(decode=role(autoscaling=BOUNDS))
    assert any("keda" in c for c in charts(made(scaled)))
    assert len([i for i in images(made(scaled)) if "kedacore" in i]) == 3
    for other in (made(model()), layout(environment(scaled, autoscaling={**PROMETHEUS, "install": "existing"}))):
        assert not any("keda" in x for x in (*charts(other), *images(other)))
        assert not [o for o in build_all(other) if o["metadata"]["name"] == "keda"]


def test_keda_from_a_mirror() -> None:
    """Chart and images come from mirrors: the chart of a repository as an OCI artifact, under the values of the chart."""
    scaled = model(decode=role(autoscaling=BOUNDS))
    sources = {"kedacore.github.io/charts": "mirror.example.com/charts", "ghcr.io/kedacore": "mirror.example.com/keda"}
    wanted = made(scaled, imageSources=sources)
    assert keda_chart(wanted.spec.autoscaling, sources) == ("oci://mirror.example.com/charts/keda", KEDA_CHART.version)
    image = keda_chart_values(wanted.spec.autoscaling, sources)["image"]["keda"]
    assert image == {"registry": "mirror.example.com", "repository": "keda/keda", "tag": KEDA_CHART.version}
    assert in_repository(KEDA_CHART.location) == ("keda", "https://kedacore.github.io/charts")
    assert in_repository("oci://mirror.example.com/charts/keda") == ("oci://mirror.example.com/charts/keda", None)
    assert not [f for f in check(environment(scaled, autoscaling=PROMETHEUS, imageSources=sources)).findings if f.id == "image-sources"]


def test_prometheus_in_another_namespace() -> None:
    """An address whose namespace the network policies do not admit is warned about; outside names and turned-off policies are not."""

    def warned(**overrides: Any) -> list[str]:
        found = check(environment(model(decode=role(autoscaling=BOUNDS)), **overrides)).findings
        return [f.fix for f in found if f.id == "autoscaling-prometheus"]

    other = {"prometheusAddress": "http://thanos-query.observability.svc.cluster.local:9090"}
    (fix,) = warned(autoscaling=other)
    assert fix.startswith("set networkPolicy.prometheusNamespace: observability")
    assert not warned(autoscaling=other, networkPolicy={"prometheusNamespace": "observability"})
    assert not warned(autoscaling=other, networkPolicy={"enabled": False})
    assert not warned(autoscaling={"prometheusAddress": "https://prometheus.example.com/tenant"})


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("https://aps-workspaces.us-east-1.amazonaws.com/workspaces/ws-1", "signed requests alone"),
        ("http://localhost:9090", "KEDA's own pod"),
        ("http://127.0.0.1:9090/prometheus", "KEDA's own pod"),
        ("http://localhost.monitoring.svc:9090", ""),
        ("https://aps-workspaces.example.com", ""),
    ],
)
def test_addresses_that_cannot_answer_keda_are_said(address: str, said: str) -> None:
    """Amazon's managed service wants a signature that KEDA is not given, and KEDA's own pod is no Prometheus: no role would ever be scaled."""
    scaled = model(decode=role(autoscaling={"minReplicaCount": 1, "maxReplicaCount": 2}))
    found = check(environment(scaled, autoscaling={"prometheusAddress": address})).findings
    told = [f for f in found if f.id == "autoscaling-prometheus"]
    assert [f.level for f in told] == [Level.WARNING] * bool(said)
    assert all(said in f.message for f in told)


def unbalanced(one: dict[str, Any]) -> list[tuple[str, str]]:
    """Where the rule says that one role holds the other back, and what to do."""
    return [(f.path, f.fix) for f in check(environment(one, autoscaling=PROMETHEUS)).findings if f.id == "autoscaling-balance"]


def test_roles_that_grow_apart() -> None:
    """A role that stays while the other grows, or that grows much less, is named with what to do; with rates it is the one that bounds."""
    grows, stays = {"minReplicaCount": 1, "maxReplicaCount": 8}, {"minReplicaCount": 2, "maxReplicaCount": 4}
    assert unbalanced(model(decode=role(autoscaling=grows))) == [("models[0].prefill", "give it autoscaling, too")]
    assert unbalanced(model(decode=role(autoscaling=grows), prefill=role(autoscaling=stays))) == [
        ("models[0].prefill", "set prefill.autoscaling.maxReplicaCount: 8")
    ]
    assert unbalanced(model(decode=role(autoscaling=grows), prefill=role(autoscaling=grows))) == []
    rates = {"measuredRates": [{"inputTokens": 8000, "tokensPerSecondPerGPU": 400}]}
    known = model(prefill=role(autoscaling=grows, measuredRates=RATES), decode=role(autoscaling=grows, **rates), workload=WORK)
    assert unbalanced(known) == []
    few = model(prefill=role(autoscaling={"maxReplicaCount": 2}, measuredRates=RATES), decode=role(autoscaling=grows, **rates), workload=WORK)
    assert unbalanced(few) == [("models[0].prefill", "set prefill.autoscaling.maxReplicaCount: 6")]


def test_load_is_judged_at_most() -> None:
    """Traffic that the most engines carry is no fault, and what is suggested raises the bounds, not the number that is not set."""
    rates = [{"inputTokens": 8000, "tokensPerSecondPerGPU": 400}]

    def of_load(most: int) -> list[str]:
        scaled = {
            side: role(autoscaling={"maxReplicaCount": most}, measuredRates=RATES if side == "prefill" else rates) for side in ("prefill", "decode")
        }
        found = check(environment(model(**scaled, workload={**WORK, "requestsPerSecond": 5}), autoscaling=PROMETHEUS)).findings
        return [f.fix for f in found if f.id == "load" and f.level is Level.WARNING]

    assert of_load(20) == []
    assert set(of_load(1)) == {"set prefill.autoscaling.maxReplicaCount: 6 and set decode.autoscaling.maxReplicaCount: 5"}
