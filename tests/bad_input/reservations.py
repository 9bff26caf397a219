"""Reservations in another place, of another type, too small or over."""

from __future__ import annotations

from typing import Any

from .case import DECODE, Case, decode

FIRST, SECOND = "cr-0123456789abcdef0", "cr-0123456789abcdef1"


def reserving(*reservations: dict[str, Any], **capacity: Any) -> dict[str, Any]:
    """An environment whose decode is on these reservations."""
    return decode(capacity={"type": "reserved", "reservations": list(reservations), **capacity})


def reservation(**fields: Any) -> dict[str, Any]:
    """A reservation of two instances."""
    return {"id": FIRST, "instances": 2, **fields}


PLACE = f"{DECODE}.capacity.reservations[0]"
RESERVATION_CASES = [
    Case("reservation in another zone", reserving(reservation(zone="us-east-1b")), f"{PLACE}.zone", "us-east-1b", "us-east-1a", "use a reservation"),
    Case(
        "reservation of another type",
        reserving(reservation(instanceType="p5en.48xlarge")),
        f"{PLACE}.instanceType",
        "p5en.48xlarge",
        "p5.48xlarge",
        "use a reservation of the role's type",
    ),
    Case("more nodes than reserved", reserving(reservation(), nodes=3), f"{DECODE}.capacity.nodes", "3", "at most 2", "use 2, or remove it"),
    Case(
        "reservation that is over",
        reserving(reservation(endsAt="2026-11-28")),
        f"{PLACE}.endsAt",
        "2026-11-28T00:00:00Z",
        "a time to come",
        "name another reservation",
    ),
    Case("end that is no time", reserving(reservation(endsAt="soon")), f"{PLACE}.endsAt", "soon", "day and time in UTC"),
    Case("offering beside reservations", reserving(reservation(id="cb-0123456789abcdef0")), f"{PLACE}.id", "cb-", "starts with cr-"),
]
