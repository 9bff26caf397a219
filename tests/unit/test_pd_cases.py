"""The balance law against public runs: rates from rows marked `calibration`, judged on rows marked `test` (tests/data/pd-cases.csv)."""

from __future__ import annotations

import csv
from typing import Any

import pytest
from factories import ROOT

from scripts.traffic_cases import CaseRow, _key, comparison_rows, comparison_table, run_of
from scripts.traffic_runs import prefill_saturated

with (ROOT / "tests/data/pd-cases.csv").open(encoding="utf-8", newline="") as _file:
    ROWS: list[dict[str, str]] = list(csv.DictReader(_file))
CASES = comparison_rows(ROWS)
SATURATED = {
    "dsr1_h200_sglang_fp8_disagg_8192x1024_c256_cfg434",
    "dsr1_h200_trtllm_fp8_disagg_1024x1024_c1536_cfg336",
    "dsr1_h200_trtllm_fp8_disagg_8192x1024_c128_cfg291",
    "llmd-glm52-lim-1p1d-dep16",
    "dsr1_b200_sglang_fp8_disagg_8192x1024_c128_cfg457",
}
"""Calibration rows whose prefill is at its limit: their prompts queue while the others' clients wait for decode."""


JUDGED = [c for c in CASES if not c.unjudged]


def named(part: str, cases: list[CaseRow] = CASES) -> CaseRow:
    """The case whose id holds this."""
    return next(c for c in cases if part in c.id)


def changed(part: str, **columns: str) -> list[dict[str, str]]:
    """The file with other columns in one row."""
    return [row | columns if part in row["id"] else row for row in ROWS]


def test_every_row_has_a_line() -> None:
    """Each row of the file is judged or says why not; of the rows marked test only those without a limit to compare with are not judged."""
    assert [c.id for c in CASES] == [row["id"] for row in ROWS]
    assert all(c.unjudged or c.predicted for c in CASES)
    tests = [c for c, row in zip(CASES, ROWS, strict=True) if row["use"] == "test"]
    assert len(tests) == 15
    limitless = {c.id for c in tests if c.unjudged.startswith("only a lower bound is known")}
    assert {c.id for c in tests if c.unjudged} == limitless
    assert {c.id for c in tests} - limitless == {c.id for c in JUDGED}
    assert len(limitless) == 3


@pytest.mark.parametrize("case", JUDGED, ids=lambda c: c.id)
def test_predictions_hold(case: CaseRow) -> None:
    """Within 15 % where saturated and the limit is known, else on the right side of it; a run alone may pass a limit by its scatter."""
    assert case.predicted is not None
    span, kind = case.predicted.span, case.predicted.kind
    assert case.measured <= span.high * 1.15
    if case.saturated:
        assert case.measured >= (case.predicted.requests_per_second if kind == "upper bound" else span.low) / 1.15
    assert case.passed


@pytest.mark.parametrize("case", JUDGED, ids=lambda c: c.id)
def test_no_row_is_predicted_from_itself(case: CaseRow) -> None:
    """Rates come from calibration rows only."""
    use = {row["id"]: row["use"] for row in ROWS}
    assert case.calibrated_on
    assert {use[name] for name in case.calibrated_on} == {"calibration"}


def test_another_form_of_engine_gives_a_range() -> None:
    """GLM-5.2 on two engines of 8 GPUs: half of what the rates on 16 say, 8.91 requests/s, would be no capacity, since 4.74 were measured."""
    narrow, mixed, experts = named("1p1d-dep8"), named("dep8-dep16"), named("c288_cfg641")
    assert narrow.predicted is not None
    assert narrow.predicted.kind == "range"
    assert (narrow.predicted.span.low, narrow.predicted.span.mid, narrow.predicted.span.high) == pytest.approx((4.45, 8.91, 17.8), abs=0.02)
    assert narrow.measured == pytest.approx(4.74, abs=0.01)
    assert narrow.predicted.span.low <= narrow.measured <= narrow.predicted.span.high
    assert mixed.predicted is not None
    assert mixed.predicted.requests_per_second < mixed.measured <= mixed.predicted.span.high, "more than half of a wide engine's rate"
    assert experts.predicted is not None
    assert (experts.predicted.kind, experts.predicted.bound_by) == ("range", "prefill"), "cut experts are another form than whole ones"


def test_a_lower_bound_is_no_limit() -> None:
    """A second decoder serves more than the run with one had reached: 24.0 requests/s where at least 19.8 are predicted."""
    case = named("full-3p2d")
    assert case.predicted is not None
    assert (case.predicted.kind, case.saturated, case.passed) == ("lower bound", True, True)
    assert (round(case.predicted.requests_per_second, 1), round(case.measured, 1)) == (19.8, 24.0)
    slower = named("full-3p2d", comparison_rows(changed("full-3p2d", out_tok_s="5000")))
    assert not slower.passed


