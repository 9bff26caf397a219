"""The balance law against measured runs of others: rates from rows marked `calibration`, judged on rows marked `test`.

Rows are those of tests/data/pd-cases.csv; its sources stand in its column `source`. A rate belongs to the form of engine that it was measured on;
where no row of that form has one, the rate of another form gives a range. A row that cannot be judged is a line with the reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from disagg_serving.forecast.balance import Balance, BalanceError, MeasuredRate, RateCurve, Rates, Side, Split, Workload, balance
from disagg_serving.forecast.balance.law import Kind

from scripts.traffic_runs import MeasuredRun, decode_rate, demand, prefill_rate, requests_per_second

Row = Mapping[str, str]

TOLERANCE = 0.15
"""Error of a prediction that is allowed either way; a run alone scatters. Our choice."""
JUDGED: Mapping[Kind, str] = {"capacity": "within 15 %", "upper bound": "within 15 %", "lower bound": "at least predicted", "range": "in the range"}
SIGNS: Mapping[Kind, str] = {"lower bound": ">= ", "upper bound": "<= "}


@dataclass(frozen=True)
class CaseRow:
    """One row of the file. Those that are judged have a prediction; the others have a reason in `unjudged`.

    `measured` and the prediction are requests a second. `demand` is what the clients can ask for at the measured time per token: below the
    prediction the row is not saturated, and the prediction bounds it from above. None where no row says how fast decode was.
    """

    id: str
    layout: str
    unjudged: str = ""
    clients: float = 0.0
    predicted: Balance | None = None
    measured: float = 0.0
    demand: float | None = None
    calibrated_on: tuple[str, ...] = field(default=())

    @property
    def error(self) -> float | None:
        """Prediction against measurement, as a share of what was measured."""
        return self.predicted.requests_per_second / self.measured - 1 if self.predicted else None

    @property
    def saturated(self) -> bool:
        """Whether the clients ask for at least the prediction."""
        return self.predicted is not None and self.demand is not None and self.demand >= self.predicted.requests_per_second

    @property
    def judged_as(self) -> str:
        """What the row has to be."""
        if self.unjudged or self.predicted is None:
            return f"not judged: {self.unjudged}"
        if self.saturated:
            return f"saturated, {JUDGED[self.predicted.kind]}"
        return f"{'not saturated' if self.demand else 'time per token unknown'}, at most predicted"

    @property
    def passed(self) -> bool:
        """At most what was predicted, and where saturated no less; both but for the tolerance. True for what is not judged."""
        if self.unjudged or self.predicted is None:
            return True
        low, high = self.predicted.span.low, self.predicted.span.high
        if self.predicted.kind == "upper bound":
            low = self.predicted.requests_per_second
        return self.measured <= high * (1 + TOLERANCE) and (not self.saturated or self.measured >= low / (1 + TOLERANCE))


def comparison_rows(rows: Iterable[Row]) -> list[CaseRow]:
    """A line for every row of the file: test rows with their prediction where one can be made, all others with a reason."""
    rows = list(rows)
    return [_compare(row, [r for r in rows if r["use"] == "calibration" and _key(r) == _key(row)]) for row in rows]


def comparison_table(rows: Sequence[CaseRow]) -> str:
    """The rows as text, for a terminal."""
    head = ("case", "layout", "clients", "predicted", "measured", "error", "clients ask for", "judged as", "")
    lines = [head]
    for r in rows:
        numbers = ("", "", "", "", "")
        if r.predicted is not None and r.error is not None:
            p = r.predicted
            between = f" ({p.span.low:.2f} to {p.span.high:.2f})" if p.kind == "range" else ""
            asked = "unknown" if r.demand is None else f"{r.demand:.2f}"
            numbers = (
                f"{r.clients:g}",
                f"{SIGNS.get(p.kind, '')}{p.requests_per_second:.2f}{between}",
                f"{r.measured:.2f}",
                f"{r.error:+.1%}",
                asked,
            )
        lines.append((r.id, r.layout, *numbers, r.judged_as, "" if r.unjudged else "ok" if r.passed else "WRONG"))
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def run_of(row: Row) -> MeasuredRun | None:
    """A row as a run; None where `why_no_run` says why not."""
    return None if why_no_run(row) else _run(row)


def why_no_run(row: Row) -> str:
    """What a row lacks to be a run of prefill and decode; empty for a run."""
    if not row["mode"].startswith("disagg"):
        return "one role, nothing to balance"
    sides = [(_engines(row[name]), _number(row[gpus])) for name, gpus in (("prefill", "p_gpus"), ("decode", "d_gpus"))]
    if any(engines is None or gpus is None or gpus % engines[0] for engines, gpus in sides):
        return "engines and their GPUs are not given"
    if _number(row["concurrency"]) is None:
        return "number of clients is not stated"
    if _number(row["osl"]) is None:
        return "answer length is not stated"
    return "" if _served(row) else "neither throughput nor latencies are given"


def _run(row: Row) -> MeasuredRun:
    """A row that lacks nothing. Prompts of unknown length count as one unit each, so that rates are in prompts: rows of one trace still compare."""
    (p, ranks), (d, _) = (_engines(row[name]) or (1, 1) for name in ("prefill", "decode"))
    split = Split(Side(p, int(row["p_gpus"]) // p), Side(d, int(row["d_gpus"]) // d))
    isl, osl, clients = _number(row["isl"]) or 1.0, _number(row["osl"]) or 1.0, _number(row["concurrency"])
    return MeasuredRun(row["id"], split, p * ranks, isl, osl, _served(row) or 0.0, clients, *_latencies(row))


def _served(row: Row) -> float | None:
    """Requests a second: reported tokens, or from the latencies of the closed loop."""
    clients, osl, tokens = (_number(row[name]) for name in ("concurrency", "osl", "out_tok_s"))
    ttft, tpot = _latencies(row)
    if row["tput_kind"] == "reported" and tokens and osl:
        return tokens / osl
    return requests_per_second(clients, ttft, tpot, osl) if clients and osl and ttft and tpot else None


def _latencies(row: Row) -> tuple[float | None, float | None]:
    """Seconds to the first token, and for each further one."""
    ttft, tpot = (_number(row[name]) for name in ("ttft_ms", "tpot_ms"))
    return ttft and ttft / 1000, tpot and tpot / 1000


def _compare(row: Row, others: Sequence[Row]) -> CaseRow:
    layout = f"{row['prefill']} + {row['decode']}, {row['isl']}/{row['osl']}" if row["prefill"] else f"{row['decode']}, {row['isl']}/{row['osl']}"
    missing, run = why_no_run(row), run_of(row)
    if run is None or row["use"] != "test":
        return CaseRow(row["id"], layout, missing or "gives rates")
    known = [(r, other) for other in others if (r := run_of(other)) is not None]
    runs = [r for r, _ in known]
    if not known:
        return CaseRow(row["id"], layout, "no run of this model, GPU, engine and lengths gives rates")
    try:
        rates = Rates(
            _curve([(prefill_rate(r, runs), other["prefill"]) for r, other in known], row["prefill"]).at(run.input_tokens),
            _curve([(decode_rate(r), other["decode"]) for r, other in known], row["decode"]).at(run.input_tokens),
        )
    except BalanceError as problem:
        return CaseRow(row["id"], layout, str(problem))
    predicted = balance(run.split, rates, Workload(run.input_tokens, run.output_tokens))
    # the pace of decode is the run's own, or where it is not published the fastest of the same decode engines and clients
    paces = [r.tpot_seconds for r in runs if r.split.decode == run.split.decode and r.clients == run.clients and r.tpot_seconds]
    tpot = run.tpot_seconds or min(paces, default=None)
    asked = demand(run.clients, tpot, run.output_tokens) if run.clients and tpot else None
    case = CaseRow(run.name, layout, "", run.clients or 0.0, predicted, run.requests_per_second, asked, tuple(r.name for r in runs))
    if math.isfinite(predicted.span.high) or case.saturated:
        return case
    return CaseRow(run.name, layout, "only a lower bound is known, and it is not known that the clients ask for so much")


def _curve(rates: Iterable[tuple[MeasuredRate, str]], layout: str) -> RateCurve:
    """Rates of runs for engines of the form in `layout`."""
    return RateCurve(rate if _form(other) == _form(layout) else rate.carried() for rate, other in rates)


def _key(row: Row) -> tuple[str, ...]:
    # releases of one engine compare, its options (MTP, offload) do not change with them
    engine = re.sub(r"\s*\d+\.\S+", "", row["engine"])
    return row["model"], row["weights"], row["gpu"], engine, row["isl"], row["osl"]


def _engines(text: str) -> tuple[int, int] | None:
    """Engines, and prompt queues of each: `3 x DP8` is three engines of eight ranks that queue on their own. None for other texts."""
    found = re.fullmatch(r"([1-9]\d*) x ((?:(?:TP|PP|DEP|DP|EP)[1-9]\d*)+)", text)
    if not found:
        return None
    ranks = re.search(r"D(?:E)?P(\d+)", found[2])
    return int(found[1]), int(ranks[1]) if ranks else 1


def _form(text: str) -> str:
    return text.rpartition(" ")[2]


def _number(text: str) -> float | None:
    """A cell as a number above 0; None for an empty cell and for words."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None
