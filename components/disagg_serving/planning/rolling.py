"""What happens to a pool's nodes when they are no longer as they should be: when they are replaced, and what that interrupts.

Drift is voluntary (Karpenter 1.14): budgets say when, a new node has to start first, and pods that may not be disrupted hold the old one up.
"""

from __future__ import annotations

from collections.abc import Sequence

from .placement import Node, by_pool, pack
from .scaling import scaled_out
from .shapes import Group, Layout, Pool
from .startup import startup_budget_seconds


def rolling(layout: Layout) -> dict[str, str]:
    """By the name of each pool that has nodes, how many drifted nodes are replaced when, and what each takes with it.

    Of scaled roles the worse case is told: with the most engines no node is spare, with the least a node may hold all of them.
    """
    running, fewest = by_pool(scaled_out(layout.groups)), by_pool(layout.groups)
    return {p.name: _sentence(layout, p, running[p.name], fewest[p.name]) for p in layout.pools if p.name in running}


def _sentence(layout: Layout, pool: Pool, groups: Sequence[Group], fewest: Sequence[Group]) -> str:
    settings, window = layout.settings, layout.settings.maintenance_window
    nodes, least = pack(groups), pack(fewest)
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
    number = f"{len(nodes)}" if len(nodes) == len(least) else f"{len(least)} to {len(nodes)}"
    parts = [_lost(group, few, nodes, least) for group, few in zip(groups, fewest, strict=True)]
    return f"{number} x {pool.instance.id} of {pool.name} drift and are replaced {when}; a node takes with it {', '.join(parts)}"


def _lost(group: Group, few: Group, nodes: Sequence[Node], least: Sequence[Node]) -> str:
    """How many engines of a role the loss of one node takes at most, with its most engines and, where they differ, with its least."""
    on_a_node = [(_most_on_a_node(group, nodes), group.replicas)]
    on_a_node += [(_most_on_a_node(few, least), few.replicas)] if few.replicas != group.replicas else []
    shares = " or ".join(f"{most} of {engines}" for most, engines in on_a_node)
    whole = any(most == engines for most, engines in on_a_node) and group.served.live
    outage = f", an outage of up to {startup_budget_seconds(group.served) // 60} minutes" if whole else ""
    return f"{shares} engines of {group.name}{outage}"


def _most_on_a_node(group: Group, nodes: Sequence[Node]) -> int:
    engine_of = {pod: engine[0] for engine in group.pods() for pod in engine}
    return max(len({engine_of[p] for p in node.pods if p in engine_of}) for node in nodes)
