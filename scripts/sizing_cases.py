"""The step times against measured runs of others: closed loops of tests/data/sizing-rows.csv, whose column `source` says where each row is from.

A row is counted where its model, GPU and form have a table that passed the gates; every other row is shown with the reason.
"""

from __future__ import annotations

import csv
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from disagg_serving.catalog import load_catalog
from disagg_serving.catalog.step_times import Form, step_tables
from disagg_serving.forecast.fit.constants import batch_defaults, newest_engine
from disagg_serving.forecast.sizing.units import times_of
from disagg_serving.forecast.speed.steps import Engine, Request, Steps

ROOT = Path(__file__).resolve().parent.parent
ROWS = ROOT / "tests/data/sizing-rows.csv"
MODELS = {
    "MiniMax-M2.5 fp8": "minimax-m2.5",
    "Kimi-K2.5 int4": "kimi-k2.5",
    "Llama-3.1-70B fp8": "llama-3.3-70b-instruct-fp8",
    "Llama-3.1-70B": "llama-3.3-70b-instruct",
    "Qwen3-235B-A22B-FP8 fp8": "qwen3-235b-a22b-instruct-fp8",
    "Qwen3-235B-A22B": "qwen3-235b-a22b-instruct",
    "Qwen3-32B": "qwen3-32b",
    "gpt-oss-120b fp4": "gpt-oss-120b",
    "Llama-3.1-8B": "llama-3.1-8b-instruct",
    "Llama-3.1-8B-Instruct": "llama-3.1-8b-instruct",
    "DeepSeek-R1/V3 fp8": "deepseek-r1",
    "DeepSeek-R1 fp8": "deepseek-r1",
    "DeepSeek-V3 fp8": "deepseek-v3",
    "DeepSeek-V3.2 fp8": "deepseek-v3.2",
    "GLM-5 fp8": "glm-5-fp8",
}
"""Names of the rows, by the catalogue's model of the same architecture and quantisation."""
GPUS = {"h100": "p5.48xlarge", "h200": "p5en.48xlarge", "b200": "p6-b200.48xlarge", "b300": "p6-b300.48xlarge"}
MEDIAN_TOKEN, MEAN_TOKEN, PICKED, MET = 0.10, 0.15, 0.75, 0.95
NEAR = 1.1
"""Factor within which a limit counts as met."""
LEAST_ROWS = 5
"""Rows of a model on a GPU from which on they have an error of their own."""
_FORM = re.compile(r"TP(\d+)(?: DP(\d+))?( EP)?")
Row = Mapping[str, str]


@dataclass(frozen=True)
class Case:
    """A row beside its forecast; milliseconds, and answer tokens a second and GPU. `shown` is why it is not counted."""

    row: Row
    model: str = ""
    token: float = 0
    rate: float = 0
    ttft: float = 0
    shown: str = ""

    @property
    def measured(self) -> float:
        """Milliseconds of a token."""
        return float(self.row["measured_tpot_ms"])

    @property
    def ratio(self) -> float:
        """Measured by forecast."""
        return self.measured / self.token


def closed_loop(engine: Engine, request: Request, clients: float) -> tuple[float, Steps] | None:
    """Requests a ms and rank of so many clients a rank that send the next request when they have an answer, and the steps that it comes to."""
    low, high, found = 0.0, clients / (request.answer * engine.decode(1, request.context)), None
    for _ in range(40):
        rate = (low + high) / 2
        first = engine.steps(rate, clients, request)
        steps = engine.steps(rate, max(1.0, clients - rate * first.prompt), request) if first else None
        inside = steps is not None and rate * (steps.prompt + steps.token * request.answer) < clients
        found = (rate, steps) if inside and steps else found
        low, high = (rate, high) if inside else (low, rate)
    return found


def compare(row: Row) -> Case:
    """One row of the file."""
    form = _FORM.fullmatch(row["form"])
    if form is None or "P/D" in row["set"]:
        return Case(row, shown="prefill and decode apart: shown without a limit")
    model = MODELS.get(row["model"])
    if model is None:
        return Case(row, shown="no model of the catalogue has this architecture and quantisation")
    cut = Form(int(form[1]), int(form[2] or 1), bool(form[3]))
    if row["gpu"] not in GPUS:
        return Case(row, model, shown=f"no instance type of the catalogue has {row['gpu']}")
    times = times_of(model, row["gpu"], cut)
    if isinstance(times, str):
        return Case(row, model, shown=times)
    instance = load_catalog().instances[GPUS[row["gpu"]]]
    budget = batch_defaults(instance.gpu.memory_gib_torch, newest_engine())[0]
    request = Request(float(row["isl"]), float(row["osl"]))
    answer, ttft = float(row["measured_tpot_ms"]) * request.answer, float(row["measured_ttft_ms"] or 0)
    if ttft > answer:
        return Case(row, model, shown="requests waited longer for the engine than it answered them: it ran fewer than the clients sent")
    found = closed_loop(Engine(times, cut.data_parallel, budget), request, float(row["concurrency"]) / cut.data_parallel)
    if found is None:
        return Case(row, model, shown="the forecast says that the engine does not carry so many clients")
    rate, steps = found
    return Case(row, model, steps.token, 1000 * rate * request.answer / cut.tensor_parallel, steps.prompt)


