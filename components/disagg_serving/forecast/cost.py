"""What the environment costs while it runs: dated list prices, a line a pool and a line for each fixed part."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, date, datetime
from functools import cache
from math import fsum
from typing import Any

from ..catalog.entries import Instance, Price
from ..catalog.loader import PACKAGE_DIR
from ..planning.placement import place
from ..planning.shapes import Group, Layout, world_size
from ..yaml_io import read_yaml

HOURS_A_MONTH = 730
OLD_DAYS, MATTERS = 180, 0.01
FEE = "Auto Mode fee"
FIXED = frozenset({"load balancers", "control plane", "NAT gateways", FEE})
"""Lines beside those of nodes."""


def cost_of(layout: Layout) -> dict[str, Any]:
    """Cost with the keys of `plan --format json`.

    Lines without a known price have null amounts and say why; the totals then are what is known. `asOf` is the oldest price's day.
    """
    blocks = _of_blocks(layout)
    lines = [_pool_line(name, instance, len(nodes), capacity, prepaid=name in blocks) for name, instance, nodes, capacity in _pools(layout)]
    lines += _existing_nodes(layout) + _fixed_lines(layout)
    known = [line for line in lines if line["perHour"] is not None]
    total = fsum(line["perHour"] for line in known)  # plain sums round otherwise from Python 3.12 on
    return {
        "currency": "USD",
        "perHour": round(total, 4),
        "perMonth": round(total * HOURS_A_MONTH, 2),
        "asOf": min((line["asOf"] for line in known), default=None),
        "complete": len(known) == len(lines),
        "lines": lines,
        "roles": [_role(group) for group in layout.groups],
    }


def _role(group: Group) -> dict[str, Any]:
    """What a role's GPUs cost as shares of their nodes: on demand, and prepaid in a Capacity Block (AWS); null where none is listed."""
    gpus = world_size(group.spec) * group.replicas
    found: dict[str, Any] = {**group.owner, "role": group.role, "gpus": gpus}
    for key, price in (("onDemand", group.instance.on_demand), ("capacityBlock", group.instance.capacity_block)):
        found[key] = None
        if price is not None:
            hourly = price.usd_per_hour * gpus / group.instance.gpu.count
            found[key] = {"perHour": round(hourly, 4), "perMonth": round(hourly * HOURS_A_MONTH, 2), "asOf": price.as_of.isoformat()}
    return found


def _pools(layout: Layout) -> list[tuple[str, Instance, list[Any], str]]:
    instances = {g.pool or "": g.instance for g in layout.groups}
    found = []
    for name, pool, nodes in place(layout):
        if pool is not None:
            found.append((name, instances[name], nodes, pool.capacity_type))
    return found


def _of_blocks(layout: Layout) -> set[str]:
    """Pools whose reservations are all said to be Capacity Blocks."""
    kinds: dict[str, set[str]] = {}
    for group in layout.groups:
        capacity = group.spec.capacity
        known = {one.id: one.type for one in capacity.reservations}
        kinds.setdefault(group.pool, set()).update(known.get(named, "unknown") for named in capacity.all_reservation_ids)
    return {pool for pool, found in kinds.items() if found == {"capacity-block"}}


def _existing_nodes(layout: Layout) -> list[dict[str, Any]]:
    note = "they exist already, so they are not counted"
    return [_line(name, name, len(nodes), None, note) for name, pool, nodes in place(layout) if pool is None]


def _pool_line(name: str, instance: Instance, count: int, capacity: str, *, prepaid: bool = False) -> dict[str, Any]:
    if capacity == "spot":
        return _line(name, f"{instance.id} spot, {name}", count, None, "spot prices change by the hour and are not in the catalogue")
    price, note = instance.on_demand, ""
    if capacity == "reserved":
        note = "on-demand price: what an On-Demand Capacity Reservation costs; a Capacity Block is prepaid"
    if prepaid and capacity == "reserved" and instance.capacity_block is not None:
        price, note = instance.capacity_block, "a Capacity Block's price, which is prepaid for its whole time"
    if price is None:
        price, note = instance.capacity_block, "no on-demand price is listed; this is a Capacity Block's"
    if price is None:
        return _line(name, f"{instance.id}, {name}", count, None, "no price is listed")
    return _line(name, f"{instance.id}, {name}", count, price, note)


@cache
def _prices() -> Mapping[str, Any]:
    prices: Mapping[str, Any] = read_yaml(PACKAGE_DIR / "prices.yaml")
    return prices


def _fixed_lines(layout: Layout) -> list[dict[str, Any]]:
    prices = _prices()
    gateways = sum(s.spec.gateway.enabled for s in layout.served)
    entrances = []
    if gateways:
        note = "without the charge for traffic, and without the small nodes on which routers run"
        entrances = [_line("load balancers", "load balancer", gateways, _price(prices["loadBalancer"]), note)]
    if layout.spec.existing_cluster is not None:
        return entrances
    lines = [*entrances, _line("control plane", "EKS cluster", 1, _price(prices["controlPlane"]), "")]
    network = layout.spec.network
    if network.existing is None:
        gateways = len(network.zones) if network.nat_gateways == "perZone" else 1
        note = f"without the charge for traffic, {prices['natGateway']['usdPerGB']:g} for each GB"
        lines.append(_line("NAT gateways", "NAT gateway", gateways, _price(prices["natGateway"]), note))
    lines.append(
        _line(
            FEE,
            "management of the nodes",
            1,
            None,
            "its rate for GPU nodes is not known here; pages of third parties say about 12 %",
        )
    )
    return lines


def today() -> date:
    """The day by which prices are judged."""
    return now().date()


def now() -> datetime:
    """The time by which dates are judged; SOURCE_DATE_EPOCH (reproducible-builds.org) stands for it where output must not change."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    return datetime.fromtimestamp(int(epoch), UTC) if epoch and epoch.isdigit() else datetime.now(UTC)


def old_prices(cost: Mapping[str, Any], day: date) -> list[dict[str, Any]]:
    """Lines that matter (1 % of the hourly total and more) and whose price is older than 180 days.

    Beside nodes whose price is not known, fixed parts do not matter: the total is that of the small change.
    """
    unpriced = any(line["perHour"] is None and line["name"] not in FIXED for line in cost["lines"])
    lines = [line for line in cost["lines"] if not (unpriced and line["name"] in FIXED)]
    dated = [line for line in lines if line["asOf"] and line["perHour"] >= MATTERS * cost["perHour"]]
    return [line for line in dated if (day - date.fromisoformat(line["asOf"])).days > OLD_DAYS]


def _price(data: Mapping[str, Any]) -> Price:
    return Price(usd_per_hour=data["usdPerHour"], region=data["region"], as_of=data["asOf"])


def _line(name: str, item: str, count: int, price: Price | None, note: str) -> dict[str, Any]:
    hourly = price.usd_per_hour * count if price else None
    as_of: date | None = price.as_of if price else None
    return {
        "name": name,
        "item": item,
        "quantity": count,
        "unitPerHour": price.usd_per_hour if price else None,
        "perHour": round(hourly, 4) if hourly is not None else None,
        "perMonth": round(hourly * HOURS_A_MONTH, 2) if hourly is not None else None,
        "region": price.region if price else None,
        "asOf": as_of.isoformat() if as_of else None,
        "note": note,
    }
