"""Reading files that people write: YAML within limits, with the lines and columns of its values, and paths that stay inside a folder."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from .errors import Finding, Level, SpecError
from .place import Place
from .yaml_nodes import Node, YamlFaultError, compose

MAX_BYTES = 1_000_000
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


def read_yaml(path: Path) -> Any:
    """The plain data of a YAML file, as Pulumi reads it, without tags that make objects; dates and times are texts.

    Raises SpecError when it is not YAML or beyond the limits (with line and column), OSError when it cannot be read.
    """
    root = _composed(path, read_file(path, MAX_BYTES + 1))
    return None if root is None else _texts(root).data()


def _composed(path: Path, data: bytes) -> Node | None:
    if len(data) > MAX_BYTES:
        finding = Finding("yaml", Level.ERROR, f"{path.name}:1:1", f"is larger than {MAX_BYTES} bytes", None, "a smaller file", "split it")
        raise SpecError([finding], path)
    try:
        return compose(data)
    except YamlFaultError as fault:
        place = f"{path.name}:{fault.line}:{fault.column}"
        raise SpecError([Finding("yaml", Level.ERROR, place, f"is not valid YAML: {fault.problem}", None, "", "correct the line")], path) from None


def _texts(root: Node) -> Node:
    """The node, with dates and times below it as texts."""
    todo, seen = [root], set[int]()
    while todo:
        node = todo.pop()
        if isinstance(node.value, date):
            node.value = dates_as_text(node.value)
        if id(node) not in seen:
            seen.add(id(node))
            todo += [*node.items, *node.merges]
    return root


def read_file(path: Path, most: int) -> bytes:
    """The first bytes of a regular file, or of a pipe that the shell made for a command.

    Raises OSError also for what is neither: reading a named pipe or a device may never end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(kind):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(kind) and not (stat.S_ISFIFO(kind) and path.is_relative_to("/dev")):
            raise OSError(errno.EINVAL, "Is no regular file", str(path))
        os.set_blocking(descriptor, True)
        return file.read(most)


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
        """Read the marks of a file that `read_yaml` accepts. Raises what that raises for others."""
        self._root = _composed(path, read_file(path, MAX_BYTES + 1))

    def find(self, place: Place, *above: str) -> tuple[Span, bool] | None:
        """The lines of a place below the keys `above`, and whether any of it is there; None where the keys above are not.

        What is not there is shown at the nearest value above it.
        """
        key, node = None, self._root
        for name in above:
            pair = next(((k, v) for k, v in _pairs(node) if k.text == name), None)
            if pair is None:
                return None
            key, node = pair
        rest = place
        while rest.steps and (found := _step(node, rest)):
            key, node, rest = found
        return _span(key, node), rest != place or not place.steps


def _step(node: Node | None, place: Place) -> tuple[Node | None, Node, Place] | None:
    """Key, value and the rest of the place after its first step; None where it leads no further."""
    if node is not None and node.kind == "list":
        index, rest = place.steps[0], Place(place.steps[1:])
        return (None, node.items[index], rest) if isinstance(index, int) and index < len(node.items) else None
    keys = {k.text: (k, v) for k, v in reversed([*_pairs(node)])}  # of a key that is merged in as well, the mapping's own counts
    first, rest = place.first_key(keys)
    return (*keys[str(first)], rest) if first in keys else None


def _pairs(node: Node | None) -> Iterator[tuple[Node, Node]]:
    """Keys that are not empty, with their values; what is merged in comes last."""
    todo, seen = [node] if node else [], set[int]()
    while todo:
        mapping = todo.pop(0)
        if id(mapping) not in seen:
            seen.add(id(mapping))
            todo += mapping.merges
            yield from ((key, value) for key, value in mapping.pairs() if key.text)


def _span(key: Node | None, value: Node | None) -> Span:
    """A key with its value where that is short, else the key alone; of an entry of a list the beginning."""
    if value is None:
        return Span(1, 1)
    first = key or value
    # an alias's value stands where its anchor is
    last = value if value.kind == "scalar" and value.start.index >= first.start.index else key
    end = (last.end.line + 1, last.end.column + 1) if last is not None else None
    return Span(first.start.line + 1, first.start.column + 1, end)


def inside(base: Path, text: str) -> Path | None:
    """`text` as a path below `base`, or None where it leads out or is no path at all."""
    try:
        path = real(base / text)
        path.exists()
    except (OSError, ValueError):
        return None
    return path if path.is_relative_to(real(base)) else None


def real(path: Path) -> Path:
    """The path without links and `..`; a loop of links is left as it is, for whoever opens it to fail (`Path.resolve` raises RuntimeError)."""
    return Path(os.path.realpath(path))
