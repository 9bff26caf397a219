"""Compares the memory model with public start-up logs of vLLM (tests/data/kv-cases.csv) and prints the table; exit 1 beyond the limits.

usage: accuracy.py [FILE]     FILE is a CSV of the same columns
"""

from __future__ import annotations

import csv
import re
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from disagg_serving.catalog import Catalog, load_catalog
from disagg_serving.forecast.fit import Bars, Calibration, EngineShape, capacity

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # a script's own folder is on the path, and not the repository

from scripts.traffic_cases import comparison_rows, comparison_table  # noqa: E402

CASES = ROOT / "tests/data/kv-cases.csv"
PD_CASES = ROOT / "tests/data/pd-cases.csv"
TOKENS, HYBRID_TOKENS, WEIGHTS, MEAN_KV = 0.02, 0.06, 0.02, 0.05
"""Limits of the errors: tokens out of the reported GiB, the same for hybrids, weights, and the mean of the KV cache from the config alone."""

MODELS = {
    "Llama-3.1-8B-Instruct": "llama-3.1-8b-instruct",
    "Qwen2.5-7B-Instruct": "qwen2.5-7b-instruct",
    "Qwen3-8B": "qwen3-8b",
    "Qwen3-32B": "qwen3-32b",
    "Mistral-Small-3.2-24B": "mistral-small-3.2-24b",
    "gpt-oss-120b": "gpt-oss-120b",
    "GLM-5-FP8": "glm-5-fp8",
    "GLM-5.2-FP8": "glm-5.2-fp8",
    "GLM-5.2-FP8 (stored KV)": "glm-5.2-fp8",
}
"""The file's names of models with their entries, of the catalogue or of tests/data/models."""

NOT_COUNTED = {
    "glm52-tp8-llmd": "the source counts 576 B x 78 a token, the engine 656 B x 78 + 132 B x 21",
    "glm52-dep16-pre": "the source counts 576 B x 78 a token, the engine 656 B x 78 + 132 B x 21",
    "glm5-lmcache": "no GiB is reported",
    "m25-dep2-b200": "no GiB is reported; the model is in no catalogue",
}
NO_POOL = {"glm52-redis": "KV of one stored document and not a pool"}
STAGES = "its activation is that of a stage that does not sample; predicted is the last stage, which does"
CORRECTED = {"oss120-tp1": ("util", "0.95", "the source says 0.9, but its own parts 64.38 + 7.38 + 0.13 + 3.33 are 75.22 = 0.95 x 79.18")}
"""Cells that the source itself contradicts: column, value, and why."""


@dataclass(frozen=True)
class Line:
    """One row of the table. GiB of one GPU; errors as a factor, None where the row reports nothing to compare with."""

    id: str
    model: str
    kind: str
    weights: float | None = None
    weights_error: float | None = None
    tokens: int | None = None
    tokens_error: float | None = None
    kv: Bars | None = None
    kv_reported: float | None = None
    hybrid: bool = False
    note: str = ""

    @property
    def counted(self) -> bool:
        """Whether the limits hold for it."""
        return self.kind == "reported" and self.id not in NOT_COUNTED

    @property
    def kv_error(self) -> float | None:
        """Error of the middle of the predicted KV cache."""
        return None if self.kv is None or self.kv_reported is None else self.kv.mid / self.kv_reported - 1

    def faults(self) -> list[str]:
        """What of a counted row is beyond its limit."""
        found = []
        if self.counted and self.weights_error is not None and abs(self.weights_error) > WEIGHTS:
            found.append(f"{self.id}: weights are off by {self.weights_error:+.1%}")
        if self.counted and self.tokens_error is not None and abs(self.tokens_error) > (HYBRID_TOKENS if self.hybrid else TOKENS):
            found.append(f"{self.id}: tokens are off by {self.tokens_error:+.1%}")
        if self.counted and self.kv and self.kv_reported is not None and not self.kv.low <= self.kv_reported <= self.kv.high:
            found.append(f"{self.id}: {self.kv_reported:g} GiB are outside of {self.kv.low:.2f} to {self.kv.high:.2f}")
        return found


def read_cases(file: Path = CASES) -> list[dict[str, str]]:
    """The rows of a file of cases, with the corrections."""
    with file.open(encoding="utf-8", newline="") as text:
        rows = list(csv.DictReader(text))
    return [row | ({CORRECTED[row["id"]][0]: CORRECTED[row["id"]][1]} if row["id"] in CORRECTED else {}) for row in rows]


def compare(rows: Iterable[Mapping[str, str]], catalog: Catalog) -> list[Line]:
    """The table's lines."""
    return [_line(row, catalog) for row in rows]


def mean_error(lines: Sequence[Line]) -> float:
    """Mean absolute error of the predicted KV cache over the counted rows."""
    return statistics.mean(abs(line.kv_error) for line in lines if line.counted and line.kv_error is not None)


