"""How long EKS supports the cluster's version, and what it costs after that."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest
from disagg_serving.catalog.kubernetes import NOTICE, oldest_in_support, supported
from disagg_serving.errors import Finding, Level
from disagg_serving.forecast.cost import cost_of
from disagg_serving.pins import KUBERNETES, LWS_MINIMUM_KUBERNETES
from factories import check, environment, existing_cluster, layout

LAST_DAY = date(2026, 12, 2)
"""Of 1.34 in standard support: extended support is billed from it on."""


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the day by which everything is judged."""

    def set_day(day: date) -> None:
        monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int(datetime(day.year, day.month, day.day, 12, tzinfo=UTC).timestamp())))

    return set_day


def running(version: str, policy: str) -> dict[str, Any]:
    """An environment whose cluster has a version and an upgrade policy."""
    return environment(cluster={"kubernetesVersion": version, "upgradePolicy": policy, "endpoint": {"publicAccessCidrs": ["203.0.113.0/24"]}})


def said(data: dict[str, Any]) -> list[Finding]:
    """What the rule says."""
    return [f for f in check(data).findings if f.id == "kubernetes-support"]


@pytest.mark.parametrize(
    ("day", "policy", "words", "hour", "note"),
    [
        (date(2026, 10, 2), "EXTENDED", "", 0.10, ""),
        (date(2026, 10, 3), "STANDARD", "leaves standard support on 2026-12-02: EKS then upgrades the control plane by itself", 0.10, ""),
        (date(2026, 12, 1), "EXTENDED", "then costs 0.60 USD an hour, until EKS upgrades it on 2027-12-02", 0.10, "0.60 an hour from 2026-12-02 on"),
        (
            LAST_DAY,
            "EXTENDED",
            "left standard support on 2026-12-02: its control plane costs 0.60 USD",
            0.60,
            "in extended support of",
        ),
        (LAST_DAY, "STANDARD", "EKS refuses to make it without upgradePolicy: EXTENDED", 0.10, ""),
    ],
)
def test_the_end_of_standard_support(on: Any, day: date, policy: str, words: str, hour: float, note: str) -> None:  # noqa: PLR0913, PLR0917
    """60 days before it the warning says what comes of the upgrade policy; from the day on, extended support is in the cost."""
    on(day)
    data = running("1.34", policy)
    found = said(data)
    assert [(f.level, f.value) for f in found] == ([(Level.WARNING, "1.34")] if words else [])
    assert all(words in f.message and f.fix == 'use "1.35"' for f in found)
    (line,) = [line for line in cost_of(layout(data)).lines if line.name == "control plane"]
    assert (line.per_hour, note in line.note, bool(line.note)) == (hour, True, bool(note))


def test_an_adopted_cluster_is_warned_of_too(on: Any) -> None:
    """What it costs depends on a policy that is not known here, and another version in the stack file upgrades nothing."""
    on(LAST_DAY)
    (found,) = said(existing_cluster(kubernetesVersion="1.34"))
    assert (found.path, found.corrections) == ("existingCluster.kubernetesVersion", ())
    assert "as its upgrade policy says" in found.message
    assert "one minor version at a time" in found.fix
    assert not said(existing_cluster())


def test_the_days_are_those_of_eks(on: Any) -> None:
    """Each version follows the one before, extended support is a year, and neither the default nor what a fix names ends soon."""
    versions = list(supported().values())
    assert versions == sorted(versions, key=lambda one: one.standard_until)
    for one in versions:
        assert one.extended_until == one.standard_until.replace(year=one.standard_until.year + 1)
    day = date.fromisoformat(KUBERNETES.checked)
    assert supported()[KUBERNETES.version].standard_until - day > NOTICE
    oldest = oldest_in_support(day)
    assert oldest is not None
    assert tuple(map(int, oldest.split("."))) >= LWS_MINIMUM_KUBERNETES
    on(day)
    assert not said(running(oldest, "EXTENDED"))
    assert oldest_in_support(date(2099, 1, 1)) is None
