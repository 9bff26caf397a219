"""Which roles grow with the traffic, and a layout with the most engines that they may have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .shapes import Group, Layout


def scaled(groups: Iterable[Group]) -> list[Group]:
    """The groups whose number KEDA chooses; a waiting candidate keeps its least engines until it serves."""
    return [g for g in groups if g.spec.autoscaling is not None and g.served.live]


def scaled_out(groups: Iterable[Group]) -> list[Group]:
    """The groups with the most engines that they may have."""
    return [replace(g, replicas=g.spec.most_replicas) if g.spec.autoscaling and g.served.live else g for g in groups]


def at_most(layout: Layout) -> Layout:
    """The layout with the most engines of every role: what nodes, quota and purse have to hold."""
    return replace(layout, groups=scaled_out(layout.groups)) if scaled(layout.groups) else layout
