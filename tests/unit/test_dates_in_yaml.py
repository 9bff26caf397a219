"""Dates and times without quotes: texts wherever a text is meant, the same for `disagg` and for the program that Pulumi runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from disagg_serving.spec.stack_file import read_stack_file
from disagg_serving.yaml_io import read_yaml
from factories import aggregated, check, environment, layout, role


def tags(given: dict[Any, Any]) -> Mapping[str, str]:
    """Tags of the network as they are deployed."""
    network = layout(environment(network={"zones": ["us-east-1a", "us-east-1b"], "tags": given})).spec.network
    assert network is not None
    return network.tags


@pytest.mark.parametrize(
    ("written", "pulumi", "meant"),
    [
        ("2027-06-01", "2027-06-01 00:00:00 +0000 UTC", "2027-06-01"),
        ("2027-01-31T11:30:00Z", "2027-01-31 11:30:00 +0000 UTC", "2027-01-31T11:30:00Z"),
        ("2027-01-31 11:30:00", "2027-01-31 11:30:00 +0000 UTC", "2027-01-31T11:30:00Z"),
        ("2027-01-31t02:30:00.25-09:00", "2027-01-31 02:30:00.25 -0900 -0900", "2027-01-31T11:30:00Z"),
        ("2027-02-30", "2027-02-30", "2027-02-30"),
    ],
)
def test_dates_are_texts(written: str, pulumi: str, meant: str, tmp_path: Path) -> None:
    """A tag that looks like a date is one text, in a plan and in a deployment: Pulumi's CLI gives the program what Go prints (its real forms)."""
    file = tmp_path / "Pulumi.test.yaml"
    file.write_text(f"config:\n  other:key: {written}\n  disagg-serving:environment:\n    since: {written}\n", encoding="utf-8")
    read = read_stack_file(file, "test")
    assert json.loads(json.dumps(read.config)) == {"other:key": meant}
    for given in (read.environment["since"], pulumi):
        assert tags({"since": given}) == {"since": meant}


def test_keys_and_objects_of_python() -> None:
    """A key may look like a date, too, and a program may give Python's own dates."""
    given = {date(2027, 6, 1): datetime(2027, 6, 1, 12, tzinfo=UTC), "2027-06-02 00:00:00 +0000 UTC": date(2027, 6, 2)}
    assert tags(given) == {"2027-06-01": "2027-06-01T12:00:00Z", "2027-06-02": "2027-06-02"}


def test_a_date_where_a_number_is_meant(tmp_path: Path) -> None:
    """It is refused as what the file shows."""
    file = tmp_path / "one.yaml"
    file.write_text("2027-06-01", encoding="utf-8")
    (found,) = [f for f in check(environment(aggregated(server=role(replicas=read_yaml(file))))).findings if f.id == "schema"]
    assert (found.value, found.path) == ("2027-06-01", "models[0].server.replicas")
