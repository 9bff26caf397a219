"""Rules about reserved capacity: what it is named, what it holds, where it lies and when it ends."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import timedelta

from ...corrections import Correction
from ...errors import Level
from ...forecast.cost import now
from ...phrases import say
from ...place import Place
from ...planning.reserved import idle_reserved
from ...planning.scaling import at_most
from ...planning.shapes import pool_name
from ...spec.capacity import CapacitySpec, ReservationSpec
from ..documents import EC2, EKS, KARPENTER
from ..registry import Fault, Stage, Subject, remove, rule, use

RESERVATION_ID = re.compile(r"cr-[0-9a-f]{8,17}")
SOON = timedelta(days=14)
DRAINED_BEFORE = timedelta(minutes=40)
"""EC2 ends the instances of a Capacity Block 30 minutes before its end, and Karpenter begins to drain 10 minutes earlier (`reservation-end`)."""
FACTS = {"type": "type", "instance_type": "instanceType", "zone": "zone", "instances": "instances", "ends_at": "endsAt"}
"""What is said about a reservation, by its name in the stack file; it is the same wherever the reservation is named."""
AFTERWARDS = "reserve what follows before it ends"


@rule("reservations", Level.ERROR, Stage.FORM, f"{EKS}auto-odcr.html")
def reservations(s: Subject) -> Iterator[Fault]:
    """Reserved capacity names its reservations, each of one instance type, and how many instances they hold; other capacity names none."""
    yield from _misnamed(s)
    yield from _contradictory(s)
    for _served, _name, role, path in s.roles():
        capacity = role.capacity
        plain = {f"reservationIds[{i}]": given for i, given in enumerate(capacity.reservation_ids)}
        for place, given in {**plain, **{f"reservations[{i}].id": one.id for i, one in enumerate(capacity.reservations)}}.items():
            if not RESERVATION_ID.fullmatch(given):
                offering = "; cb- is the offering that was bought, the reservation's own id starts with cr-" if given.startswith("cb-") else ""
                yield Fault(f"{path}.capacity.{place}", "is not a reservation's id", given, "cr- and hexadecimal digits" + offering)
        if capacity.type == "reserved":
            if not capacity.all_reservation_ids:
                yield Fault(
                    f"{path}.capacity.reservationIds",
                    "is required with reserved",
                    None,
                    "cr-...",
                    "add the reservations of this type and zone",
                )
            if capacity.most_nodes is None:
                yield Fault(f"{path}.capacity.nodes", "is required with reserved", None, "the number of reserved instances", "add it")
        elif capacity.all_reservation_ids:
            place, named = f"{path}.capacity.type", {f"{path}.capacity.{key}": None for key in _given(capacity)}
            ways: list[list[Correction]] = [use(place, "reserved"), [named]]
            yield Fault(place, say("does not use {reservationIds}"), capacity.type, "reserved", ways=ways)


@rule("reservation-shared", Level.WARNING, Stage.FORM, "our choice: docs/reservations.md")
def reservation_shared(s: Subject) -> Iterator[Fault]:
    """Pools that share a reservation take together no more instances than it holds, which the stack file alone cannot tell."""
    claims: dict[str, dict[str, tuple[int, str]]] = defaultdict(dict)
    for served, name, role, path in s.roles():
        for given in role.capacity.all_reservation_ids if s.spec.makes_pools else ():
            claims[given].setdefault(pool_name(name, served.instances[name], role.capacity), (role.capacity.most_nodes or 0, path))
    for given, pools in claims.items():
        if len(pools) > 1:
            total, path = sum(nodes for nodes, _ in pools.values()), list(pools.values())[-1][1]
            holds = max((r.instances or 0 for _, _, c in _reserving(s) for r in c.reservations if r.id == given), default=0)
            if holds >= total:
                continue
            message = f"is shared by pools {', '.join(sorted(pools))}, which may take {total} instances together"
            message += f", and holds {holds}" if holds else ""
            fix, level = "see that it holds as many, or give each pool a reservation of its own", Level.ERROR if holds else None
            yield Fault(f"{path}.capacity.reservationIds", message, given, f"a reservation of at least {total}", fix, level)


@rule("open-reservations", Level.INFO, Stage.FORM, f"{EKS}auto-odcr.html")
def open_reservations(s: Subject) -> Iterator[Fault]:
    """Once one NodeClass names reservations, Auto Mode no longer uses open ones for any NodeClass of the cluster."""
    for _served, _name, role, path in s.roles():
        if role.capacity.all_reservation_ids:
            message = "ends the use of open capacity reservations by every other NodeClass of the cluster"
            yield Fault(f"{path}.capacity.reservationIds", message, None, "", "name the open ones where they are wanted")


@rule("reservation-place", Level.ERROR, Stage.FORM, f"{EC2}ec2-capacity-reservations.html")
def reservation_place(s: Subject) -> Iterator[Fault]:
    """A reservation lies in the zone of the GPU nodes and holds the role's instance type, and pools take no more than it holds."""
    for path, instance_type, capacity in _reserving(s):
        zone = s.spec.network.zone
        for i, reservation in enumerate(capacity.reservations):
            place = f"{path}.reservations[{i}]"
            if reservation.zone and zone and reservation.zone != zone:
                yield Fault(f"{place}.zone", f"is not that of the GPU nodes, {zone}", reservation.zone, zone, "use a reservation in their zone")
            if reservation.instance_type and reservation.instance_type != instance_type:
                message = "is not that of the role, so no node of it can start there"
                yield Fault(f"{place}.instanceType", message, reservation.instance_type, instance_type, "use a reservation of the role's type")
        held = capacity.held
        if held is not None and capacity.nodes is not None and capacity.nodes > held:
            message = f"is more than the {held} instances that the reservations hold"
            ways, otherwise = [use(f"{path}.nodes", held), remove(f"{path}.nodes")], "name more reservations, or run fewer engines"
            yield Fault(f"{path}.nodes", message, capacity.nodes, f"at most {held}", ways=ways, otherwise=otherwise)


