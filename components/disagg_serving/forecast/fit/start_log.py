"""A calibration record out of the log of an engine's start."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ...errors import SpecError
from ...yaml_io import read_file
from .calibration import Calibration, log_finding

MAX_BYTES = 100_000_000
LARGEST = 1e15
_NUMBER = r"(-?\d[\d,]*(?:\.\d+)?)"
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_START = re.compile(r"(?:API server version|[█▀▄]\s+version)\s+v?(\d[\w.+]*)")
_ENGINE = re.compile(r"LLM engine \(v(\d[\w.+]*)\)")

# The spellings of vLLM since 0.6; the first that a log has counts. Up to 0.7 "GB" was printed for what are GiB.
_WEIGHTS = (
    rf"Model loading took {_NUMBER} (?:GiB|GB)",
    rf"Loading model weights took {_NUMBER} (?:GiB|GB)",
    rf"model weights take {_NUMBER} ?GiB",
)
_KV = (
    rf"Available KV cache memory: {_NUMBER} GiB",
    rf"reserved {_NUMBER} GiB memory for KV Cache as specified",
    rf"memory reserved for KV Cache is {_NUMBER} ?GiB",
    rf"\bkv_cache_size={_NUMBER} ?GiB",
    rf"Current kv cache memory in use is {_NUMBER} GiB",
)
_TOKENS = (rf"KV cache size: {_NUMBER} tokens",)
_CONCURRENCY = re.compile(rf"Maximum concurrency for {_NUMBER} tokens per request: {_NUMBER}x")
_UTILIZATION = (
    rf"Desired GPU memory utilization is \({_NUMBER},",
    rf"The current --gpu-memory-utilization={_NUMBER} is equivalent",
    rf"\bgpu_memory_utilization['\"]?[:=] ?{_NUMBER}",
)
_FATAL = re.compile(r"Engine core initialization failed|CUDA out of memory|larger than the available KV cache memory")

OTHER_ENGINE = 1.1
"""How far the tokens that a log names lie apart at the most: data-parallel ranks of one engine differ by a few blocks."""


def read_log(path: Path | str) -> Calibration:
    """The record out of a log file of vLLM's start, of one or of all its ranks.

    Raises SpecError when the file cannot be read, is no such log, or is of a start that failed.
    """
    path = Path(path)
    try:
        data = read_file(path, MAX_BYTES)
    except (OSError, ValueError) as problem:
        why = (getattr(problem, "strerror", None) or "no such file").lower()
        raise SpecError([log_finding(path.name, f"cannot be read: {why}", None, "a log file")]) from None
    return parse_log(data.decode("utf-8", errors="replace"), path.name)


def parse_log(text: str, name: str = "log") -> Calibration:
    """The record out of the text of a log; of several starts in one log the last counts. `name` is the log's in findings.

    Raises SpecError when the text is no log of vLLM's start, or is of a start that failed.
    """
    text = _ANSI.sub("", text)
    # of the last start that came so far; one that was cut off says less than the one before it
    came = min(_last(_WEIGHTS, text), _last(_KV, text))
    text = text[max((m.start() for m in _START.finditer(text) if m.start() <= came), default=0) :]
    weights, memory = _numbers(_WEIGHTS, text), _numbers(_KV, text)
    missing = [line for line, found in (("Model loading took ... GiB", weights), ("Available KV cache memory: ... GiB", memory)) if not found]
    if missing:
        message = f"is no start-up log of vLLM: no line `{'` and none `'.join(missing)}`"
        raise SpecError([log_finding(name, message, None, "the log of `vllm serve` up to its first request", "paste it from the first line on")])
    if min(memory) <= 0:
        message = f"is of a start that failed: {min(memory):g} GiB were left for the KV cache"
        raise SpecError([log_finding(name, message, None, "the log of a start that succeeded")])
    _refuse_fatal(text, name)
    tokens, utilization = _numbers(_TOKENS, text), _numbers(_UTILIZATION, text)
    if tokens and max(tokens) > OTHER_ENGINE * min(tokens):
        message = f"is of several engines: their KV caches hold {min(tokens):,.0f} to {max(tokens):,.0f} tokens"
        raise SpecError([log_finding(name, message, None, "the log of one start of one engine")])
    concurrency, version = _CONCURRENCY.findall(text), _START.search(text) or _ENGINE.search(text)
    _refuse_endless({"kvCacheTokens": tokens, "maxModelLen": [_number(length) for length, _ in concurrency]})
    return Calibration(
        weights_gib=max(weights),
        kv_gib=min(memory),
        tokens=int(min(tokens)) if tokens else None,
        max_model_len=int(_number(concurrency[-1][0])) if concurrency else None,
        max_concurrency=min(_number(times) for _, times in concurrency) if concurrency else None,
        gpu_memory_utilization=utilization[-1] if utilization and 0 < utilization[-1] <= 1 else None,
        engine_version=version[1] if version else None,
    )


def _last(patterns: Iterable[str], text: str) -> int:
    """Where the last line of one of these forms begins; -1 where there is none."""
    return max((found.start() for pattern in patterns for found in re.finditer(pattern, text)), default=-1)


def _refuse_endless(amounts: Mapping[str, Iterable[float]]) -> None:
    """Numbers beyond what any memory holds are not of an engine."""
    wrong = [name for name, numbers in amounts.items() if any(abs(number) > LARGEST for number in numbers)]
    if wrong:
        raise SpecError(
            [log_finding(name, "is no amount of a start-up log", None, f"at most {LARGEST:.0e}", "paste the log as it is") for name in wrong]
        )


def _refuse_fatal(text: str, name: str) -> None:
    """Raise SpecError where the start whose KV cache was read failed after that line."""
    end = max(m.end() for spelling in _KV for m in re.finditer(spelling, text))
    following = _START.search(text, end)
    if fatal := _FATAL.search(text, end, following.start() if following else len(text)):
        message = f"is of a start that failed: `{fatal[0]}` comes after the KV cache"
        raise SpecError([log_finding(name, message, None, "the log of a start that succeeded")])


def _numbers(spellings: Iterable[str], text: str) -> list[float]:
    """All numbers of the first spelling that the text has."""
    for spelling in spellings:
        if found := re.findall(spelling, text):
            return [_number(value) for value in found]
    return []


def _number(text: str) -> float:
    return float(text.replace(",", ""))
