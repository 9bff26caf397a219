"""The flags of each engine version as its own parser lists them; written by `python -m engine.flags`, read where flags are checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent / "engines/flags"
"""One JSON file a version, because reading YAML of this length would be felt in `disagg check`."""
OPTIMIZATION, LEVEL_FLAG = "-O", "--optimization-level"
"""vLLM reads -O3 as --optimization-level 3 (utils/argparse_utils.py)."""


class Flag(NamedTuple):
    """How a flag takes its value.

    `kind` is switch (no value), optional (with or without one), int, float, size (a whole number, also as 25.6k or 4G), json, object (a JSON
    object), text, word (a text whose spelling vLLM evens out), list (one or more), ints (one or more whole numbers), several (may be given
    more than once), or value where nothing is known; `choices` where vLLM has a list, and `none` where None is a value too. `option` is the
    flag that names the option, of which others are spellings; one that is `off` says the opposite. `default` is the value without the flag.
    """

    kind: str
    choices: tuple[str, ...] = ()
    none: bool = False
    option: str = ""
    off: bool = False
    default: str | None = None


@cache
def flags_of(version: str) -> dict[str, Flag] | None:
    """All flags of a vLLM version by their full spelling, None for a version that nobody has asked."""
    listed = _file(version)
    return listed and {
        name: Flag(
            about["kind"],
            tuple(about.get("choices", ())),
            about.get("none", False),
            about.get("of", name),
            about.get("off", False),
            about.get("default"),
        )
        for name, about in listed["flags"].items()
    }


def short_flags(version: str) -> Mapping[str, str]:
    """The long spelling of each short flag, `-tp`."""
    short: dict[str, str] = (_file(version) or {}).get("short", {})
    return short


@cache
def options_of(version: str) -> Mapping[str, Flag]:
    """The options of a version by the flag that names them; of all versions for one that nobody has asked."""
    every = flags_of(version) or _of_all()
    return {name: flag for name, flag in every.items() if flag.option == name}


def spelt(version: str, flag: str) -> list[Flag]:
    """The flags that a spelling may stand for, one alone where it is spelt in full: with underscores, as a key of JSON, negated, or cut short."""
    name = flag.split(".", 1)[0].replace("_", "-")
    known = flags_of(version) or _of_all()
    if name in known:
        return [known[name]]
    long_enough = len(name) > len("--")
    found = [f for n, f in known.items() if n.startswith(name)] if long_enough else []
    # what the parser refuses may still be meant
    meant = {name.replace("--no-", "--", 1), name.replace("--disable-", "--enable-", 1)} - {name}
    return found or [f._replace(off=True) for n, f in known.items() if long_enough and any(n == one for one in meant)]


def versions() -> list[str]:
    """The vLLM versions whose flags are known, oldest first."""
    found = (f.name.removeprefix("vllm-").removesuffix(".json") for f in FOLDER.glob("vllm-*.json"))
    return sorted(found, key=lambda version: [int(part) for part in version.split(".")])


@cache
def _of_all() -> Mapping[str, Flag]:
    return {name: flag for version in versions() for name, flag in (flags_of(version) or {}).items()}


@cache
def _file(version: str) -> dict[str, Any] | None:
    file = FOLDER / f"vllm-{version}.json"
    read: dict[str, Any] | None = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
    return read