@rule("reservation-end", Level.ERROR, Stage.FORM, f"{EC2}ec2-capacity-blocks.html and {KARPENTER}tasks/odcrs/")
def reservation_end(s: Subject) -> Iterator[Fault]:
    """A reservation has not ended, and one that ends within 14 days is said with what happens to its nodes."""
    for path, _, capacity in _reserving(s):
        for i, reservation in enumerate(capacity.reservations):
            place, end, block = f"{path}.reservations[{i}].endsAt", reservation.end, reservation.type == "capacity-block"
            if end is None:
                if block:
                    message = "is not given, so nothing can warn before its nodes are drained"
                    yield Fault(place, message, None, "the end of the Capacity Block, in UTC", "add it", Level.WARNING)
            elif end - (DRAINED_BEFORE if block else timedelta()) <= now():
                message = "is over, so no node starts there" if block else "is over, so no node starts as reserved"
                if end > now():
                    message = "is less than 40 minutes ahead: nodes of the Capacity Block are drained already, so no pod starts there"
                yield Fault(place, message, reservation.ends_at, "a time to come", "name another reservation")
            elif end - now() <= SOON:
                yield Fault(place, _what_happens(reservation), reservation.ends_at, "14 days ahead or more", AFTERWARDS, Level.WARNING)


@rule("reservation-idle", Level.INFO, Stage.LAYOUT, f"{EC2}capacity-reservations-pricing-billing.html")
def reservation_idle(s: Subject) -> Iterator[Fault]:
    """Reserved nodes have pods: those that stand idle are paid for, too."""
    layout = at_most(s.layout) if s.layout else None
    idle = idle_reserved(layout) if layout else {}
    for pool in layout.pools if layout else ():
        if number := idle.get(pool.name):
            nodes = (
                "a node that no pod uses, and that is paid for all the same"
                if number == 1
                else f"{number} nodes that no pod uses, and that are paid for all the same"
            )
            fix = "run more engines, or reserve fewer nodes; one to spare lets a drifted node be replaced before it ends"
            yield Fault(f"{pool.path}.capacity", f"reserves {nodes}", None, "", fix)


