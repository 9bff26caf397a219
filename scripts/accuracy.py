"""Compares the forecasts of memory, traffic and step times with published logs and runs; prints the tables, exit 1 beyond the limits.

usage: accuracy.py [FILE...]     each FILE is a CSV of the columns of tests/data/kv-cases.csv; without one, both files of tests/data
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # a script's own folder is on the path, and not the repository

from scripts.memory_cases import (  # noqa: E402
    CASES,
    FURTHER_CASES,
    INSIDE,
    MEAN_KV,
    case_catalog,
    compare,
    mean_error,
    read_cases,
    share_inside,
    table,
)
from scripts.sizing_cases import compare as compare_steps  # noqa: E402
from scripts.sizing_cases import read_rows, report  # noqa: E402
from scripts.sizing_pairs import report_pairs  # noqa: E402
from scripts.traffic_cases import comparison_rows, comparison_table  # noqa: E402

PD_CASES = ROOT / "tests/data/pd-cases.csv"


def main() -> int:
    """Print the tables and what is beyond the limits."""
    files, catalog = [Path(a) for a in sys.argv[1:]] or [CASES, FURTHER_CASES], case_catalog()
    tables = [compare(read_cases(file), catalog) for file in files]
    lines = [line for found in tables for line in found]
    mean, inside = mean_error(lines), share_inside(lines)
    faults = [fault for line in lines for fault in line.faults()]
    outside = [fault for line in lines for fault in line.outside()]
    if mean > MEAN_KV:
        faults.append(f"the mean error of the KV cache is {mean:.1%}")
    if inside < INSIDE:
        faults += [*outside, f"only {inside:.0%} of the rows are inside their bars"]
    for file, found in zip(files, tables, strict=True):
        print(f"{file.name}\n{table(found)}\n")
    print(f"mean error of the KV cache from the config alone: {mean:.1%} (limit {MEAN_KV:.0%}), {inside:.0%} inside their bars (limit {INSIDE:.0%});")
    print("rows `derived` and `shown` are not counted")
    with PD_CASES.open(encoding="utf-8", newline="") as text:
        traffic = comparison_rows(csv.DictReader(text))
    print(f"\n{comparison_table(traffic)}\n")
    faults += [f"{row.id}: predicted and measured rates do not agree" for row in traffic if not row.passed]
    lines_of_steps, faults_of_steps = report([compare_steps(row) for row in read_rows()])
    print("\n".join([*lines_of_steps, report_pairs(read_rows())]) + "\n")
    faults += faults_of_steps
    print("\n".join(faults) or "all counted rows are within their limits")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
