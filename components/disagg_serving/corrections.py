"""Corrections: what to write where in a stack file, as data. The words for a person are made of the data, so the two cannot differ."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

Correction = Mapping[str, Any]
"""Places in the stack file, written as in findings, with the values that belong there; None takes the key out."""

_MODEL = re.compile(r"models\[\d+\]\.")
_ROLE = re.compile(r"(models\[\d+\](?:\.candidate)?)\.(prefill|decode|server)\.(.+)")
_STEP = re.compile(r"\[(\d+)\]|\.?([^.\[\]]+)")
_PLAIN = re.compile(r"[A-Za-z0-9/.-][^\s:#{}\[\],\"']*")
_NUMBER = re.compile(r"[-+.\d_eExo]+")
_CUTS = ("pipelineParallel", "dataParallel", "expertParallel")
_LAYOUT = frozenset({"tensorParallel", *_CUTS, "instanceType", "calibration", "all2allBackend"})
_YAML_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null"})


def words(correction: Correction, at: str) -> str:
    """The correction as an imperative for a reader who looks at the place `at`."""
    sides, rest = _by_role(correction)
    parts = []
    first = next(iter(sides.values()), {})
    if len(sides) > 1 and len({_model_of(role) for role in sides}) == 1 and all(side == first for side in sides.values()):
        here = next((role for role in sides if at.startswith(f"{role}.")), next(iter(sides)))
        parts.append(f"{_role_words(here, first, at if at.startswith(here) else f'{here}.')} in both roles")
    else:
        parts += [_role_words(role, side, at) + _where(role, side, at) for role, side in sides.items()]
    return " and ".join([*parts, *(_one(path, value, at) for path, value in rest.items())])


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
        return "{" + ", ".join(f"{key}: {written(one)}" for key, one in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(written, value)) + "]"
    return str(value)


def corrected(data: Any, correction: Correction) -> Any:
    """A copy of plain data in which the correction is done. Raises LookupError for places that are not there."""
    changed = deepcopy(data)
    for path, value in correction.items():
        _put(changed, path, deepcopy(value))
    return changed


def step(path: str) -> tuple[int | str, str]:
    """The first key or index of a path, and the rest of it."""
    found = _STEP.match(path)
    if found is None:
        raise LookupError(path)
    return (int(found[1]) if found[1] is not None else found[2]), path[found.end() :].removeprefix(".")


def _put(data: Any, path: str, value: Any) -> None:
    key, rest = step(path)
    if isinstance(data, dict):  # keys may hold dots: what is there decides where one ends
        key = max((k for k in data if path == k or path.startswith((f"{k}.", f"{k}["))), key=len, default=key)
        rest = path[len(str(key)) :].removeprefix(".")
    if rest:
        if isinstance(data, dict):
            data.setdefault(key, {})
        _put(data[key], rest, value)
    elif value is not None:
        data[key] = value
    elif isinstance(data, list):
        del data[key]  # type: ignore[arg-type]
    else:
        data.pop(key, None)


def _by_role(correction: Correction) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Fields of roles, by the role's place, and the other entries."""
    sides: dict[str, dict[str, Any]] = {}
    rest: dict[str, Any] = {}
    for path, value in correction.items():
        found = _ROLE.fullmatch(path)
        if found:
            sides.setdefault(f"{found[1]}.{found[2]}", {})[found[3]] = value
        else:
            rest[path] = value
    return sides, rest


def _role_words(role: str, fields: Mapping[str, Any], at: str) -> str:
    if _is_layout(fields):
        more = [key if fields[key] is True else f"{key} {written(fields[key])}" for key in _CUTS if key in fields]
        text = f"use tensorParallel {fields['tensorParallel']}{f' with {_and(more)}' if more else ''} on {fields['instanceType']}"
        gone = [key for key, value in fields.items() if value is None]
        return f"{text} without {_and(gone)}" if gone else text
    mine = f"{role}." if at.startswith(f"{role}.") else _model_of(role) if at.startswith(_model_of(role)) else ""
    return " and ".join(_one(f"{role}.{key}", value, at, mine) for key, value in fields.items())


def _where(role: str, fields: Mapping[str, Any], at: str) -> str:
    """The role's name, where neither the place nor the words tell it."""
    return f" in {role.rpartition('.')[2]}" if _is_layout(fields) and not at.startswith(f"{role}.") else ""


def _is_layout(fields: Mapping[str, Any]) -> bool:
    return "tensorParallel" in fields and "instanceType" in fields and fields.keys() <= _LAYOUT


def _and(words: list[str]) -> str:
    return " and ".join(words)


def _model_of(role: str) -> str:
    found = _MODEL.match(role)
    return found[0] if found else ""


def _one(path: str, value: Any, at: str, prefix: str | None = None) -> str:
    if path == at:
        return "remove it" if value is None else f"use {written(value)}"
    name = path.removeprefix(_shared(path, at) if prefix is None else prefix)
    return f"remove {name}" if value is None else f"set {name}: {written(value)}"


def _shared(path: str, at: str) -> str:
    """What of a path needs no words beside `at`: the mapping that both are in, or the model."""
    parent = f"{at.rpartition('.')[0]}."
    model = _MODEL.match(path)
    if path.startswith(parent):
        return parent
    return model[0] if model and at.startswith(model[0].rstrip(".")) else ""
