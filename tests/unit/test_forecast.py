"""What measured rates say about traffic, which rules warn of it, and which prices are old."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from disagg_serving.catalog import load_catalog
from disagg_serving.corrections import corrected
from disagg_serving.document.traffic import Forecast
from disagg_serving.errors import Level
from disagg_serving.forecast.autoscaling import prompt_rate
from disagg_serving.forecast.capacities import capacity_of
from disagg_serving.forecast.cost import cost_of, old_prices
from disagg_serving.forecast.situation import rate_curve
from disagg_serving.forecast.traffic import forecast_of
from disagg_serving.records import data_of
from disagg_serving.report.figures import traffic_lines
from factories import aggregated, check, environment, layout, model, role

H200 = "p5en.48xlarge"
WORK = {"inputTokens": 8000, "outputTokens": 1000}


def rated(tokens: float, at: int = 8000, **overrides: Any) -> dict[str, Any]:
    """A role of one engine with two GPUs, with one measured rate."""
    return role(measuredRates=[{"inputTokens": at, "tokensPerSecondPerGPU": tokens}], **overrides)


def served(requests: float, prefill: dict[str, Any], decode: dict[str, Any], **work: Any) -> dict[str, Any]:
    """An environment with one model under a load."""
    return environment(model(prefill=prefill, decode=decode, workload={**WORK, "requestsPerSecond": requests, **work}))


def forecast(data: dict[str, Any]) -> Forecast:
    """The forecast of the one model."""
    made = layout(data)
    found = forecast_of(made, made.served[0])
    assert found is not None
    return found


def carried(found: Forecast) -> float:
    """Requests a second that measured rates carry."""
    assert found.requests_per_second is not None
    return found.requests_per_second.capacity


def findings(data: dict[str, Any], rule: str) -> list[str]:
    """What one rule says, with its fix."""
    return [f"{f.message} | {f.allowed}" for f in check(data).findings if f.id == rule]


def test_capacity_is_that_of_the_slower_role() -> None:
    """Two prefill GPUs at 4000 tokens/s carry one request a second of 8000 tokens; two decode GPUs at 600 carry 1.2 of 1000."""
    found = forecast(served(0.5, rated(4000), rated(600)))
    assert carried(found) == pytest.approx(1.0)
    assert found.bound_by == "prefill"
    assert found.utilisation is not None
    assert [found.utilisation.prefill, found.utilisation.decode] == pytest.approx([0.5, 0.417])
    more = forecast(served(0.5, rated(4000, replicas=2), rated(600)))
    assert carried(more) == pytest.approx(1.2)
    assert more.bound_by == "decode"


def test_which_keys_a_forecast_has() -> None:
    """With rates of both roles the time that prompts wait is there, null where they would wait for ever; without them its key is not."""
    fine, late = (data_of(forecast(served(requests, rated(4000), rated(600)))) for requests in (0.5, 5))
    assert fine["prefillWaitSeconds"] > 0
    assert late["prefillWaitSeconds"] is None
    assert fine.keys() == late.keys() >= {"requestsPerSecond", "utilisation", "ratio"}
    bounds = data_of(forecast(served(0.5, role(), role())))
    assert not {"prefillWaitSeconds", "requestsPerSecond", "problem"} & bounds.keys()
    assert list(data_of(forecast(served(0.5, rated(4000, at=200), rated(600, at=200))))) == ["model", "problem"]


def test_what_a_token_costs_is_the_roles_hour_over_its_tokens() -> None:
    """Four of the eight GPUs of a node, at one request of 9000 tokens a second."""
    hour = load_catalog().instances["p5.48xlarge"].on_demand
    assert hour is not None
    assert forecast(served(0.5, rated(4000), rated(600))).usd_per_million_tokens == pytest.approx(hour.usd_per_hour / 2 / 3600 / 9000 * 1e6, abs=1e-4)


def test_a_roles_cost_is_its_share_of_the_nodes() -> None:
    """Two of eight GPUs are a quarter of a node, on demand and in a Capacity Block; nothing stands for a price that is not listed."""
    node = load_catalog().instances["p5.48xlarge"]
    assert node.on_demand is not None
    assert node.capacity_block is not None
    prefill, decode = cost_of(layout(environment(model(decode=role(instanceType="p5e.48xlarge", replicas=2))))).roles
    assert (prefill.gpus, decode.gpus) == (2, 4)
    assert prefill.on_demand is not None
    assert prefill.capacity_block is not None
    assert prefill.on_demand.per_hour == pytest.approx(node.on_demand.usd_per_hour / 4, abs=1e-4)
    assert prefill.capacity_block.per_hour == pytest.approx(node.capacity_block.usd_per_hour / 4, abs=1e-4)
    assert decode.on_demand is None


def test_too_much_load_is_warned_of() -> None:
    """Above 70 % busy, with the load that would be right; below it nothing is said."""
    assert not findings(served(0.69, rated(4000), rated(600)), "load")
    (text,) = [f for f in findings(served(0.88, rated(4000), rated(600)), "load") if "prefill" in f and "busy" in f]
    assert "busy 88%" in text
    assert "at most 0.7 requests/s" in text


def test_a_shared_prefix_is_not_calculated_again() -> None:
    """With half of each prompt in the cache, prefill carries twice the requests."""
    found = forecast(served(0.5, rated(4000, at=4000), rated(6000), prefixHit=0.5))
    assert carried(found) == pytest.approx(2.0)


def test_rates_of_other_prompts_are_refused() -> None:
    """A rate is measured at a prompt length; far from it nothing is extrapolated, and the plan says which rate is missing."""
    data = served(0.5, rated(4000, at=200), rated(600, at=200))
    assert forecast(data).problem
    (text,) = findings(data, "load")
    assert "cannot be used" in text


def test_without_rates_there_is_no_capacity() -> None:
    """Nothing is invented: bounds are called bounds, and stand beside what is needed of them."""
    found = forecast(served(0.5, role(), role()))
    assert found.requests_per_second is None
    # fp8: 1,979 TFLOP/s by two operations for each of 68.5 billion parameters that are multiplied (70.6 less the embedding and the head's part)
    prefill, decode = found.bounds
    assert prefill.startswith("prefill: needs 2,000, at most 14,446 tokens/s/GPU: 14 % of the peak")
    assert "bound, not a prediction" in prefill
    assert "at a batch of" in decode
    experts = {"prefill": role(instanceType="p6-b300.48xlarge", tensorParallel=8), "decode": role(instanceType="p6-b300.48xlarge", tensorParallel=8)}
    data = environment(model(model="deepseek-r1", maxModelLen=16384, workload={**WORK, "requestsPerSecond": 1}, **experts))
    assert "6 to 24 % of the peak" in forecast(data).bounds[0]
    assert [(n.phase, n.needed) for n in forecast(data).needs] == [("prefill", 1000), ("decode", 125)]
    assert found.kv_transfer is not None
    assert found.kv_transfer.bytes > 0


def test_traffic_beyond_the_bounds_is_warned_of() -> None:
    """Without rates, what no GPU does is sure all the same: the warning names the load and the engines that would be within the bounds."""
    data = served(20, role(replicas=2), role(replicas=2))
    (prefill,) = [f for f in findings(data, "traffic-bounds") if "the GPUs of prefill" in f]
    assert "asks 2.77 times what the bounds leave" in prefill  # 20 x 8000 tokens on four GPUs of 14,446
    assert "at most 4.33 requests/s here" in prefill, "60 % of the bound"
    (warning, _) = [f for f in check(data).findings if f.id == "traffic-bounds"]
    assert warning.level is Level.WARNING
    assert [f for c in warning.corrections for f in findings(corrected(data, c), "traffic-bounds")] == []
    assert warning.corrections
    assert not findings(served(0.2, role(replicas=2), role(replicas=2)), "traffic-bounds")


def test_traffic_near_a_bound_is_warned_of() -> None:
    """From 60 % of a bound on silence would read as enough: 13,333 of at most 14,446 tokens/s/GPU are 92 % of the peak."""
    near = served(20, role(tensorParallel=2, replicas=6, instanceType=H200), role(tensorParallel=2, replicas=8, instanceType=H200))
    (prefill,) = [f for f in findings(near, "traffic-bounds") if "the GPUs of prefill" in f]
    assert "comes near" in prefill
    assert "prefill: needs 13,333, at most 14,446 tokens/s/GPU: 92 % of the peak" in prefill
    first, decode = forecast(near).needs
    assert first.low is None
    assert (first.needed, first.share) == pytest.approx((13_333.3, 0.923))
    assert (decode.needed, decode.low, decode.high) == pytest.approx((1250, 349, 1397), rel=0.05)
    for number, said in ((13.1, True), (12.9, False)):  # 60 % of 14,446 on twelve GPUs are 13 requests/s
        few = served(number, role(replicas=6), role(replicas=40))
        assert bool([f for f in findings(few, "traffic-bounds") if "the GPUs of prefill" in f]) is said


def test_requests_in_decode_are_compared_with_its_kv_cache() -> None:
    """Little's law: 20 requests/s of 1,000 tokens at 30 ms keep 600 in decode at once, and eight engines surely hold 544."""
    log = {"weightsGiB": 33.9, "kvCacheGiB": 90}  # 68 requests of 8,500 tokens an engine, at 163,840 bytes a token and GPU
    engine = {"tensorParallel": 2, "instanceType": H200}
    pair = {"prefill": role(**engine, replicas=12), "decode": role(**engine, replicas=8, calibration=log)}
    fast = served(20, **pair, tpotMs=30)
    found = forecast(fast).in_flight
    assert found is not None
    assert (found.requests, found.kv_cache[0]) == ([600, 600], 544)
    assert found.text.startswith("in decode at once: 600 requests (20/s x 1,000 tokens x 30 ms), KV cache for 544")
    (said,) = [f for f in findings(fast, "traffic-bounds") if "KV cache" in f]
    assert "at most 18.1 requests/s here" in said
    assert [f for f in findings(served(18.1, **pair, tpotMs=30), "traffic-bounds") if "KV cache" in f] == []
    (warning,) = [f for f in check(fast).findings if f.id == "traffic-bounds" and "KV cache" in f.message]
    assert [f for c in warning.corrections for f in findings(corrected(fast, c), "traffic-bounds")] == []
    measured = served(20, rated(4000, tensorParallel=2, replicas=12), rated(900, tensorParallel=2, replicas=8), tpotMs=30)
    assert [f for f in findings(measured, "traffic-bounds") if "KV cache" in f], "measured or not"
    assert "more than memory bandwidth serves" in getattr(forecast(served(200, **pair)).in_flight, "text", "")


