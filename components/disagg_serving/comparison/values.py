"""Where two values differ, path by path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

NAMES = ("name", "key", "id")
"""Keys by which entries of a list are told apart, as a person would: `containers[vllm].env[HF_HOME].value`."""


def differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Path, value before and value after of all that differs; None is a value that is not there.

    Entries of a list are matched by name where all have one, else by their place; what was put in or taken out stands alone.
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            yield from differences(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _of_lists(before, after, path)
    elif before != after:
        yield path, before, after


def _of_lists(before: list[Any], after: list[Any], path: str) -> Iterator[tuple[str, Any, Any]]:
    for key in NAMES:
        old, new = _by(key, before), _by(key, after)
        if old is not None and new is not None:
            if old == new and before != after:  # only the order
                yield path, before, after
            for name in dict.fromkeys([*old, *new]):
                yield from differences(old.get(name), new.get(name), f"{path}[{name}]")
            return
    if len(before) == len(after):
        for i, (old_entry, new_entry) in enumerate(zip(before, after, strict=True)):
            yield from differences(old_entry, new_entry, f"{path}[{i}]")
        return
    matcher = SequenceMatcher(None, [repr(e) for e in before], [repr(e) for e in after], autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            for i, (old_entry, new_entry) in enumerate(zip_longest(before[i1:i2], after[j1:j2])):
                yield from differences(old_entry, new_entry, f"{path}[{(j1 if j2 > j1 else i1) + i}]")


def _by(key: str, entries: Sequence[Any]) -> dict[str, Any] | None:
    named = {str(e[key]): e for e in entries if isinstance(e, Mapping) and isinstance(e.get(key), str)}
    return named if entries and len(named) == len(entries) else None
