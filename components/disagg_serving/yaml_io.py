"""Reading YAML strictly: safe types only, and a key given twice is an error instead of a silent loss. Dates and times stay texts."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from .errors import Finding, Level, SpecError
from .place import Place

MAX_BYTES = 5_000_000
_FROM_PULUMI = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.\d+)? ([+-]\d{4}) \S+")
"""How a program gets a date or time of its stack file: Pulumi's CLI prints Go's `time.Time` (`unmarshalObject` in
https://github.com/pulumi/pulumi/blob/v3.276.0/sdk/go/common/resource/config/object.go)."""


def dates_as_text(value: Any) -> Any:
    """A date or time, also as Pulumi hands it over, as a text in UTC: `2027-01-31T11:30:00Z`, at midnight the day alone. Else the value.

    YAML takes `endsAt: 2027-06-01` without quotes for a date, and Pulumi makes a midnight of it: plan and deployment must read the same text.
    """
    if isinstance(value, str) and (found := _FROM_PULUMI.fullmatch(value)):
        read: object = f"{found[1]}T{found[2]}{found[3]}"
    elif isinstance(value, date):
        read = value.isoformat()
    else:
        return value
    try:
        time = datetime.fromisoformat(str(read))
        time = (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC).replace(microsecond=0, tzinfo=None)
    except (ValueError, OverflowError):
        return str(value)
    return time.date().isoformat() if time == datetime.combine(time, datetime.min.time()) else f"{time.isoformat()}Z"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Safe loader that refuses repeated keys."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 (the library's signature)
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen and name != "<<":
                raise yaml.constructor.ConstructorError(None, None, f"key {name} stands here twice", key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)  # type: ignore[no-any-return]

    def construct_date(self, node: Any) -> str:
        try:
            return str(dates_as_text(self.construct_yaml_timestamp(node)))
        except (AttributeError, ValueError):  # no day of the calendar: whoever wants one says so
            return str(node.value)


_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_date)


def read_yaml(path: Path) -> Any:
    """The plain data of a YAML file.

    Raises SpecError when it is not YAML (with line and column), OSError when it cannot be read.
    """
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise SpecError([Finding("yaml", Level.ERROR, path.name, f"is larger than {MAX_BYTES} bytes", None, "a smaller file")], path)
    try:
        return yaml.load(data, Loader=_Loader)  # noqa: S506 (a subclass of the safe loader)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as problem:
        mark = getattr(problem, "problem_mark", None)
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        what = " ".join(str(getattr(problem, "problem", None) or problem).split())
        finding = Finding("yaml", Level.ERROR, f"{path.name}{place}", f"is not valid YAML: {what}", None, "", "correct the line")
        raise SpecError([finding], path) from None


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes repeated values out instead of as anchors, which reviewers cannot read."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 (the library's signature)
        return True


def to_yaml(data: Any) -> str:
    """Data as YAML, keys in their order."""
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True))


class Span(NamedTuple):
    """A part of a text file, lines and columns from 1 in characters; the end is the first place after it, None where it is not of interest."""

    line: int
    column: int
    end: tuple[int, int] | None = None


class Marks:
    """The lines and columns of the values of a YAML file, by their places."""

    def __init__(self, path: Path) -> None:
        """Read the marks of a file that `read_yaml` accepts. Raises what PyYAML and the file system raise for others."""
        self._root = yaml.compose(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))

    def find(self, place: Place, *above: str) -> tuple[Span, bool] | None:
        """The lines of a place below the keys `above`, and whether any of it is there; None where the keys above are not.

        What is not there is shown at the nearest value above it.
        """
        key, node = None, self._root
        for name in above:
            pair = next(((k, v) for k, v in _pairs(node) if k.value == name), None)
            if pair is None:
                return None
            key, node = pair
        rest = place
        while rest.steps and (found := _step(node, rest)):
            key, node, rest = found
        return _span(key, node), rest != place or not place.steps


def _step(node: Any, place: Place) -> tuple[Any, Any, Place] | None:
    """Key, value and the rest of the place after its first step; None where it leads no further."""
    if isinstance(node, yaml.SequenceNode):
        index, rest = place.steps[0], Place(place.steps[1:])
        return (None, node.value[index], rest) if isinstance(index, int) and index < len(node.value) else None
    keys = {k.value: (k, v) for k, v in reversed([*_pairs(node)])}  # of a key that is merged in as well, the mapping's own counts
    first, rest = place.first_key(keys)
    return (*keys[first], rest) if first in keys else None


def _pairs(node: Any) -> Iterator[tuple[Any, Any]]:
    """Keys that are plain and not empty, with their values; what is merged in comes last."""
    todo, seen = [node], set[int]()
    while todo:
        mapping = todo.pop(0)
        if id(mapping) in seen or not isinstance(mapping, yaml.MappingNode):
            continue
        seen.add(id(mapping))
        for key, value in mapping.value:
            if isinstance(key, yaml.ScalarNode) and key.value == "<<":
                todo += value.value if isinstance(value, yaml.SequenceNode) else [value]
            elif isinstance(key, yaml.ScalarNode) and key.value:
                yield key, value


def _span(key: Any, value: Any) -> Span:
    """A key with its value where that is short, else the key alone; of an entry of a list the beginning."""
    if value is None:
        return Span(1, 1)
    first = key or value
    # an alias's value stands where its anchor is
    last = value if isinstance(value, yaml.ScalarNode) and value.start_mark.index >= first.start_mark.index else key
    end = (last.end_mark.line + 1, last.end_mark.column + 1) if last is not None else None
    return Span(first.start_mark.line + 1, first.start_mark.column + 1, end)


def inside(base: Path, text: str) -> Path | None:
    """`text` as a path below `base`, or None where it leads out or is no path at all."""
    try:
        path = (base / text).resolve()
        path.exists()
    except (OSError, ValueError):
        return None
    return path if path.is_relative_to(base.resolve()) else None
