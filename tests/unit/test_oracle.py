"""The performance model beside NVIDIA's event simulator: Poisson arrivals of fixed lengths, as tests/data/sizing-oracle.json keeps its results.

`make steps` leaves the environment in which scripts/oracle.py makes them anew.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from disagg_serving.catalog import load_catalog
from disagg_serving.catalog.step_times import Form
from disagg_serving.forecast.sizing import Ask, RoleSize
from disagg_serving.forecast.sizing.search import shape_of_form
from disagg_serving.forecast.sizing.units import server_point, unit_of
from disagg_serving.forecast.speed.roles import Point
from factories import ROOT

ORACLE: dict[str, Any] = json.loads((ROOT / "tests/data/sizing-oracle.json").read_text())
NODES = {"h100": "p5.48xlarge", "h200": "p5en.48xlarge", "b200": "p6-b200.48xlarge", "b300": "p6-b300.48xlarge"}
CATALOG = load_catalog()


def forecast(case: dict[str, Any]) -> Point:
    """What the model says about a case, with steps as in the tables."""
    instance, form = CATALOG.instances[NODES[case["gpu"]]], Form(case["tp"], case["dp"], case["ep"])
    ask = Ask(
        case["model"], CATALOG.models[case["model"]], case["model"], case["prompt"], case["answer"], case["rate"], (instance,), max_model_len=32768
    )  # fmt: skip
    unit = unit_of("server", case["model"], instance, shape_of_form(ask, "server", instance, form))
    assert not isinstance(unit, str)
    point = server_point(RoleSize(unit, case["engines"]), ask.demand, 1.0)
    assert point is not None
    return point


@pytest.mark.parametrize("case", [c for c in ORACLE["cases"] if c["engines"] == 1], ids=lambda c: c["name"])
def test_one_engine_is_within_15_percent(case: dict[str, Any]) -> None:
    """Mean and ninetieth percentile of the first token, and the time per token, are those of a simulation of every step."""
    point, found = forecast(case), case["found"]
    assert point.ttft == pytest.approx(found["ttft"], rel=0.15)
    assert point.ttft_at == pytest.approx(found["ttft_p90"], rel=0.15)
    assert point.tpot == pytest.approx(found["tpot"], rel=0.15)


@pytest.mark.parametrize("case", [c for c in ORACLE["cases"] if c["engines"] > 1], ids=lambda c: c["name"])
def test_several_engines_are_on_the_safe_side(case: dict[str, Any]) -> None:
    """Behind a router that knows its engines, means are at most 5 % too good and 30 % too bad."""
    point, found = forecast(case), case["found"]
    for ours, theirs in ((point.ttft, found["ttft"]), (point.tpot, found["tpot"])):
        assert 0.95 * theirs <= ours <= 1.3 * theirs
    assert 0.9 * found["ttft_p90"] <= point.ttft_at <= 1.3 * found["ttft_p90"]


def test_the_oracle_says_what_it_is() -> None:
    """The stored results name library, engine and command, and are at least eight."""
    assert len(ORACLE["cases"]) >= 8
    assert ORACLE["library"].startswith("aisimulate 0.13")
    assert ORACLE["engine"] == "vLLM 0.24.0"
    assert (ROOT / ORACLE["command"].split()[0]).is_file()