@rule("capacity-blocks", Level.WARNING, Stage.FORM, "https://github.com/aws/karpenter-provider-aws/blob/v1.14.1/designs/capacity-block-support.md")
def capacity_blocks(s: Subject) -> Iterator[Fault]:
    """A NodeClass has one Capacity Block of an instance type and zone: of several, each launch uses one that nobody chose."""
    found: dict[tuple[str, str], dict[str, tuple[str, str | None]]] = defaultdict(dict)
    for path, instance_type, capacity in _reserving(s):
        for i, reservation in enumerate(capacity.reservations):
            if reservation.type == "capacity-block":
                kind = reservation.instance_type or instance_type, reservation.zone or s.spec.network.zone or ""
                found[kind].setdefault(reservation.id, (f"{path}.reservations[{i}]", reservation.ends_at))
    for (instance_type, zone), blocks in found.items():
        if len(blocks) > 1:
            place, _ = list(blocks.values())[-1]
            ends = ", ".join(f"{block} ({end or 'end unknown'})" for block, (_, end) in blocks.items())
            several = f"is one of several Capacity Blocks of {instance_type} in {zone or 'one zone'}"
            message = f"{several}, {ends}: the NodeClass of the type names them all, and each launch takes one that nobody chose"
            advice = "extend the first, or name the next one when the first is over"
            yield Fault(place, message, list(blocks)[-1], "one at a time", advice)


def _reserving(s: Subject) -> Iterator[tuple[str, str, CapacitySpec]]:
    """Capacity of every role, with its place and the role's instance type."""
    for _served, _name, role, path in s.roles():
        yield f"{path}.capacity", role.instance_type, role.capacity


def _given(capacity: CapacitySpec) -> list[str]:
    return [key for key, value in (("reservationIds", capacity.reservation_ids), ("reservations", capacity.reservations)) if value]


def _what_happens(reservation: ReservationSpec) -> str:
    end = reservation.end
    if reservation.type == "capacity-block" and end is not None:
        return f"is near: no pod starts on its nodes from {end - DRAINED_BEFORE:%Y-%m-%d %H:%M} UTC on, and 10 minutes later EC2 ends them"
    return "is near: its nodes then go on at the price on demand, and what drains or fails is not replaced from it"


def _contradictory(s: Subject) -> Iterator[Fault]:
    """Facts about one reservation that differ from place to place."""
    first: dict[tuple[str, str], tuple[str, object]] = {}
    for path, _, capacity in _reserving(s):
        for i, one in enumerate(capacity.reservations):
            for name, key in FACTS.items():
                place, stated = f"{path}.reservations[{i}].{key}", getattr(one, name)
                other, known = first.setdefault((one.id, name), (place, stated)) if stated is not None else (place, None)
                if stated is not None and stated != known:
                    message = say("contradicts {}, both of {}", Place.parse(other), one.id)
                    yield Fault(place, message, stated, str(known), ways=[use(place, known), use(other, stated)])


def _misnamed(s: Subject) -> Iterator[Fault]:
    """Reservations that stand twice in a list, or with two instance types."""
    first: dict[str, tuple[str, str]] = {}
    for _served, _name, role, path in s.roles():
        place = f"{path}.capacity.reservationIds"
        for given, times in Counter(role.capacity.all_reservation_ids).items():
            if times > 1:
                known = {one.id for one in role.capacity.reservations}
                once = [given for given in dict.fromkeys(role.capacity.reservation_ids) if given not in known] or None
                message = f"name {given} {times} times, which adds no instances"
                yield Fault(place, message, None, "each reservation once", level=Level.WARNING, ways=[use(place, once)], otherwise="name it once")
            other, instance_type = first.setdefault(given, (path, role.instance_type))
            if instance_type != role.instance_type:
                message = say("is that of {}, whose nodes are {}", Place.parse(other), instance_type)
                yield Fault(place, message, given, f"reservations of {role.instance_type}", say("name another, or use the same {instanceType}"))
