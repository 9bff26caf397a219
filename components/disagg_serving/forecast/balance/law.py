"""The balance law: which role bounds a layout, the best split of its GPUs, and how much room is left at the wanted load.

`req/s = min(Np*Rp/(ISL*(1-hit)), Nd*Rd/OSL)`, N in GPUs, R in tokens a second and GPU: each role serves its rate, and a request needs both.
Prefill as an M/D/1 queue is that of DistServe, https://arxiv.org/abs/2401.09670. How well the law holds: `make accuracy`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from .rates import BalanceError, Rates, Span, Workload

MEASURED_BAND = 0.1
"""Error of the optimum ratio with measured rates. Our choice."""
UNKNOWN_BAND = 2.0
"""Factor on the optimum ratio when a rate is only known to be at least so high. Our choice."""
ROUNDING = 1e-9

Kind = Literal["capacity", "upper bound", "lower bound", "range"]
Bound = Literal["prefill", "decode"]


@dataclass(frozen=True)
class Side:
    """The engines of one role."""

    workers: int
    gpus_per_worker: int

    def __post_init__(self) -> None:
        if self.workers < 1 or self.gpus_per_worker < 1:
            raise BalanceError(f"{self.workers} engines of {self.gpus_per_worker} GPUs: both must be at least 1")

    @property
    def gpus(self) -> int:
        """All its GPUs."""
        return self.workers * self.gpus_per_worker

    def __str__(self) -> str:
        return f"{self.workers} x {self.gpus_per_worker}"


class Split(NamedTuple):
    """How GPUs are split between the roles."""

    prefill: Side
    decode: Side

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return self.prefill.gpus + self.decode.gpus

    @property
    def ratio(self) -> float:
        """Prefill GPUs for one decode GPU."""
        return self.prefill.gpus / self.decode.gpus

    @property
    def engines(self) -> Engines:
        """The sizes of its engines."""
        return Engines(self.prefill.gpus_per_worker, self.decode.gpus_per_worker)

    def __str__(self) -> str:
        return f"{self.prefill} GPUs prefill, {self.decode} GPUs decode"


class Engines(NamedTuple):
    """GPUs of one engine of each role."""

    prefill: int
    decode: int

    def split(self, prefill: int, decode: int) -> Split:
        """So many of them."""
        return Split(Side(prefill, self.prefill), Side(decode, self.decode))


class Balance(NamedTuple):
    """What a split can serve, in requests a second.

    `kind` says what `requests_per_second` is. With both rates measured at their limit, or with the known one below the other,
    it is the capacity. An upper bound counts only the role whose rate is known; a lower bound has none and says what was reached.
    With a rate of another form of engine it is the middle of a range. `span` says between what the truth lies: one number for a capacity,
    and an infinite high end where no role's limit is known. `optimum` is the ratio of prefill to decode GPUs at which neither waits for the other.
    """

    prefill_requests: float
    decode_requests: float
    requests_per_second: float
    span: Span
    kind: Kind
    bound_by: Bound
    ratio: float
    optimum: Span

    @property
    def off(self) -> float:
        """How far the ratio is from the optimum, as a factor of at least 1."""
        return max(self.ratio / self.optimum.mid, self.optimum.mid / self.ratio)


def role_requests(split: Split, rates: Rates, workload: Workload) -> tuple[float, float]:
    """Requests a second that prefill and decode can each serve."""
    prefill = split.prefill.gpus * rates.prefill.tokens_per_second_per_gpu / workload.prefilled_tokens
    return prefill, split.decode.gpus * rates.decode.tokens_per_second_per_gpu / workload.output_tokens


def optimum_ratio(rates: Rates, workload: Workload) -> Span:
    """Prefill GPUs for one decode GPU at balance: `ISL*(1-hit)*Rd / (OSL*Rp)`, with the error of the rates."""
    mid = workload.prefilled_tokens * rates.decode.tokens_per_second_per_gpu / (workload.output_tokens * rates.prefill.tokens_per_second_per_gpu)
    low, high = (1 - MEASURED_BAND, 1 + MEASURED_BAND) if rates.saturated else (1 / UNKNOWN_BAND, UNKNOWN_BAND)
    p, d = rates.prefill, rates.decode
    return Span(mid * low * d.least / p.most, mid, mid * high * d.most / p.least)


def balance(split: Split, rates: Rates, workload: Workload) -> Balance:
    """What the split can serve, which role bounds it, and how far it is from the optimum."""
    prefill, decode = role_requests(split, rates, workload)
    sides: list[tuple[float, Bound]] = [(prefill, "prefill"), (decode, "decode")]
    known = [side for side, rate in zip(sides, (rates.prefill, rates.decode), strict=True) if rate.saturated]
    floor = min(sides)
    served, bound_by = min(known) if known else floor
    kind: Kind = "range" if not rates.own else "lower bound" if not known else "capacity" if served <= floor[0] else "upper bound"
    spans = [_scaled(rate.span, requests / rate.tokens_per_second_per_gpu) for requests, rate in ((prefill, rates.prefill), (decode, rates.decode))]
    span = Span(min(s.low for s in spans), served, min(s.high for s in spans))
    return Balance(prefill, decode, served, span, kind, bound_by, split.ratio, optimum_ratio(rates, workload))


def best_split(rates: Rates, workload: Workload, engines: Engines, gpus: int) -> Split:
    """Whole engines of the given sizes within so many GPUs that serve most; among equals the split with fewest GPUs.

    Raises BalanceError when the GPUs are too few for one engine of each role.
    """
    if gpus < engines.prefill + engines.decode:
        raise BalanceError(f"{gpus} GPUs are too few for an engine of {engines.prefill} and one of {engines.decode} GPUs")
    prefill, decode = role_requests(engines.split(1, 1), rates, workload)
    choices = range(1, (gpus - engines.decode) // engines.prefill + 1)
    most = max(min(p * prefill, (gpus - p * engines.prefill) // engines.decode * decode) for p in choices)
    return engines.split(_at_least(most, prefill), _at_least(most, decode))


def waiting_factor(utilisation: float) -> float:
    """Mean time in the queue as a multiple of the service time, `x/(2(1-x))` of an M/D/1 queue; infinite from 1 on."""
    if utilisation < 0:
        raise BalanceError(f"a utilisation of {utilisation:g}: it cannot be negative")
    return utilisation / (2 * (1 - utilisation)) if utilisation < 1 else math.inf


class Headroom(NamedTuple):
    """How busy both roles are at a wanted rate, and how much more the layout may take.

    The wait is the mean of one M/D/1 queue an engine, so a router that knows the queues does better. It is no forecast of TTFT:
    that also holds the prompt's own calculation, the transfer and the first decode step, and its tail is not known.
    """

    wanted: float
    prefill_utilisation: float
    decode_utilisation: float
    prefill_wait_seconds: float | None

    @property
    def utilisation(self) -> float:
        """Of the busier role."""
        return max(self.prefill_utilisation, self.decode_utilisation)


def headroom(split: Split, rates: Rates, workload: Workload, wanted: float, prefill_queues: int | None = None) -> Headroom:
    """Utilisation of both roles at `wanted` requests a second, and the mean wait of a prompt (None when overloaded).

    `prefill_queues` counts engines, or ranks with data parallelism, each of which calculates a prompt by itself. Default: engines.

    Rates that are only known to be at least so high give a utilisation that is at most so high.
    """
    if not (wanted >= 0 and math.isfinite(wanted)):
        raise BalanceError(f"{wanted:g} requests/s: it cannot be negative")
    prefill, decode = role_requests(split, rates, workload)
    service = (prefill_queues or split.prefill.workers) / prefill
    factor = waiting_factor(wanted / prefill)
    wait = service * factor if math.isfinite(factor) else None
    return Headroom(wanted, wanted / prefill, wanted / decode, wait)


def _scaled(span: Span, factor: float) -> Span:
    return Span(span.low * factor, span.mid * factor, span.high * factor)


def _at_least(wanted: float, each: float) -> int:
    # two ways to the same product differ in their last digit, which must not cost an engine
    return max(1, math.ceil(wanted / each * (1 - ROUNDING)))
