"""The flags of each engine version as its own parser lists them; written by `python -m engine.flags`, read where flags are checked."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "engines/flags"
"""One JSON file a version, because reading YAML of this length would be felt in `disagg check`."""


class Flag(NamedTuple):
    """How a flag takes its value.

    `kind` is switch (no value), optional (with or without one), int, float, size (a whole number, also as 25.6k or 4G), json, object (a JSON
    object), text, word (a text whose spelling vLLM evens out), list (one or more), ints (one or more whole numbers), several (may be given
    more than once), or value where nothing is known; `choices` where vLLM has a list, and `none` where None is a value too.
    """

    kind: str
    choices: tuple[str, ...] = ()
    none: bool = False


@cache
def flags_of(version: str) -> dict[str, Flag] | None:
    """All flags of a vLLM version by their full spelling, None for a version that nobody has asked."""
    file = FOLDER / f"vllm-{version}.json"
    if not file.is_file():
        return None
    listed = json.loads(file.read_text(encoding="utf-8"))["flags"]
    return {name: Flag(about["kind"], tuple(about.get("choices", ())), about.get("none", False)) for name, about in listed.items()}


def versions() -> list[str]:
    """The vLLM versions whose flags are known, oldest first."""
    found = (f.name.removeprefix("vllm-").removesuffix(".json") for f in FOLDER.glob("vllm-*.json"))
    return sorted(found, key=lambda version: [int(part) for part in version.split(".")])
