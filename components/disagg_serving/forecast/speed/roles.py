"""Roles under arrivals by chance: a server that does both, prefill, and decode, each as one engine's share of the traffic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .queue import crowd, wait_at, waiting
from .steps import HALVINGS, Engine, Request, Steps

BUSY, FULL = 0.7, 0.85
"""Most that an engine is busy with prompts, and most of its KV cache in use; our choice, since arrivals and lengths vary. Waiting doubles from 0.7
to 0.82 of M/D/1."""
ROUTER = 4
"""Engines that share one queue: the router sends a prompt to the least busy one, but by figures that are a moment old. Our choice."""


@dataclass(frozen=True)
class Point:
    """What a role does at a load, at the engine: the way of a request to it comes on top.

    Milliseconds as mean and at the percentile that was asked for; 0 is what the role does not do. `batch` is the requests in decode of one engine,
    `held` those of this length that its KV cache surely holds, `busy` the share of the time that prompts take of what it can read.
    """

    ttft: float = 0
    ttft_at: float = 0
    tpot: float = 0
    tpot_at: float = 0
    batch: float = 0
    held: float = 0
    busy: float = 0

    @property
    def full(self) -> float:
        """Share of the KV cache in use."""
        return self.batch / self.held if self.held else 0.0


@dataclass(frozen=True)
class Room:
    """Requests that an engine holds at once: by its KV cache, in the low estimate, and by its slots."""

    held: float
    slots: int

    def most(self, ranks: int) -> float:
        """Largest mean batch of one rank."""
        return min(self.held * FULL / ranks, self.slots)


@dataclass(frozen=True)
class Load:
    """What comes to a role: requests a ms of one of its engines, how many there are, and the percentile that is asked for."""

    request: Request
    rate: float
    engines: int
    percentile: int


def server(engine: Engine, room: Room, load: Load) -> Point | None:
    """One engine of a role that does both; None where it does not carry its part."""
    own, most, request = load.rate / engine.ranks, room.most(engine.ranks), load.request
    found = _balanced(engine, own, most, request)
    if found is None:
        return None
    batch, steps = found
    busy = own * request.new / engine.budget * engine.mixed(engine.budget, batch, request)
    if busy > BUSY:
        return None
    crowd_now = min(crowd(load.percentile, batch), most)
    crowded = engine.steps(own, crowd_now, request) or steps
    begun = engine.decode(batch, request.context)  # the step that runs when it comes, or the one that is scheduled behind it
    mean, later = _waits(busy, steps.prompt, load, engine.ranks, own * steps.prompt)
    begun_at = engine.decode(crowd_now, request.context)
    tokens = steps.token, max(steps.token, crowded.token)
    first = begun + mean + steps.prompt, max(begun, begun_at) + later + max(steps.prompt, crowded.prompt)
    return Point(*first, *tokens, batch * engine.ranks, room.held, busy)


def prefill(engine: Engine, load: Load, later: float = 0) -> Point | None:
    """One engine of a role that reads prompts; `later` ms pass between the last of it and the first token."""
    request, times = load.request, engine.times
    cached = times.prefill(request.cached) if request.cached else 0
    service = engine.factor * max(times.prefill(request.new), times.prefill(request.prompt) - cached)
    # short prompts share steps when they come fast
    together = engine.factor * times.mixed(engine.budget, 1, request.prompt, 1) * request.new / engine.budget
    busy = load.rate / engine.ranks * (min(service, together) if request.new < engine.budget else service)
    if busy > BUSY:
        return None
    mean, waited = _waits(busy, service, load, engine.ranks)
    rest = service + later
    return Point(rest + mean, rest + waited, busy=busy)


def decode(engine: Engine, room: Room, load: Load) -> Point | None:
    """One engine of a role that writes answers."""
    own, most, request = load.rate / engine.ranks, room.most(engine.ranks), load.request
    batch = _fixed(lambda b: own * request.answer * engine.decode(b, request.context), most)
    if batch is None:
        return None
    crowded = min(crowd(load.percentile, batch), most)
    token = engine.decode(batch, request.context)
    return Point(tpot=token, tpot_at=max(token, engine.decode(crowded, request.context)), batch=batch * engine.ranks, held=room.held)


def _balanced(engine: Engine, rate: float, most: float, request: Request) -> tuple[float, Steps] | None:
    """The batch at which as many answers end as begin, by Little's law."""

    def needed(batch: float) -> float:
        steps = engine.steps(rate, batch, request)
        return rate * (steps.prompt + steps.token * request.answer) if steps else float("inf")

    batch = _fixed(needed, most)
    steps = engine.steps(rate, batch, request) if batch is not None else None
    return None if batch is None or steps is None else (batch, steps)


def _fixed(needed: Callable[[float], float], most: float) -> float | None:
    """The batch that needs itself, at most `most`; None where even that is too small."""
    if most < 1 or needed(most) > most:
        return None
    low, high = 1.0, most
    if needed(low) <= low:
        return max(needed(low), 1e-6)
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if needed(middle) > middle else (low, middle)
    return high


def _waits(busy: float, service: float, load: Load, ranks: int, found: float = 0) -> tuple[float, float]:
    servers = min(ROUTER, load.engines * ranks)
    mean, later = waiting(busy, service, servers, found)[0], wait_at(load.percentile, busy, service, servers, found)
    return mean, later if load.percentile == 50 else max(mean, later)  # noqa: PLR2004 (the median alone may lie below the mean)
