"""NodeClasses and NodePools of EKS Auto Mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import labels
from ..catalog import Instance
from ..planning.shapes import NodeClass, Pool
from ..spec import MaintenanceWindowSpec, NodePoolsSpec

_WEEK_HOURS = 7 * 24
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
POD_PREFIXES = 1
"""/28 prefixes for pod addresses on the primary interface: 16 pods a node, and no address is added after launch."""


def build_node_class(shape: NodeClass, identity: Mapping[str, Any], settings: NodePoolsSpec) -> dict[str, Any]:
    """NodeClass `eks.amazonaws.com/v1` of one instance type. `identity` is a NodeIdentity, whose values may be Pulumi Outputs."""
    spec: dict[str, Any] = {
        "role": identity["role"],
        "subnetSelectorTerms": identity["subnet_terms"],
        "securityGroupSelectorTerms": identity["security_group_terms"],
        "ephemeralStorage": {"size": f"{shape.disk_gib}Gi"},
        "advancedNetworking": {"networkInterfaces": network_interfaces(shape.instance)},
        # enforced as soon as the policies are known; DefaultDeny would also cut off everybody's DaemonSets on these nodes
        "networkPolicy": "DefaultAllow",
    }
    if shape.reservation_ids:
        spec["capacityReservationSelectorTerms"] = [{"id": i} for i in shape.reservation_ids]
    if settings.placement_group:
        spec["placementGroupSelector"] = {"name": settings.placement_group}
    if settings.tags:
        spec["tags"] = dict(sorted(settings.tags.items()))
    return {
        "apiVersion": "eks.amazonaws.com/v1",
        "kind": "NodeClass",
        "metadata": {"name": shape.name, "labels": {labels.MANAGED_BY: labels.OWNER}},
        "spec": spec,
    }


def network_interfaces(instance: Instance) -> list[dict[str, Any]]:
    """The primary interface and one efa-only interface a device, on unique card and device indices.

    Card 0 / device 0 must be `interface`; only it carries pod addresses (Auto Mode, static network interfaces).
    """
    primary = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface", "secondaryIPv4PrefixCount": POD_PREFIXES}
    cards = range(instance.efa.first_efa_card, instance.efa.first_efa_card + instance.efa.count)
    return [primary, *({"networkCardIndex": c, "deviceIndex": 0 if c else 1, "interfaceType": "efa-only"} for c in cards)]


def build_node_pool(pool: Pool, settings: NodePoolsSpec) -> dict[str, Any]:
    """NodePool `karpenter.sh/v1` of one role, instance type and capacity source."""
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": pool.name, "labels": {labels.MANAGED_BY: labels.OWNER, labels.COMPONENT: pool.role}},
        "spec": {
            "template": {
                "metadata": {"labels": dict(pool.labels)},
                "spec": {
                    "nodeClassRef": {"group": "eks.amazonaws.com", "kind": "NodeClass", "name": pool.node_class},
                    "requirements": [
                        _is_in(labels.INSTANCE_TYPE, pool.instance.id),
                        _is_in(labels.CAPACITY_TYPE, pool.capacity_type),
                        _is_in(labels.ZONE, pool.zone),
                        _is_in(labels.ARCH, pool.instance.architecture),
                    ],
                    "taints": [dict(t) for t in pool.taints],
                    "expireAfter": f"{settings.expire_after_hours}h",
                    "terminationGracePeriod": f"{settings.termination_grace_hours}h",
                },
            },
            "limits": {labels.GPU: str(pool.max_nodes * pool.instance.gpu.count)},
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": f"{settings.consolidate_after_minutes}m",
                "budgets": budgets(settings.maintenance_window),
            },
        },
    }


def budgets(window: MaintenanceWindowSpec) -> list[dict[str, Any]]:
    """Disruption budgets: none may drift outside the window, one at a time inside, empty nodes always.

    A Karpenter budget with a schedule holds from its cron time for its duration, so the first entry describes the time between
    two windows.
    """
    hour, minute = (int(part) for part in window.start_utc.split(":"))
    end = _DAYS.index(window.day) * 24 + hour + window.hours
    closed = {"schedule": f"{minute} {end % 24} * * {end // 24 % 7}", "duration": f"{_WEEK_HOURS - window.hours}h"}
    voluntary = ["Drifted", "Underutilized"]
    return [
        {"nodes": "0", "reasons": voluntary, **closed},
        {"nodes": "1", "reasons": voluntary},
        {"nodes": "100%", "reasons": ["Empty"]},
    ]


def _is_in(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": [value]}
