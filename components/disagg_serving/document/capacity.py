"""What one engine of a role holds: memory of a GPU, tokens and requests, with error bars."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ..records import LEFT_OUT, Record


@dataclass(frozen=True)
class Bars(Record):
    """An estimate with its error bars."""

    low: float
    """At least."""
    mid: float
    """To be expected."""
    high: float
    """At most."""

    def __add__(self, other: Bars) -> Bars:
        return Bars(self.low + other.low, self.mid + other.mid, self.high + other.high)

    def times(self, factor: float) -> Bars:
        """All three multiplied by a factor of at least 0."""
        return Bars(self.low * factor, self.mid * factor, self.high * factor)


class Fit(StrEnum):
    """Whether one request of the longest length fits: even in the worst case, only in a better one, or not at all."""

    FITS = "fits"
    TIGHT = "tight"
    NO = "no"


class OfRole:
    """What belongs to a role of a model, or of a candidate generation of it."""

    model: str
    generation: str
    role: str

    @property
    def engine(self) -> str:
        """What outputs call it: model, generation where there is one, and role."""
        return " ".join(part for part in (self.model, self.generation, self.role) if part)


@dataclass(frozen=True)
class PerGpu(Record):
    """Memory of one GPU, in GiB."""

    budget_gib: float
    """What the engine may use."""
    weights_gib: Bars
    overhead_gib: Bars
    kv_gib: Bars


@dataclass(frozen=True)
class EngineCapacity(Record, OfRole):
    """What one engine of a role holds."""

    model: str
    role: str
    per_gpu: PerGpu
    kv_bytes_per_token_per_gpu: float
    kv_tokens: Bars
    """Tokens of KV in all ranks of an engine."""
    max_concurrency: Bars
    """Requests of the greatest length at once."""
    fits: Fit
    longest_request: int
    """Tokens."""
    generation: str = field(default="", metadata=LEFT_OUT)
    """Left out where the model has none."""
    workload_concurrency: Bars | None = field(default=None, metadata=LEFT_OUT)
    """Requests of the workload's mean length at once. Left out without a workload."""
