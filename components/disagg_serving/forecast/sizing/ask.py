"""What sizing is asked: a model, its traffic, the limits to keep, and what may be bought."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ...catalog.entries import Instance, Model
from ...spec.serving import Percentile
from ..speed.steps import Request
from .units import Demand

Mode = Literal["any", "aggregated", "disaggregated"]
Pricing = Literal["on-demand", "capacity-block"]
PlanFor = Literal["slow", "forecast"]
LONGEST = 131072
"""Tokens at which the tables of step times end."""
MOST_NODES = 64
"""Nodes of a role that are tried where no number is given."""


@dataclass(frozen=True)
class Limits:
    """Milliseconds that so many percent of the requests stay below: to the first token, and a token of the answer; None is no limit."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    percentile: Percentile = 90


@dataclass(frozen=True)
class Ask:
    """A question. `table` names the model whose step times are taken, `nodes` is the most GPU nodes there are (None: as many as it takes).

    `corrections` are factors on step times by role and instance type, from what was measured.
    """

    model: str
    facts: Model
    table: str
    input_tokens: int
    output_tokens: int
    requests_per_second: float
    instances: tuple[Instance, ...]
    limits: Limits = Limits()
    prefix_hit: float = 0.0
    max_model_len: int = 0
    mode: Mode = "any"
    pricing: Pricing = "on-demand"
    nodes: int | None = None
    plan: PlanFor = "slow"
    kv_cache_dtype: str = "auto"
    engine_version: str = ""
    corrections: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @property
    def request(self) -> Request:
        """The mean request."""
        return Request(self.input_tokens, self.output_tokens, self.input_tokens * self.prefix_hit)

    @property
    def demand(self) -> Demand:
        """What the whole layout is asked for."""
        return Demand(self.request, self.requests_per_second, self.limits.percentile)

    @property
    def most_nodes(self) -> int:
        """Most nodes of a role."""
        return self.nodes or MOST_NODES

    def usd(self, instance: Instance) -> float | None:
        """Price of a node and hour; None where none is listed."""
        price = instance.capacity_block if self.pricing == "capacity-block" else instance.on_demand
        return price.usd_per_hour if price else None
