"""What flags that a person adds say: whatever their spelling, which option each sets, and to what."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from ..catalog.flags import Flag, spelt


class Said(NamedTuple):
    """One flag as vLLM's parser reads it; `keys` follow dots, and one that is `off` says the opposite of its option."""

    text: str
    option: str
    off: bool
    keys: tuple[str, ...]
    value: str | None
    about: Flag

    @property
    def plain(self) -> str:
        """Its value as a text, empty without one."""
        return self.value or ""

    @property
    def is_default(self) -> bool:
        """Whether it says what holds without it."""
        if self.off:
            return True
        given, default = self.value, self.about.default
        if given is None or self.keys:
            return False
        return (given == "None" and self.about.none) or (default is not None and _same(given, default))


class Arguments:
    """The flags that a person adds to one command line."""

    def __init__(self, version: str, texts: Iterable[str]) -> None:
        self._all = [one for text in texts for one in read(version, text)]

    def of(self, option: str) -> list[Said]:
        """All that say something about an option, in their order."""
        return [one for one in self._all if one.option == option]

    def text(self, option: str) -> str:
        """The value that counts, the last one; empty where none is given."""
        return next((one.plain for one in reversed(self.of(option)) if not one.keys), "")

    def is_on(self, option: str) -> bool:
        """Whether a switch is turned on."""
        found = self.of(option)
        return bool(found) and not found[-1].off

    def number(self, option: str) -> float | None:
        """The value as a number; None where none is given, or no number."""
        return as_number(self.text(option))

    def data(self, option: str) -> dict[str, Any]:
        """The value as an object: keys after dots replace what stands in JSON (vLLM: FlexibleArgumentParser.parse_args)."""
        found = self.of(option)
        by_keys = [one for one in found if one.keys]
        if not by_keys:
            return as_data(self.text(option))
        merged: dict[str, Any] = {}
        for one in by_keys:
            *path, last = one.keys
            place = merged
            for key in path:
                if not isinstance(place.get(key), dict):
                    place[key] = {}
                place = place[key]
            place[last.removesuffix("+")] = _json(one.plain)
        return merged

    @cached_property
    def options(self) -> Mapping[str, Said]:
        """Every option that is said, with the flag that counts."""
        return {one.option: one for one in self._all}


def read(version: str, text: str) -> Iterator[Said]:
    """The option of a flag, or the several that a flag cut short may be; none of what is no flag of the version."""
    name, equals, value = text.partition("=")
    if not name.startswith("--"):
        return
    _, _, keys = name.partition(".")
    seen: set[str] = set()
    for flag in spelt(version, name):
        if flag.option not in seen:
            seen.add(flag.option)
            yield Said(text, flag.option, flag.off, tuple(keys.split(".")) if keys else (), value if equals else None, flag)


def as_data(text: str) -> dict[str, Any]:
    """An object of the command line; empty for what is none."""
    whole = _json(text)
    return whole if isinstance(whole, dict) else {}


def as_number(text: str) -> float | None:
    """A number of the command line, also with a letter behind it; None for what is none."""
    scale = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
    body, factor = (text[:-1], scale[text[-1]]) if text[-1:] in scale else (text, 1)
    try:
        number = float(body) * factor
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None


def _same(one: str, other: str) -> bool:
    numbers = as_number(one), as_number(other)
    return one.strip().lower() == other.lower() or (numbers[0] is not None and numbers[0] == numbers[1])


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
