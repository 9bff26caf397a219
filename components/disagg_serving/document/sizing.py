"""What `disagg size` answers: layouts that keep a traffic's limits, with what they cost and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..records import LEFT_OUT, Record


@dataclass(frozen=True)
class Span(Record):
    """A figure with fast steps, with those of the tables, and with slow ones; null where the layout does not carry the traffic then."""

    low: float | None
    mid: float | None
    high: float | None


@dataclass(frozen=True)
class Latency(Record):
    """Milliseconds."""

    mean: Span
    percentile: Span
    """At the percentile that was asked for."""


@dataclass(frozen=True)
class SizedTraffic(Record):
    """What was asked."""

    model: str
    input_tokens: int
    output_tokens: int
    requests_per_second: float
    prefix_hit: float
    max_model_len: int
    ttft_ms: float | None
    """Limit of the time to the first token; null is none."""
    tpot_ms: float | None
    """Limit of the time per token; null is none."""
    percentile: int
    """So many percent of the requests keep the limits."""
    pricing: Literal["on-demand", "capacity-block"]
    plan: Literal["slow", "forecast"]
    """Whether layouts keep the limits with slow steps, or with those of the tables."""


@dataclass(frozen=True)
class SizedRole(Record):
    """One role of a layout."""

    role: Literal["server", "prefill", "decode"]
    instance_type: str
    nodes: int
    replicas: int
    tensor_parallel: int
    data_parallel: int
    expert_parallel: bool
    error: Sequence[float]
    """Factors on step times: fast and slow."""
    rows: int
    """Measured public runs of the model on this GPU that the factors are from; 0 is not validated."""
    corrected: float = field(default=1.0, metadata=LEFT_OUT)
    """Factor on step times from own measurements. 1 where there are none."""


@dataclass(frozen=True, kw_only=True)
class SizedLayout(Record):
    """A layout that keeps the limits."""

    name: str
    """In words, as the answer says it."""
    roles: Sequence[SizedRole]
    nodes: int
    prefill_to_decode: str
    """GPUs of prefill to GPUs of decode, `3:1`; empty where one role does both."""
    usd_per_hour: float
    usd_per_hour_forecast: float | None
    """Price of the nodes that steps as in the tables take; null where other forms would be taken then."""
    usd_per_million_answer_tokens: float
    usd_per_million_tokens: float
    """Of prompt and answer together."""
    ttft_ms: Latency
    tpot_ms: Latency
    busy: float
    """Share of the time that prompts take of what is there to read them."""
    kv_use: float
    """Share of the KV cache in use, in the low estimate of the memory forecast."""
    transfer_ms: float
    """KV of a prompt on its way; 0 where one role does both."""
    bound_by: str
    """Which limit is the nearest: ttft, tpot, busy or kv."""
    validated_rows: int
    """Measured public runs behind its weakest role."""


@dataclass(frozen=True)
class LeftOut(Record):
    """What was not taken, by reason."""

    reason: str
    count: int


@dataclass(frozen=True)
class RefusedLayout(Record):
    """A layout that keeps the limits and that a rule refuses."""

    name: str
    usd_per_hour: float
    rule: str
    message: str


@dataclass(frozen=True, kw_only=True)
class SizingDocument(Record):
    """The answer of `disagg size`, as `--format json` prints it."""

    version: Literal[1] = 1
    """Grows when a key is renamed, removed or means something else; new keys do not change it."""
    traffic: SizedTraffic
    answer: str
    """In one sentence."""
    chosen: SizedLayout
    cheapest: SizedLayout
    """Of all that pass the rules; the chosen one costs at most 15 % more."""
    top: Sequence[SizedLayout]
    """The cheapest that pass the rules, best first."""
    front: Sequence[SizedLayout]
    """Those that pass the rules and are beaten by none in both cost and time per token."""
    candidates: int
    """Layouts that keep the limits by forecast, before the rules."""
    left_out: Sequence[LeftOut]
    refused: Sequence[RefusedLayout]
    step_data: str
    """Library, engine and day of the step times."""
    notice: str
    """Copyright and licence of the measured data."""