def test_three_prefill_engines_from_the_rate_of_one() -> None:
    """The saturated case: 1P1D gives 2,921 prompt tokens/s/GPU, so three prefill engines before one decode engine serve 8.56 requests/s."""
    case = named("c512_cfg334")
    assert case.saturated
    assert case.predicted is not None
    assert case.predicted.kind == "upper bound", "what the decode engine can do is not known from a run that prefill holds back"
    assert case.predicted.requests_per_second == pytest.approx(8.56, abs=0.01)
    assert case.error == pytest.approx(0.064, abs=0.002)


def test_rows_whose_clients_ask_for_less_are_not_called_saturated() -> None:
    """The verdict comes from clients and pace of decode, not from how well the prediction fits."""
    full = {"c512_cfg334", "c48_cfg347", "c3584_cfg328", "c768_cfg294", "c288_cfg641", "dep8-dep16", "full-3p2d", "full-2p2d"}
    assert {c.id for c in CASES if c.saturated} == {named(part).id for part in full}
    assert all(c.demand >= c.measured for c in JUDGED if c.demand is not None)
    assert named("c144_cfg303").unjudged, "of its form only a lower bound is known"
    assert named("c30_cfg494").unjudged, "its only calibration row has less than one prompt a rank"
    assert named("2p1d-dep16").demand == pytest.approx(128 / (0.0171 * 316)), "its TPOT is not published: that of the same decode engines stands in"
    assert named("1p1d-dep8").demand is None, "no row says how fast an engine of 8 GPUs decodes"


def test_saturated_calibration_rows() -> None:
    """Prefill counts as measured where prompts queue, and not where more clients bring more."""
    runs = [r for r in map(run_of, ROWS) if r is not None]
    keys = {row["id"]: _key(row) for row in ROWS if row["use"] == "calibration"}
    known = [r for r in runs if r.name in keys]
    assert {r.name for r in known if prefill_saturated(r, [o for o in known if keys[o.name] == keys[r.name]])} == SATURATED


@pytest.mark.parametrize("row", [r for r in ROWS if r["tput_kind"].startswith("computed")], ids=lambda r: r["id"])
def test_throughput_from_latencies(row: dict[str, str]) -> None:
    """The file's throughput follows from clients, TTFT and TPOT, within the rounding of its columns."""
    run = run_of(row)
    assert run is not None
    assert run.requests_per_second == pytest.approx(float(row["req_s"]), abs=0.006, rel=0.005)
    assert run.requests_per_second * run.output_tokens == pytest.approx(float(row["out_tok_s"]), rel=0.005)


def test_a_wrong_prediction_is_seen() -> None:
    """A calibration that is half as fast, or a layout that was faster than its capacity, is marked in the table."""
    slower = comparison_rows(changed("c128_cfg291", concurrency="100"))
    table = comparison_table(slower)
    assert "WRONG" in table
    assert "WRONG" not in comparison_table(CASES)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"gpu": "H300"}, "no run of this model"),
        ({"tpot_ms": ""}, "neither throughput nor latencies"),
        ({"tput_kind": "reported", "out_tok_s": "", "tpot_ms": ""}, "neither throughput nor latencies"),
        ({"prefill": "some"}, "engines and their GPUs"),
        ({"p_gpus": "20"}, "engines and their GPUs"),
        ({"p_gpus": "many"}, "engines and their GPUs"),
        ({"concurrency": "100-400"}, "number of clients"),
        ({"osl": "a trace"}, "answer length"),
        ({"isl": "a trace"}, "no run of this model"),
        ({"mode": "agg"}, "one role"),
    ],
)
def test_a_row_that_cannot_be_judged_says_why(columns: dict[str, str], words: str) -> None:
    """Whatever a cell holds, the row is a line with its reason and none of the others is lost."""
    found = comparison_rows(changed("c512_cfg334", **columns))
    assert words in named("c512_cfg334", found).unjudged
    assert f"not judged: {words}" in comparison_table(found)
    assert len(found) == len(ROWS)
    assert [c.id for c in found if not c.unjudged] == [c.id for c in JUDGED if "c512_cfg334" not in c.id]


def test_a_trace_without_a_pace_is_judged_from_above() -> None:
    """Where no row says how fast decode was, nobody knows what the clients could ask for; a run above the prediction is wrong all the same."""
    rows = [row | {"tpot_ms": ""} if row["id"].startswith("llmd-glm52-lim") else row for row in ROWS]
    case = named("1p1d-dep8", comparison_rows(rows))
    assert case.unjudged or case.demand is None
    faster = named("lim-1p1d-dep8", comparison_rows(changed("lim-1p1d-dep8", out_tok_s="9000")))
    assert (faster.demand, faster.passed) == (None, False)


def test_the_table_reads_like_one() -> None:
    """One line a case under a header, with the sign of a bound."""
    lines = comparison_table(CASES).splitlines()
    assert len(lines) == 1 + len(CASES)
    assert lines[0].split()[:3] == ["case", "layout", "clients"]
    assert any("<= 8.56" in line and "+6.4%" in line and "saturated, within 15 %" in line for line in lines)


def test_no_row_of_the_file_is_lost() -> None:
    """All 51 rows are there, and each says what it is used for."""
    uses: dict[str, Any] = {row["use"]: None for row in ROWS}
    assert len(ROWS) == 51
    assert set(uses) == {"calibration", "test", "algorithm test"}
