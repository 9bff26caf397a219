"""Where pods land, and what scaled roles may come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..records import LEFT_OUT, Record
from .capacity import OfRole
from .cost import Cost


@dataclass(frozen=True)
class PlacedNode(Record):
    """One node."""

    pods: Sequence[str]
    idle_gpus: int
    idle_efa: int
    """EFA devices that no pod asks for."""


@dataclass(frozen=True)
class PlacedPool(Record):
    """Nodes of a pool."""

    pool: str
    instance_type: str
    nodes: Sequence[PlacedNode]
    unplaced: Sequence[str] = field(default=(), metadata=LEFT_OUT)
    """Pods that no node can hold. Left out where there is none."""
    idle_nodes: int = 0
    """Reserved nodes, besides these, that no pod uses."""


@dataclass(frozen=True)
class ScalingSignal(Record):
    """What an engine carries before another one is added."""

    name: str
    threshold: float


@dataclass(frozen=True, kw_only=True)
class ScaledRole(Record, OfRole):
    """A role that KEDA scales."""

    model: str
    generation: str = field(default="", metadata=LEFT_OUT)
    """Left out where the model has none."""
    role: str
    min_replica_count: int
    max_replica_count: int
    signals: Sequence[ScalingSignal]
    ready_seconds: float
    scale_up_period_seconds: float
    scale_down_window_seconds: float


@dataclass(frozen=True)
class AtMost(Record):
    """The plan with all roles at their most; `placement` and `cost` of the plan are at their least."""

    placement: Sequence[PlacedPool]
    cost: Cost


@dataclass(frozen=True)
class Autoscaling(Record):
    """Scaled roles, and what they may come to."""

    roles: Sequence[ScaledRole] = ()
    at_most: AtMost | None = None
    """Null where nothing is scaled."""
