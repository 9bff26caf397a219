"""Rules about what AWS answered: they run only where it was asked (`--look-up`, `lookUps: true`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from ...errors import Level
from ...phrases import say
from ...place import Place
from ...planning.shapes import Layout, Pool
from ..documents import EC2_API, QUOTAS
from ..looked_up import ON_DEMAND_P, LookedUp, Reservation, quota_of
from ..registry import Fault, Stage, Subject, rule

ENDS_SOON = timedelta(days=30)
SAME_PRICE = 0.01
"""Prices that differ by less are the same one, rounded."""
ACTIVE, LATER = "active", frozenset({"scheduled", "pending", "assessing", "payment-pending", "delayed"})
"""States of a reservation: it holds capacity, or it will (EC2 API: CapacityReservation)."""


def _asked(s: Subject) -> Iterator[tuple[Layout, LookedUp]]:
    if s.layout is not None and s.looked_up is not None:
        yield s.layout, s.looked_up


@rule("look-up-failed", Level.WARNING, Stage.LOOK_UP, "docs/look-ups.md")
def look_up_failed(s: Subject) -> Iterator[Fault]:
    """Each look-up was answered; one that was not says which IAM action it needs."""
    for _layout, facts in _asked(s):
        for f in facts.failures:
            asked = f" ({f.action})" if f.action else ""
            yield Fault("lookUps", f"{f.look_up}{asked} could not be looked up: {f.problem}", None, "", f.fix)


@rule("look-up-quota", Level.ERROR, Stage.LOOK_UP, QUOTAS)
def look_up_quota(s: Subject) -> Iterator[Fault]:
    """The account's quota allows all nodes that the pools may have, beside what is reserved on demand."""
    for layout, facts in _asked(s):
        wanted: dict[str, int] = defaultdict(int)
        for pool in layout.pools:
            if code := quota_of(pool):
                wanted[code] += pool.max_nodes * pool.instance.vcpu
            elif pool.capacity_type == "spot":
                message = f"has a quota of its own for spot instances of {pool.instance.family}, whose code is not known here"
                yield Fault(pool.path, message, None, "", "see Service Quotas", Level.INFO)
        for code, vcpus in wanted.items():
            if code not in facts.quotas:
                continue
            allowed, reserved = facts.quotas[code], _reserved_vcpus(layout, facts) if code == ON_DEMAND_P else 0
            beside = f", and reservations on demand count {reserved}" if reserved else ""
            if allowed < vcpus + reserved:
                message = f"vCPUs are the account's quota {code}, and the pools may start {vcpus}{beside}"
                wanted_value = vcpus + reserved
                ask = f"`aws service-quotas request-service-quota-increase --service-code ec2 --quota-code {code} --desired-value {wanted_value}`"
                # what another account shares counts there, and its reservations look like the account's own
                level = Level.WARNING if allowed >= vcpus else None
                yield Fault("models", message, f"{allowed:g}", f"{wanted_value} or more", ask, level)
            else:
                message = f"vCPUs are the account's quota {code}; the pools may start {vcpus}{beside}, beside what else runs there"
                yield Fault("models", message, f"{allowed:g}", "", "", Level.INFO)


def _reserved_vcpus(layout: Layout, facts: LookedUp) -> int:
    """How many vCPUs of the named reservations count against the quota of instances on demand: of P types, and no Capacity Blocks."""
    types = {p.instance.id: p.instance for p in layout.pools if p.instance.category == "p"}
    found = [r for r in facts.reservations.values() if r and not r.block and r.instance_type in types and (r.state == ACTIVE or r.state in LATER)]
    return sum(r.total * types[r.instance_type].vcpu for r in found)


@rule("look-up-offering", Level.ERROR, Stage.LOOK_UP, f"{EC2_API}API_DescribeInstanceTypeOfferings.html")
def look_up_offering(s: Subject) -> Iterator[Fault]:
    """Each instance type is offered in the zone of its pool."""
    for layout, facts in _asked(s):
        for pool in layout.pools:
            zones = facts.zones.get(pool.instance.id)
            if zones is not None and pool.zone not in zones:
                allowed = ", ".join(sorted(zones)) or "no zone of this region"
                fix = say("set {} to one of these", Place.parse("network.gpuZone")) if zones else "use another region or instance type"
                yield Fault(f"{pool.path}.instanceType", f"is not offered in {pool.zone}", pool.instance.id, allowed, fix)