def read_rows(file: Path = ROWS) -> list[Row]:
    """The rows of a file."""
    with file.open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


def errors_of(cases: Iterable[Case]) -> dict[str, dict[str, list[float]]]:
    """Measured by forecast: tenth percentile, median and ninetieth and the rows, by model and GPU, and over all of a class."""
    catalog, groups = load_catalog(), defaultdict(list)
    for case in (c for c in cases if not c.shown):
        groups[case.model, case.row["gpu"]].append(case.ratio)
        groups["experts" if catalog.models[case.model].moe else "dense", "all"].append(case.ratio)
    found: dict[str, dict[str, list[float]]] = {}
    for (model, gpu), ratios in sorted(groups.items()):
        if len(ratios) >= LEAST_ROWS:
            found.setdefault(model, {})[gpu] = [*(round(_percentile(ratios, part), 3) for part in (0.1, 0.5, 0.9)), len(ratios)]
    return found


def _percentile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    at = part * (len(ordered) - 1)
    low = int(at)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (at - low)


@dataclass(frozen=True)
class Picks:
    """Of workloads that were measured on several forms: how often the fastest form within a limit is picked, and the limit is kept."""

    number: int
    same: float
    met: float


def picks(cases: Sequence[Case]) -> Picks:
    """For each model, GPU and length the form with the most tokens a second and GPU within 20, 50 and 100 ms a token."""
    groups: dict[tuple[str, ...], list[Case]] = defaultdict(list)
    for case in cases:
        if not case.shown:
            groups[case.model, case.row["gpu"], case.row["isl"], case.row["osl"]].append(case)
    same = met = number = 0
    for found in groups.values():
        if len({c.row["form"] for c in found}) < 2:  # noqa: PLR2004 (nothing to pick from)
            continue
        for limit in (20, 50, 100):
            inside = [c for c in found if c.token <= limit]
            truly = [c for c in found if c.measured <= limit]
            if not inside or not truly:
                continue
            number += 1
            pick = max(inside, key=lambda c: c.rate)
            best = max(truly, key=_measured_rate)
            same += pick.row["form"] == best.row["form"] or _measured_rate(pick) >= 0.95 * _measured_rate(best)
            met += pick.measured <= limit * NEAR
    return Picks(number, same / number if number else 0, met / number if number else 0)


def _measured_rate(case: Case) -> float:
    form = _FORM.fullmatch(case.row["form"])
    gpus = int(form[1]) * int(form[2] or 1) if form else 1
    stated = case.row["measured_out_tok_s_gpu"]
    request = float(case.row["measured_ttft_ms"]) + case.measured * float(case.row["osl"])
    return float(stated) if stated else 1000 * float(case.row["concurrency"]) * float(case.row["osl"]) / request / gpus


def report(cases: Sequence[Case]) -> tuple[list[str], list[str]]:
    """Lines to print, and what is beyond a limit."""
    counted = [c for c in cases if not c.shown]
    groups: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for case in counted:
        groups[case.model, case.row["gpu"]].append(case)
    lines = [f"{'step times, model':30} {'gpu':5} rows  time per token  rate      first token"]
    for (model, gpu), found in [*sorted(groups.items()), (("all", ""), counted)]:
        lines.append(f"{model:30} {gpu:5} {len(found):4}  " + "  ".join(_two(values) for values in _errors(found)))
    shown: dict[str, int] = defaultdict(int)
    for case in cases:
        if case.shown:
            shown[case.shown] += 1
    lines += [f"shown: {number} rows: {reason}" for reason, number in sorted(shown.items(), key=lambda pair: -pair[1])]
    token, rate, _ = _errors(counted)
    chosen = picks(cases)
    lines.append(f"{len(counted)} of {len(cases)} rows are counted; limits: median {MEDIAN_TOKEN:.0%}, mean {MEAN_TOKEN:.0%}")
    lines.append(f"best form picked in {chosen.same:.0%} of {chosen.number} (limit {PICKED:.0%}), limit met in {chosen.met:.0%} (limit {MET:.0%})")
    faults = []
    for name, errors in (("time per token", token), ("rate", rate)):
        if statistics.median(errors) > MEDIAN_TOKEN or statistics.fmean(errors) > MEAN_TOKEN:
            faults.append(f"step times: the error of the {name} is {_two(errors)}")
    if chosen.same < PICKED or chosen.met < MET:
        faults.append("step times: too few picks agree")
    return lines, faults


def _errors(cases: Sequence[Case]) -> tuple[list[float], list[float], list[float]]:
    return (
        [abs(1 / c.ratio - 1) for c in cases],
        [abs(c.rate / _measured_rate(c) - 1) for c in cases],
        [abs(c.ttft / float(c.row["measured_ttft_ms"]) - 1) for c in cases if float(c.row["measured_ttft_ms"] or 0)],
    )


def _two(errors: Sequence[float]) -> str:
    return f"{statistics.median(errors):4.0%} ({statistics.fmean(errors):4.0%})" if errors else "-"


__all__ = ["compare", "errors_of", "picks", "read_rows", "report", "step_tables"]
