"""The keys of `plan --format json` are the contract: the schema that is published knows each of them, in every kind of plan."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import pytest
from disagg_serving.document.plan import PlanDocument
from disagg_serving.recording.plan import Plan
from disagg_serving.records import key_of
from disagg_serving.report.json import render_json
from factories import ROOT, environment, model, role
from jsonschema import Draft202012Validator
from pages import PAGES, hostile_plan, plan_of, plans

SCHEMA = Draft202012Validator(json.loads((ROOT / "docs/schema/plan.schema.json").read_text(encoding="utf-8")))
WORK = {"inputTokens": 8000, "outputTokens": 1000, "requestsPerSecond": 0.5}


def rated(tokens: float) -> dict[str, Any]:
    """A role with one measured rate."""
    return role(measuredRates=[{"inputTokens": 8000, "tokensPerSecondPerGPU": tokens}])


FAR = {**WORK, "inputTokens": 100_000}
CASES: dict[str, Callable[[], list[Plan]]] = {
    **{page: partial(plans, page) for page in PAGES},
    "hostile": lambda: [hostile_plan()],
    "measured": lambda: [plan_of(environment(model(prefill=rated(4000), decode=rated(600), workload=WORK)))],
    "too far": lambda: [plan_of(environment(model(prefill=rated(4000), decode=rated(600), workload=FAR)))],
    "spot": lambda: [plan_of(environment(model(decode=role(capacity={"type": "spot"}))))],
    "accepted": lambda: [plan_of(environment(model(), accept={"group-capacity": "the second reservation begins on Monday"}))],
}
"""Plans in which every key occurs: beside those of the pages, with measured rates, with rates that do not reach, of no known price."""


@pytest.mark.parametrize("case", CASES)
def test_every_plan_keeps_to_the_schema(case: str) -> None:
    """What is printed has the keys that the schema names, and no other."""
    for plan in CASES[case]():
        SCHEMA.validate(json.loads(render_json([plan], as_list=False)))


def test_the_schema_tells_what_is_no_plan() -> None:
    """A key that is renamed or missing, an unknown operation, and a text for a number are refused, at any depth."""
    (plan,) = plans("difference")
    for at, key, value in (
        ((), "cost", None),
        (("changes", 0), "op", "destroy"),
        (("placement", 0, "nodes", 0), "idleGpus", "2"),
        (("capacity", 0, "perGpu", "kvGiB"), "mean", 1),
    ):
        data = json.loads(render_json([plan], as_list=False))
        place = data
        for step in at:
            place = place[step]
        place[key] = value
        assert not SCHEMA.is_valid(data), key
        del place[key]
        assert SCHEMA.is_valid(data) is (key == "mean"), key


def test_the_page_has_every_key() -> None:
    """docs/reports.md says of each key of a plan, and of its difference, what it holds."""
    section = (ROOT / "docs/reports.md").read_text(encoding="utf-8").split("\n## JSON\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == [key_of(f.name) for f in fields(PlanDocument)]
