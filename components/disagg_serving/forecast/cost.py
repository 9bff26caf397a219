"""What the environment costs while it runs: dated list prices, a line a pool and a line for each fixed part."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import cache
from math import fsum
from typing import Any

from ..catalog.entries import Instance, Price
from ..catalog.kubernetes import supported
from ..catalog.loader import PACKAGE_DIR
from ..document.cost import Cost, CostLine, RoleCost, SharePrice
from ..planning.placement import place
from ..planning.reserved import idle_reserved
from ..planning.shapes import Group, Layout, world_size
from ..yaml_io import read_yaml

HOURS_A_MONTH = 730
OLD_DAYS, MATTERS = 180, 0.01
FEE = "Auto Mode fee"
FIXED = frozenset({"load balancers", "control plane", "NAT gateways", FEE})
"""Lines beside those of nodes."""


def cost_of(layout: Layout) -> Cost:
    """What a layout costs.

    Lines without a known price have no amounts and say why; the totals then are what is known. `as_of` is the oldest price's day.
    """
    blocks, idle = _of_blocks(layout), idle_reserved(layout)
    lines = [
        _pool_line(name, instance, len(nodes), capacity, idle.get(name, 0), prepaid=name in blocks)
        for name, instance, nodes, capacity in _pools(layout)
    ]
    region = layout.served[0].region if layout.served else None
    lines = [
        replace(line, other_region=bool(region and line.region and line.region != region))
        for line in (*lines, *_existing_nodes(layout), *_fixed_lines(layout))
    ]
    known = [line.per_hour for line in lines if line.per_hour is not None]
    total = fsum(known)  # plain sums round otherwise from Python 3.12 on
    return Cost(
        per_hour=round(total, 4),
        per_month=round(total * HOURS_A_MONTH, 2),
        as_of=min((line.as_of for line in lines if line.as_of), default=None),
        complete=len(known) == len(lines),
        lines=lines,
        roles=[_role(group) for group in layout.groups],
    )


def _role(group: Group) -> RoleCost:
    """What a role's GPUs cost as shares of their nodes: on demand, and prepaid in a Capacity Block (AWS)."""
    gpus = world_size(group.spec) * group.replicas
    model, instance = group.served.spec, group.instance
    return RoleCost(
        model=model.name,
        generation=model.generation or "",
        role=group.role,
        gpus=gpus,
        on_demand=_share(instance.on_demand, gpus, instance),
        capacity_block=_share(instance.capacity_block, gpus, instance),
    )


def _share(price: Price | None, gpus: int, instance: Instance) -> SharePrice | None:
    if price is None:
        return None
    hourly = price.usd_per_hour * gpus / instance.gpu.count
    return SharePrice(round(hourly, 4), round(hourly * HOURS_A_MONTH, 2), price.as_of.isoformat())


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


def _existing_nodes(layout: Layout) -> list[CostLine]:
    note = "they exist already, so they are not counted"
    return [_line(name, name, len(nodes), None, note) for name, pool, nodes in place(layout) if pool is None]


def _pool_line(name: str, instance: Instance, used: int, capacity: str, idle: int, *, prepaid: bool) -> CostLine:  # noqa: PLR0913
    if capacity == "spot":
        return _line(name, f"{instance.id} spot, {name}", used, None, "spot prices change by the hour and are not in the catalogue")
    price, note = instance.on_demand, ""
    if capacity == "reserved":
        note = "on-demand price: what an On-Demand Capacity Reservation costs; a Capacity Block is prepaid"
    if prepaid and capacity == "reserved" and instance.capacity_block is not None:
        price, note = instance.capacity_block, "a Capacity Block's price, which is prepaid for its whole time"
    if price is None:
        price, note = instance.capacity_block, "no on-demand price is listed; this is a Capacity Block's"
    if price is None:
        note = "no price is listed"
    if idle:
        note = "; ".join(filter(None, [f"reserved nodes are paid for whether pods use them or not: {idle} of {used + idle} stand idle", note]))
    return replace(_line(name, f"{instance.id}, {name}", used + idle, price, note), idle=idle)


