"""Calibrations that contradict themselves or their engine, failed logs, and numbers that no engine or run has."""

from __future__ import annotations

from typing import Any

import pytest
from disagg_serving.catalog import load_catalog
from disagg_serving.errors import Finding, SpecError
from disagg_serving.forecast.balance import MeasuredRate, RateCurve
from disagg_serving.forecast.capacities import capacity_of
from disagg_serving.forecast.fit import Bars, Calibration, EngineShape
from disagg_serving.forecast.fit.calibration import Expected, contradictions
from disagg_serving.forecast.fit.start_log import parse_log
from disagg_serving.rules.evaluation import evaluate
from disagg_serving.spec import RateSpec
from disagg_serving.spec.validation import try_parse
from factories import ROOT, aggregated, environment, role

MODELS = load_catalog().models
LOG = "vLLM API server version 0.33.0\nModel loading took 33.88 GiB memory and 41 seconds\nAvailable KV cache memory: 32.00 GiB\n"
EXPECTED = Expected(budget_gib=72, weights_gib=Bars(32, 33, 34), tokens=(100_000,))


def fields(record: Calibration, expected: Expected = EXPECTED) -> list[str]:
    """The fields that have a finding."""
    return [name for name, _ in contradictions(record, expected)]


def checked(**calibration: Any) -> list[Finding]:
    """Findings about the calibration of Llama 70B in FP8 on two H100."""
    served = aggregated(model="llama-3.3-70b-instruct-fp8", maxModelLen=16384, server=role(tensorParallel=2, calibration=calibration))
    return [f for f in evaluate(environment(served), ROOT).findings if f.id == "calibration"]


def test_contradictions_are_found() -> None:
    """More than the budget, other tokens than the KV cache holds, and weights of another model; within the margins nothing is said."""
    assert fields(Calibration(33, 30, 100_000)) == []
    assert fields(Calibration(33, 30)) == []
    assert fields(Calibration(33, 39.5)) == ["kvCacheGiB"]
    assert [fields(Calibration(33, 30, n)) for n in (98_100, 101_900, 97_900, 102_100)] == [[], [], ["kvCacheTokens"], ["kvCacheTokens"]]
    hybrid = Expected(72, Bars(32, 33, 34), (100_000,), hybrid=True)
    assert [fields(Calibration(33, 30, n), hybrid) for n in (94_500, 93_000)] == [[], ["kvCacheTokens"]]
    assert [fields(Calibration(w, 30)) for w in (28.9, 37.3, 28.7, 37.5)] == [[], [], ["weightsGiB"], ["weightsGiB"]]
    assert fields(Calibration(50, 30, 5)) == ["kvCacheGiB", "kvCacheTokens", "weightsGiB"]


def test_a_contradiction_stops_an_environment() -> None:
    """The figures of another engine are refused at their place in the stack file."""
    assert checked(weightsGiB=33.88, kvCacheGiB=32.0, kvCacheTokens=209_712) == []
    found = checked(weightsGiB=70, kvCacheGiB=32.0, kvCacheTokens=419_424)
    assert sorted(f.path for f in found) == [f"models[0].server.calibration.{n}" for n in ("kvCacheGiB", "kvCacheTokens", "weightsGiB")]
    assert all(f.level == "error" and f.value for f in found)


def test_a_share_of_its_own_moves_the_cache() -> None:
    """A log at 0.92 says less KV for an engine at 0.9, by the difference of the memory."""
    amounts = {"weightsGiB": 33.88, "kvCacheGiB": 32.0, "gpuMemoryUtilization": 0.92}
    served = aggregated(model="llama-3.3-70b-instruct-fp8", maxModelLen=16384, server=role(tensorParallel=2, calibration=amounts))
    (group,) = evaluate(environment(served), ROOT).require_layout().groups
    found = capacity_of(group)
    assert found is not None
    assert found.kv_gib.mid == pytest.approx(32 - 0.02 * group.instance.gpu.memory_gib_torch)


@pytest.mark.parametrize(
    "line", ["RuntimeError: Engine core initialization failed. See root cause above.", "torch.OutOfMemoryError: CUDA out of memory."]
)
def test_a_start_that_failed_later_is_refused(line: str) -> None:
    """The KV line is no proof of a start: graphs and warm-up come after it. What failed in another start does not count."""
    with pytest.raises(SpecError, match="is of a start that failed"):
        parse_log(LOG + line)
    assert parse_log(line + "\n" + LOG).kv_gib == 32
    assert parse_log(LOG + "vLLM API server version 0.33.0\n" + line).kv_gib == 32


