"""The picture of an environment as data: nodes with the GPU and EFA slots of their pods, grouped by the models that share them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..catalog.entries import Instance
from ..forecast.capacities import KIND
from ..manifests.names import pair_name
from ..planning.placement import Node, by_pool, place, pool_key
from ..planning.reserved import idle_reserved
from ..planning.shapes import Group, Layout, Pool, Served

DRAWN_ALIKE = 4
"""Nodes of a pool that hold the same are drawn one by one up to this number, above it once with their count."""


@dataclass(frozen=True)
class DrawnPod:
    """A pod and its slots. `leader` is the pod that answers for its engine; `member` says which one this is where there are several.

    `pair` is the model's name, or that of a candidate that waits, whose pods get no requests.
    """

    name: str
    pair: str
    waiting: bool
    role: str
    gpus: int
    efa: int
    leader: str
    member: str = ""


@dataclass(frozen=True)
class DrawnNode:
    """A node, and how many more of the pool hold the same."""

    title: str
    gpus: int
    efa: int
    pods: Sequence[DrawnPod]
    idle_gpus: int
    idle_efa: int
    alike: int = 0


@dataclass(frozen=True)
class DrawnPool:
    """The nodes of a pool, and how many reserved ones stand idle beside them.

    `lane` is the role of its pods, or mixed; `zone` and `capacity` are empty for nodes that we do not make.
    """

    name: str
    lane: str
    instance_type: str
    gpu: str
    zone: str
    capacity: str
    count: int
    nodes: Sequence[DrawnNode]
    idle_nodes: int
    unplaced: Sequence[str] = ()


@dataclass(frozen=True)
class Entrance:
    """How requests reach a pair, and how its roles talk: `split` into prefill and decode, `stages` over the nodes of a group.

    None reach a candidate that is `waiting`.
    """

    pair: str
    waiting: bool
    router: str
    balancer: str
    split: bool
    stages: bool
    efa: bool


@dataclass(frozen=True)
class Scene:
    """Models that share nodes, with those nodes."""

    entrances: Sequence[Entrance]
    pools: Sequence[DrawnPool]

    def lane(self, name: str) -> list[DrawnPool]:
        """The pools of one lane."""
        return [pool for pool in self.pools if pool.lane == name]

    @property
    def split(self) -> bool:
        """Whether any of its models has prefill and decode."""
        return any(e.split for e in self.entrances)


def scenes_of(layout: Layout) -> list[Scene]:
    """Models and pools that belong together, in the order of the models."""
    idle = idle_reserved(layout)
    placed = {key: (pool, nodes, idle.get(key, 0)) for key, pool, nodes in place(layout)}
    groups = by_pool(layout.groups)
    owners = {pod: (g, names.index(pod)) for g in layout.groups for names in g.pods() for pod in names}
    scenes = []
    for models, keys in _together(layout):
        entrances = [_entrance(layout, pair) for served in layout.served if served.spec.name in models for pair in _pairs(layout, served)]
        scenes.append(Scene(entrances, [_pool(key, groups[key], *placed[key], owners) for key in keys]))
    return scenes


def instances_of(layout: Layout) -> dict[tuple[str, str, str], Instance]:
    """The instance type of each engine, by what its capacity names: model, generation and role."""
    return {(g.served.spec.name, g.served.spec.generation or "", KIND.get(g.role, g.role)): g.instance for g in layout.groups}


def _together(layout: Layout) -> list[tuple[set[str], list[str]]]:
    """Names of models with the pools that they are on; models on a common pool stand together."""
    found: list[tuple[set[str], set[str]]] = []
    for served in layout.served:
        models, keys = {served.spec.name}, {pool_key(g) for pair in _pairs(layout, served) for g in layout.groups_of(pair)}
        for other in [o for o in found if o[1] & keys]:
            found.remove(other)
            models, keys = models | other[0], keys | other[1]
        found.append((models, keys))
    order = [served.spec.name for served in layout.served]
    return [(models, sorted(keys)) for models, keys in sorted(found, key=lambda f: min(order.index(m) for m in f[0]))]


def _pairs(layout: Layout, served: Served) -> list[Served]:
    return [served, *layout.candidates_of(served)]


def _entrance(layout: Layout, served: Served) -> Entrance:
    spec, groups = served.spec, layout.groups_of(served)
    gateway = spec.gateway
    routed = gateway.enabled and served.live
    balancer = f"{'public' if gateway.public else 'internal'} load balancer, {'HTTPS' if gateway.certificate_arn else 'HTTP'}"
    return Entrance(
        pair=pair_name(served),
        waiting=not served.live,
        router="llm-d router" if routed else "",
        balancer=balancer if routed else "",
        split=spec.disaggregated,
        stages=any(g.size > 1 for g in groups),
        efa=any(g.uses_efa for g in groups),
    )


def _pool(  # noqa: PLR0913, PLR0917 (what is drawn of a pool)
    key: str, groups: Sequence[Group], pool: Pool | None, nodes: Sequence[Node], idle: int, owners: dict[str, tuple[Group, int]]
) -> DrawnPool:
    roles = {g.role for g in groups}
    first = groups[0]
    left = {pod for g in groups for names in g.pods() for pod in names} - {pod for n in nodes for pod in n.pods}
    return DrawnPool(
        name=key,
        lane=next(iter(roles)) if len(roles) == 1 else "mixed",
        instance_type=first.instance.id,
        gpu=first.instance.gpu.name.upper(),
        zone=pool.zone if pool else "",
        capacity=pool.capacity_type if pool else "",
        count=len(nodes),
        nodes=_drawn(nodes, owners),
        idle_nodes=idle,
        unplaced=sorted(left),
    )


def _drawn(nodes: Sequence[Node], owners: dict[str, tuple[Group, int]]) -> list[DrawnNode]:
    held: dict[tuple[tuple[str, bool], ...], list[int]] = {}
    for i, node in enumerate(nodes):
        held.setdefault(tuple((owners[pod][0].name, owners[pod][1] > 0) for pod in node.pods), []).append(i)
    drawn = []
    for alike in held.values():
        shown = alike if len(alike) <= DRAWN_ALIKE else alike[:1]
        drawn += [(i, _node(i, nodes[i], owners, len(alike) - len(shown))) for i in shown]
    return [node for _, node in sorted(drawn, key=lambda d: d[0])]


def _node(index: int, node: Node, owners: dict[str, tuple[Group, int]], alike: int) -> DrawnNode:
    title = f"{alike + 1} nodes, each" if alike else f"node {index + 1}"
    pods = [_pod(pod, *owners[pod]) for pod in node.pods]
    return DrawnNode(title, node.room.gpus, node.room.efa, pods, node.idle_gpus, node.idle_efa, alike)


def _pod(name: str, group: Group, position: int) -> DrawnPod:
    member = "" if group.size == 1 else "leader" if position == 0 else f"worker {position}"
    leader = name if position == 0 else name.rpartition("-")[0]
    served, requests = group.served, group.engine_requests
    return DrawnPod(name, pair_name(served), not served.live, group.role, requests.gpus, requests.efa, leader, member)