@rule("look-up-reservation", Level.ERROR, Stage.LOOK_UP, f"{EC2_API}API_DescribeCapacityReservations.html")
def look_up_reservation(s: Subject) -> Iterator[Fault]:
    """Reservations exist, are active, of the pool's type and zone, hold as many instances as it may have, and do not end soon."""
    for layout, facts in _asked(s):
        for shape in layout.node_classes:
            pools = [p for p in layout.pools if p.node_class == shape.name and p.capacity_type == "reserved"]
            if not pools:
                continue
            first, wanted, usable = pools[0], sum(p.max_nodes for p in pools), 0
            for given in shape.reservation_ids:
                if given in facts.reservations:
                    found = facts.reservations[given]
                    yield from _reservation(given, found, first, facts)
                    usable += found.total if found and _matches(found, first) else 0
            if all(facts.reservations.get(i) is not None for i in shape.reservation_ids) and usable < wanted:
                message = f"is more than the {usable} instances that reservations of this type and zone hold"
                others = f", by pools {', '.join(p.name for p in pools)} together" if len(pools) > 1 else ""
                yield Fault(
                    f"{first.path}.capacity.nodes", message, f"{wanted}{others}", f"at most {usable}", "lower it, or name another reservation"
                )


def _matches(found: Reservation, pool: Pool) -> bool:
    return found.instance_type == pool.instance.id and found.zone == pool.zone and (found.state == ACTIVE or found.state in LATER)


def _reservation(given: str, found: Reservation | None, pool: Pool, facts: LookedUp) -> Iterator[Fault]:
    place = f"{pool.path}.capacity.reservationIds"
    if found is None:
        yield Fault(place, "does not exist for this account and region", given, "a reservation of the account, or one shared with it", "name another")
        return
    if found.instance_type != pool.instance.id:
        yield Fault(place, f"is of {found.instance_type}", given, f"a reservation of {pool.instance.id}", "name another")
    if found.zone != pool.zone:
        yield Fault(place, f"is in {found.zone}", given, f"a reservation in {pool.zone}", say("name another, or move {gpuZone}"))
    if found.state in LATER:
        begin = f" and begins {_time(found.start)}" if found.start else ""
        yield Fault(place, f"is {found.state}{begin}; until then no node starts", given, ACTIVE, "wait with `pulumi up`", Level.WARNING)
    elif found.state != ACTIVE:
        yield Fault(place, f"is {found.state}", given, ACTIVE, "name another")
    elif found.end is not None:
        soon = found.end - facts.at < ENDS_SOON
        then = "EC2 ends its instances 30 minutes before" if found.block else "then its instances count as on-demand ones"
        message = f"ends {_time(found.end)}; {then}"
        fix = "renew it, or plan the move to another" if soon else ""
        yield Fault(place, message, given, "", fix, Level.WARNING if soon else Level.INFO)
    if found.state == ACTIVE:
        yield Fault(place, f"is active, with {found.available} of {found.total} instances free", given, "", "", Level.INFO)


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


@rule(
    "look-up-price",
    Level.WARNING,
    Stage.LOOK_UP,
    "https://docs.aws.amazon.com/aws-cost-management/latest/APIReference/API_pricing_GetProducts.html and "
    f"{EC2_API}API_DescribeSpotPriceHistory.html",
)
def look_up_price(s: Subject) -> Iterator[Fault]:
    """Prices that the plan calculates with are those that AWS lists; the plan's own stay as they are."""
    for layout, facts in _asked(s):
        for pool in layout.pools:
            place, instance = f"{pool.path}.instanceType", pool.instance
            if (spot := facts.spot.get(instance.id)) is not None and pool.capacity_type == "spot":
                yield Fault(place, f"costs {spot:g} USD/h on spot in {pool.zone} now", instance.id, "", "", Level.INFO)
            listed = facts.on_demand.get(instance.id)
            if listed is None or pool.capacity_type == "spot":
                continue
            known = instance.on_demand
            if known is None:
                message = f"costs {listed:g} USD/h on demand in {layout.served[0].region}; the catalogue lists no price"
                yield Fault(place, message, instance.id, "", "", Level.INFO)
                continue
            change = listed / known.usd_per_hour - 1
            if abs(change) <= SAME_PRICE:
                yield Fault(place, f"costs {listed:g} USD/h on demand, as the catalogue said on {known.as_of}", instance.id, "", "", Level.INFO)
            else:
                message = f"costs {listed:g} USD/h on demand, {change:+.1%} against the catalogue's {known.usd_per_hour:g} of {known.as_of}"
                fix = say("give the new price in a catalogue folder of your own ({catalogDirs})")
                yield Fault(place, message, instance.id, f"{listed:g}", fix)
