"""The balance law against public runs: rates from rows marked `calibration`, judged on rows marked `test` (tests/data/pd-cases.csv)."""

from __future__ import annotations

import csv
from typing import Any

import pytest
from disagg_serving.forecast.balance import BalanceError
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
}
"""Calibration rows whose prefill is at its limit: their prompts queue while the others' clients wait for decode."""


def named(part: str) -> CaseRow:
    """The case whose id holds this."""
    return next(c for c in CASES if part in c.id)


def changed(part: str, **columns: str) -> list[dict[str, str]]:
    """The file with other columns in one row."""
    return [row | columns if part in row["id"] else row for row in ROWS]


def test_every_test_row_is_judged() -> None:
    """No row marked test is left out of the comparison."""
    assert [c.id for c in CASES] == [row["id"] for row in ROWS if row["use"] == "test"]
    assert len(CASES) == 5


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_predictions_hold(case: CaseRow) -> None:
    """Within 15 % where saturated, and never below what was measured."""
    assert case.predicted >= case.measured
    assert not case.saturated or abs(case.error) <= 0.15
    assert case.passed


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_no_row_is_predicted_from_itself(case: CaseRow) -> None:
    """Rates come from calibration rows only."""
    use = {row["id"]: row["use"] for row in ROWS}
    assert case.calibrated_on
    assert {use[name] for name in case.calibrated_on} == {"calibration"}


def test_three_prefill_engines_from_the_rate_of_one() -> None:
    """The saturated case: 1P1D gives 2,921 prompt tokens/s/GPU, so three prefill engines before one decode engine serve 8.56 requests/s."""
    case = named("c512_cfg334")
    assert case.saturated
    assert case.kind == "upper bound", "what the decode engine can do is not known from a run that prefill holds back"
    assert case.predicted == pytest.approx(8.56, abs=0.01)
    assert case.error == pytest.approx(0.064, abs=0.002)


def test_rows_whose_clients_ask_for_less_are_not_called_saturated() -> None:
    """The verdict comes from clients and pace of decode, not from how well the prediction fits."""
    assert [c.id for c in CASES if c.saturated] == [named("c512_cfg334").id]
    assert all(c.demand >= c.measured for c in CASES)
    assert named("c144_cfg303").kind == "upper bound", "its decode engines are TP8, of which only a lower bound is known"
    assert named("c30_cfg494").kind == "lower bound", "its only calibration row has less than one prompt a rank"
    assert named("2p1d").demand == pytest.approx(128 / (0.0171 * 316)), "its TPOT is not published: that of the same decode engines stands in"


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
    slower = comparison_rows(changed("c128_cfg291", concurrency="64"))
    table = comparison_table(slower)
    assert "WRONG" in table
    assert "WRONG" not in comparison_table(CASES)


@pytest.mark.parametrize(
    ("columns", "words"),
    [({"gpu": "H300"}, "no rates"), ({"tpot_ms": ""}, "no throughput"), ({"prefill": "some"}, "not a number of engines")],
)
def test_rows_that_cannot_be_judged_are_refused(columns: dict[str, str], words: str) -> None:
    """A row marked test that cannot be compared is an error and not a row less."""
    with pytest.raises(BalanceError, match=words):
        comparison_rows(changed("c512_cfg334", **columns))


def test_the_table_reads_like_one() -> None:
    """One line a case under a header, with the sign of a bound."""
    lines = comparison_table(CASES).splitlines()
    assert len(lines) == 1 + len(CASES)
    assert lines[0].split()[:3] == ["case", "layout", "clients"]
    assert any("<= 8.56" in line and "+6.4%" in line and "saturated, within 15 %" in line for line in lines)


def test_no_row_of_the_file_is_lost() -> None:
    """All 37 rows are there, and each says what it is used for."""
    uses: dict[str, Any] = {row["use"]: None for row in ROWS}
    assert len(ROWS) == 37
    assert set(uses) == {"calibration", "test", "algorithm test"}
