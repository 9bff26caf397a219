"""What the environment costs while it runs, in dated list prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..records import LEFT_OUT, Record
from .capacity import OfRole


@dataclass(frozen=True)
class CostLine(Record):
    """A line of the bill; amounts are null where no price is known, and `note` says why."""

    name: str
    item: str
    quantity: int
    unit_per_hour: float | None
    per_hour: float | None
    per_month: float | None
    region: str | None
    as_of: str | None
    """Day of the price, as YYYY-MM-DD."""
    note: str
    idle: int = 0
    """Reserved nodes among them that no pod uses."""
    other_region: bool = False
    """Whether the price is that of another region than the environment's, for which none is listed."""


@dataclass(frozen=True)
class SharePrice(Record):
    """What GPUs cost as shares of their nodes."""

    per_hour: float
    per_month: float
    as_of: str
    """Day of the price, as YYYY-MM-DD."""


@dataclass(frozen=True, kw_only=True)
class RoleCost(Record, OfRole):
    """What a role's GPUs cost; null where no price is listed."""

    model: str
    generation: str = field(default="", metadata=LEFT_OUT)
    """Left out where the model has none."""
    role: str
    gpus: int
    on_demand: SharePrice | None
    capacity_block: SharePrice | None


@dataclass(frozen=True)
class Cost(Record):
    """Dated list prices; totals are sums of what is known."""

    currency: Literal["USD"] = "USD"
    per_hour: float = 0
    per_month: float = 0
    """730 hours."""
    as_of: str | None = None
    """Day of the oldest price, as YYYY-MM-DD."""
    complete: bool = True
    """Whether every line has a price."""
    lines: Sequence[CostLine] = ()
    roles: Sequence[RoleCost] = ()
