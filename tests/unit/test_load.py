"""Load runs: what is sent, whether policies let it through, and what may be called a measured rate."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from disagg_serving.errors import SpecError, ToolError
from disagg_serving.load.measure import Finished, measure
from disagg_serving.load.results import Result, ResultError, Sample, read_result
from disagg_serving.load.runs import RunKind, first_runs, refuse_scaled
from disagg_serving.load.write_back import form_of, write_rate
from disagg_serving.manifests.bundle import build_all
from disagg_serving.manifests.load import GENERATOR, PERCENTILES, RESULT, Run, build_load
from disagg_serving.manifests.names import LOAD_LABELS, router_labels
from disagg_serving.manifests.network_policy import PROXY_PORT
from disagg_serving.planning.shapes import Layout
from disagg_serving.report.load import render_runs
from disagg_serving.rules.evaluation import evaluate_file
from disagg_serving.spec.stack_file import read_stack_file
from disagg_serving.verify.metrics import NOTHING, Metrics
from factories import ROOT, SHIPPED, STACKS, aggregated, environment, layout, model
from kubernetes_validate import validate
from network_policies import Network, Place
from snapshots import stack_layout

WORK = {"inputTokens": 8000, "outputTokens": 1000, "requestsPerSecond": 2}
ALL = (RunKind.TRAFFIC, RunKind.PREFILL, RunKind.DECODE)


def prod() -> Layout:
    """The layout of prod: 8 GPUs each for prefill and decode."""
    return stack_layout("prod")


def runs(wanted: Layout, *kinds: RunKind, seed: int = 7) -> list[Run]:
    """First runs of the first model."""
    return first_runs(wanted, wanted.served[0], kinds, seed)


def objects_of(wanted: Layout, run: Run) -> list[dict[str, Any]]:
    """What a run of the first model consists of."""
    served = wanted.served[0]
    return build_load(run, served, wanted.groups_of(served), wanted.spec, 3600)


def test_runs_send_what_the_workload_says() -> None:
    """Traffic comes at the stack's rate; prefill gets answers of one token, more prompts than it can take; decode gets what its cache holds."""
    traffic, prefill, decode = runs(prod(), *ALL)
    assert (traffic.input_tokens, traffic.output_tokens, traffic.rate, traffic.concurrency, traffic.requests) == (8000, 1000, 2, None, 600)
    assert (prefill.output_tokens, prefill.rate, prefill.concurrency, prefill.requests) == (1, None, 16, 256)
    # 188,928 tokens of KV cache hold 22 requests of 8,500, on four engines
    assert (decode.output_tokens, decode.concurrency, decode.requests) == (1000, 84, 336)
    assert len({r.seed for r in (traffic, prefill, decode)}) == 3


def test_short_prompts_queue_deeper() -> None:
    """Prompts shorter than an engine step wait in larger numbers, or prefill would not be full."""
    short = layout(environment(model(workload={**WORK, "inputTokens": 500, "outputTokens": 100})))
    (run,) = runs(short, RunKind.PREFILL)
    assert run.concurrency == 66


def test_the_job_is_valid_and_prints_only_its_result() -> None:
    """The Job passes the schema; its log is the result's JSON, because another container prints it than the one that sends."""
    job = objects_of(prod(), runs(prod(), RunKind.DECODE)[0])[-1]
    validate(job, "1.36", strict=True)
    pod = job["spec"]["template"]["spec"]
    assert [c["name"] for c in pod["initContainers"]] == [GENERATOR]
    ((printer,), (generator,)) = pod["containers"], pod["initContainers"]
    assert (printer["name"], printer["command"]) == (RESULT, ["cat", "/results/result.json"])
    assert generator["command"] == ["vllm", "bench", "serve"]
    args = dict(a.removeprefix("--").partition("=")[::2] for a in generator["args"])
    assert args["base-url"] == "http://llama-70b-epp.llama-70b.svc:8081"
    assert (args["random-input-len"], args["random-output-len"], args["max-concurrency"], args["seed"]) == ("8000", "1000", "84", "7")
    assert job["spec"]["backoffLimit"] == 0


def test_secrets_stay_references() -> None:
    """API key and token reach the generator as variables from the model's Secrets, never as text."""
    guarded = model(workload=WORK, gateway={"apiKeySecret": "apiKey"}, weights={"tokenKey": "hfToken"})
    from disagg_serving.rules import StackContext
    from factories import check

    wanted = check(
        environment(guarded), stack=StackContext("us-east-1", frozenset({"disagg-serving:apiKey", "disagg-serving:hfToken"}))
    ).require_layout()
    job = objects_of(wanted, runs(wanted, RunKind.TRAFFIC)[0])[-1]
    env = {e["name"]: e for e in job["spec"]["template"]["spec"]["initContainers"][0]["env"]}
    assert env["OPENAI_API_KEY"]["valueFrom"]["secretKeyRef"] == {"name": "api-key", "key": "key"}
    assert env["HF_TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": "hf-token", "key": "token"}


