"""Records: frozen dataclasses whose form as JSON programs rely on; how they are written and read is said here once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

R = TypeVar("R")
_SPELT = {"gib": "GiB"}
WRITTEN_WITH = "written with"
"""Metadata of a field: the other one beside whose key alone its own is written."""
WRITTEN_AS = "written as"
"""Metadata of a field: the function that makes JSON data of its value."""


def key_of(name: str) -> str:
    """The key of a field: its name in camelCase."""
    first, *rest = name.split("_")
    return first + "".join(_SPELT.get(word, word.capitalize()) for word in rest)


class Record:
    """Base of what is published as a JSON object: each field is a key, in this order, and its docstring is the key's description."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid", "alias_generator": key_of, "use_attribute_docstrings": True}
    """From which the JSON Schema is made."""


LEFT_OUT: Mapping[str, Any] = {WRITTEN_WITH: ""}
"""Metadata of a field whose key is left out where it is empty or 0."""


def is_always_written(one: Field[Any]) -> bool:
    """Whether a field of a record has its key in every object."""
    return WRITTEN_WITH not in one.metadata


def data_of(value: Any, kind: type[Record] | None = None) -> Any:
    """A record, or anything that holds records, as JSON data; with `kind`, only the keys of that base of the record."""
    if isinstance(value, Record):
        own: Any = kind or value
        return {
            key_of(f.name): data_of(f.metadata.get(WRITTEN_AS, _same)(getattr(value, f.name)))
            for f in fields(own)
            if is_always_written(f) or getattr(value, f.metadata[WRITTEN_WITH] or f.name)
        }
    if isinstance(value, Mapping):
        return {str(key): data_of(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [data_of(one) for one in value]
    return str(value) if isinstance(value, str) else value


def _same(value: Any) -> Any:
    return value


def record_of(kind: type[R], data: Any) -> R:
    """JSON data of any release as a record: keys that are missing become empty, keys that are not known are dropped.

    Raises ValueError for a value that is no member of its enumeration.
    """
    found: R = _read(kind, data)
    return found


def _read(kind: Any, data: Any) -> Any:
    if isinstance(kind, type) and is_dataclass(kind):
        given = data if isinstance(data, Mapping) else {}
        return kind(**{name: _read(hint, given.get(key)) for name, key, hint, required in _fields(kind) if required or key in given})
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin is UnionType:
        return None if data is None else _read(inner[0], data) if is_dataclass(inner[0]) else data
    if origin in (Sequence, tuple):
        return tuple(_read(inner[0], one) for one in data or ())
    if origin is Mapping:
        return {str(key): _read(inner[1], one) for key, one in (data or {}).items()}
    if data is None and origin is not Any:
        return inner[0] if origin is Literal else next(iter(origin)) if issubclass(origin, StrEnum) else origin()
    return origin(data) if isinstance(origin, type) and issubclass(origin, StrEnum) else data


@cache
def _fields(kind: Any) -> list[tuple[str, str, Any, bool]]:
    """Name, key and type of each field, and whether it has no default."""
    hints = get_type_hints(kind)
    return [(f.name, key_of(f.name), hints[f.name], f.default is MISSING and f.default_factory is MISSING) for f in fields(kind)]
