"""Rows of public start-up logs of vLLM against the memory forecast: reading, comparing and the table.

The rules of counting are in the header of tests/data/kv-cases-2.csv.
"""

from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from disagg_serving.catalog import Catalog, Model, load_catalog
from disagg_serving.forecast.fit import Bars, Calibration, EngineShape, capacity
from disagg_serving.forecast.fit.constants import newest_engine, release

ROOT = Path(__file__).resolve().parent.parent
CASES = ROOT / "tests/data/kv-cases.csv"
FURTHER_CASES = ROOT / "tests/data/kv-cases-2.csv"
TOKENS, HYBRID_TOKENS, WEIGHTS, MEAN_KV, INSIDE = 0.02, 0.06, 0.02, 0.05, 0.9
"""Limits: errors of tokens out of the reported GiB, the same for hybrids, of weights, the mean of the KV cache from the config alone, and the
share of its rows that are inside their bars."""

MODELS = {
    "GLM-5.2-FP8 (stored KV)": "glm-5.2-fp8",
    "Kimi-K2.5 (INT4)": "kimi-k2.5",
    "Kimi-K2.6 (INT4)": "kimi-k2.6",
    "MiniMax-M2.7-FP8": "minimax-m2.7",
    "Qwen3-235B-A22B-FP8": "qwen3-235b-a22b-instruct-fp8",
}
"""Models that a file calls otherwise than their entries are called, which is by the name in lower case."""

NOT_COUNTED = {
    "glm52-tp8-llmd": "the source counts 576 B x 78 a token, the engine 656 B x 78 + 132 B x 21",
    "glm52-dep16-pre": "the source counts 576 B x 78 a token, the engine 656 B x 78 + 132 B x 21",
    "m27-tp2-h200-020": "its 241,760 tokens of 63,488 B are 14.29 GiB and not 12.2",
}
"""Rows that their own source contradicts (rule 4), and why."""
NO_POOL = {"glm52-redis": "KV of one stored document and not a pool"}
STAGES = "its activation is that of a stage that does not sample; predicted is the last stage, which does"
CORRECTED: dict[str, tuple[dict[str, str], str]] = {
    "oss120-tp1": (
        {"util": "0.95", "vllm": "0.12"},
        "the source says 0.9, but its own parts 64.38 + 7.38 + 0.13 + 3.33 are 75.22 = 0.95 x 79.18; 64.38 is Triton's, first shipped by 0.12",
    ),
}
"""Cells that the source itself contradicts, and why."""


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
    shown_only: bool = False

    @property
    def counted(self) -> bool:
        """Whether the limits hold for it."""
        return self.kind == "reported" and not self.shown_only

    @property
    def kv_error(self) -> float | None:
        """Error of the middle of the predicted KV cache."""
        return None if self.kv is None or not self.kv_reported else self.kv.mid / self.kv_reported - 1

    @property
    def inside(self) -> bool:
        """Whether the reported KV cache is inside the bars; true where there is none."""
        return not self.kv or self.kv_reported is None or self.kv.low <= self.kv_reported <= self.kv.high

    def faults(self) -> list[str]:
        """What of a counted row is beyond its limit, bars aside."""
        found = []
        if self.counted and self.weights_error is not None and abs(self.weights_error) > WEIGHTS:
            found.append(f"{self.id}: weights are off by {self.weights_error:+.1%}")
        if self.counted and self.tokens_error is not None and abs(self.tokens_error) > (HYBRID_TOKENS if self.hybrid else TOKENS):
            found.append(f"{self.id}: tokens are off by {self.tokens_error:+.1%}")
        return found

    def outside(self) -> list[str]:
        """The fault of a counted row whose KV cache is outside of its bars."""
        if not self.counted or self.inside or self.kv is None:
            return []
        return [f"{self.id}: {self.kv_reported:g} GiB are outside of {self.kv.low:.2f} to {self.kv.high:.2f}"]


def read_cases(file: Path = CASES) -> list[dict[str, str]]:
    """The rows of a file of cases, with the corrections; lines that start with # are its header."""
    with file.open(encoding="utf-8", newline="") as text:
        rows = list(csv.DictReader(line for line in text if not line.startswith("#")))
    return [row | (CORRECTED[row["id"]][0] if row["id"] in CORRECTED else {}) for row in rows]


def compare(rows: Iterable[Mapping[str, str]], catalog: Catalog) -> list[Line]:
    """The table's lines."""
    return [_line(row, catalog) for row in rows]


def mean_error(lines: Sequence[Line]) -> float:
    """Mean absolute error of the predicted KV cache over the counted rows."""
    return statistics.mean(abs(line.kv_error) for line in lines if line.counted and line.kv_error is not None)


def share_inside(lines: Sequence[Line]) -> float:
    """Share of the counted rows with a KV cache that are inside their bars."""
    return statistics.mean(line.inside for line in lines if line.counted and line.kv_error is not None)


def case_catalog() -> Catalog:
    """The catalogue with the models that serve only as cases."""
    return load_catalog(["tests/data"], ROOT)