@pytest.mark.parametrize("stack", STACKS)
def test_policies_let_the_job_through_and_nobody_else(stack: str) -> None:
    """With its policies the Job reaches the router and no engine, without them nothing; a pod without its label gains nothing."""
    wanted = stack_layout(stack)
    served = wanted.served[0]
    space = served.spec.kubernetes_namespace
    run = Run("traffic", 1000, 100, 20, 1, rate=1)
    own = [o for o in objects_of(wanted, run) if o["kind"] == "NetworkPolicy"]
    before = [o for o in build_all(wanted) if o["kind"] == "NetworkPolicy"]
    for policy in own:
        validate(policy, "1.36", strict=True)
    job, router = Place("job", "10.0.0.1", space, LOAD_LABELS), Place("router", "10.0.0.2", space, router_labels(served))
    engine = Place("engine", "10.0.0.3", space, {**wanted.groups[0].labels, "leaderworkerset.sigs.k8s.io/worker-index": "0"})
    other = Place("other", "10.0.0.4", space)
    for policies, expected in ((before, False), (before + own, True)):
        network = Network(policies, {s.spec.kubernetes_namespace: {} for s in wanted.served})
        assert network.allows(job, router, PROXY_PORT) is expected
        assert network.allows(job, Place("hub", "203.0.113.9"), 443) is expected
        assert not network.allows(job, engine, 8000)
        assert not network.allows(job, router, 19001)
        assert not network.allows(other, router, PROXY_PORT)


def test_without_a_router_leaders_are_called() -> None:
    """With the gateway off the Job calls the role's Service, and its policies say so; without policies there are none."""
    wanted = layout(environment(aggregated(workload=WORK, gateway={"enabled": False}), networkPolicy={"enabled": False}))
    (job,) = objects_of(wanted, runs(wanted, RunKind.TRAFFIC)[0])
    assert "--base-url=http://m-api.m.svc:8000" in job["spec"]["template"]["spec"]["initContainers"][0]["args"]


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        (model(), RunKind.TRAFFIC, "models[0].workload: is missing"),
        (aggregated(workload=WORK), RunKind.PREFILL, "the planner defines no rate for a server"),
        (aggregated(workload=WORK), RunKind.DECODE, "the planner defines no rate for a server"),
    ],
)
def test_what_cannot_be_measured_is_said(given: dict[str, Any], kind: RunKind, words: str) -> None:
    """A run that the stack file says too little for, or whose rate has no meaning, is refused before anything starts."""
    with pytest.raises(SpecError, match=r".") as refused:
        runs(layout(environment(given)), kind)
    assert words in str(refused.value)


def test_a_rate_needs_a_fixed_number_of_engines() -> None:
    """A run fills the queue, so the autoscaler would add engines that the rate is not divided by; other roles and traffic may be scaled."""

    def wanted(most: int) -> Layout:
        scaled = {"instanceType": "p5.48xlarge", "tensorParallel": 2, "autoscaling": {"minReplicaCount": 2, "maxReplicaCount": most}}
        return layout(environment(model(decode=scaled, workload=WORK), autoscaling={"prometheusAddress": "http://prometheus.monitoring.svc:9090"}))

    free, fixed = wanted(4), wanted(2)
    with pytest.raises(SpecError) as refused:
        refuse_scaled(free, free.served, ALL)
    assert "models[0].decode.autoscaling: 2 to 4 lets the autoscaler add engines while a decode run" in str(refused.value)
    assert "set minReplicaCount and maxReplicaCount to the same number" in str(refused.value)
    refuse_scaled(free, free.served, (RunKind.TRAFFIC, RunKind.PREFILL))
    refuse_scaled(fixed, fixed.served, ALL)


def result_text(run: Run, seconds: float = 100, **changes: Any) -> str:
    """What vLLM's generator writes."""
    times = {f"{n}_{m}_ms": 20.0 for m in ("ttft", "tpot", "itl") for n in ("mean", "median", "std", *(f"p{p}" for p in PERCENTILES))}
    data = {"duration": seconds, "completed": run.requests, "failed": 0, "total_input_tokens": run.requests * run.input_tokens,
            "total_output_tokens": run.requests * run.output_tokens, "request_throughput": run.requests / seconds, **times}  # fmt: skip
    return json.dumps({**data, **changes})


