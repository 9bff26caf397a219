"""Balance of prefill and decode: measured rates, calibration from runs, the law, and room at a load."""

from __future__ import annotations

import math

import pytest
from disagg_serving.forecast.balance import (
    BalanceError,
    MeasuredRate,
    RateCurve,
    Rates,
    Side,
    Split,
    Workload,
    balance,
    batch_limit,
    cap_by_batch,
    headroom,
)
from disagg_serving.forecast.balance.law import Engines, best_split, role_requests, waiting_factor
from hypothesis import given
from hypothesis import strategies as st

from scripts.traffic_runs import MeasuredRun, calibrate, demand, prefill_saturated, requests_per_second

CURVE = RateCurve([MeasuredRate(8000, 3000), MeasuredRate(1000, 4000), MeasuredRate(2000, 5000), MeasuredRate(2000, 5500)])
LONG = Workload(8192, 1024)
RATES = Rates(MeasuredRate(8192, 3000), MeasuredRate(8192, 750))
"""Balanced at two prefill GPUs for one of decode."""

lengths = st.integers(1, 200_000).map(float)
speeds = st.floats(1, 50_000)
workloads = st.builds(Workload, lengths, lengths, st.floats(0, 0.95))
rates = st.builds(Rates, st.builds(MeasuredRate, lengths, speeds), st.builds(MeasuredRate, lengths, speeds))
sides = st.builds(Side, st.integers(1, 40), st.sampled_from([1, 2, 4, 8]))
splits = st.builds(Split, sides, sides)


def split(prefill: int, decode: int, size: int = 8) -> Split:
    """So many engines of one size."""
    return Split(Side(prefill, size), Side(decode, size))


@pytest.mark.parametrize(("isl", "rate"), [(1000, 4000), (2000, 5000), (4000, 4000), (8000, 3000), (500, 4000), (16000, 3000)])
def test_between_points_the_logarithm_counts_and_outside_the_nearest(isl: float, rate: float) -> None:
    """4,000 is half way from 2,000 to 8,000; up to a factor of 2 outside the last rate is kept."""
    assert CURVE.at(isl).tokens_per_second_per_gpu == pytest.approx(rate)


@pytest.mark.parametrize("isl", [499, 16001, 100_000])
def test_rates_are_not_carried_far(isl: float) -> None:
    """Beyond a factor of 2 the answer is that nobody knows, with what to measure."""
    with pytest.raises(BalanceError, match=f"measured at 1000 to 8000.*measure one at {isl}"):
        CURVE.at(isl)


@given(st.floats(500, 16000))
def test_interpolation_stays_between_the_points(isl: float) -> None:
    """No overshoot."""
    assert 3000 - 1e-6 <= CURVE.at(isl).tokens_per_second_per_gpu <= 5000 + 1e-6


def test_doubt_is_inherited() -> None:
    """A rate between a measured limit and a lower bound is a lower bound."""
    curve = RateCurve([MeasuredRate(1000, 10), MeasuredRate(4000, 10, saturated=False)])
    assert [curve.at(n).saturated for n in (1000, 2000, 4000)] == [True, False, False]


def test_a_rate_of_another_form_is_a_range() -> None:
    """Half to twice what was measured, more where the GPU is another; between points the widest band counts, a rate of the own form first."""
    rate = MeasuredRate(1000, 10).carried()
    assert (rate.span.low, rate.span.mid, rate.span.high, rate.own) == (5, 10, 20, False)
    assert MeasuredRate(1000, 10, saturated=False).carried().span.high == math.inf
    assert (MeasuredRate(1000, 10).carried(2.3).span.low, MeasuredRate(1000, 10).carried(2.3).span.high) == pytest.approx((5, 46))
    assert (MeasuredRate(1000, 10).carried(0.5).span.low, MeasuredRate(1000, 10).carried(0.5).span.high) == pytest.approx((2.5, 20))
    mixed = RateCurve([MeasuredRate(1000, 10).carried(), MeasuredRate(4000, 20)])
    assert [(mixed.at(n).least, mixed.at(n).most) for n in (900, 2000, 4000)] == [(0.5, 2), (0.5, 2), (1, 1)]
    for own in (MeasuredRate(1000, 30), MeasuredRate(1000, 3, saturated=False)):
        assert RateCurve([own, rate]).at(1000) == RateCurve([rate, own]).at(1000) == own


def test_a_layout_with_a_carried_rate_has_a_range() -> None:
    """Prefill at half to twice 2.93 requests/s, and never more than decode's 5.86; nobody knows which ratio is best within a factor of 2."""
    found = balance(split(1, 1), Rates(RATES.prefill.carried(), RATES.decode), LONG)
    assert (found.kind, found.bound_by) == ("range", "prefill")
    assert (found.span.low, found.span.mid, found.span.high) == pytest.approx((1.46, 2.93, 5.86), abs=0.01)
    assert found.requests_per_second == found.span.mid
    assert (found.optimum.low, found.optimum.high) == pytest.approx((2 * 0.9 / 2, 2 * 1.1 * 2))
    exact = balance(split(1, 1), RATES, LONG)
    assert exact.span.low == exact.span.mid == exact.span.high == exact.requests_per_second