def test_without_a_pace_the_roofline_says_how_many_are_in_decode() -> None:
    """At half and at twice its time of a step: so many requests are in decode as they write tokens in the time that a step of so many takes."""
    data = served(2, role(tensorParallel=2, replicas=12, instanceType=H200), role(tensorParallel=2, replicas=8, instanceType=H200))
    found, decode = forecast(data).in_flight, layout(data).groups[1]
    room = capacity_of(decode)
    assert found is not None
    assert room is not None
    for requests, factor in zip(found.requests, (0.5, 2), strict=True):
        assert requests is not None
        held = requests / 8 * 8500 * room.kv_bytes_per_token_per_gpu
        step = (room.weights_gib.mid * 2**30 + held) / (0.65 * 4.8e12) + 2 * 80 * 10e-6 + 4e-3
        assert requests == pytest.approx(2 * 1000 * step * factor, rel=0.01)
    assert "the roofline's time per token" in found.text


def test_one_role_has_bounds_and_no_law() -> None:
    """The bounds of a server are said, not left out; prompts and answers share its GPUs, so their parts add up."""
    (note,) = [
        f
        for f in check(environment(aggregated(workload={**WORK, "requestsPerSecond": 0.1}, server=role(tensorParallel=8)))).findings
        if f.id == "traffic-bounds"
    ]
    assert (note.level, "prefill: needs" in note.message, "in decode at once: " in note.message) == (Level.INFO, True, True)
    (warning,) = findings(environment(aggregated(workload={**WORK, "requestsPerSecond": 50}, server=role(tensorParallel=8))), "traffic-bounds")
    assert "times what the bounds leave to the GPUs of server" in warning


