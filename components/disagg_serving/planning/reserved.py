"""Reserved nodes: how many there are, and how many of them no pod uses. All are paid for."""

from __future__ import annotations

from collections.abc import Sequence

from ..spec.capacity import held_together
from .node_bounds import joined, sources
from .placement import place
from .shapes import Group, Layout


def idle_reserved(layout: Layout) -> dict[str, int]:
    """How many reserved nodes of each pool no pod uses, by the pool's name; of pools that share a reservation, at the first."""
    used = {name: len(nodes) for name, pool, nodes in place(layout) if pool is not None and pool.capacity_type == "reserved"}
    idle = dict.fromkeys(used, 0)
    for members in joined([g for g in layout.groups if g.pool in used], lambda g: {*g.spec.capacity.all_reservation_ids, g.pool}):
        pools = sorted({g.pool for g in members})
        idle[pools[0]] = max(0, sum(map(reserved_nodes, sources(members))) - sum(used[pool] for pool in pools))
    return idle


def reserved_nodes(groups: Sequence[Group]) -> int:
    """Nodes that the reservations of one source hold: as these say, else as the pools' bounds do."""
    held = held_together(g.spec.capacity for g in groups)
    bounds: dict[str, int] = {}
    for group in groups if held is None else ():
        bounds[group.pool] = max(bounds.get(group.pool, 0), group.spec.capacity.most_nodes or 0)
    return sum(bounds.values()) if held is None else held


def reserved_on_demand(layout: Layout) -> tuple[int, bool]:
    """How many vCPUs of P instances are reserved, but for Capacity Blocks; and whether reservations that are counted do not say their type."""
    total, unsaid = 0, False
    pools = {pool.name for pool in layout.pools if pool.capacity_type == "reserved" and pool.instance.category == "p"}
    for members in sources([g for g in layout.groups if g.pool in pools]):
        stated = {one.id: one for g in members for one in g.spec.capacity.reservations}
        named = {given for g in members for given in g.spec.capacity.all_reservation_ids}
        blocks = {given for given, one in stated.items() if one.type == "capacity-block"}
        if named == blocks:
            continue
        unsaid |= not named <= stated.keys()
        held = held_together(g.spec.capacity for g in members)
        nodes = reserved_nodes(members) - (sum(stated[given].instances or 0 for given in blocks) if held is not None else 0)
        total += nodes * members[0].instance.vcpu
    return total, unsaid