@pytest.mark.parametrize(("isl", "rate"), [(0, 5), (5, 0), (-1, 5), (5, math.nan), (5, math.inf)])
def test_impossible_rates_are_refused(isl: float, rate: float) -> None:
    """Not a number, nothing and less than nothing are no rates."""
    with pytest.raises(BalanceError):
        MeasuredRate(isl, rate)


@pytest.mark.parametrize("args", [(0, 5), (5, 0), (5, 5, 1.0), (5, 5, -0.1), (math.inf, 5)])
def test_impossible_workloads_are_refused(args: tuple[float, ...]) -> None:
    """So are requests without tokens, and a cache that holds the whole prompt."""
    with pytest.raises(BalanceError):
        Workload(*args)


def test_no_rates_are_no_curve() -> None:
    """Nothing is invented."""
    with pytest.raises(BalanceError, match="no rates"):
        RateCurve([])


def test_the_batch_caps_decode() -> None:
    """Sequences or the KV cache, whichever is less; a full batch at the wanted pace is the most an engine gives."""
    assert batch_limit(256, 300_000, LONG) == 34
    assert batch_limit(16, 300_000, LONG) == 16
    with pytest.raises(BalanceError, match="hold no request"):
        batch_limit(256, 8000, LONG)
    assert cap_by_batch(RATES.decode, 34, 0.05, 8).tokens_per_second_per_gpu == pytest.approx(85)
    assert cap_by_batch(RATES.decode, 1000, 0.05, 8) == RATES.decode


def closed_loop(clients: float, ttft: float, tpot: float, layout: Split | None = None) -> MeasuredRun:
    """A closed loop of 8,192/1,024 tokens."""
    served = requests_per_second(clients, ttft, tpot, 1024)
    return MeasuredRun(f"c{clients}-{layout}", layout or split(1, 1), 1, 8192, 1024, served, clients, ttft, tpot)


def test_throughput_of_a_closed_loop() -> None:
    """Clients send the next request after the last answer: 64 with TTFT 2,026 ms and TPOT 34.7 ms get 1,747 tokens/s."""
    assert requests_per_second(64, 2.026, 0.0347, 1024) * 1024 == pytest.approx(1747, rel=1e-3)
    assert demand(64, 0.0347, 1024) > requests_per_second(64, 2.026, 0.0347, 1024)
    assert demand(64, 0.03, 1) == math.inf


def test_a_series_shows_where_prefill_is_full() -> None:
    """Of three loads only the last, which brings little more, gives the rate; the others are lower bounds."""
    series = [closed_loop(64, 2.026, 0.0347), closed_loop(128, 3.644, 0.0406), closed_loop(256, 29.644, 0.0427)]
    rate = calibrate(series).prefill.at(8192)
    assert (round(rate.tokens_per_second_per_gpu), rate.saturated) == (3575, True)
    assert not calibrate(series[:2]).prefill.at(8192).saturated


def test_a_run_alone_is_judged_by_its_queue() -> None:
    """Prompts that wait for prefill and clients that get much less than they ask for, unless a heavier run of the layout served more."""
    slow, heavier = closed_loop(64, 6.0, 0.0347), closed_loop(200, 6.0, 0.0347)
    assert calibrate([slow]).prefill.at(8192).saturated
    assert not prefill_saturated(slow, [slow, heavier])
    assert prefill_saturated(slow, [slow, closed_loop(200, 6.0, 0.0347, split(2, 1))]), "another layout tells nothing"


def test_decode_is_measured_at_the_wanted_pace() -> None:
    """Runs slower than the limit do not count, those far faster are lower bounds."""
    runs = [closed_loop(64, 2.0, 0.030), closed_loop(128, 3.6, 0.041)]
    at = calibrate(runs, tpot_limit_seconds=0.042).decode.at(8192)
    far = calibrate(runs, tpot_limit_seconds=0.040).decode.at(8192)
    assert (at.saturated, far.saturated) == (True, False)
    assert far.tokens_per_second_per_gpu < at.tokens_per_second_per_gpu
    with pytest.raises(BalanceError, match="no run has a time per token"):
        calibrate(runs, tpot_limit_seconds=0.02)


def test_the_slower_role_bounds() -> None:
    """Requests a second by hand: 8 * 3000 / 8192 and 8 * 750 / 1024."""
    one = balance(split(1, 1), RATES, LONG)
    assert (one.prefill_requests, one.decode_requests) == pytest.approx((2.93, 5.86), abs=0.01)
    assert (one.bound_by, one.kind, one.requests_per_second) == ("prefill", "capacity", one.prefill_requests)
    assert (one.optimum.mid, one.off) == pytest.approx((2, 2))
    assert (one.optimum.low, one.optimum.high) == pytest.approx((1.8, 2.2))


