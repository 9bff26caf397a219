"""From a wanted measurement to the runs that it takes, and to what may be written into the stack file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..document.traffic import Forecast
from ..forecast.traffic import forecast_of
from ..manifests.load import Run
from ..planning.shapes import Layout, Served
from ..records import data_of
from .results import Result, Sample, Verdict, judge_decode, judge_prefill
from .runs import RunKind, longer, slower

MOST_DECODE_RUNS = 4
MARGIN = 0.95
"""A little less than in proportion, so that the next run is below the wanted pace and not again at it."""


@dataclass(frozen=True)
class Finished:
    """A run, what it measured, and what the engines were doing."""

    run: Run
    result: Result
    samples: list[Sample]


@dataclass(frozen=True)
class Measured:
    """A finished run, what it says of its role's rate (nothing for the expected traffic, which measures no role), and what the plan says."""

    served: Served
    finished: Finished
    verdict: Verdict | None
    forecast: Forecast | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data: lengths and pace of the run, what was counted, the rate or why there is none, and the plan's forecast."""
        run = self.finished.run
        found: dict[str, Any] = {
            "model": self.served.spec.name,
            "run": run.kind,
            "inputTokens": run.input_tokens,
            "outputTokens": run.output_tokens,
            "requests": run.requests,
            "requestsPerSecond": run.rate,
            "concurrency": run.concurrency,
            "seed": run.seed,
            "result": self.finished.result.as_dict(),
        }
        if self.verdict is not None:
            rate = self.verdict.rate
            found["rate"] = None if rate is None else {"inputTokens": self.verdict.input_tokens, "tokensPerSecondPerGPU": round(rate, 1)}
            found["notMeasured"] = self.verdict.reason or None
        found["forecast"] = data_of(self.forecast)
        return found


def measure(layout: Layout, served: Served, run: Run, pace_ms: float, perform: Callable[[Run], Finished]) -> list[Measured]:
    """Perform a run; a decode run that was held back or too slow is tried again with longer answers or fewer requests at a time."""
    groups, forecast = {g.role: g for g in layout.groups_of(served)}, forecast_of(layout, served)
    done = perform(run)
    if run.kind == RunKind.TRAFFIC:
        return [Measured(served, done, None, forecast)]
    if run.kind == RunKind.PREFILL:
        return [Measured(served, done, judge_prefill(run, done.result, done.samples, groups["prefill"]), forecast)]
    found: list[Measured] = []
    while True:
        verdict = judge_decode(done.run, done.result, done.samples, groups["decode"], pace_ms)
        found.append(Measured(served, done, verdict, forecast))
        following = _next(done.run, verdict, served.max_model_len)
        if following is None or len(found) == MOST_DECODE_RUNS:
            return found
        done = perform(following)


def _next(run: Run, verdict: Verdict, most: int) -> Run | None:
    if verdict.too_slow_by:
        return slower(run, MARGIN / verdict.too_slow_by)
    return longer(run, most) if verdict.held_back_by_prefill else None
