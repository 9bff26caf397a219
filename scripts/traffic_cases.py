"""The balance law against measured runs of others: rates from rows marked `calibration`, judged on rows marked `test`.

Rows are those of tests/data/pd-cases.csv; its sources stand in its column `source`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from disagg_serving.forecast.balance import BalanceError, Rates, Side, Split, Workload, balance
from disagg_serving.forecast.balance.law import Kind

from scripts.traffic_runs import MeasuredRun, calibrate, demand, requests_per_second

TOLERANCE = 0.15
"""Error of a saturated layout that is allowed. Our choice."""

Row = Mapping[str, str]


@dataclass(frozen=True)
class CaseRow:
    """One test row: requests a second as predicted and measured, and whether the clients could have asked for the prediction.

    `demand` is what they can ask for at the measured TPOT. Below the prediction the row is not saturated, and the prediction is an upper bound.
    """

    id: str
    layout: str
    clients: float
    predicted: float
    kind: Kind
    measured: float
    demand: float
    calibrated_on: tuple[str, ...]

    @property
    def error(self) -> float:
        """Prediction against measurement, as a share of what was measured."""
        return self.predicted / self.measured - 1

    @property
    def saturated(self) -> bool:
        """Whether the clients ask for at least the capacity, which must be known and not only a lower bound."""
        return self.kind != "lower bound" and self.demand >= self.predicted

    @property
    def passed(self) -> bool:
        """Never below what was measured, and close to it where saturated."""
        return self.error >= 0 and (not self.saturated or self.error <= TOLERANCE)


def comparison_rows(rows: Iterable[Row]) -> list[CaseRow]:
    """Every test row with its prediction. Raises BalanceError for a test row without calibration rows of its model, GPU and engine."""
    rows = list(rows)
    return [_compare(row, [r for r in rows if r["use"] == "calibration" and _key(r) == _key(row)]) for row in rows if row["use"] == "test"]


def comparison_table(rows: Sequence[CaseRow]) -> str:
    """The rows as text, for a terminal."""
    head = ("case", "layout", "clients", "predicted", "measured", "error", "clients ask for", "judged as", "")
    lines = [head]
    for r in rows:
        sign = {"lower bound": ">= ", "upper bound": "<= "}.get(r.kind, "")
        judged = "saturated, within 15 %" if r.saturated else "not saturated, at least measured"
        numbers = (f"{r.clients:g}", f"{sign}{r.predicted:.2f}", f"{r.measured:.2f}", f"{r.error:+.1%}", f"{r.demand:.2f}")
        lines.append((r.id, r.layout, *numbers, judged, "ok" if r.passed else "WRONG"))
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def run_of(row: Row) -> MeasuredRun | None:
    """A row as a run; None where it has no throughput or no split.

    Prompts of unknown length count as one unit each, so that rates are in prompts: rows of the same trace still compare.
    """
    if not (row["p_gpus"] and row["d_gpus"] and row["concurrency"] and row["osl"].isdigit()):
        return None
    clients, osl = float(row["concurrency"]), float(row["osl"])
    ttft, tpot = (float(row[name]) / 1000 if row[name] else None for name in ("ttft_ms", "tpot_ms"))
    if row["tput_kind"] == "reported":
        served = float(row["out_tok_s"]) / osl
    elif ttft is not None and tpot is not None:
        served = requests_per_second(clients, ttft, tpot, osl)
    else:
        return None
    (p, _), (d, _) = _workers(row["prefill"]), _workers(row["decode"])
    split = Split(Side(p, int(row["p_gpus"]) // p), Side(d, int(row["d_gpus"]) // d))
    isl = float(row["isl"]) if row["isl"].isdigit() else 1.0
    return MeasuredRun(row["id"], split, p * _workers(row["prefill"])[1], isl, osl, served, clients, ttft, tpot)


def _compare(row: Row, others: Sequence[Row]) -> CaseRow:
    run = run_of(row)
    found = [(r, other["decode"]) for other in others if (r := run_of(other)) is not None]
    runs = [r for r, _ in found]
    if run is None:
        raise BalanceError(f"{row['id']} is marked test but has no throughput")
    # the data base behind the file lists equal prefill runs under TP8 and DP8, so all count; what decode engines give depends on their form
    prefill = calibrate(runs).prefill
    decode = calibrate([r for r, form in found if _form(form) == _form(row["decode"])] or runs).decode
    rates = Rates(prefill.at(run.input_tokens), decode.at(run.input_tokens))
    predicted = balance(run.split, rates, Workload(run.input_tokens, run.output_tokens))
    # the pace of decode is the run's own, or where it is not published the fastest of the same decode engines and clients
    paces = [r.tpot_seconds for r in runs if r.split.decode == run.split.decode and r.clients == run.clients and r.tpot_seconds]
    tpot = run.tpot_seconds or min(paces)
    clients = run.clients or 0.0
    layout = f"{row['prefill']} + {row['decode']}, {row['isl']}/{row['osl']}"
    used = tuple(r.name for r in runs)
    asked = demand(clients, tpot, run.output_tokens)
    return CaseRow(run.name, layout, clients, predicted.requests_per_second, predicted.kind, run.requests_per_second, asked, used)


def _key(row: Row) -> tuple[str, ...]:
    # releases of one engine compare, its options (MTP, offload) do not change with them
    engine = re.sub(r"\s*\d+\.\S+", "", row["engine"])
    return row["model"], row["weights"], row["gpu"], engine, row["isl"], row["osl"]


def _workers(text: str) -> tuple[int, int]:
    """Engines, and prompt queues of each: `3 x DP8` is three engines of eight ranks that queue on their own."""
    found = re.fullmatch(r"(\d+) x (?:(?:DEP|DP)(\d+)|TP\d+)", text)
    if not found:
        raise BalanceError(f"{text}: not a number of engines and their parallelism")
    return int(found[1]), int(found[2] or 1)


def _form(text: str) -> str:
    return text.rpartition(" ")[2]