def case_catalog() -> Catalog:
    """The catalogue with the models that serve only as cases."""
    return load_catalog(["tests/data"], ROOT)


def _line(row: Mapping[str, str], catalog: Catalog) -> Line:
    name, kind = row["id"], row["kind"]
    note = NOT_COUNTED.get(name) or NO_POOL.get(name) or (CORRECTED[name][2] if name in CORRECTED else "")
    if kind == "derived" and int(row["pp"] or 1) > 1:
        note = STAGES
    shape = _shape(row, catalog)
    if shape is None:
        return Line(name, row["model"], kind, note=note or "not enough is known of the engine")
    found = capacity(shape)
    weights, kv, tokens = (_number(row[f"reported_{column}"]) for column in ("weights_gib", "kv_gib", "kv_tokens"))
    # with the reported GiB the tokens are those of the formula alone, without any estimate
    own = int(capacity(replace(shape, calibration=Calibration(found.weights_gib.mid, kv))).kv_tokens.mid) if kv else None
    return Line(
        id=name,
        model=row["model"],
        kind=kind,
        weights=found.weights_gib.mid,
        weights_error=found.weights_gib.mid / weights - 1 if weights else None,
        tokens=own if tokens else None,
        tokens_error=own / tokens - 1 if own and tokens else None,
        kv=found.kv_gib if name not in NO_POOL else None,
        kv_reported=kv if name not in NO_POOL else None,
        hybrid=found.plan.hybrid,
        note=note,
    )


def _shape(row: Mapping[str, str], catalog: Catalog) -> EngineShape | None:
    """The engine of a row, or None where the model is in no catalogue or the row does not name its GPUs."""
    entry = MODELS.get(row["model"])
    if entry is None or not row["tp"] or not row["gpu_total_gib"]:
        return None
    spread = {kind: int(size) for kind, size in re.findall(r"(DP|EP)(\d+)", row["parallel"])}
    return EngineShape(
        facts=catalog.models[entry],
        # 0.2x is of the summer of 2026
        engine_version=row["vllm"].replace("0.2x", "0.26"),
        gpu_memory_gib=float(row["gpu_total_gib"]),
        tensor_parallel=int(row["tp"]),
        pipeline_parallel=int(row["pp"] or 1),
        data_parallel=spread.get("DP", 1),
        expert_parallel="EP" in spread,
        # llm-d's wide EP runs on DeepEP
        all2all_backend="deepep_low_latency" if "EP" in spread else None,
        nodes=2 if spread.get("DP", 1) > 8 else 1,  # noqa: PLR2004 (GPUs of a node)
        max_model_len=int(row["max_len"]) if row["max_len"] else None,
        gpu_memory_utilization=float(row["util"] or 0.9),
        kv_cache_dtype=row["kv_dtype"].split()[0],
    )


def _number(text: str) -> float | None:
    return float(text) if text else None


def table(lines: Sequence[Line]) -> str:
    """The lines as text."""
    head = f"{'case':16} {'kind':9} {'weights GiB':>18} {'tokens from GiB':>20} {'KV GiB low-mid-high':>22} {'reported':>9} {'error':>7}  note"
    return "\n".join([head, *(_text(line) for line in lines)])


def _text(line: Line) -> str:
    weights = f"{line.weights:.2f} ({line.weights_error:+.1%})" if line.weights and line.weights_error is not None else "-"
    tokens = f"{line.tokens:,} ({line.tokens_error:+.2%})" if line.tokens and line.tokens_error is not None else "-"
    kv = f"{line.kv.low:.2f}-{line.kv.mid:.2f}-{line.kv.high:.2f}" if line.kv else "-"
    reported = f"{line.kv_reported:g}" if line.kv_reported is not None else "-"
    error = f"{line.kv_error:+.1%}" if line.kv_error is not None else "-"
    kind = line.kind if line.kind == "derived" or line.counted else "shown"
    return f"{line.id:16} {kind:9} {weights:>18} {tokens:>20} {kv:>22} {reported:>9} {error:>7}  {line.note}".rstrip()


def main() -> int:
    """Print the table and what is beyond the limits."""
    lines = compare(read_cases(Path(sys.argv[1]) if sys.argv[1:] else CASES), case_catalog())
    mean = mean_error(lines)
    faults = [fault for line in lines for fault in line.faults()]
    if mean > MEAN_KV:
        faults.append(f"the mean error of the KV cache is {mean:.1%}")
    print(table(lines))
    print(f"\nmean error of the KV cache from the config alone: {mean:.1%} (limit {MEAN_KV:.0%}); rows `derived` and `shown` are not counted")
    with PD_CASES.open(encoding="utf-8", newline="") as file:
        traffic = comparison_rows(csv.DictReader(file))
    print(f"\n{comparison_table(traffic)}\n")
    faults += [f"{row.id}: predicted and measured rates do not agree" for row in traffic if not row.passed]
    print("\n".join(faults) or "all counted rows are within their limits")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
