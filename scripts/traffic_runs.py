"""Rates from measured runs: throughput from latencies, when a run was saturated, and calibration.

What saturates a closed loop of clients is the asymptotic bound of operational analysis (Denning and Buzen 1978,
https://doi.org/10.1145/356733.356735): `req/s <= min(capacity, clients / time without waiting)`. The limits below are our choice, made on
tests/data/pd-cases.csv; tests/unit/test_pd_cases.py says which of its rows they take for saturated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from disagg_serving.forecast.balance import BalanceError, MeasuredRate, RateCurve, Split

CLOSE_TO_LIMIT = 0.9
"""A run whose time per token is at least this part of the limit was measured at the limit: tighter is within a run's own scatter."""
GROWTH = 0.5
"""Exponent of rate by clients below which a layout is near its limit: in tests/data/pd-cases.csv 0.7 to 1.0 with too few clients, 0.3 beyond."""
QUEUED = 2.0
"""Prompts at each prefill queue: one is calculated and one waits, so the queue does not run empty."""
PRESSED = 1.12
"""Clients that ask for so much more than they get are kept waiting by prefill and not by their own pace; the rate is then usually within
10 % of the layout's best, by the rows of tests/data/pd-cases.csv and their neighbours in the wheel that they are from,
https://pypi.org/project/aiconfigurator-core/0.12.0/ (aiconfigurator_core/systems/silicon_sample.csv)."""
BETTER = 1.15
"""A run that served so much more on the same layout shows that the other one was not at the limit."""


def requests_per_second(clients: float, ttft_seconds: float, tpot_seconds: float, output_tokens: float) -> float:
    """Requests a second of so many clients that each send the next request after the last answer: `c / (TTFT + TPOT*(OSL-1))`."""
    seconds = ttft_seconds + tpot_seconds * (output_tokens - 1)
    if clients <= 0 or seconds <= 0:
        raise BalanceError(f"{clients:g} clients and {seconds:g} s a request: both must be above 0")
    return clients / seconds


def demand(clients: float, tpot_seconds: float, output_tokens: float) -> float:
    """Most requests a second that so many clients can ask for at this pace of decode: what they would send if prefill took no time."""
    if output_tokens <= 1:
        return math.inf
    return requests_per_second(clients, 0, tpot_seconds, output_tokens)


@dataclass(frozen=True)
class MeasuredRun:
    """One benchmark run of a layout. Latencies in seconds, mean or median; `prefill_queues` counts engines, or ranks with data parallelism."""

    name: str
    split: Split
    prefill_queues: int
    input_tokens: float
    output_tokens: float
    requests_per_second: float
    clients: float | None = None
    ttft_seconds: float | None = None
    tpot_seconds: float | None = None

    @property
    def demand(self) -> float | None:
        """Most that its clients can ask for, in requests a second; None where clients or TPOT are not known."""
        if self.clients is None or self.tpot_seconds is None:
            return None
        return demand(self.clients, self.tpot_seconds, self.output_tokens)

    @property
    def queued(self) -> float | None:
        """Prompts at each prefill queue, in service or waiting (Little's law); None where TTFT is not known."""
        return None if self.ttft_seconds is None else self.requests_per_second * self.ttft_seconds / self.prefill_queues

    def like(self, other: MeasuredRun) -> bool:
        """Whether both are runs of one layout at the same lengths."""
        return (self.split, self.prefill_queues, self.input_tokens, self.output_tokens) == (
            other.split,
            other.prefill_queues,
            other.input_tokens,
            other.output_tokens,
        )


def prefill_saturated(run: MeasuredRun, others: Iterable[MeasuredRun] = ()) -> bool:
    """Whether prefill was at its limit: more clients no longer bring more, or, for a run alone, prompts queue and clients are kept waiting.

    A single run can deceive: some engines have seconds of TTFT without load. Several runs of a layout with rising load are better.
    """
    series = [o for o in others if o.like(run) and o.clients is not None and o.name != run.name]
    if run.queued is None or run.clients is None or any(o.requests_per_second > run.requests_per_second * BETTER for o in series):
        return False
    fewer = [o for o in series if o.clients is not None and o.clients < run.clients]
    if fewer:
        last = max(fewer, key=lambda o: o.clients or 0)
        growth = math.log(run.requests_per_second / last.requests_per_second) / math.log(run.clients / (last.clients or 1))
        return growth < GROWTH and run.queued > 1
    return run.queued > QUEUED and run.demand is not None and run.demand >= run.requests_per_second * PRESSED


def prefill_rate(run: MeasuredRun, others: Iterable[MeasuredRun] = ()) -> MeasuredRate:
    """Prompt tokens a second and prefill GPU of a run."""
    rate = run.requests_per_second * run.input_tokens / run.split.prefill.gpus
    return MeasuredRate(run.input_tokens, rate, prefill_saturated(run, others))


def decode_rate(run: MeasuredRun, tpot_limit_seconds: float | None = None) -> MeasuredRate:
    """Answer tokens a second and decode GPU of a run; measured at the limit if its TPOT is just below the wanted one."""
    rate = run.requests_per_second * run.output_tokens / run.split.decode.gpus
    at_limit = tpot_limit_seconds is not None and run.tpot_seconds is not None and run.tpot_seconds >= tpot_limit_seconds * CLOSE_TO_LIMIT
    return MeasuredRate(run.input_tokens, rate, at_limit)


@dataclass(frozen=True)
class Calibration:
    """What a set of runs tells about both roles."""

    prefill: RateCurve
    decode: RateCurve


def calibrate(runs: Sequence[MeasuredRun], tpot_limit_seconds: float | None = None) -> Calibration:
    """Rates by prompt length from runs of one model on one kind of GPU and engine.

    Runs whose TPOT is above the limit do not count for decode: they were too slow. Raises BalanceError when nothing is left.
    """
    fast = [r for r in runs if tpot_limit_seconds is None or (r.tpot_seconds is not None and r.tpot_seconds <= tpot_limit_seconds)]
    if runs and not fast:
        raise BalanceError(f"no run has a time per token of at most {tpot_limit_seconds:g} s" if tpot_limit_seconds else "no runs")
    return Calibration(RateCurve(prefill_rate(r, runs) for r in runs), RateCurve(decode_rate(r, tpot_limit_seconds) for r in fast))
