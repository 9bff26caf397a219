from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
from disagg_serving.errors import SpecError
from disagg_serving.forecast.fit import Calibration
from disagg_serving.forecast.fit.start_log import parse_log, read_log
from factories import ROOT

from scripts.memory_cases import (
    CASES,
    FURTHER_CASES,
    INSIDE,
    MEAN_KV,
    NOT_COUNTED,
    Line,
    case_catalog,
    compare,
    mean_error,
    read_cases,
    share_inside,
    table,
)

LINES: list[Line] = compare([row for file in (CASES, FURTHER_CASES) for row in read_cases(file)], case_catalog())
BY_ID = {line.id: line for line in LINES}

# Lines as vLLM 0.33 writes them (v1/worker/gpu_worker.py, gpu_model_runner.py, v1/core/kv_cache_utils.py), over two ranks.
NEW = """\
\x1b[0;36m(APIServer pid=1)\x1b[0;0m INFO 11-20 10:00:00 [api_utils.py:339]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.33.0
(APIServer pid=1) INFO 11-20 10:00:01 [api_utils.py:273] non-default args: {'gpu_memory_utilization': 0.92, 'tensor_parallel_size': 2}
(Worker_TP0 pid=11) INFO 11-20 10:01:00 [gpu_model_runner.py:5089] Model loading took 33.87 GiB memory and 41.123456 seconds
(Worker_TP1 pid=12) INFO 11-20 10:01:00 [gpu_model_runner.py:5089] Model loading took 33.88 GiB memory and 41.223456 seconds
(Worker_TP0 pid=11) INFO 11-20 10:01:30 [gpu_worker.py:773] Available KV cache memory: 32.04 GiB
(Worker_TP1 pid=12) INFO 11-20 10:01:30 [gpu_worker.py:773] Available KV cache memory: 32.00 GiB
(EngineCore pid=5) INFO 11-20 10:01:31 [kv_cache_utils.py:1148] GPU KV cache size: 209,712 tokens, Maximum concurrency for 16,384 tokens \
per request: 12.80x
(Worker_TP0 pid=11) INFO 11-20 10:02:00 [gpu_worker.py:1052] Free memory on device (78.6/79.19 GiB) on startup. Desired GPU memory \
utilization is (0.92, 72.85 GiB). Actual usage is 36.1 GiB for consumed memory (weights + non-torch), 1.9 GiB for peak activation.
"""
OLD = """\
INFO 02-11 07:40:10 llm_engine.py:237] Initializing an LLM engine (v0.7.2) with config: model='m', gpu_memory_utilization=0.98
INFO 02-11 07:40:45 model_runner.py:1115] Loading model weights took 13.9476 GB
INFO 02-11 07:40:47 worker.py:267] model weights take 13.95GiB; non_torch_memory takes 0.25GiB; PyTorch activation peak memory takes \
0.19GiB; the rest of the memory reserved for KV Cache is 8.69GiB.
INFO 02-11 07:40:47 executor_base.py:115] Maximum concurrency for 20000 tokens per request: 4.08x
"""


@pytest.mark.parametrize("line", [line for line in LINES if line.counted], ids=lambda line: line.id)
def test_reported_rows_are_within_their_limits(line: Line) -> None:
    """Tokens from the reported GiB within 2 % (hybrids 6 %), and weights within 2 %."""
    assert line.faults() == []
    assert line.weights_error is not None or line.kv_error is not None or line.tokens_error is not None


def test_nine_of_ten_rows_are_inside_their_bars() -> None:
    """Of the reported KV caches at most one in ten is outside of the printed bars, and each that is is named."""
    assert share_inside(LINES) >= INSIDE
    assert {line.id for line in LINES if line.counted and not line.inside} == {"kimi25-nvfp4-tp8-b200", "q235-tp4-h100-019"} & {
        fault.partition(":")[0] for line in LINES for fault in line.outside()
    }


def test_the_mean_error_from_the_config_alone_is_small() -> None:
    """Over all counted rows the predicted KV cache is off by at most 5 %."""
    assert len([line for line in LINES if line.counted and line.kv_error is not None]) >= 23
    assert mean_error(LINES) <= MEAN_KV


def test_rows_that_are_not_counted_are_shown_with_the_reason() -> None:
    """Sources with a formula of their own and rows without GiB stay in the table, and say why nothing is judged."""
    text = table(LINES)
    for name, reason in NOT_COUNTED.items():
        assert not BY_ID[name].counted
        assert f"{reason}" in next(row for row in text.splitlines() if row.startswith(name))
    assert BY_ID["glm52-redis"].tokens_error == pytest.approx(0, abs=0.02)
    assert BY_ID["glm52-redis"].kv is None
    assert BY_ID["glm52-tp8-llmd"].tokens_error == pytest.approx(44_928 / 53_940 - 1, abs=0.002), "the blog's own formula, and nothing else"


def test_derived_rows_agree_too() -> None:
    """Rows that their source calculated from its parts are shown; where they are of the rank that is tightest, they agree within 0.2 %."""
    derived = [line for line in LINES if line.kind == "derived"]
    assert len(derived) == 5
    assert all(abs(line.weights_error or 1) < 0.005 for line in derived)
    assert all(abs(line.kv_error or 1) < (0.02 if line.note else 0.002) for line in derived)


