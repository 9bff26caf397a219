from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from disagg_serving.manifests.node_pools import budgets
from disagg_serving.spec import MaintenanceWindowSpec
from hypothesis import given
from hypothesis import strategies as st

DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
WEEK = 7 * 24 * 60


def minutes(window: MaintenanceWindowSpec) -> Iterator[int]:
    """The minutes of the week, from Sunday 00:00, that the window covers."""
    hour, minute = map(int, window.start_utc.split(":"))
    start = DAYS.index(window.day) * 1440 + hour * 60 + minute
    return (m % WEEK for m in range(start, start + window.hours * 60))


def blocked(budget: dict[str, Any]) -> Iterator[int]:
    """The minutes in which a budget with a weekly cron schedule holds."""
    minute, hour, day_of_month, month, weekday = budget["schedule"].split()
    assert (day_of_month, month) == ("*", "*")
    start = int(weekday) * 1440 + int(hour) * 60 + int(minute)
    return (m % WEEK for m in range(start, start + int(budget["duration"].removesuffix("h")) * 60))


@given(
    day=st.sampled_from(DAYS), hour=st.integers(0, 23), minute=st.integers(0, 59), hours=st.one_of(st.sampled_from([1, 24, 167]), st.integers(1, 167))
)
def test_nodes_drift_in_the_window_and_only_there(day: str, hour: int, minute: int, hours: int) -> None:
    """The blocked time and the maintenance window together are the week, without overlap, wherever the window starts and ends."""
    window = MaintenanceWindowSpec.model_validate({"day": day, "startUtc": f"{hour:02}:{minute:02}", "hours": hours})
    closed, inside, empty = budgets(window)
    assert closed["nodes"] == "0"
    assert set(closed["reasons"]) == set(inside["reasons"]) == {"Drifted", "Underutilized"}
    assert (empty["nodes"], empty["reasons"]) == ("100%", ["Empty"])
    assert inside["nodes"] != "0"
    assert "schedule" not in inside
    assert sorted([*minutes(window), *blocked(closed)]) == list(range(WEEK))