def samples(number: int = 20, *, prefill: Metrics = NOTHING, decode: Metrics = NOTHING) -> list[Sample]:
    """Looks at the engines that found the same."""
    return [Sample(prefill, decode)] * number


BUSY, IDLE = replace(NOTHING, waiting=3.0), NOTHING


def perform(seen: Sequence[Sample], **changes: Any) -> Callable[[Run], Finished]:
    """Runs that end at once."""
    return lambda run: Finished(run, read_result(result_text(run, **changes)), list(seen))


def test_a_prefill_rate() -> None:
    """Prompts that wait for prefill throughout give prompt tokens a second and GPU at the mean prompt length."""
    wanted = prod()
    (run,) = runs(wanted, RunKind.PREFILL)
    (found,) = measure(wanted, wanted.served[0], run, 0, perform(samples(prefill=BUSY)))
    assert found.verdict
    # 256 prompts of 8,000 tokens in 100 s on 8 GPUs
    assert (found.verdict.rate, found.verdict.input_tokens) == (2560, 8000)


@pytest.mark.parametrize(
    ("seen", "changes", "words"),
    [
        (samples(prefill=IDLE), {}, "something before it was the limit"),
        (samples(3, prefill=BUSY), {}, "too few"),
        (samples(prefill=BUSY), {"failed": 2}, "2 of 256 requests failed"),
        (samples(prefill=BUSY), {"completed": 200}, "200 were answered"),
        ([*samples(19, prefill=BUSY), Sample(replace(BUSY, cache_queries=1e6, cache_hits=1e5), NOTHING)], {}, "10% of the prompts came from the"),
    ],
)
def test_a_prefill_run_that_measured_nothing(seen: Sequence[Sample], changes: dict[str, Any], words: str) -> None:
    """Held back, not watched, failing or fed from the cache: then there is no rate, and the reason is said."""
    wanted = prod()
    (run,) = runs(wanted, RunKind.PREFILL)
    (found,) = measure(wanted, wanted.served[0], run, 0, perform(seen, **changes))
    assert found.verdict
    assert found.verdict.rate is None
    assert words in found.verdict.reason
    assert words in render_runs([found])


def test_a_decode_rate_at_the_wanted_pace() -> None:
    """With its whole batch throughout and the pace kept, decode's rate is answer tokens a second and GPU."""
    wanted = prod()
    (run,) = runs(wanted, RunKind.DECODE)
    full = samples(decode=replace(NOTHING, running=84.0))
    (found,) = measure(wanted, wanted.served[0], run, 25, perform(full))
    assert found.verdict
    assert (found.verdict.rate, found.verdict.input_tokens) == (336 * 1000 / 100 / 8, 8000)


def test_a_decode_run_that_is_too_slow_is_repeated_with_less() -> None:
    """Above the wanted time a token fewer requests run at a time, with other prompts, until the pace is kept."""
    wanted = prod()
    (run,) = runs(wanted, RunKind.DECODE)
    asked: list[Run] = []

    def engine(given: Run) -> Finished:
        asked.append(given)
        batch = given.concurrency or 0
        seen = samples(decode=replace(NOTHING, running=float(batch)))
        return Finished(given, read_result(result_text(given, mean_tpot_ms=batch / 2)), seen)

    found = measure(wanted, wanted.served[0], run, 30, engine)
    assert [r.concurrency for r in asked] == [84, 57]
    assert len({r.seed for r in asked}) == 2
    assert [f.verdict.rate is None for f in found if f.verdict] == [True, False]


def test_a_decode_run_that_prefill_held_back_is_repeated_with_longer_answers() -> None:
    """Where prompts wait for prefill and decode is not full, answers become longer, up to the longest sequence, and no rate is claimed."""
    wanted = prod()
    (run,) = runs(wanted, RunKind.DECODE)
    asked: list[int] = []

    def engine(given: Run) -> Finished:
        asked.append(given.output_tokens)
        return Finished(given, read_result(result_text(given)), samples(prefill=BUSY, decode=replace(NOTHING, running=10.0)))

    found = measure(wanted, wanted.served[0], run, 30, engine)
    assert asked == [1000, 2000, 4000, 8000]
    assert all(f.verdict and f.verdict.rate is None and "prefill was the limit" in f.verdict.reason for f in found)


