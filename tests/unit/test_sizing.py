"""Sizing: step times and their gates, queues, and the properties of the search."""

from __future__ import annotations

import csv
from dataclasses import replace
from typing import Any

import pytest
from disagg_serving.catalog import load_catalog
from disagg_serving.catalog.step_times import Form, StepTable, pack, step_data, step_tables, unpack
from disagg_serving.forecast.sizing import Ask, Limits, search
from disagg_serving.forecast.sizing.search import price
from disagg_serving.forecast.speed.gates import refusals
from disagg_serving.forecast.speed.queue import wait_at, waiting
from disagg_serving.forecast.speed.times import Times, axes_of
from factories import ROOT

CATALOG = load_catalog()
LLAMA, GPT = "llama-3.3-70b-instruct-fp8", "gpt-oss-120b"


def ask(model: str = LLAMA, rate: float = 20.0, *, instances: tuple[str, ...] = (), **given: Any) -> Ask:
    """A question with limits that most forms keep."""
    names = instances or tuple(CATALOG.instances)
    asked = {"limits": Limits(2000, 50), "max_model_len": 16384, **given}
    return Ask(model, CATALOG.models[model], model, 8000, 1000, rate, tuple(CATALOG.instances[name] for name in names), **asked)


def cheapest(question: Ask) -> float:
    """Cost of the cheapest candidate; infinite where there is none."""
    return min((c.usd for c in search(question).found), default=float("inf"))


def table() -> StepTable:
    """A table of the catalogue that passed."""
    return step_tables(LLAMA)["h200", Form(4)]


def refused(changed: StepTable, gpu: str = "h200", **others: StepTable) -> dict[tuple[str, Form], str]:
    """What the gates say about a table, beside others of its form by GPU."""
    nodes = {CATALOG.instances[name].gpu.name: CATALOG.instances[name] for name in ("p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge")}
    tables = {(gpu, Form(4)): changed, **{(name, Form(4)): one for name, one in others.items()}}
    return refusals(tables, step_data().axes, CATALOG.models[LLAMA], nodes)


def test_tables_of_the_catalogue_pass_the_gates() -> None:
    """No plan stands on a table that the gates refuse, and each that was refused is named with the gate."""
    nodes = {"h100": "p5.48xlarge", "h200": "p5en.48xlarge", "b200": "p6-b200.48xlarge", "b300": "p6-b300.48xlarge"}
    on = {gpu: CATALOG.instances[name] for gpu, name in nodes.items()}
    for model in step_data().configs:
        assert refusals(step_tables(model), step_data().axes, CATALOG.models[model], on) == {}
    reasons = [why for tables in step_data().refused.values() for why in tables.values()]
    assert reasons
    assert {why.split(":")[0] for why in reasons} <= {"monotonic", "newer", "roofline"}


def test_every_model_of_the_catalogue_has_step_times() -> None:
    """Sizing answers for every model that the catalogue ships, on Hopper and on Blackwell unless the gates refused all its tables there."""
    for model in CATALOG.models:
        gpus = {gpu for gpu, _ in step_tables(model)}
        gone = {key.partition("/")[0] for key in step_data().refused[model]}
        assert gpus | gone == {"h100", "h200", "b200", "b300"}
        assert gpus >= {"h100", "h200"}


def test_a_dip_is_refused() -> None:
    """A table in which a larger batch is faster by more than a tenth was measured badly."""
    whole = table()
    dipped = [[*row] for row in whole.decode]
    dipped[9][3] = dipped[6][3] * 0.85
    assert refused(whole) == {}
    assert next(iter(refused(replace(whole, decode=dipped)).values())).startswith("monotonic: a decode step of batch 32")


def test_a_step_below_its_memory_is_refused() -> None:
    """No step is faster than memory bandwidth allows."""
    fast = replace(table(), decode=[[ms / 4 for ms in row] for row in table().decode])
    assert next(iter(refused(fast).values())).startswith("roofline")


def test_a_newer_gpu_that_is_slower_is_refused() -> None:
    """Data of a newer GPU that is slower than an older one is wrong, and only the newer one's is refused."""
    slow = replace(table(), decode=[[ms * 1.5 for ms in row] for row in table().decode])
    found = refused(slow, "b200", h200=table())
    assert list(found) == [("b200", Form(4))]
    assert found["b200", Form(4)].startswith("newer: decode steps are 1.50 times as slow as on h200")


def test_packing_keeps_times() -> None:
    """A packed time is off by less than half a percent, so the tables of the wheel are those of the library."""
    raw = {name: getattr(table(), name) for name in StepTable.__dataclass_fields__}
    again = unpack(pack(raw))
    assert again.prefill == pytest.approx(table().prefill, rel=0.005)
    assert [v for row in again.decode for v in row] == pytest.approx([v for row in table().decode for v in row], rel=0.005)


