"""How the pods of a role are replaced when they change: next to the old ones where there is room, else one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .placement import by_pool, nodes_of
from .scaling import scaled_out
from .shapes import Group, Pool


def with_surge(groups: Sequence[Group], pools: Sequence[Pool]) -> list[Group]:
    """The groups, each with the engines that a rolling update may start before it ends an old one: 1 where the pool has room, else 0.

    Room is what stays idle on nodes that the pods need anyway, and reserved nodes that they do not need: a node that EC2 may refuse would
    hold the update up. All roles of a pool may roll together, so what one takes is no room for the next. Where pods of a pool ask for
    different amounts, the scheduler may spread them so that no place is large enough; on nodes that we do not make nothing is known.
    """
    made = {pool.name: pool for pool in pools}
    surging: set[tuple[str, str]] = set()
    for name, members in by_pool(scaled_out(groups)).items():
        if name not in made or len({g.pod_requests for g in members}) > 1:
            continue
        pool, pods = made[name], sum(g.size * g.replicas for g in members)
        room = pool.max_nodes if pool.capacity_type == "reserved" else min(nodes_of(pods, members[0]), pool.max_nodes)
        for group in members:
            if nodes_of(pods + group.size, group) <= room:
                pods += group.size
                surging.add((group.namespace, group.name))
    return [replace(g, surge=1) if (g.namespace, g.name) in surging else g for g in groups]
