"""What AWS can be asked about an environment, and its answers as plain data, which rules look at like at any other fact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from ..planning.shapes import Layout, Pool
from ..spec.network import region_of

LookUp = Literal["credentials", "quota", "offering", "reservation", "price"]
ON_DEMAND_P = "L-417A185B"
"""Running On-Demand P instances, in vCPUs (Service Quotas, service ec2)."""
SPOT_QUOTAS = {"p5": "L-C4BD4855", "p5e": "L-C4BD4855", "p5en": "L-C4BD4855"}
"""All P5 Spot Instance Requests, in vCPUs; which one later families count against is in no source that was read (2026-11-30)."""


@dataclass(frozen=True)
class Questions:
    """What to ask about: one region and zone, instance types, codes of quotas, ids of reservations."""

    region: str
    zone: str
    types: Sequence[str]
    quotas: Sequence[str]
    reservations: Sequence[str]
    on_demand: Sequence[str]
    spot: Sequence[str]


@dataclass(frozen=True)
class Reservation:
    """A capacity reservation or Capacity Block as EC2 describes it; `block` for the latter; `start` and `end` in UTC, None where there is none."""

    state: str
    instance_type: str
    zone: str
    total: int
    available: int
    block: bool = False
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True)
class Failure:
    """A question that was not answered: the IAM action that it needs (none for credentials), what went wrong, and what to do."""

    look_up: LookUp
    action: str
    problem: str
    fix: str


@dataclass(frozen=True)
class LookedUp:
    """The answers, at one moment in UTC. What is missing was not answered, and `failures` say why.

    `quotas` in vCPUs by code; `zones` of the region by instance type; reservations by id, None where there is no such one; prices in USD an
    hour by instance type, None where none is listed.
    """

    at: datetime
    quotas: Mapping[str, float] = field(default_factory=dict)
    zones: Mapping[str, frozenset[str]] = field(default_factory=dict)
    reservations: Mapping[str, Reservation | None] = field(default_factory=dict)
    on_demand: Mapping[str, float | None] = field(default_factory=dict)
    spot: Mapping[str, float | None] = field(default_factory=dict)
    failures: Sequence[Failure] = ()


def questions_of(layout: Layout) -> Questions | None:
    """What there is to ask about a layout; None where it makes no pools, so that nothing of AWS is known."""
    if not layout.pools:
        return None
    zone = layout.pools[0].zone

    def types(*capacities: str) -> list[str]:
        return sorted({p.instance.id for p in layout.pools if p.capacity_type in capacities})

    return Questions(
        region=region_of(zone),
        zone=zone,
        types=types("on-demand", "spot", "reserved"),
        quotas=sorted({code for p in layout.pools if (code := quota_of(p))}),
        reservations=sorted({r for c in layout.node_classes for r in c.reservation_ids}),
        on_demand=types("on-demand", "reserved"),
        spot=types("spot"),
    )


def quota_of(pool: Pool) -> str | None:
    """The quota that a pool's instances ask for; None for reserved ones, which have counted since they were reserved, and unknown families."""
    if pool.instance.category != "p" or pool.capacity_type == "reserved":
        return None
    return ON_DEMAND_P if pool.capacity_type == "on-demand" else SPOT_QUOTAS.get(pool.instance.family)
