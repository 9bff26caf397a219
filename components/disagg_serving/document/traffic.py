"""What measured rates, or bounds without them, say about a model's traffic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..records import LEFT_OUT, WRITTEN_WITH, Record


@dataclass(frozen=True)
class Rate(Record):
    """Requests a second."""

    wanted: float
    capacity: float
    kind: str
    """What the capacity is: `capacity`, `lower bound`, `upper bound`, or the middle of a `range` where a rate is of another form of engine."""
    low: float | None = field(default=None, metadata=LEFT_OUT)
    """Low end; only of a range."""
    high: float | None = field(default=None, metadata=LEFT_OUT)
    """High end; only of a range."""


@dataclass(frozen=True)
class Utilisation(Record):
    """Shares of the time in which a role is busy."""

    prefill: float
    decode: float


@dataclass(frozen=True)
class Ratio(Record):
    """GPUs for prefill by GPUs for decode: as planned, and the optimum with its error bars."""

    now: float
    low: float
    mid: float
    high: float


@dataclass(frozen=True)
class Scenario(Record):
    """A way on which KV moves."""

    name: str
    seconds: Sequence[float]
    """Low and high end, for one prompt."""
    load: Sequence[float] | None
    """Shares of what the way carries; null where no rate is wanted."""


@dataclass(frozen=True)
class Transfer(Record):
    """How KV comes from prefill to decode."""

    bytes: int
    """Of one prompt."""
    scenarios: Sequence[Scenario]


@dataclass(frozen=True)
class Need(Record):
    """Tokens a second and GPU that the traffic needs of a phase, beside the range that arithmetic and memory bandwidth leave."""

    phase: Literal["prefill", "decode"]
    needed: float
    low: float | None
    """Null where nothing is known of the low end."""
    high: float | None
    """Null where no bound is known."""
    share: float | None
    """Of the high end."""


@dataclass(frozen=True)
class InFlight(Record):
    """Requests that are in decode at once, by Little's law, and those that its KV cache holds: low and high ends."""

    requests: Sequence[float | None]
    """Equal where the workload says how long a token takes; null is more than memory bandwidth serves."""
    kv_cache: Sequence[float]
    text: str
    """The same as a sentence."""


@dataclass(frozen=True)
class Forecast(Record):
    """What measured rates, or bounds, say about a split model with a workload. `problem` stands alone with the model."""

    model: str
    problem: str = field(default="", metadata=LEFT_OUT)
    """Why there is no forecast."""
    advice: str = field(default="", metadata=LEFT_OUT)
    better: Literal["aggregated", "disaggregated"] | None = field(default=None, metadata=LEFT_OUT)
    requests_per_second: Rate | None = field(default=None, metadata=LEFT_OUT)
    """From here to `ratio`: only with measured rates of both roles."""
    bound_by: str = field(default="", metadata=LEFT_OUT)
    utilisation: Utilisation | None = field(default=None, metadata=LEFT_OUT)
    usd_per_million_tokens: float | None = field(default=None, metadata=LEFT_OUT)
    prefill_wait_seconds: float | None = field(default=None, metadata={WRITTEN_WITH: "requests_per_second"})
    ratio: Ratio | None = field(default=None, metadata=LEFT_OUT)
    bounds: Sequence[str] = field(default=(), metadata=LEFT_OUT)
    """Sentences, need beside bound; only without measured rates."""
    unmeasured: Sequence[Literal["prefill", "decode"]] = field(default=(), metadata=LEFT_OUT)
    kv_transfer: Transfer | None = field(default=None, metadata=LEFT_OUT)
    needs: Sequence[Need] = field(default=(), metadata=LEFT_OUT)
    in_flight: InFlight | None = field(default=None, metadata=LEFT_OUT)
    other_forms: Sequence[str] = field(default=(), metadata=LEFT_OUT)
    """Sentences about rates that were measured on another form of engine."""
