"""How GPU nodes live: disruption, expiry and tags of the NodePools and NodeClasses."""

from typing import Annotated, Any, Literal

from pydantic import Field

from ..phrases import either, say
from .base import IN_QUOTES, AtLeastOne, Before, Count, RefusalError, Spec, Tags, Text, form

Weekday = Literal["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]

MINUTES_A_DAY = 24 * 60


def _clock(value: Any) -> Any:
    # YAML reads 22:00 as 22 x 60 + 0
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MINUTES_A_DAY:
        message, right = say("is a number{}", either(" in YAML, which counts 22:00 in sixties", "")), f"{value // 60:02}:{value % 60:02}"
        raise RefusalError(message, allowed="HH:MM in quotes", right=right, otherwise=IN_QUOTES)
    return value


class MaintenanceWindowSpec(Spec):
    """The weekly time in which Karpenter may replace drifted or underused nodes."""

    day: Weekday = Field("SAT", description="Weekday of the start, UTC. Default: SAT.")
    start_utc: Annotated[Text, form(r"^([01]\d|2[0-3]):[0-5]\d$", "HH:MM"), Before(_clock)] = Field(
        "02:00", description="Start as HH:MM in UTC. Default: 02:00."
    )
    hours: Annotated[AtLeastOne, Field(le=167)] = Field(6, description="Length in hours, 1 to 167. Default: 6.")


class NodePoolsSpec(Spec):
    """Settings of all GPU NodePools; which pools there are follows from the models' roles."""

    expire_after_hours: Count = Field(
        336,
        description="Age in hours at which a node is replaced. With terminationGraceHours at most 504: Auto Mode ends every node after 21 days. "
        "Default: 336.",
    )
    termination_grace_hours: Count = Field(
        24, description="Hours a node may drain before its pods are deleted. Auto Mode sets 24 where none is given. Default: 24."
    )
    consolidate_after_minutes: Count = Field(
        60,
        description="Minutes that a node must be empty before it is removed. A group that is made again finds its nodes. Default: 60.",
    )
    maintenance_window: MaintenanceWindowSpec = Field(
        default={},
        validate_default=True,
        description="When drifted nodes may be replaced. On Auto Mode only disruption budgets hold drift back: do-not-disrupt and PDBs do not. "
        "Default: Saturday 02:00 UTC for 6 hours.",
    )
    placement_group: Text | None = Field(
        None,
        description="Name of an existing cluster placement group in gpuZone for all GPU nodes. Default: none (not needed in Capacity Blocks).",
    )
    tags: Tags = Field({}, description="AWS tags on the instances; the cluster role then gets the extra policy they need. Default: none.")
