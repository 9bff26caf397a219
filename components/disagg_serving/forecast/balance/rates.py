"""Measured rates of prefill and decode: what planning calculates with, because no model of kernels predicts them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

REACH = 2.0
"""How far from the measured prompt lengths a rate is used, as a factor. Our choice: attention makes longer prompts dearer a token."""


OTHER_FORM = 2.0
"""Factor either way on a rate that was measured on another form of engine. Our choice, by public pairs of tests/data/pd-cases.csv: GLM-5.2 on
engines of 8 GPUs served 0.53 of what its rate on 16 says, DeepSeek-R1 on B200 1.9 times as much with cut experts than with whole ones."""


class BalanceError(ValueError):
    """The figures that were given cannot answer the question; the text says which are missing or wrong."""


class Span(NamedTuple):
    """A number with its error bars."""

    low: float
    mid: float
    high: float


def figure(value: float | None, digits: int = 3) -> str:
    """A quantity to read: so many digits, and whole numbers from 100 on; any without one."""
    return "any" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.{digits}g}"  # noqa: PLR2004 (three digits either way)


@dataclass(frozen=True)
class Workload:
    """Mean request: prompt and answer in tokens, and the share of the prompt that the prefix cache holds already.

    Raises BalanceError for lengths below 1 and shares outside [0, 1).
    """

    input_tokens: float
    output_tokens: float
    prefix_hit: float = 0.0

    def __post_init__(self) -> None:
        if not (self.input_tokens >= 1 and self.output_tokens >= 1 and math.isfinite(self.input_tokens + self.output_tokens)):
            raise BalanceError(f"a request of {self.input_tokens:g} prompt and {self.output_tokens:g} answer tokens: both must be at least 1")
        if not 0 <= self.prefix_hit < 1:
            raise BalanceError(f"a prefix hit of {self.prefix_hit:g}: it is a share, at least 0 and below 1")

    @property
    def prefilled_tokens(self) -> float:
        """Prompt tokens that prefill has to calculate."""
        return self.input_tokens * (1 - self.prefix_hit)


@dataclass(frozen=True)
class MeasuredRate:
    """Tokens a second and GPU at a mean prompt length: prompt tokens on prefill, answer tokens on decode at the wanted time per token.

    `saturated` is false when the run was held back by something else (too few clients, or the other role): the true rate is then
    at least this one. `least` and `most` are factors between which the true rate lies where the rate was measured on another form of engine.
    Raises BalanceError for figures that are not above 0.
    """

    input_tokens: float
    tokens_per_second_per_gpu: float
    saturated: bool = True
    least: float = 1.0
    most: float = 1.0

    def __post_init__(self) -> None:
        for value in (self.input_tokens, self.tokens_per_second_per_gpu):
            if not (value > 0 and math.isfinite(value)):
                raise BalanceError(f"a rate of {self.tokens_per_second_per_gpu:g} tokens/s/GPU at {self.input_tokens:g} tokens: both must be above 0")

    @property
    def own(self) -> bool:
        """Whether it was measured on the form that it is used for."""
        return self.least == self.most == 1

    @property
    def span(self) -> Span:
        """Between which rates the true one lies; infinite at the high end where only a lower bound was measured."""
        rate = self.tokens_per_second_per_gpu
        return Span(rate * self.least, rate, rate * self.most if self.saturated else math.inf)

    def carried(self, faster: float = 1.0) -> MeasuredRate:
        """The rate for another form of engine, whose GPU is so many times as fast as the measured one."""
        return replace(self, least=self.least * min(1.0, faster) / OTHER_FORM, most=self.most * max(1.0, faster) * OTHER_FORM)


@dataclass(frozen=True)
class RateCurve:
    """Rates of one role by prompt length, ascending. Raises BalanceError without points.

    A rate of the role's own form goes before one of another form. Of several saturated rates at one length the slower counts, because a plan must
    not need the better run of two. Runs that were held back are lower bounds: of those the fastest counts, and only where no saturated one is as
    fast.
    """

    points: tuple[MeasuredRate, ...]

    def __init__(self, points: Iterable[MeasuredRate]) -> None:
        best: dict[float, MeasuredRate] = {}
        for point in sorted(points, key=_by_worth):
            other = best.get(point.input_tokens)
            held_back = other is not None and not other.saturated and other.tokens_per_second_per_gpu > point.tokens_per_second_per_gpu
            if other is None or point.own != other.own or not (point.saturated and held_back):
                best[point.input_tokens] = point
        if not best:
            raise BalanceError("no rates: measure tokens a second and GPU at the mean prompt length")
        object.__setattr__(self, "points", tuple(best[length] for length in sorted(best)))

    def at(self, input_tokens: float) -> MeasuredRate:
        """The rate at a prompt length, linear in its logarithm between two points, and that of the nearest point outside of them.

        Raises BalanceError further than a factor of 2 from the shortest and longest measured length.
        """
        low, high = self.points[0], self.points[-1]
        if not low.input_tokens / REACH <= input_tokens <= high.input_tokens * REACH:
            lengths = " to ".join(f"{n:.0f}" for n in dict.fromkeys((low.input_tokens, high.input_tokens)))
            raise BalanceError(
                f"no rate for prompts of {input_tokens:.0f} tokens: measured at {lengths}, and a rate is not carried further than a factor of "
                f"{REACH:g}; measure one at {input_tokens:.0f}"
            )
        if input_tokens <= low.input_tokens or input_tokens >= high.input_tokens:
            end = low if input_tokens <= low.input_tokens else high
            return replace(end, input_tokens=input_tokens)
        after = next(i for i, p in enumerate(self.points) if p.input_tokens >= input_tokens)
        a, b = self.points[after - 1], self.points[after]
        part = math.log(input_tokens / a.input_tokens) / math.log(b.input_tokens / a.input_tokens)
        rate = a.tokens_per_second_per_gpu * (1 - part) + b.tokens_per_second_per_gpu * part
        return MeasuredRate(input_tokens, rate, a.saturated and b.saturated, min(a.least, b.least), max(a.most, b.most))


def _by_worth(point: MeasuredRate) -> tuple[bool, bool, float]:
    """The most trusted last."""
    return point.own, point.saturated, -point.tokens_per_second_per_gpu if point.saturated else point.tokens_per_second_per_gpu


class Rates(NamedTuple):
    """The rates of both roles at one workload's prompt length."""

    prefill: MeasuredRate
    decode: MeasuredRate

    @property
    def saturated(self) -> bool:
        """Whether both were measured at their limit."""
        return self.prefill.saturated and self.decode.saturated

    @property
    def own(self) -> bool:
        """Whether both were measured on the forms that they are used for."""
        return self.prefill.own and self.decode.own


