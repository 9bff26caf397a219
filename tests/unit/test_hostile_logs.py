"""Logs of engines that crash in a loop, or that nobody's engine wrote: read in time that grows with their size, no faster."""

from __future__ import annotations

import time

import pytest
from disagg_serving.cli.main import main
from disagg_serving.errors import SpecError
from disagg_serving.forecast.fit.start_log import parse_log
from factories import ROOT

ATTACKS = ROOT / "tests/data/attacks"
START = "API server version 0.33.0\n"
WHOLE = START + "Model loading took 7.7 GiB\nAvailable KV cache memory: 50.0 GiB\nGPU KV cache size: 300,000 tokens\n"
NOISE = "INFO 12-01 10:00:00 worker starts with all of its arguments, which are many and long\n" * 500


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (START * 200_000, "is no start-up log"),
        ("\u2588 version 0.33.0\n" * 200_000, "is no start-up log"),
        ((START + "Model loading took 7.7 GiB\n") * 40_000, "is no start-up log"),
        ((START + "Available KV cache memory: 50.0 GiB\n") * 40_000, "is no start-up log"),
        (WHOLE + (START + NOISE) * 100, ""),
        (WHOLE * 20_000, ""),
        ("GPU KV cache size: " * 200_000, "is no start-up log"),
        ("Model loading took " + "9," * 1_000_000, "is no start-up log"),
        ("\x1b[" * 500_000, "is no start-up log"),
        ("gpu_memory_utilization=" * 100_000, "is no start-up log"),
    ],
    ids=range(10),
)
def test_time_grows_with_the_log(text: str, refused: str) -> None:
    """Thousands of starts, crash loops and endless lines: some megabytes are a matter of a second or two."""
    before = time.process_time()
    if refused:
        with pytest.raises(SpecError, match=refused):
            parse_log(text)
    else:
        assert parse_log(text).tokens == 300_000
    assert time.process_time() - before < 2


@pytest.mark.parametrize("line", ["GPU KV cache size: 300,000 tokens", "Maximum concurrency for 4,096 tokens per request: 73.2x"])
def test_numbers_without_end(line: str) -> None:
    """A number that no memory holds is refused by its name, not by Python."""
    text = WHOLE + line + "\n"
    endless = "9" * 5000
    with pytest.raises(SpecError, match=r"(kvCacheTokens|maxModelLen): is no amount|several engines"):
        parse_log(text.replace("300,000", endless).replace("4,096", endless))


@pytest.mark.parametrize("name", ["log-many-starts.log", "log-tokens-infinite.log"])
def test_logs_of_attacks(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The command answers with a finding."""
    log = str(ATTACKS / name)
    assert main(["fit", "--model", "qwen3-32b", "--instance", "p5.48xlarge", "--tensor-parallel", "8", "--log", log]) == 2
    said = capsys.readouterr()
    assert "error" in said.out + said.err
