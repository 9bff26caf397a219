"""DistServe's placement search over measured points: the pair of engine forms, and how many of each, that serve most for each GPU.

Source: DistServe (OSDI 2024, arXiv 2401.09670), algorithm 1: the best form of each phase alone, then copies to match the rates; ties
go to fewer GPUs. Its simulator makes the points from a kernel model; here they are given, because such models do not carry over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from .law import Side, Split
from .rates import BalanceError, Workload


@dataclass(frozen=True)
class Objective:
    """Latency limits in seconds at the wanted share of requests (usually 90 %); None where there is none."""

    ttft_seconds: float | None = None
    tpot_seconds: float | None = None


@dataclass(frozen=True)
class MeasuredPoint:
    """One measured load of one engine form.

    `tokens_per_second_per_gpu` are prompt tokens on prefill and answer tokens on decode; `latency_seconds` is the TTFT on prefill and
    the TPOT on decode at that load, None when the load is already the highest one within the limits.
    """

    role: Literal["prefill", "decode"]
    parallelism: str
    gpus: int
    tokens_per_second_per_gpu: float
    latency_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.gpus < 1 or not (self.tokens_per_second_per_gpu > 0 and math.isfinite(self.tokens_per_second_per_gpu)):
            raise BalanceError(f"a point of {self.tokens_per_second_per_gpu:g} tokens/s/GPU on {self.gpus} GPUs: both must be above 0")

    def meets(self, objective: Objective) -> bool:
        """Whether its latency is within the limit of its role."""
        limit = objective.ttft_seconds if self.role == "prefill" else objective.tpot_seconds
        return limit is None or self.latency_seconds is None or self.latency_seconds <= limit

    def requests(self, workload: Workload) -> float:
        """Requests a second of one engine."""
        tokens = workload.prefilled_tokens if self.role == "prefill" else workload.output_tokens
        return self.tokens_per_second_per_gpu * self.gpus / tokens


@dataclass(frozen=True)
class Goodput:
    """The best placement that was found: `requests_per_second` within the limits, in all and for each GPU."""

    prefill: MeasuredPoint
    decode: MeasuredPoint
    split: Split
    requests_per_second: float

    @property
    def per_gpu(self) -> float:
        """Requests a second and GPU."""
        return self.requests_per_second / self.split.gpus


Allowed = Callable[[MeasuredPoint, MeasuredPoint], bool]


def search(points: Iterable[MeasuredPoint], workload: Workload, objective: Objective, gpus: int, allowed: Allowed | None = None) -> Goodput:
    """The placement with the highest goodput for each GPU within so many GPUs; among equals the one with fewest GPUs.

    `allowed` refuses pairs that the KV transfer cannot serve, such as heads that do not divide. Raises BalanceError when a role has no
    point within the limits, or when no pair fits into the GPUs.
    """
    good = [p for p in points if p.meets(objective)]
    forms = {role: _best_forms(good, role, workload) for role in ("prefill", "decode")}
    for role, found in forms.items():
        if not found:
            limit = objective.ttft_seconds if role == "prefill" else objective.tpot_seconds
            within = "" if limit is None else f" within {limit:g} s"
            raise BalanceError(f"no measured point of {role}{within}: measure smaller loads or other forms")
    pairs = [(p, d) for p in forms["prefill"] for d in forms["decode"] if allowed is None or allowed(p, d)]
    placed = [g for p, d in pairs for g in _placements(p, d, workload, gpus)]
    if not placed:
        why = "fit together" if not pairs else f"fit into {gpus} GPUs"
        raise BalanceError(f"no prefill and decode engine {why}")
    return min(placed, key=lambda g: (-round(g.per_gpu, 9), g.split.gpus, g.prefill.parallelism, g.decode.parallelism))


def _best_forms(points: Iterable[MeasuredPoint], role: str, workload: Workload) -> list[MeasuredPoint]:
    # of several loads of one form the highest within the limits is its goodput
    best: dict[tuple[str, int], MeasuredPoint] = {}
    for point in points:
        key = point.parallelism, point.gpus
        if point.role == role and (key not in best or point.requests(workload) > best[key].requests(workload)):
            best[key] = point
    return list(best.values())


def _placements(prefill: MeasuredPoint, decode: MeasuredPoint, workload: Workload, gpus: int) -> Iterator[Goodput]:
    p_rate, d_rate = prefill.requests(workload), decode.requests(workload)
    for p in range(1, (gpus - decode.gpus) // prefill.gpus + 1):
        room = (gpus - p * prefill.gpus) // decode.gpus
        # goodput per GPU rises with decode engines while they are the bound and falls afterwards, so only the two beside the balance count
        even = p * p_rate / d_rate
        for d in {min(room, max(1, math.floor(even))), min(room, max(1, math.ceil(even)))}:
            yield Goodput(prefill, decode, Split(Side(p, prefill.gpus), Side(d, decode.gpus)), min(p * p_rate, d * d_rate))
