"""Corrections: what to write where in a stack file, as data. The words for a person are made of the data, so the two cannot differ."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from .phrases import join, say, say_key
from .place import Place

Correction = Mapping[str, Any]
"""Places in the stack file, written as in findings, with the values that belong there; None takes the key out."""

_PLAIN = re.compile(r"[A-Za-z0-9/.-][^\s:#{}\[\],\"']*")
_NUMBER = re.compile(r"[-+.\d_eExo]+")
_YAML_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null"})


def instruction(value: Any) -> str:
    """What to do at a place for it to hold a value, as an imperative; None takes it out."""
    return "remove it" if value is None else say("use {}", written(value))


def written(value: Any) -> str:
    """A value as it would stand in the stack file."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and not _NUMBER.fullmatch(value) and value.lower() not in _YAML_WORDS
        return value if plain else json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return say("{{{}}}", join(", ", (say("{}: {}", say_key(str(name)), written(one)) for name, one in value.items())))
    if isinstance(value, (list, tuple)):
        return say("[{}]", join(", ", map(written, value)))
    return str(value)


def corrected(data: Any, correction: Correction) -> Any:
    """A copy of plain data in which the correction is done. Raises LookupError for entries of lists that are not there."""
    changed = deepcopy(data)
    for path, value in correction.items():
        correct(changed, Place.parse(path), deepcopy(value))
    return changed


def correct(data: Any, place: Place, value: Any) -> None:
    """Do one part of a correction to plain data."""
    if value is None:
        place.pop(data)
    else:
        place.write(data, value)