@pytest.mark.parametrize(
    ("model", "tensor", "shards", "good"),
    [
        ("deepseek-v3", 8, 8, True),
        ("deepseek-v3", 8, 3, False),
        ("deepseek-v3", 4, 8, False),
        ("qwen3-235b-a22b-instruct", 8, 2, True),
        ("qwen3-235b-a22b-instruct", 8, 4, False),
        ("llama-3.3-70b-instruct", 8, 2, False),
    ],
)
def test_context_parallelism_needs_copies(model: str, tensor: int, shards: int, good: bool) -> None:  # noqa: FBT001 (a column of the table)
    """Decode context parallelism divides tensor parallelism, and has at most as many GPUs as hold the same KV head."""
    given: dict[str, Any] = {"tensor_parallel": tensor, "decode_context_parallel": shards}
    if good:
        EngineShape(MODELS[model], "0.33.0", 79.19, **given)
        return
    with pytest.raises(SpecError, match="decodeContextParallel"):
        EngineShape(MODELS[model], "0.33.0", 79.19, **given)


def test_of_two_rates_the_slower_counts() -> None:
    """Two saturated runs at one length: a plan must not need the better one. Lower bounds say only how fast it is at least."""

    def rate(*points: tuple[float, bool]) -> tuple[float, bool]:
        curves = [RateCurve(MeasuredRate(1000, value, saturated) for value, saturated in order) for order in (points, points[::-1])]
        (found,) = {(c.at(1000).tokens_per_second_per_gpu, c.at(1000).saturated) for c in curves}
        return found

    assert rate((10, True), (20, True)) == (10, True)
    assert rate((10, False), (20, False)) == (20, False)
    assert rate((10, False), (20, True), (30, True)) == (20, True)
    assert rate((30, False), (20, True)) == (30, False)


def test_a_rate_is_at_least_one_token() -> None:
    """Rates close to nothing would need engines without number."""
    assert try_parse(RateSpec, {"inputTokens": 1000, "tokensPerSecondPerGPU": 1e-300}).findings
    assert not try_parse(RateSpec, {"inputTokens": 1000, "tokensPerSecondPerGPU": 1}).findings


def test_a_request_that_did_not_fit_is_no_successful_start() -> None:
    """A start whose longest request is larger than its KV cache fails; the figures before that are of an engine that never served."""
    with pytest.raises(SpecError, match="start that failed"):
        parse_log(LOG + "ValueError: ... KV cache is needed, which is larger than the available KV cache memory (32.0 GiB).")


def test_an_overhead_far_from_the_formula_is_doubted() -> None:
    """A record that leaves 30 GiB for what takes a few is a warning, not an error."""
    assert [str(f.level) for f in checked(weightsGiB=33.88, kvCacheGiB=3.0)] == ["warning"]
    assert checked(weightsGiB=33.88, kvCacheGiB=30.0) == []


def test_an_overhead_that_no_engine_has_is_doubted() -> None:
    """What is left of the budget is less than CUDA alone takes: the log is of another share of memory, or of another engine."""
    (doubt,) = checked(weightsGiB=33.88, kvCacheGiB=37.2)
    assert (str(doubt.level), "leaves 0.2 GiB" in doubt.message, "far less than" in doubt.message) == ("warning", True, True)
    assert checked(weightsGiB=33.88, kvCacheGiB=37.2, gpuMemoryUtilization=0.94) == []


def test_a_log_of_two_engines_is_refused() -> None:
    """Weights of one and KV cache of another would make a record of an engine that never was."""
    line = "GPU KV cache size: {} tokens\n"
    with pytest.raises(SpecError, match="of several engines: their KV caches hold 200,000 to 400,000 tokens"):
        parse_log(LOG + line.format("200,000") + LOG.split("\n", 1)[1] + line.format("400,000"))
    assert parse_log(LOG + line.format("200,000") + line.format("199,984")).tokens == 199_984


def test_nodes_live_longer_than_a_start_takes() -> None:
    """Nodes that expire before their model has loaded never serve; a server's rates that change nothing are said."""
    rates = [{"inputTokens": 1000, "tokensPerSecondPerGPU": 500}]
    work = {"inputTokens": 1000, "outputTokens": 100, "requestsPerSecond": 1}
    served = aggregated(model="deepseek-r1", workload=work, server=role(instanceType="p5en.48xlarge", tensorParallel=8, measuredRates=rates))
    said = evaluate(environment(served, nodePools={"expireAfterHours": 1}), ROOT).findings
    (short,) = [f for f in said if f.id == "node-life"]
    assert short.corrections
    assert str(short.level) == "error"
    assert {f.path for f in said if f.id == "rates-unused"} == {"models[0].server.measuredRates"}
