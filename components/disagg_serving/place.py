"""Places in a stack file, `models[0].decode.tensorParallel`: read from text and printed, used on data, and compared."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

Step = str | int
"""A key of a mapping, or the index of an entry in a list."""

_INDICES = re.compile(r"(?:\[(?:0|[1-9][0-9]{0,8})\])+\Z")


@dataclass(frozen=True, slots=True)
class Place:
    """The steps from the top of a stack file to a value.

    Keys may hold dots (`nodePools.tags.example.com/team`), which in text look like steps. Used on data, a place whose steps lead nowhere joins
    them to the longest keys that the data has.
    """

    steps: tuple[Step, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Place:
        """The place that prints as `text`; every text is one."""
        return _parsed(text)

    def __str__(self) -> str:
        """The place as findings show it."""
        return "".join(f"[{s}]" if isinstance(s, int) else f".{s}" if i else s for i, s in enumerate(self.steps))

    @property
    def parent(self) -> Place:
        """The mapping or list that holds the value."""
        return Place(self.steps[:-1])

    @property
    def is_entry(self) -> bool:
        """Whether the value is an entry of a list."""
        return isinstance(next(reversed(self.steps), None), int)

    def index_in(self, key: str) -> int | None:
        """Which entry of a top-level list it is, or is part of: 0 for `models[0].name` in `models`; None for other places."""
        match self.steps:
            case (str(name), int(index), *_) if name == key:
                return index
        return None

    def contains(self, other: Place) -> bool:
        """Whether `other` is this place or part of it."""
        return other.steps[: len(self.steps)] == self.steps

    def is_in(self, other: Place) -> bool:
        """Whether it is part of `other`, and not the same place."""
        return self != other and other.contains(self)

    def below(self, above: Place) -> Place:
        """The steps from `above`, which contains it, to the value."""
        return Place(self.steps[len(above.steps) :])

    def read(self, data: Any, default: Any = None) -> Any:
        """The value in plain data, or `default` where there is none."""
        try:
            for step in self._steps_in(data):
                data = _child(data, step)
        except LookupError:
            return default
        return data

    def write(self, data: Any, value: Any) -> None:
        """Put a value into plain data, and add the mappings that lead to it. Raises LookupError where a list has no such entry."""
        *above, last = self._steps_in(data)
        for step in above:
            data = data.setdefault(step, {}) if isinstance(data, dict) else _child(data, step)
        if not isinstance(data, dict):
            _child(data, last)
        data[last] = value

    def pop(self, data: Any) -> None:
        """Take a value out of plain data. Raises LookupError where a list has no such entry; a key may be absent."""
        *above, last = self._steps_in(data)
        for step in above:
            data = data.get(step, {}) if isinstance(data, dict) else _child(data, step)
        if isinstance(data, dict):
            data.pop(last, None)
        else:
            _child(data, last)
            del data[last]

    def first_key(self, keys: Container[str]) -> tuple[Step, Place]:
        """The step into a mapping with these keys, and the rest: of several steps that make one key, the longest key counts."""
        count = next((n for n in range(len(self.steps), 1, -1) if str(Place(self.steps[:n])) in keys), 1)
        return self.steps[0] if count == 1 else str(Place(self.steps[:count])), Place(self.steps[count:])

    def _steps_in(self, data: Any) -> tuple[Step, ...]:
        """The steps with the keys that the data has."""
        here = data
        try:
            for step in self.steps:
                here = _child(here, step)
        except LookupError:
            return self._joined(data)
        return self.steps

    def _joined(self, data: Any) -> tuple[Step, ...]:
        found, rest, here = list[Step](), self, data
        while rest.steps:
            step, rest = rest.first_key(here if isinstance(here, Mapping) else ())
            found.append(step)
            try:
                here = _child(here, step)
            except LookupError:
                here = None
        return tuple(found)


TOP = Place()
"""The stack file's environment as a whole."""


def _child(data: Any, step: Step) -> Any:
    match data, step:
        case (Mapping(), _) | (list(), int()):
            return data[step]
    raise LookupError(step)


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Place:
    steps: list[Step] = []
    for i, piece in enumerate(text.split(".") if text else ()):
        indices = _INDICES.search(piece)
        key = piece[: indices.start()] if indices else piece
        steps += [key] if i or key or not indices else []
        steps += map(int, indices[0][1:-1].split("][")) if indices else []
    return Place(tuple(steps))
