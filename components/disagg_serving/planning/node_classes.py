"""The NodeClasses that the groups' pools need."""

from __future__ import annotations

from collections.abc import Sequence

from .shapes import Group, NodeClass, node_class_name

NODE_DISK_GIB = 2048
"""Disk that a NodeClass asks for, at most half of the NVMe: more than the pods of any catalogued model need, because a new size
drifts all nodes and so must not follow from the models."""


def build_node_classes(groups: Sequence[Group]) -> list[NodeClass]:
    """The NodeClasses that the groups' pools need, by name."""
    classes: dict[str, NodeClass] = {}
    for group in groups:
        name = node_class_name(group.instance, group.spec.capacity)
        known = classes.get(name, NodeClass(name, group.instance, (), 0))
        ids = tuple(sorted({*known.reservation_ids, *group.spec.capacity.all_reservation_ids}))
        classes[name] = NodeClass(name, group.instance, ids, max(_node_disk(group), known.disk_gib))
    return [classes[name] for name in sorted(classes)]


def _node_disk(group: Group) -> int:
    """Disk of a node: a constant of the type unless its pods need more; then in steps that double.

    Below the NVMe, because Auto Mode uses the instance store only while the asked size is smaller (aws: fast model loading).
    """
    nvme, pods = group.instance.allocatable.nvme_gib, max(1, group.instance.gpu.count // max(1, group.engine_requests.gpus))
    size = min(NODE_DISK_GIB, nvme // 2)
    while size < pods * group.pod_requests.disk_gib:
        size *= 2
    return min(size, nvme - 1)
