"""The stand-in's instance types, made from the project's catalogue: nothing about an instance is typed twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from disagg_serving.catalog import Catalog, Instance

ZONES = ("us-east-1a", "us-east-1b")
PREFIX = "eks.amazonaws.com/"
RESERVATION_ID = f"{PREFIX}capacity-reservation-id"


@dataclass(frozen=True)
class Reservation:
    """Capacity that is held: its id, what it holds, where and how much."""

    id: str
    instance_type: str
    zone: str
    count: int


def instance_types(catalog: Catalog, reservations: tuple[Reservation, ...] = ()) -> list[dict[str, Any]]:
    """The list that Karpenter's kwok provider reads: resources, and an offering a zone, capacity type and reservation."""
    return [_instance_type(catalog.instances[i], [r for r in reservations if r.instance_type == i]) for i in catalog.instances]


def _instance_type(instance: Instance, reservations: list[Reservation]) -> dict[str, Any]:
    allocatable = instance.allocatable
    price = instance.on_demand or instance.capacity_block
    hourly = price.usd_per_hour if price else 1.0
    offerings = []
    for zone in ZONES:
        offerings.append(_offering(instance, zone, "on-demand", hourly))
        offerings.append(_offering(instance, zone, "spot", hourly / 2))
    for r in reservations:
        offering = _offering(instance, r.zone, "reserved", hourly / 1e6)
        offering["ReservationCapacity"] = r.count
        offering["Requirements"].append(_is_in(RESERVATION_ID, r.id))
        offerings.append(offering)
    return {
        "name": instance.id,
        "architecture": instance.architecture,
        "operatingSystems": ["linux"],
        "resources": {
            "cpu": f"{allocatable.cpu_millis}m",
            "memory": f"{allocatable.memory_mib}Mi",
            "ephemeral-storage": f"{allocatable.nvme_gib}Gi",
            "pods": str(min(allocatable.max_pods or 110, 110)),
            "nvidia.com/gpu": str(instance.gpu.count),
            "vpc.amazonaws.com/efa": str(instance.efa.count),
        },
        "offerings": offerings,
    }


def _offering(instance: Instance, zone: str, capacity_type: str, price: float) -> dict[str, Any]:
    labels = {
        "instance-category": instance.category,
        "instance-family": instance.family,
        "instance-generation": instance.generation,
        "instance-size": instance.id.split(".", 1)[1],
        "instance-cpu": str(instance.vcpu),
        "instance-memory": str(instance.memory_gib * 1024),
        "instance-gpu-name": instance.gpu.name,
        "instance-gpu-manufacturer": "nvidia",
        "instance-gpu-count": str(instance.gpu.count),
        "instance-gpu-memory": str(instance.gpu.memory_mib),
        "compute-type": "auto",
    }
    requirements = [_is_in(PREFIX + key, value) for key, value in labels.items()]
    requirements += [_is_in("topology.kubernetes.io/zone", zone), _is_in("karpenter.sh/capacity-type", capacity_type)]
    return {"Price": price, "Available": True, "Requirements": requirements}


def _is_in(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": [value]}