def test_traffic_measures_no_role() -> None:
    """A run at the stack's own rate shows latencies beside the plan's forecast, and claims no rate."""
    wanted = prod()
    (run,) = runs(wanted, RunKind.TRAFFIC)
    (found,) = measure(wanted, wanted.served[0], run, 0, perform([]))
    assert found.verdict is None
    text = render_runs([found])
    assert "600 requests of 8000 + 1000 tokens, 2 requests/s" in text
    assert "TTFT   mean 20.0  p50 20.0  p90 20.0  p99 20.0 ms" in text
    assert re.search(r"plan: decode: needs 250, \d+ to \d+ tokens/s/GPU: 4\d % of the bound \(bound", text)
    assert "rate of" not in text


@pytest.mark.parametrize("version", ["0.27.1", "0.33.0"])
def test_results_of_the_real_generators(version: str) -> None:
    """What `vllm bench serve` of both pinned engines wrote, run with the Job's flags against a small streaming server, is understood."""
    found = read_result((ROOT / f"tests/data/load-{version}.json").read_text(encoding="utf-8"))
    assert (found.completed, found.failed, found.input_tokens, found.output_tokens) == (12, 0, 480, 60)
    assert 0 < found.milliseconds["ttft"]["p50"] < found.milliseconds["ttft"]["p99"]


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"duration": "x"}', json.dumps({"duration": 0})])
def test_other_output_is_no_result(text: str) -> None:
    """A log that is no result is refused with a sentence."""
    with pytest.raises(ResultError, match="no result of vllm bench serve"):
        read_result(text)


def test_a_run_of_no_time_is_none() -> None:
    """Nothing is divided by a duration of 0."""
    with pytest.raises(ResultError, match="0 s"):
        read_result(result_text(Run("traffic", 1, 1, 1, 1), request_throughput=0, duration=0))


def test_result_counts() -> None:
    """Throughput of the whole run in the json output."""
    found = read_result(result_text(Run("traffic", 8000, 1000, 600, 1), 300))
    assert isinstance(found, Result)
    assert found.as_dict()["outputTokensPerSecond"] == 2000.0


# -- writing back ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_rate_is_written_and_nothing_else(tmp_path: Path, role: str) -> None:
    """One entry is added to the role; every other character of the file, comments too, stays, and the planner reads the rate."""
    file = tmp_path / "Pulumi.prod.yaml"
    before = (SHIPPED / "stacks/Pulumi.prod.yaml").read_text(encoding="utf-8")
    file.write_text(before, encoding="utf-8")
    form = form_of(prod().served[0], role)
    write_rate(file, 0, role, {"inputTokens": 8000, "tokensPerSecondPerGPU": 2560, "measuredOn": form})
    after = file.read_text(encoding="utf-8")
    on = f"{{instanceType: p5.48xlarge, tensorParallel: {4 if role == 'prefill' else 2}, engine: vllm-0.33.0-efa}}"
    added = f", measuredRates: [{{inputTokens: 8000, tokensPerSecondPerGPU: 2560, measuredOn: {on}}}]"
    assert after.count(added) == 1
    assert after.replace(added, "") == before
    wanted = evaluate_file(read_stack_file(file, "prod"), SHIPPED).require_layout()
    (group,) = [g for g in wanted.groups if g.role == role]
    assert [(r.input_tokens, r.tokens_per_second_per_gpu) for r in group.spec.measured_rates] == [(8000, 2560)]


def test_a_newer_rate_replaces_one_at_the_same_length(tmp_path: Path) -> None:
    """At one prompt length the newest measurement stands, beside those at others; block style and its comments stay."""
    file = tmp_path / "environment.yaml"
    head = "models:\n- name: m # the model\n  prefill:\n    measuredRates:\n    - inputTokens: 1000 # on Monday\n"
    file.write_text(f"{head}      tokensPerSecondPerGPU: 5\n  decode: {{}}\n")
    write_rate(file, 0, "prefill", {"inputTokens": 1000, "tokensPerSecondPerGPU": 7})
    write_rate(file, 0, "prefill", {"inputTokens": 2000, "tokensPerSecondPerGPU": 9})
    tail = "    - {inputTokens: 2000, tokensPerSecondPerGPU: 9}\n  decode: {}\n"
    assert file.read_text() == f"{head}      tokensPerSecondPerGPU: 7\n{tail}"


def test_a_file_of_another_form_is_left_alone(tmp_path: Path) -> None:
    """Where writing would change the rest of the file, it stays as it is, and the entry is given to be put in by hand."""
    text = "models:\n    - name:   m\n      prefill: {  replicas: 1 }\n"
    file = tmp_path / "odd.yaml"
    file.write_text(text)
    with pytest.raises(ToolError, match=r"measuredRates: \[\{inputTokens: 8000, measuredOn: \{expertParallel: true\}\}\]"):
        write_rate(file, 0, "prefill", {"inputTokens": 8000, "measuredOn": {"expertParallel": True}})
    assert file.read_text() == text
