"""What steps of an engine that reads prompts and writes answers come to: continuous batching with chunked prefill."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .times import Times

HALVINGS = 18
"""Rounds of a search between two numbers: to less than a hundred-thousandth of their distance."""


@dataclass(frozen=True)
class Request:
    """The mean request in tokens; `cached` of its prompt are in the prefix cache."""

    prompt: float
    answer: float
    cached: float = 0.0

    @property
    def new(self) -> float:
        """Tokens of the prompt that are calculated."""
        return self.prompt - self.cached

    @property
    def context(self) -> float:
        """What a request in decode holds on average."""
        return self.prompt + self.answer / 2


@dataclass(frozen=True)
class Steps:
    """One rank with a batch: ms of a token, ms of a prompt once it is begun, and the part of the time in which steps carry a prompt."""

    token: float
    prompt: float
    share: float


@dataclass(frozen=True)
class Engine:
    """Step times of an engine with so many data-parallel ranks, tokens a step, and how much slower steps are than the table (1: as it says)."""

    times: Times
    ranks: int
    budget: int
    factor: float = 1.0

    def decode(self, batch: float, context: float) -> float:
        """A step without prompts."""
        return self.factor * self.times.decode(batch, context)

    def mixed(self, chunk: float, batch: float, request: Request) -> float:
        """A step with a chunk of a prompt; longer than one without."""
        return max(self.factor * self.times.mixed(chunk, batch, request.prompt, request.context), self.decode(batch, request.context))

    def busy(self, rate: float, request: Request) -> float:
        """Part of what an engine can read that so many requests a ms and rank take, in steps full of prompts; 1 and more never ends."""
        return rate * request.new / self.budget * self.mixed(self.budget, 1, request)

    def steps(self, rate: float, batch: float, request: Request) -> Steps | None:
        """What a batch and so many requests a ms and rank come to; None where prompts come faster than they are read.

        A step carries one prompt, or a chunk of one, while they come one by one, and what has come since the last step when they come faster.
        Ranks step together, so each waits for the prompts of all.
        """
        chunk = float(min(request.new, self.budget))
        mixed = self.mixed(chunk, batch, request)
        own = rate * request.new / chunk * mixed
        if own > 1:
            chunk = float(self.budget)
            full = self.mixed(chunk, batch, request)
            if rate * request.new / chunk * full > 1:
                return None
            low, high = min(request.new, self.budget), chunk
            for _ in range(HALVINGS):
                middle = math.sqrt(low * high)
                mixed = self.mixed(middle, batch, request)
                low, high = (middle, high) if rate * request.new * mixed > middle else (low, middle)
            own, chunk = 1.0, high
        share = 1 - (1 - own) ** self.ranks
        token = 1 / (share / mixed + (1 - share) / self.decode(batch, request.context))
        return Steps(token, max(1.0, request.new / chunk) * mixed, share)
