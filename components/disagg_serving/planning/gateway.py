"""How large a router is and how long it waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .shapes import Group, Served

ENGINES_A_CPU = 32
"""Engines that one vCPU of picker or Envoy serves: our estimate. The chart's 8 and 4 vCPU fit no node of the smaller sizes."""
DEFAULT_IDLE_SECONDS = 3600
TLS_IDLE_SECONDS = 350
"""Idle timeout of a Network Load Balancer's TLS listener, which cannot be changed (ELB guide: update idle timeout)."""


class Sizes(NamedTuple):
    """Kubernetes resources of the router's containers."""

    picker: dict[str, Any]
    proxy: dict[str, Any]


def idle_seconds(served: Served) -> int:
    """Seconds without a byte after which the router and the load balancer end a connection."""
    gateway = served.spec.gateway
    if gateway.certificate_arn:
        return TLS_IDLE_SECONDS
    return gateway.idle_timeout_seconds or DEFAULT_IDLE_SECONDS


def container_sizes(served: Served, groups: Sequence[Group]) -> Sizes:
    """Picker and Envoy by the number of engines behind them, or as given. Memory is limited to what is requested."""
    cpus = 1 + sum(g.spec.most_replicas for g in groups) // ENGINES_A_CPU
    picker, proxy = served.spec.gateway.picker, served.spec.gateway.proxy
    return Sizes(
        picker=_resources(picker.cpu or cpus, picker.memory_gib or 2 * cpus),
        proxy=_resources(proxy.cpu or cpus, proxy.memory_gib or cpus),
    )


def _resources(cpu: float, memory_gib: int) -> dict[str, Any]:
    millis = round(cpu * 1000)
    amount = str(millis // 1000) if millis % 1000 == 0 else f"{millis}m"
    return {"requests": {"cpu": amount, "memory": f"{memory_gib}Gi"}, "limits": {"memory": f"{memory_gib}Gi"}}