def test_rates_beyond_the_bounds_are_not_believed() -> None:
    """A rate of a whole engine in place of a GPU's, or one that counts cached prompts, would make every figure that follows wrong."""
    decode, prefill = findings(served(1, rated(40000), rated(40000)), "traffic-bounds")
    assert decode.startswith("is beyond the bound of a GPU: decode: ")
    assert prefill.startswith("is beyond the bound of a GPU: prefill: at most 14,4")
    assert not findings(served(1, rated(4000), rated(100)), "traffic-bounds")


B300 = "p6-b300.48xlarge"
WIDE = {"instanceType": B300, "tensorParallel": 1, "dataParallel": 8, "expertParallel": True}


def glm(on: dict[str, Any] | None, **work: Any) -> dict[str, Any]:
    """GLM-5.2 on one engine of eight ranks for each role, with rates of 17.8 requests/s on 16 GPUs: those of llm-d's run on DEP16."""
    rates = {"prefill": 17.81 / 16 * 47_000, "decode": 17.81 / 16 * 317}
    roles = {
        side: role(**WIDE, measuredRates=[{"inputTokens": 47_000, "tokensPerSecondPerGPU": rate, **({"measuredOn": on} if on else {})}])
        for side, rate in rates.items()
    }
    work = {"inputTokens": 47_000, "outputTokens": 317, "requestsPerSecond": 3, **work}
    drafts = {"method": "mtp", "numSpeculativeTokens": 3}
    return environment(model(model="glm-5.2-fp8", maxModelLen=142_000, kvCacheDtype="fp8", speculative=drafts, workload=work, **roles))


