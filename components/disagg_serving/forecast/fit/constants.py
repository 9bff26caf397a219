"""The measured figures of catalog/overheads.yaml by engine version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from ...catalog.loader import PACKAGE_DIR
from ...document.capacity import Bars
from ...errors import Finding, Level, SpecError
from ...yaml_io import read_yaml

VERSION = re.compile(r"^[v<=~>]*(\d+)\.(\d+)")


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


def batch_defaults(gpu_memory_gib: float, version: str, *, small: bool = False) -> tuple[int, int]:
    """What `vllm serve` itself takes for tokens and sequences of one engine step, by GPU memory in GiB and engine version.

    `small` is for a GPU whose name vLLM gives the least ones.
    """
    at, memory = release(version), 0.0 if small else gpu_memory_gib
    fitting = (d for d in _data()["batchDefaults"] if memory >= d["fromGiB"] and at >= release(d.get("from", "0.0")))
    chosen = next(fitting)
    return chosen["maxNumBatchedTokens"], chosen["maxNumSeqs"]


@cache
def _data() -> Mapping[str, Any]:
    data: Mapping[str, Any] = read_yaml(PACKAGE_DIR / "overheads.yaml")
    return data