def test_a_fault_is_found() -> None:
    """The limits bite: a prediction that is off by more is named."""
    line = BY_ID["ll8-tp1"]
    wrong = Line("x", "m", "reported", weights_error=-0.03, tokens=1, tokens_error=0.03, kv=line.kv, kv_reported=40)
    assert (len(wrong.faults()), len(wrong.outside())) == (2, 1)
    assert Line("x", "m", "reported", tokens_error=0.03, hybrid=True).faults() == []
    assert Line("x", "m", "derived", weights_error=0.5).faults() == []


def test_a_corrected_cell_gives_its_reason() -> None:
    """The one cell that its source contradicts is corrected in the script, and the table says why."""
    assert "75.22 = 0.95 x 79.18" in BY_ID["oss120-tp1"].note


def test_the_script_prints_the_table() -> None:
    """`make accuracy` ends well and shows every row."""
    done = subprocess.run([sys.executable, "scripts/accuracy.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(line.id in done.stdout for line in LINES)
    assert "all counted rows are within their limits" in done.stdout


def test_models_of_cases_are_sourced_and_not_in_the_catalogue() -> None:
    """Models that serve only as cases are entries of the tests, with source and date like all."""
    catalog = case_catalog()
    files = sorted((ROOT / "tests/data/models").glob("*.yaml"))
    assert len(files) == 11
    for file in files:
        entry = catalog.models[file.stem]
        assert not (ROOT / "components/disagg_serving/catalog/models" / file.name).exists()
        assert entry.source
        assert entry.notes


def test_a_log_of_vllm_becomes_a_record() -> None:
    """Weights of the fullest rank, KV of the emptiest, and what else the log says; colours do not matter."""
    assert parse_log(NEW) == Calibration(33.88, 32.0, 209_712, 16_384, 12.8, 0.92, "0.33.0")


def test_older_spellings_are_read() -> None:
    """Logs of v0.6 to v0.20 say the same in other words."""
    assert parse_log(OLD) == Calibration(13.9476, 8.69, None, 20_000, 4.08, 0.98, "0.7.2")
    v0_11 = (
        "(APIServer pid=7101) INFO 10-23 07:59:11 [api_server.py:1839] vLLM API server version 0.11.0\n"
        "INFO [gpu_model_runner.py:2581] Model loading took 2.2845 GiB and 74.270197 seconds\n"
        "INFO [gpu_worker.py:298] Available KV cache memory: 71.71 GiB\n"
        "INFO [kv_cache_utils.py:1319] GPU KV cache size: 547,200 tokens\n"
        "INFO [kv_cache_utils.py:1324] Maximum concurrency for 262,144 tokens per request: 8.27x\n"
    )
    assert parse_log(v0_11) == Calibration(2.2845, 71.71, 547_200, 262_144, 8.27, None, "0.11.0")
    v0_6 = (
        "Loading model weights took 14.9888 GB\nMemory profiling results: total_gpu_memory=23.58GiB kv_cache_size=3.81GiB gpu_memory_utilization=0.90"
    )
    assert parse_log(v0_6) == Calibration(14.9888, 3.81, gpu_memory_utilization=0.9)
    fixed = (
        "Model loading took 10.0 GiB memory and 1 seconds\n"
        "Initial free memory 78.5 GiB, reserved 20.5 GiB memory for KV Cache as specified by kv_cache_memory_bytes config"
    )
    assert parse_log(fixed).kv_gib == 20.5


def test_of_several_starts_the_last_counts() -> None:
    """A log that was appended to: the last start that came as far as its KV cache, not a mixture and not one that was cut off."""
    second = NEW.replace("33.88", "30.00").replace("33.87", "30.00").replace("32.00 GiB", "36.00 GiB").replace("32.04", "36.04")
    assert parse_log(NEW + second).weights_gib == 30
    assert parse_log(NEW + second.split("Available")[0]).weights_gib == 33.88


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no start-up log of vLLM: no line `Model loading took"),
        ("hello\nworld", "and none `Available KV cache memory"),
        (NEW.replace("Available KV", "available"), "no line `Available KV cache memory"),
        ("Model loading took 65.97 GiB memory and 1 seconds\nAvailable KV cache memory: -2.14 GiB", "of a start that failed: -2.14 GiB"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, words: str) -> None:
    """A file that is no such log, and a start that failed, are findings with the file's name."""
    file = tmp_path / "engine.log"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        read_log(file)
    (finding,) = caught.value.findings
    assert words in finding.message
    assert finding.path == "engine.log"


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    """A missing file and a binary one end in a finding and not in a traceback."""
    (tmp_path / "x.bin").write_bytes(bytes(range(256)) * 10)
    for name, words in ("missing.log", "cannot be read"), ("x.bin", "is no start-up log"):
        with pytest.raises(SpecError, match=words):
            read_log(tmp_path / name)


@pytest.mark.parametrize("amounts", [(0.0, 1.0), (1.0, math.nan), (1.0, -1.0)])
def test_a_record_needs_amounts(amounts: tuple[float, float]) -> None:
    """Nothing, less than nothing and no number are no memory of an engine that started."""
    with pytest.raises(SpecError):
        Calibration(*amounts)