def _line(row: Mapping[str, str], catalog: Catalog) -> Line:
    name, kind = row["id"], row["kind"]
    entry = MODELS.get(row["model"], row["model"].lower())
    note = NOT_COUNTED.get(name) or NO_POOL.get(name) or (CORRECTED[name][1] if name in CORRECTED else "") or _unknown(row, entry, catalog)
    shown_only = name in NOT_COUNTED or bool(_unknown(row, entry, catalog))
    if kind == "derived" and int(row["pp"] or 1) > 1:
        note = STAGES
    weights, kv, tokens = (_number(row[f"reported_{column}"]) for column in ("weights_gib", "kv_gib", "kv_tokens"))
    if entry not in catalog.models or not row["tp"] or not row["gpu_total_gib"]:
        return Line(name, row["model"], kind, kv_reported=kv, note=note, shown_only=shown_only)
    shape = engine_of(row, catalog.models[entry])
    found = capacity(shape)
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
        shown_only=shown_only,
    )


def _unknown(row: Mapping[str, str], entry: str, catalog: Catalog) -> str:
    """What rules 1 to 3 ask for and a row lacks."""
    if entry not in catalog.models:
        return "the model is in no catalogue"
    if not row["reported_kv_gib"]:
        return "no GiB is reported"
    missing = [column for column in ("tp", "gpu_total_gib", "vllm", "util") if not row[column]]
    if missing:
        return f"the source does not say {', '.join(missing)}"
    newer = release(row["vllm"].replace("0.2x", "0.26")) > release(newest_engine())
    return f"{row['vllm']} is newer than the engines here" if newer else ""


def engine_of(row: Mapping[str, str], facts: Model) -> EngineShape:
    """The engine of a row."""
    spread = {kind: int(size) for kind, size in re.findall(r"(DP|EP)(\d+)", row["parallel"])}
    note = row["note"]
    drafts = re.search(r"speculative mtp(?:, (\d+) tokens)?", note)
    gpu = row["gpu"].lower()
    if bridged := re.search(r"\b(NVL|PCIe)\b", note):
        gpu = f"{gpu.split('-')[0]}-{bridged[1].lower()}" if gpu.startswith("h") else gpu
    return EngineShape(
        facts=facts,
        # 0.2x is of the summer of 2026
        engine_version=row["vllm"].replace("0.2x", "0.26"),
        gpu_memory_gib=float(row["gpu_total_gib"]),
        gpu=gpu,
        tensor_parallel=int(row["tp"]),
        pipeline_parallel=int(row["pp"] or 1),
        data_parallel=spread.get("DP", 1),
        expert_parallel="EP" in spread,
        # llm-d's wide EP runs on DeepEP
        all2all_backend="deepep_low_latency" if spread.get("DP", 1) > 8 else None,  # noqa: PLR2004 (GPUs of a node)
        nodes=2 if spread.get("DP", 1) > 8 or "two nodes" in note else 1,  # noqa: PLR2004
        max_model_len=int(row["max_len"]) if row["max_len"] else None,
        gpu_memory_utilization=float(row["util"] or 0.9),
        kv_cache_dtype=row["kv_dtype"].split()[0],
        max_num_seqs=_option(note, "max_num_seqs"),
        max_num_batched_tokens=_option(note, "max_num_batched_tokens"),
        eager="enforce_eager" in note,
        text_only="language_model_only" in note,
        whole_encoder="mm_encoder_tp_mode data" in note,
        moe_backend=backend[1].lower() if (backend := re.search(r"(\w+) experts", note)) else "",
        speculative=drafts is not None,
        draft_tokens=int(drafts[1] or 1) if drafts else 0,
    )


def _option(note: str, name: str) -> int | None:
    found = re.search(rf"{name} (\d+)", note)
    return int(found[1]) if found else None


def _number(text: str) -> float | None:
    return float(text) if text else None


def table(lines: Sequence[Line]) -> str:
    """The lines as text."""
    head = f"{'case':22} {'kind':9} {'weights GiB':>18} {'tokens from GiB':>20} {'KV GiB low-mid-high':>22} {'reported':>9} {'error':>7}  note"
    return "\n".join([head, *(_text(line) for line in lines)])


def _text(line: Line) -> str:
    weights = f"{line.weights:.2f} ({line.weights_error:+.1%})" if line.weights and line.weights_error is not None else "-"
    tokens = f"{line.tokens:,} ({line.tokens_error:+.2%})" if line.tokens and line.tokens_error is not None else "-"
    kv = f"{line.kv.low:.2f}-{line.kv.mid:.2f}-{line.kv.high:.2f}" if line.kv else "-"
    reported = f"{line.kv_reported:g}" if line.kv_reported is not None else "-"
    error = f"{line.kv_error:+.1%}" if line.kv_error is not None else "-"
    kind = line.kind if line.kind == "derived" or line.counted else "shown"
    note = line.note if line.inside or not line.counted else f"outside of its bars; {line.note}".rstrip("; ")
    return f"{line.id:22} {kind:9} {weights:>18} {tokens:>20} {kv:>22} {reported:>9} {error:>7}  {note}".rstrip()