def rates_at(prefill: RateCurve, decode: RateCurve, workload: Workload) -> Rates:
    """Both rates at the workload's prompt length. Raises BalanceError where one is not known."""
    return Rates(prefill.at(workload.input_tokens), decode.at(workload.input_tokens))


def batch_limit(max_num_seqs: int, kv_tokens: float, workload: Workload) -> int:
    """Requests that one data-parallel rank of decode holds at once: `min(max_num_seqs, KV tokens / (ISL + OSL/2))`.

    A request in flight holds its prompt and on average half of its answer; `kv_tokens` and `max_num_seqs` are of the rank, too.
    Raises BalanceError when not even one request fits.
    """
    needed = workload.input_tokens + workload.output_tokens / 2
    limit = min(max_num_seqs, math.floor(kv_tokens / needed))
    if limit < 1:
        raise BalanceError(f"a KV cache of {kv_tokens:.0f} tokens and {max_num_seqs} sequences hold no request of {needed:.0f} tokens")
    return limit


def cap_by_batch(rate: MeasuredRate, batch: int, tpot_seconds: float, engine_gpus: int) -> MeasuredRate:
    """A decode rate, lowered to what an engine of so many GPUs gives with a full batch: `batch / TPOT`. TPOT in seconds."""
    if batch < 1 or tpot_seconds <= 0 or engine_gpus < 1:
        raise BalanceError(f"a batch of {batch} at {tpot_seconds:g} s a token on {engine_gpus} GPUs: all must be above 0")
    most = batch / tpot_seconds / engine_gpus
    span, mid = rate.span, min(rate.tokens_per_second_per_gpu, most)
    if span.high <= most:
        return rate
    return replace(rate, tokens_per_second_per_gpu=mid, saturated=True, least=min(1.0, span.low / mid), most=most / mid)
