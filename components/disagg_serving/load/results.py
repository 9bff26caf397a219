"""What a run measured, and whether it was held back by something other than the role that it is about."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..manifests.load import PERCENTILES, Run
from ..planning.shapes import Group, world_size
from ..verify.metrics import Metrics

MIDDLE = 0.6
"""Part of the samples that counts: the beginning fills the queues, the end empties them."""
FEWEST_SAMPLES = 5
MOSTLY = 0.8
HITS = 0.02
"""Share of the prompt that may come from the prefix cache: random prompts share next to nothing unless a seed is used twice."""


class ResultError(ValueError):
    """A load generator's output that is none; the text says what is wrong."""


@dataclass(frozen=True)
class Result:
    """What vLLM's load generator counted in a run. Seconds, tokens, and milliseconds by percentile."""

    seconds: float
    completed: int
    failed: int
    input_tokens: int
    output_tokens: int
    requests_per_second: float
    milliseconds: dict[str, dict[str, float]]

    def as_dict(self) -> dict[str, Any]:
        """Plain data with the keys of the command line's json output."""
        return {
            "seconds": round(self.seconds, 3),
            "completed": self.completed,
            "failed": self.failed,
            "inputTokens": self.input_tokens,
            "outputTokens": self.output_tokens,
            "requestsPerSecond": round(self.requests_per_second, 4),
            "inputTokensPerSecond": round(self.input_tokens / self.seconds, 1),
            "outputTokensPerSecond": round(self.output_tokens / self.seconds, 1),
            "milliseconds": {k: {q: round(v, 2) for q, v in values.items()} for k, values in self.milliseconds.items()},
        }


def read_result(text: str) -> Result:
    """The JSON that `vllm bench serve --save-result` writes (vllm/benchmarks/serve.py, equal in 0.27.1 and 0.33.0). Raises ResultError."""
    try:
        data = json.loads(text)
        names = ("mean", *(f"p{p}" for p in PERCENTILES))
        times = {m: {n: float(data[f"{n}_{m}_ms"]) for n in names} for m in ("ttft", "tpot", "itl")}
        found = Result(
            float(data["duration"]), int(data["completed"]), int(data["failed"]), int(data["total_input_tokens"]), int(data["total_output_tokens"]),
            float(data["request_throughput"]), times,
        )  # fmt: skip
    except (ValueError, TypeError, KeyError) as problem:
        raise ResultError(f"no result of vllm bench serve: {problem}") from None
    if found.seconds <= 0:
        raise ResultError(f"a run of {found.seconds:g} s")
    return found


@dataclass(frozen=True)
class Sample:
    """Sums over each role's engines at one moment of a run."""

    prefill: Metrics
    decode: Metrics


@dataclass(frozen=True)
class Verdict:
    """A rate in tokens a second and GPU with the prompt length that it holds for; or why the run measured none."""

    rate: float | None = None
    input_tokens: int = 0
    reason: str = ""
    held_back_by_prefill: bool = False
    too_slow_by: float = 0.0


def judge_prefill(run: Run, result: Result, samples: Sequence[Sample], group: Group) -> Verdict:
    """Prompt tokens a second and GPU: only where a prompt waited for each rank throughout, and were calculated and not found in a cache."""
    if reason := _unfit(run, result, samples):
        return Verdict(reason=reason)
    queues = group.replicas * group.spec.data_parallel
    busy = _share([s.prefill.waiting >= queues for s in _middle(samples)])
    if busy < MOSTLY:
        return Verdict(reason=f"prompts waited for prefill in {busy:.0%} of the samples only: something before it was the limit")
    moved = samples[-1].prefill - samples[0].prefill
    if moved.cache_hits > HITS * moved.cache_queries:
        return Verdict(reason=f"{moved.cache_hits / moved.cache_queries:.0%} of the prompts came from the prefix cache")
    return Verdict(result.input_tokens / result.seconds / _gpus(group), _mean_prompt(result))


def judge_decode(run: Run, result: Result, samples: Sequence[Sample], group: Group, pace_ms: float) -> Verdict:
    """Answer tokens a second and GPU: only where decode had its whole batch throughout, at no more than the wanted time a token."""
    if reason := _unfit(run, result, samples):
        return Verdict(reason=reason)
    wanted = MOSTLY * (run.concurrency or 0)
    full = _share([s.decode.running + s.decode.waiting >= wanted for s in _middle(samples)])
    if full < MOSTLY:
        waited = _share([s.prefill.waiting > 0 for s in _middle(samples)])
        held = waited >= MOSTLY
        by = "prefill was the limit" if held else "something before it was the limit"
        return Verdict(reason=f"decode had its batch of {run.concurrency} in {full:.0%} of the samples only: {by}", held_back_by_prefill=held)
    mean = result.milliseconds["tpot"]["mean"]
    if mean > pace_ms:
        return Verdict(reason=f"{mean:.1f} ms a token at {run.concurrency} requests at a time, wanted are {pace_ms:g}", too_slow_by=mean / pace_ms)
    return Verdict(result.output_tokens / result.seconds / _gpus(group), _mean_prompt(result))


def _unfit(run: Run, result: Result, samples: Sequence[Sample]) -> str:
    if result.failed or result.completed < run.requests:
        return f"{result.failed} of {run.requests} requests failed, {result.completed} were answered"
    if len(samples) < FEWEST_SAMPLES:
        return f"the engines' metrics could be read {len(samples)} times during the run, which is too few to know what was busy"
    return ""


def _middle(samples: Sequence[Sample]) -> Sequence[Sample]:
    edge = round(len(samples) * (1 - MIDDLE) / 2)
    return samples[edge : len(samples) - edge]


def _share(found: Sequence[bool]) -> float:
    return sum(found) / len(found)


def _gpus(group: Group) -> int:
    return world_size(group.spec) * group.replicas


def _mean_prompt(result: Result) -> int:
    return round(result.input_tokens / result.completed)
