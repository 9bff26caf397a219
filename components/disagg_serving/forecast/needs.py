"""What traffic takes of a role: tokens a second beside the bound of its GPUs, and requests in decode beside what its KV cache holds."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..planning.shapes import Group, world_size
from ..spec.serving import WorkloadSpec
from .balance import Bound, Span, Workload
from .balance.rates import figure
from .balance.roofline import BAND
from .capacities import capacity_of, shape_of
from .situation import PHASES, Phase, bound_of, step_of, tokens_a_step


class Need(NamedTuple):
    """Tokens a second and GPU that the traffic needs of a phase, beside the bound."""

    phase: Phase
    tokens_per_second_per_gpu: float
    bound: Bound

    @property
    def share(self) -> float:
        """Of the bound's high end; 0 where it has none."""
        return self.tokens_per_second_per_gpu / self.bound.high if self.bound.high else 0.0

    def __str__(self) -> str:
        return self.bound.beside(self.tokens_per_second_per_gpu)


class InFlight(NamedTuple):
    """Requests that are in decode at once by Little's law, requests/s x answer tokens x time per token, beside those that its KV cache holds.

    With a wanted time per token `requests` is one number; without one it is what memory bandwidth allows, whose ends are infinite where it does
    not suffice. `held` has the error bars of the memory forecast.
    """

    requests: Span
    held: Span
    because: str

    @property
    def too_many(self) -> bool:
        """Whether even the fewest are more than the KV cache surely holds."""
        return math.isfinite(self.requests.low) and self.requests.low > self.held.low

    def __str__(self) -> str:
        return f"in decode at once: {self.beside}"

    @property
    def beside(self) -> str:
        """The requests beside those that fit."""
        return f"{_between(self.requests)} requests ({self.because}), KV cache for {_between(self.held)}"


def phases_of(group: Group) -> tuple[Phase, ...]:
    """What a role does."""
    return tuple(phase for phase in PHASES if group.role in {phase, "server"})


def needs_of(group: Group, wanted: WorkloadSpec) -> list[Need]:
    """Needs of a role's phases whose bounds are known."""
    workload = Workload(wanted.input_tokens, wanted.output_tokens, wanted.prefix_hit)
    asked = {"prefill": workload.prefilled_tokens, "decode": workload.output_tokens}
    gpus = group.replicas * world_size(group.spec)
    bounds = ((phase, bound_of(group, phase, workload)) for phase in phases_of(group))
    return [Need(phase, wanted.requests_per_second * asked[phase] / gpus, bound) for phase, bound in bounds if bound]


def in_flight(group: Group, wanted: WorkloadSpec) -> InFlight | None:
    """Requests in decode on a role's engines; None for prefill, and where the memory of an engine is not known or holds nothing."""
    room = capacity_of(group)
    if "decode" not in phases_of(group) or room is None or room.weights_gib.mid <= 0:
        return None
    workload = Workload(wanted.input_tokens, wanted.output_tokens, wanted.prefix_hit)
    ranks, slots = group.replicas * room.ranks, shape_of(group).sequence_slots
    # a request in flight holds its prompt and on average half of its answer
    blocks = room.plan.blocks_of(math.ceil(workload.input_tokens + workload.output_tokens / 2))
    held = Span(*(float(ranks * min(slots, math.floor(b / blocks))) for b in (room.blocks.low, room.blocks.mid, room.blocks.high)))
    tokens = wanted.requests_per_second * wanted.output_tokens
    what = f"{figure(wanted.requests_per_second)}/s x {figure(wanted.output_tokens)} tokens"
    if wanted.tpot_ms:
        number = tokens * wanted.tpot_ms / 1000
        return InFlight(Span(number, number, number), held, f"{what} x {figure(wanted.tpot_ms)} ms")
    alone = step_of(group, room, workload, 0).seconds(group.instance.gpu)
    each = step_of(group, room, workload, 1).seconds(group.instance.gpu) - alone
    steps = tokens / ranks
    factors = (1 / BAND / tokens_a_step(group), 1.0, BAND)
    return InFlight(Span(*(ranks * _batch(steps * f, alone, each) for f in factors)), held, f"{what} x the roofline's time per token")


def _batch(steps: float, alone: float, each: float) -> float:
    """The batch at which a rank writes so many steps' worth of tokens a second: `b = steps x (alone + b x each)`; infinite where none does."""
    return steps * alone / (1 - steps * each) if steps * each < 1 else math.inf


def _between(span: Span) -> str:
    if not math.isfinite(span.low):
        return "more than memory bandwidth serves"
    if not math.isfinite(span.high):
        return f"{figure(span.low)} and more"
    return figure(span.low) if span.low == span.high else f"{figure(span.low)} to {figure(span.high)}"