@cache
def _prices() -> Mapping[str, Any]:
    prices: Mapping[str, Any] = read_yaml(PACKAGE_DIR / "prices.yaml")
    return prices


def _fixed_lines(layout: Layout) -> list[CostLine]:
    prices = _prices()
    gateways = sum(s.spec.gateway.enabled for s in layout.served)
    entrances = []
    if gateways:
        note = "without the charge for traffic, and without the small nodes on which routers run"
        entrances = [_line("load balancers", "load balancer", gateways, _price(prices["loadBalancer"]), note)]
    if layout.spec.existing_cluster is not None:
        return [*entrances, *_fee(layout)]
    lines = [*entrances, _control_plane(layout)]
    network = layout.spec.network
    if network.existing is None:
        gateways = len(network.zones) if network.nat_gateways == "perZone" else 1
        note = f"without the charge for traffic, {prices['natGateway']['usdPerGB']:g} for each GB"
        lines.append(_line("NAT gateways", "NAT gateway", gateways, _price(prices["natGateway"]), note))
    return [*lines, *_fee(layout)]


def _control_plane(layout: Layout) -> CostLine:
    """EKS bills extended support from its first day on, where the cluster is meant to stay on its version."""
    data, cluster = _prices()["controlPlane"], layout.spec.cluster
    support = supported().get(layout.spec.kubernetes_version) if cluster and cluster.upgrade_policy == "EXTENDED" else None
    price, note = _price(data), ""
    if support is not None and support.is_ending(today()):
        dearer, of = extended_price(), f"extended support of Kubernetes {support.version}"
        extended = support.is_extended(today())
        note = f"in {of} since {support.standard_until}" if extended else f"{dearer:.2f} an hour from {support.standard_until} on, in {of}"
        price = price.model_copy(update={"usd_per_hour": dearer}) if extended else price
    return _line("control plane", "EKS cluster", 1, price, note)


def extended_price() -> float:
    """USD an hour of a control plane in extended support."""
    return float(_prices()["controlPlane"]["extendedUsdPerHour"])


def _fee(layout: Layout) -> list[CostLine]:
    """What EKS Auto Mode charges for its nodes, in whoever's cluster."""
    if not layout.pools:
        return []
    fee, started = _prices()["autoModeFee"], sum(len(nodes) for _, pool, nodes in place(layout) if pool is not None)
    rate = f"the rate for GPU types is not known here; AWS lowered that of P types by {fee['reduction']:.0%} on {fee['asOf']}"
    note = f"EKS charges it for each node and hour, however the node is paid; {rate}"
    return [_line(FEE, "management of the nodes", started, None, note)]


def today() -> date:
    """The day by which prices are judged."""
    return now().date()


def now() -> datetime:
    """The time by which dates are judged; SOURCE_DATE_EPOCH (reproducible-builds.org) stands for it where output must not change."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    return datetime.fromtimestamp(int(epoch), UTC) if epoch and epoch.isdecimal() else datetime.now(UTC)


def old_prices(cost: Cost, day: date) -> list[CostLine]:
    """Lines that matter (1 % of the hourly total and more) and whose price is older than 180 days.

    Beside nodes whose price is not known, fixed parts do not matter: the total is that of the small change.
    """
    unpriced = any(line.per_hour is None and line.name not in FIXED for line in cost.lines)
    lines = [line for line in cost.lines if not (unpriced and line.name in FIXED)]
    dated = [(line, date.fromisoformat(line.as_of)) for line in lines if line.as_of and (line.per_hour or 0) >= MATTERS * cost.per_hour]
    return [line for line, priced in dated if (day - priced).days > OLD_DAYS]


def _price(data: Mapping[str, Any]) -> Price:
    return Price(usd_per_hour=data["usdPerHour"], region=data["region"], as_of=data["asOf"])


def _line(name: str, item: str, count: int, price: Price | None, note: str) -> CostLine:
    if price is None:
        return CostLine(name, item, count, None, None, None, None, None, note)
    hourly = price.usd_per_hour * count
    return CostLine(
        name,
        item,
        count,
        price.usd_per_hour,
        round(hourly, 4),
        round(hourly * HOURS_A_MONTH, 2),
        price.region,
        price.as_of.isoformat(),
        note,
    )
