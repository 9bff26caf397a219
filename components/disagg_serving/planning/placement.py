"""Where the pods land: first fit on the generated pools, in the order in which Karpenter sorts pods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from .scaling import scaled_out
from .shapes import Group, Layout, Pool, Requests, room_of


@dataclass
class Node:
    """A simulated node and the pods on it."""

    room: Requests
    pods: list[str] = field(default_factory=list)
    used: Requests = field(default_factory=Requests)

    @property
    def idle_gpus(self) -> int:
        """GPUs that no pod uses."""
        return self.room.gpus - self.used.gpus

    @property
    def idle_efa(self) -> int:
        """EFA devices that no pod uses."""
        return self.room.efa - self.used.efa

    def holds(self, requests: Requests) -> int:
        """How many more pods that ask for so much fit."""
        free = ((getattr(self.room, what) - getattr(self.used, what), amount) for what, amount in vars(requests).items() if amount)
        return min((left // amount for left, amount in free), default=NO_BOUND)

    def take(self, pods: Sequence[str], requests: Requests) -> None:
        """Place pods that fit."""
        self.pods += pods
        self.used += times(requests, len(pods))


NO_BOUND = 1_000_000
"""As many pods that ask for nothing as anybody has."""


def times(requests: Requests, count: int) -> Requests:
    """What so many pods ask for."""
    return Requests(**{what: amount * count for what, amount in vars(requests).items()})


def pod_names(name: str, size: int, replicas: int) -> list[str]:
    """The names of a role's pods, in the order of `Group.pods`."""
    return [f"{name}-{g}{f'-{w}' if w else ''}" for g in range(replicas) for w in range(size)]


def pack(groups: Sequence[Group], most: int | None = None) -> list[Node]:
    """Nodes of one pool with the pods of `groups` on them: largest CPU, then memory, first, each on the first node with room.

    A pod that no empty node can hold is left out, and so are those beyond `most` nodes; rules `pod-fits-node` and `group-capacity` refuse them.
    """
    ordered = sorted(groups, key=lambda g: (-g.pod_requests.cpu_millis, -g.pod_requests.memory_mib, g.name))
    alike = tuple((g.name, g.size, g.replicas, g.pod_requests) for g in ordered)
    return [*_packed(room_of(groups[0].instance), alike, most)]


@lru_cache(maxsize=128)  # corrections are tried one by one, and each leaves most pools as they are
def _packed(room: Requests, alike: tuple[tuple[str, int, int, Requests], ...], most: int | None) -> list[Node]:
    least = Requests(**{what: min(vars(each)[what] for *_, each in alike) for what in vars(room)})
    nodes: list[Node] = []
    free: list[Node] = []
    for name, size, replicas, each in alike:
        if not each.fits(room):
            continue
        free = [node for node in free if (node.used + least).fits(room)]  # what is full for all is not looked at again by each
        pods, done = pod_names(name, size, replicas), 0
        for node in free:
            count = node.holds(each)
            node.take(pods[done : done + count], each)
            done += count
        on_one = Node(room).holds(each)
        full = times(each, on_one)
        while done < len(pods) and len(nodes) != most:
            some = pods[done : done + on_one]
            nodes.append(Node(room, some, full if len(some) == on_one else times(each, len(some))))
            free.append(nodes[-1])
            done += on_one
    return nodes


def nodes_of(pods: int, group: Group) -> int:
    """How many nodes `pack` fills with so many pods that all ask for what those of `group` do."""
    room, ask = vars(room_of(group.instance)), vars(group.pod_requests)
    on_one = min(room[what] // amount for what, amount in ask.items() if amount)
    return -(-pods // on_one) if on_one else 0


def by_pool(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Groups by the pool they select; on nodes that we do not make, by role and selector."""
    pools: dict[str, list[Group]] = {}
    for group in groups:
        pools.setdefault(pool_key(group), []).append(group)
    return dict(sorted(pools.items()))


def pool_key(group: Group) -> str:
    """The pool's name, or for nodes that we do not make the selector."""
    if group.pool:
        return group.pool
    selector = ",".join(f"{k}={v}" for k, v in sorted(group.node_selector.items()))
    return f"existing {group.instance.id} ({selector})"


def place(layout: Layout) -> list[tuple[str, Pool | None, list[Node]]]:
    """All pools with their nodes, by name; the pool is None for nodes that we do not make."""
    made = {pool.name: pool for pool in layout.pools}
    bounds = {name: pool.max_nodes for name, pool in made.items()}
    return [(key, made.get(key), pack(groups, bounds.get(key))) for key, groups in by_pool(layout.groups).items()]


def bounded(layout: Layout) -> list[tuple[str, list[Group], int]]:
    """Pools that the program makes, by name, with their groups, scaled ones at their most, and the most nodes they may have."""
    bounds = {pool.name: pool.max_nodes for pool in layout.pools}
    return [(pool, groups, bounds[pool]) for pool, groups in by_pool(scaled_out(layout.groups)).items() if pool in bounds]
