"""Parts of PromQL expressions about one model.

Series carry the labels that the PodMonitors add: namespace and pod of the target, `model` and `role`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...planning.shapes import Group, Served
from .monitors import ROUTER

CLIENTS = {"envoy_http_conn_manager_prefix": "clients"}
"""Envoy's listener for clients, as its configuration names it."""


class Queries:
    """Expressions about the series of one model."""

    def __init__(self, served: Served, window: str) -> None:
        """`window` is the range over which rates are taken, for example 10m."""
        self._own = {"namespace": served.spec.kubernetes_namespace, "model": served.spec.name}
        self.window = window

    def of(self, metric: str, role: str, **labels: str) -> str:
        """The series of a metric of one role."""
        return metric + _selector({**self._own, "role": role, **labels})

    def router(self, metric: str, **labels: str) -> str:
        """The series of a metric of the router."""
        return self.of(metric, ROUTER, **labels)

    def rate(self, series: str, by: str = "") -> str:
        """The sum of a counter's rates a second."""
        return _sum(f"rate({series}[{self.window}])", by)

    def increase(self, series: str, by: str = "") -> str:
        """The sum of a counter's increases."""
        return _sum(f"increase({series}[{self.window}])", by)

    def quantile(self, share: float, metric: str, role: str, by: str = "") -> str:
        """A quantile of a histogram."""
        buckets = self.rate(self.of(f"{metric}_bucket", role), ", ".join(filter(None, ("le", by))))
        return f"histogram_quantile({share:g}, {buckets})"

    def mean(self, metric: str, role: str, by: str = "") -> str:
        """The mean of a histogram's observations."""
        return f"{self.rate(self.of(f'{metric}_sum', role), by)} / {self.rate(self.of(f'{metric}_count', role), by)}"


def pods_of(groups: Sequence[Group], metric: str, **labels: str) -> str:
    """Series about pods that are not the model's own: of kube-state-metrics and the DCGM exporter, found by the pods' names."""
    names = "|".join(f"{g.name}-[0-9]+(-[0-9]+)?" for g in groups)
    return metric + _selector({"namespace": groups[0].namespace, **labels}, pod=names)


def constant(value: float) -> str:
    """A figure of the plan as a series."""
    return f"vector({value:g})" if value < 1e6 else f"vector({value:.0f})"  # noqa: PLR2004 (%g would round)


def or_zero(expression: str) -> str:
    """An expression without labels that is zero where there is no series."""
    return f"({expression} or vector(0))"


def _sum(inner: str, by: str) -> str:
    return f"sum by ({by}) ({inner})" if by else f"sum({inner})"


def _selector(equal: dict[str, str], **matching: str) -> str:
    parts = [f'{label}="{value}"' for label, value in equal.items()] + [f'{label}=~"{value}"' for label, value in matching.items()]
    return "{" + ",".join(parts) + "}"
