"""What happens to a pool's nodes when they are no longer as they should be: when they are replaced, and what that interrupts.

Drift is voluntary (Karpenter 1.14): budgets say when, a new node has to start first, and pods that may not be disrupted hold the old one up.
"""

from __future__ import annotations

from collections.abc import Sequence

from .placement import Node, by_pool, pack
from .shapes import Group, Layout, Pool
from .startup import startup_budget_seconds


def rolling(layout: Layout) -> dict[str, str]:
    """By the name of each pool that has nodes, how many drifted nodes are replaced when, and what each takes with it."""
    running = {name: (groups, pack(groups)) for name, groups in by_pool(layout.groups).items()}
    return {p.name: _sentence(layout, p, *running[p.name]) for p in layout.pools if p.name in running}


def _sentence(layout: Layout, pool: Pool, groups: Sequence[Group], nodes: Sequence[Node]) -> str:
    settings, window = layout.settings, layout.settings.maintenance_window
    if pool.max_nodes > len(nodes):
        when = (
            f"one at a time from {window.day} {window.start_utc} UTC within {window.hours} h, each after a new node has started; pods of the old "
            f"one keep it up to {settings.termination_grace_hours} h longer"
        )
    else:
        when = (
            f"not in the maintenance window, since the bound of {pool.max_nodes} leaves no node to start first, but "
            f"{settings.expire_after_hours} h after they were made, at any hour (with one node more they would be replaced in the window)"
        )
    return f"{len(nodes)} x {pool.instance.id} of {pool.name} drift and are replaced {when}; {_interrupted(groups, nodes)}"


def _interrupted(groups: Sequence[Group], nodes: Sequence[Node]) -> str:
    """How many engines of each role the loss of one node takes at most."""
    parts = []
    for group in groups:
        engine_of = {pod: engine[0] for engine in group.pods() for pod in engine}
        most = max(len({engine_of[p] for p in node.pods if p in engine_of}) for node in nodes)
        outage = f", an outage of up to {startup_budget_seconds(group.served) // 60} minutes" if most == group.replicas and group.served.live else ""
        parts.append(f"{most} of {group.replicas} engines of {group.name}{outage}")
    return f"a node takes with it {', '.join(parts)}"
