"""The measured figures of catalog/overheads.yaml by engine version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...catalog.loader import PACKAGE_DIR
from ...errors import Finding, Level, SpecError
from ...yaml_io import read_yaml

VERSION = re.compile(r"^[v<=~>]*(\d+)\.(\d+)")


@dataclass(frozen=True)
class Bars:
    """A figure with its error bars: `low` and `high` are what it is at least and at most, `mid` what to expect."""

    low: float
    mid: float
    high: float

    def as_dict(self) -> dict[str, float]:
        """Plain data with the keys low, mid, high."""
        return {"low": self.low, "mid": self.mid, "high": self.high}

    def __add__(self, other: Bars) -> Bars:
        return Bars(self.low + other.low, self.mid + other.mid, self.high + other.high)

    def times(self, factor: float) -> Bars:
        """All three multiplied by a factor of at least 0."""
        return Bars(self.low * factor, self.mid * factor, self.high * factor)


NOTHING = Bars(0, 0, 0)


def exactly(value: float) -> Bars:
    """A figure that is known."""
    return Bars(value, value, value)


@cache
def release(version: str) -> tuple[int, int]:
    """Major and minor of an engine version such as 0.33.0, v0.22.1rc1 or <=0.11.

    Raises SpecError for a text that is no version.
    """
    if found := VERSION.match(version.strip()):
        return int(found[1]), int(found[2])
    raise SpecError([Finding("engine-version", Level.ERROR, "engineVersion", "is not a version of vLLM", version, "such as 0.33.0")])


def constant(name: str, version: str) -> Bars:
    """The figure `name` for an engine version. Raises SpecError for a text that is no version."""
    at = release(version)
    for entry in _data()["constants"][name]["entries"]:
        if release(entry.get("from", "0.0")) <= at < release(entry.get("before", "9999.0")):
            return Bars(entry["low"], entry["mid"], entry["high"])
    raise KeyError(f"{name} has no figure for {version}")


def follows(rule: str, version: str) -> bool:
    """Whether an engine version already follows the rule `rule`. Raises SpecError for a text that is no version."""
    return release(version) >= release(_data()["rules"][rule]["from"])


def newest_engine() -> str:
    """The last engine version that the figures were checked for."""
    return str(_data()["newestEngine"])


def batch_defaults(gpu_memory_gib: float, version: str) -> tuple[int, int]:
    """What `vllm serve` itself takes for tokens and sequences of one engine step, by GPU memory in GiB and engine version."""
    at = release(version)
    fitting = (d for d in _data()["batchDefaults"] if gpu_memory_gib >= d["fromGiB"] and at >= release(d.get("from", "0.0")))
    chosen = next(fitting)
    return chosen["maxNumBatchedTokens"], chosen["maxNumSeqs"]


@cache
def _data() -> Mapping[str, Any]:
    data: Mapping[str, Any] = read_yaml(PACKAGE_DIR / "overheads.yaml")
    return data