@pytest.mark.parametrize("model", [LLAMA, "glm-5-fp8", "deepseek-v3"])
def test_times_grow(model: str) -> None:
    """More work never takes less time, whatever noise the kernels' measurements have."""
    axes = axes_of(step_data().axes)
    for key in list(step_tables(model))[:6]:
        times = Times(step_tables(model)[key], axes)
        for context in (200, 3000, 50_000):
            steps = [times.decode(batch, context) for batch in (1, 5, 10, 20, 50, 200, 700)]
            assert steps == sorted(steps)
        reads = [times.prefill(n) for n in (10, 100, 1000, 10_000, 100_000)]
        assert reads == sorted(reads)
        assert times.mixed(4096, 32, 8000, 8500) > times.mixed(512, 32, 8000, 8500) * 1.0


def test_waiting_of_one_engine_is_pollaczek_khinchine() -> None:
    """For one engine the wait is the exact one of M/D/1, half a service at half load."""
    assert waiting(0.5, 100)[0] == pytest.approx(50)
    assert wait_at(50, 0.3, 100) == 0
    assert wait_at(95, 0.7, 100) > wait_at(90, 0.7, 100) > waiting(0.7, 100)[0]
    assert waiting(0.7, 100, 4)[0] < waiting(0.7, 100)[0]


@pytest.mark.parametrize("model", [LLAMA, GPT, "qwen3-235b-a22b-instruct-fp8"])
def test_cost_never_falls_with_load(model: str) -> None:
    """More requests never cost less."""
    costs = [cheapest(ask(model, rate)) for rate in (0.1, 1, 3, 5, 8, 12, 20, 33, 50)]
    assert costs == sorted(costs)


def test_cost_never_rises_with_looser_limits() -> None:
    """Who waits longer never pays more, in either limit, in percentile, or in instance types."""
    first = [cheapest(ask(limits=Limits(ttft, 50))) for ttft in (400, 600, 1000, 2000, 5000, None)]
    token = [cheapest(ask(limits=Limits(2000, tpot))) for tpot in (15, 25, 40, 60, 100, None)]
    some: list[Any] = [50, 90, 95]
    percentiles = [cheapest(ask(limits=Limits(1000, 35, percentile))) for percentile in some]
    assert first == sorted(first, reverse=True)
    assert token == sorted(token, reverse=True)
    assert percentiles == sorted(percentiles)
    names = ("p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge", "p6-b300.48xlarge")
    more = [cheapest(ask(GPT, instances=names[: n + 1])) for n in range(len(names))]
    assert more == sorted(more, reverse=True)


def test_replicas_fill_whole_nodes() -> None:
    """What is bought is used: every node of a candidate is full, and its price is that of its nodes."""
    question = ask()
    for candidate in search(question).found:
        for size in candidate.sizes:
            assert size.engines * size.unit.form.gpus == size.nodes * size.unit.instance.gpu.count
        assert candidate.usd == price(question, candidate.sizes)


def test_slow_plan_costs_at_least_the_forecast() -> None:
    """Sizing with slow steps never buys less than sizing with those of the tables."""
    for model in (LLAMA, GPT):
        assert cheapest(ask(model, plan="slow")) >= cheapest(ask(model, plan="forecast"))


def test_twice_the_load_takes_at_most_twice_the_nodes() -> None:
    """Nodes grow with the load, up to a node a role that is not full."""
    nodes = [search(ask(rate=rate, mode="aggregated")).found[0].nodes for rate in (10, 20, 40)]
    assert nodes[1] <= 2 * nodes[0] + 1
    assert nodes[2] <= 2 * nodes[1] + 1


def test_a_prefix_cache_saves_prefill_alone() -> None:
    """A hit shortens what is calculated of a prompt, and neither the KV that decode holds nor what is moved."""
    plain, cached = ask(mode="disaggregated"), ask(mode="disaggregated", prefix_hit=0.6)
    before, after = search(plain).found[0], search(cached).found[0]
    assert cheapest(cached) <= cheapest(plain)
    assert after.kept.point.ttft < before.kept.point.ttft or after.usd < before.usd


def test_what_is_left_out_is_counted() -> None:
    """Nothing disappears: types without a price and tables that a gate refused are named with their number."""
    left = search(ask()).left_out
    assert any("no on-demand price of p5e.48xlarge" in reason for reason in left)
    assert any("a gate refused: b200/tp4: monotonic" in reason for reason in left)


def test_rows_are_public_and_each_has_a_source() -> None:
    """Every measured row that errors are calculated from names where it can be opened."""
    with (ROOT / "tests/data/sizing-rows.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 500
    assert all(row["source"].startswith("https://") for row in rows)