def test_a_prefix_cache_relieves_prefill_only() -> None:
    """With half of the prompt cached one engine of each is balanced."""
    assert balance(split(1, 1), RATES, Workload(8192, 1024, 0.5)).off == pytest.approx(1)


@pytest.mark.parametrize(
    ("known", "kind", "value"),
    [
        ((True, True), "capacity", 2.93),
        ((True, False), "capacity", 2.93),
        ((False, True), "upper bound", 5.86),
        ((False, False), "lower bound", 2.93),
    ],
)
def test_rates_that_are_lower_bounds_give_bounds(known: tuple[bool, bool], kind: str, value: float) -> None:
    """Only a rate that was measured at its limit can bound the layout from above."""
    unsure = Rates(MeasuredRate(8192, 3000, known[0]), MeasuredRate(8192, 750, known[1]))
    found = balance(split(1, 1), unsure, LONG)
    assert found.kind == kind
    assert found.requests_per_second == pytest.approx(value, abs=0.01)
    assert found.optimum.high / found.optimum.low == pytest.approx(11 / 9 if all(known) else 4)


@given(splits, rates, workloads, st.integers(1, 5), st.booleans())
def test_more_gpus_never_serve_less(one: Split, r: Rates, w: Workload, more: int, on_prefill: bool) -> None:  # noqa: FBT001
    """An engine more of either role never lowers the capacity."""
    p, d = one.prefill, one.decode
    larger = Split(Side(p.workers + more * on_prefill, p.gpus_per_worker), Side(d.workers + more * (not on_prefill), d.gpus_per_worker))
    assert balance(larger, r, w).requests_per_second >= balance(one, r, w).requests_per_second


@given(rates, workloads, st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8]), st.integers(16, 48))
def test_no_split_of_the_gpus_is_better(r: Rates, w: Workload, p_size: int, d_size: int, gpus: int) -> None:
    """The best split serves as much as any other within the GPUs, and none that serves as much has fewer."""
    best = best_split(r, w, Engines(p_size, d_size), gpus)
    most = balance(best, r, w).requests_per_second
    assert best.gpus <= gpus
    for p in range(1, gpus // p_size + 1):
        for d in range(1, (gpus - p * p_size) // d_size + 1):
            other = Split(Side(p, p_size), Side(d, d_size))
            served = balance(other, r, w).requests_per_second
            assert served <= most * (1 + 1e-8)
            assert served < most * (1 - 1e-8) or other.gpus >= best.gpus


@given(rates, workloads, st.floats(1, 1e4))
def test_at_the_optimum_neither_waits(r: Rates, w: Workload, scale: float) -> None:
    """With GPUs in the optimum ratio both roles serve the same."""
    ratio = balance(split(1, 1, 1), r, w).optimum.mid
    p, d = role_requests(split(1, 1, 1), r, w)
    assert p * scale * ratio == pytest.approx(d * scale, rel=1e-6)


def test_too_few_gpus_for_both_roles() -> None:
    """The message has the numbers."""
    with pytest.raises(BalanceError, match="7 GPUs are too few for an engine of 4 and one of 4"):
        best_split(RATES, LONG, Engines(4, 4), 7)


@pytest.mark.parametrize(("rho", "factor"), [(0, 0), (0.6, 0.75), (0.7, 1.17), (0.8, 2), (0.9, 4.5), (1, math.inf), (2, math.inf)])
def test_waiting_as_in_the_reference(rho: float, factor: float) -> None:
    """The wait of an M/D/1 queue in service times: 0.75 at 0.6, 1.2 at 0.7, 2 at 0.8, 4.5 at 0.9."""
    assert waiting_factor(rho) == pytest.approx(factor, abs=0.01)


@given(splits, rates, workloads, st.floats(0, 1000), st.floats(0, 1000))
def test_waiting_grows_with_the_load(s: Split, r: Rates, w: Workload, a: float, b: float) -> None:
    """More requests never wait less; an overloaded prefill has no mean wait."""
    less, more = headroom(s, r, w, min(a, b)), headroom(s, r, w, max(a, b))
    assert less.utilisation <= more.utilisation
    assert (more.prefill_wait_seconds is None) == (more.prefill_utilisation >= 1)
    if less.prefill_wait_seconds is not None and more.prefill_wait_seconds is not None:
        assert less.prefill_wait_seconds <= more.prefill_wait_seconds


def test_room_by_hand() -> None:
    """Two prefill engines of 2.93 requests/s at 4: 68 % busy, 0.37 s of waiting for a prompt of 0.34 s."""
    room = headroom(split(2, 1), RATES, LONG, 4)
    assert (room.prefill_utilisation, room.decode_utilisation) == pytest.approx((0.683, 0.683), abs=0.001)
    assert room.prefill_wait_seconds == pytest.approx(0.341 * 0.683 / (2 * 0.317), abs=0.003)
    assert headroom(split(2, 1), RATES, LONG, 6).prefill_wait_seconds is None
