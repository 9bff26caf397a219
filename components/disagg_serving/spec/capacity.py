"""Where a role's nodes come from."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from .base import Before, Count, RefusalError, Spec, Text

CapacityType = Literal["on-demand", "spot", "reserved"]
ReservationType = Literal["on-demand", "capacity-block"]

YEARS = range(2000, 9000)
"""Years that are taken for one in which a reservation ends; at the ends of the calendar no time can be reckoned with."""


def _moment(value: Any) -> Any:
    """A point in time as a person writes it, as text in UTC; a day means its beginning."""
    try:
        read = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise RefusalError("is no point in time", allowed="day and time in UTC, like 2027-01-31T11:30:00Z") from None
    if read.year not in YEARS:
        raise RefusalError("is no time at which a reservation ends", allowed=f"a year from {YEARS[0]} to {YEARS[-1]}")
    known = read if read.tzinfo else read.replace(tzinfo=UTC)
    return known.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class ReservationSpec(Spec):
    """A capacity reservation or Capacity Block, as `aws ec2 describe-capacity-reservations` shows it, so that it can be checked offline."""

    id: Text = Field(..., description="Its id, cr-... (CapacityReservationId).")
    type: ReservationType = Field(
        "on-demand",
        description="capacity-block is prepaid and its nodes are ended with it; on-demand ones go on as on-demand nodes (ReservationType). "
        "Default: on-demand.",
    )
    instance_type: Text | None = Field(None, description="Instance type it holds (InstanceType). Default: taken to be the role's.")
    zone: Text | None = Field(None, description="Zone it lies in (AvailabilityZone). Default: taken to be gpuZone.")
    instances: Count | None = Field(None, description="Instances it holds (TotalInstanceCount). Default: unknown.")
    ends_at: Annotated[Text, Before(_moment)] | None = Field(
        None, description="When it ends, in UTC: 2027-01-31T11:30:00Z (EndDate). Default: it does not end, or it is not known when."
    )

    @property
    def end(self) -> datetime | None:
        """When it ends."""
        return datetime.fromisoformat(self.ends_at) if self.ends_at else None


class CapacitySpec(Spec):
    """Where a role's nodes come from."""

    type: CapacityType = Field(
        "on-demand",
        description="Karpenter capacity type. spot is interrupted, reserved uses only the named reservations. Default: on-demand.",
    )
    reservation_ids: list[Text] = Field(
        [],
        description="EC2 capacity reservations or Capacity Blocks (cr-...) of this instance type in gpuZone. Required with reserved, here or as "
        "reservations, which also say what can be checked. Default: none.",
    )
    reservations: list[ReservationSpec] = Field(
        [],
        description="Reservations with what is known about them: type, zone, instances and when they end, which is checked. Default: none.",
    )
    nodes: Count | None = Field(
        None,
        description="Most nodes the pool may have; with reserved, the number of reserved instances. It bounds cost, and replicas that do not fit "
        "are refused: half-placed groups deadlock. Default: the instances of the reservations if all say how many; else what the replicas need, "
        "so a drifted node is replaced only when it expires; one more lets Karpenter start the new node first.",
    )

    @property
    def all_reservation_ids(self) -> list[str]:
        """Ids of the reservations in both lists."""
        return [*self.reservation_ids, *(r.id for r in self.reservations)]

    @property
    def held(self) -> int | None:
        """Instances of the reservations together, each counted once; None where one does not say how many."""
        return held_together([self])

    @property
    def most_nodes(self) -> int | None:
        """Most nodes of the pool: as given, or all that are reserved."""
        return self.nodes or (self.held if self.type == "reserved" else None)


def held_together(capacities: Iterable[CapacitySpec]) -> int | None:
    """Instances of all named reservations, each counted once; None where one does not say how many."""
    known: dict[str, int] = {}
    named: set[str] = set()
    for capacity in capacities:
        named.update(capacity.all_reservation_ids)
        for one in capacity.reservations:
            if one.instances is not None:
                known[one.id] = min(one.instances, known.get(one.id, one.instances))
    return sum(known.values()) if named and named == known.keys() else None
