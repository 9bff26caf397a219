"""The nodes that carry planned pods: type, zone, capacity, and what they offer."""

from __future__ import annotations

from collections.abc import Iterator

from .. import labels
from ..planning.shapes import Group, Pool
from .points import Point, compare, failed, ok
from .snapshot import Object
from .view import NODES, View, is_true, label_of, unknown_unread

DEVICES = "the node's device plugin does not offer them: delete the node's NodeClaim when its pods may move, and see the NodeClass"
OWN_POINTS = frozenset({labels.ZONE, labels.INSTANCE_TYPE, labels.CAPACITY_TYPE})
"""Labels of nodes that have points of their own."""
EXCHANGE = "delete the node's NodeClaim, so that the pool makes another"


@unknown_unread("node-ready", NODES.kind, "nodes as planned")
def check(view: View) -> Iterator[Point]:
    """The points of each node with a planned pod on it."""
    carrying = {pod["spec"]["nodeName"]: engine.group for engine, _, pod in view.running() if pod["spec"].get("nodeName")}
    nodes = view.nodes
    pools = {pool.name: pool for pool in view.layout.pools}
    for name, group in sorted(carrying.items()):
        if name in nodes:
            yield from _node(view, nodes[name], group, pools.get(group.pool))


def _node(view: View, node: Object, group: Group, pool: Pool | None) -> Iterator[Point]:
    name, instance = node["metadata"]["name"], group.instance
    if is_true(node, "Ready"):
        yield ok("node-ready", name, "ready")
    else:
        yield failed("node-ready", name, "ready", f"not ready{view.warnings('default', 'Node', [name])}", "Auto Mode repairs it; else " + EXCHANGE)
    yield compare("node-type", name, instance.id, label_of(node, labels.INSTANCE_TYPE), EXCHANGE)
    zone = pool.zone if pool else view.layout.spec.network.zone
    if zone:
        yield compare("node-zone", name, zone, label_of(node, labels.ZONE), f"{EXCHANGE}; KV cache across zones is slow and costs")
    if pool:
        yield compare("node-capacity", name, pool.capacity_type, label_of(node, labels.CAPACITY_TYPE), EXCHANGE)
    offers = node.get("status", {}).get("allocatable") or {}
    for point, key, count in (("node-gpu", labels.GPU, instance.gpu.count), ("node-efa", labels.EFA, instance.efa.count)):
        if count and (point == "node-gpu" or group.uses_efa):
            yield compare(point, name, f"{count} {key}", f"{offers.get(key, 'no')} {key}", DEVICES)