def test_a_rate_of_another_form_is_no_capacity() -> None:
    """Half of the GPUs an engine: 8.9 requests/s would be the capacity, 4.7 were measured. The plan gives a range, says why, and claims no price."""
    own, other = forecast(glm(None)), forecast(glm({"dataParallel": 16}))
    assert own.requests_per_second is not None
    assert own.requests_per_second.kind == "capacity"
    assert own.requests_per_second.capacity == pytest.approx(8.91, abs=0.01)
    assert other.requests_per_second is not None
    assert other.requests_per_second.kind == "range"
    assert other.requests_per_second.low == pytest.approx(4.45, abs=0.01)
    assert other.requests_per_second.low is not None
    assert other.requests_per_second.high is not None
    assert other.requests_per_second.low < 4.74 < other.requests_per_second.high <= 17.81
    assert (own.usd_per_million_tokens, other.usd_per_million_tokens) != (None, None)
    assert other.usd_per_million_tokens is None
    prefill, decode = other.other_forms
    assert prefill.startswith("prefill.measuredRates[0] was measured on another form of engine (dataParallel 16, here 8): here it stands for 26,1")
    assert decode.startswith("decode.measuredRates[0]")
    assert not own.other_forms
    assert len([f for f in findings(glm({"dataParallel": 16}), "load") if "another form of engine" in f]) == 2
    assert "range 4.45 to " in traffic_lines(other)[0]
    assert prefill in traffic_lines(other)


@pytest.mark.parametrize(
    ("on", "differs"),
    [
        ({}, ""),
        ({"dataParallel": 8, "expertParallel": True, "instanceType": B300}, ""),
        ({"expertParallel": False}, "expertParallel false, here true"),
        ({"instanceType": "p5.48xlarge", "tensorParallel": 8}, "instanceType p5.48xlarge, here p6-b300.48xlarge, tensorParallel 8, here 1"),
        ({"engine": "vllm-0.27.1-dlc"}, "engine vllm-0.27.1-dlc, here vllm-0.33.0-efa"),
        ({"pipelineParallel": 2}, "pipelineParallel 2, here 1"),
    ],
)
def test_what_makes_another_form(on: dict[str, Any], differs: str) -> None:
    """Parallelism, nodes and engine; what is not said is the role's own."""
    said = forecast(glm(on)).other_forms
    assert [f"({differs})" in sentence for sentence in said] == ([True, True] if differs else [])


