"""How many nodes a pool may have: what the stack file says, and what reservations hold; and how many engines that leaves room for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace

from .placement import pack
from .shapes import Group


def stated_bound(groups: Sequence[Group]) -> int | None:
    """Most nodes of a pool as its roles state them; None where none does.

    Roles with the same reservations state one bound. Reservations of their own add theirs: the pool's NodeClass names all of them.
    """
    stated = [bounds for source in sources(groups) if (bounds := [n for g in source if (n := g.spec.capacity.most_nodes)])]
    return sum(max(bounds) for bounds in stated) if stated else None


def sources(groups: Sequence[Group]) -> list[list[Group]]:
    """Groups by what their nodes come from: those that have a reservation in common stand together, as do those without any."""
    return joined(groups, lambda group: set(group.spec.capacity.all_reservation_ids))


def joined(groups: Sequence[Group], names: Callable[[Group], set[str]]) -> list[list[Group]]:
    """Groups that share a name with each other, directly or by way of others; those without any stand together."""
    found: list[tuple[set[str], list[Group]]] = []
    for group in groups:
        ids, members = names(group), [group]
        for other in [o for o in found if o[0] & ids or o[0] == ids]:
            found.remove(other)
            ids, members = ids | other[0], [*other[1], *members]
        found.append((ids, members))
    return [members for _, members in found]


def most_replicas(group: Group, groups: Sequence[Group], bound: int) -> int:
    """Most engines of a group, fewer than it has, with which the groups of its pool fit `bound` nodes; 0 where not even one does."""

    def too_many(replicas: int) -> bool:
        fewer = replace(group, replicas=replicas)
        return len(pack([fewer if g is group else g for g in groups])) > bound

    return bisect_left(range(1, group.replicas), True, key=too_many)