def test_a_faster_gpu_widens_the_range() -> None:
    """From H100 to B300 decode may gain by the bandwidth too, 8 to 3.35 TB/s; a node type that nobody knows is an error at its place."""
    decode = layout(glm({"instanceType": "p5.48xlarge"})).groups[1]
    (rate,) = rate_curve(decode).points
    assert (rate.least, rate.most) == pytest.approx((0.5, 2 * 8 / 3.35))
    (unknown,) = [f for f in check(glm({"instanceType": "p5.96xlarge"})).findings if f.level is Level.ERROR and "prefill" in f.path]
    assert unknown.path == "models[0].prefill.measuredRates[0].measuredOn.instanceType"


def test_decodes_kv_cache_bounds_a_carried_rate() -> None:
    """No rate of another form is above what a full KV cache writes: at the wanted pace, requests held over time per token."""
    data = glm({"dataParallel": 16}, tpotMs=1000)
    (_, decode), found = layout(data).groups, forecast(data)
    room = capacity_of(decode)
    assert room is not None
    assert found.requests_per_second is not None
    held = room.kv_tokens.high // (47_000 + 317 / 2)
    assert found.requests_per_second.high == pytest.approx(8 * held / 1.0 / 317, rel=0.01)
    assert found.bound_by == "decode"
    measured = forecast(glm(None, tpotMs=1000)).requests_per_second
    assert measured is not None
    assert measured.capacity == pytest.approx(8 * held / 1.0 / 317, rel=0.01), "nor is one of the own form, at a pace that is wanted"


def test_a_carried_rate_scales_early() -> None:
    """The number of prefill engines follows the low end of a rate that was measured elsewhere."""
    own, other = (prompt_rate(layout(glm(on)).groups[0]) for on in (None, {"dataParallel": 16}))
    assert own is not None
    assert other == pytest.approx(own / 2)


def test_rates_that_change_nothing_are_named() -> None:
    """Rates of one role, or of a model without a workload, are read by nobody; the plan says which are missing."""
    half = served(0.5, rated(4000), role())
    (said,) = findings(half, "rates-unused")
    assert "while decode has none" in said
    assert forecast(half).unmeasured == ["decode"]
    assert len(findings(environment(model(prefill=rated(4000), decode=rated(600))), "rates-unused")) == 2
    assert not findings(served(0.5, rated(4000), rated(600)), "rates-unused")


def test_nothing_is_forecast_for_one_role_or_no_workload() -> None:
    """The law is about two roles under a load."""
    for data in (environment(model()), environment(aggregated(workload={**WORK, "requestsPerSecond": 1}))):
        made = layout(data)
        assert forecast_of(made, made.served[0]) is None


def test_small_change_does_not_age_beside_nodes_without_a_price() -> None:
    """With spot nodes the total is that of the control plane: the age of its price says nothing about the cost."""
    spot = environment(aggregated(server=role(capacity={"type": "spot"})))
    assert old_prices(cost_of(layout(spot)), date(2099, 1, 1)) == []
    assert [line.name for line in old_prices(cost_of(layout(environment(aggregated()))), date(2099, 1, 1))] == ["server-p5-48xlarge"]


def test_prices_age() -> None:
    """After 180 days a price that matters is old, and not a day before."""
    cost = cost_of(layout(environment(model())))
    first = min(date.fromisoformat(line.as_of) for line in cost.lines if line.as_of)
    assert not old_prices(cost, first)
    assert old_prices(cost, date(first.year + 2, 1, 1))


def test_calibration_replaces_the_estimate() -> None:
    """With the numbers of a start there is nothing left to estimate: low, mid and high are one."""
    measured = role(calibration={"weightsGiB": 34.5, "kvCacheGiB": 30.0})
    plain, exact = (capacity_of(layout(environment(model(decode=d))).groups[1]) for d in (role(), measured))
    assert plain is not None
    assert exact is not None
    assert plain.kv_gib.low < plain.kv_gib.high
    assert exact.kv_gib.low == exact.kv_gib.mid == exact.kv_gib.high == pytest.approx(30.0)


@pytest.mark.parametrize(("share", "warned"), [(0.92, False), (0.99, True)])
def test_little_free_memory_is_warned_of(share: float, warned: bool) -> None:  # noqa: FBT001 (a table's column)
    """Less than 4 GiB a GPU beside what vLLM takes."""
    assert bool(findings(environment(model(gpuMemoryUtilization=share)), "memory-margin")) is warned
