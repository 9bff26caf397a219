"""Reading YAML strictly: safe types only, and a key given twice is an error instead of a silent loss."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .errors import Finding, Level, SpecError

MAX_BYTES = 5_000_000


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


@dataclass(frozen=True)
class Span:
    """A part of a text file, lines and columns from 1 in characters; the end is the first place after it, None where it is not of interest."""

    line: int
    column: int
    end: tuple[int, int] | None = None


class Places:
    """Where the values of a YAML file stand, by paths like `models[0].decode.tensorParallel`."""

    def __init__(self, path: Path) -> None:
        """Read the marks of a file that `read_yaml` accepts. Raises what PyYAML and the file system raise for others."""
        self._root = yaml.compose(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))

    def find(self, path: str, *above: str) -> tuple[Span, bool] | None:
        """The place of `path` below the keys `above`, and whether any of it is there; None where the keys above are not.

        What is not there is shown at the nearest thing above it that is.
        """
        key, node = None, self._root
        for name in above:
            pair = next(((k, v) for k, v in _pairs(node) if k.value == name), None)
            if pair is None:
                return None
            key, node = pair
        rest = path
        while rest and (step := _step(node, rest)):
            key, node, rest = step
        return _span(key, node), rest != path or not path


def _step(node: Any, path: str) -> tuple[Any, Any, str] | None:
    """Key, value and the rest of the path after its first part; None where it leads no further. Keys may hold dots, so the longest counts."""
    if isinstance(node, yaml.SequenceNode):
        index = re.match(r"\[(\d{1,9})\]\.?", path)
        there = index is not None and int(index[1]) < len(node.value)
        return (None, node.value[int(index[1])], path[index.end() :]) if index and there else None
    found = [(k, v) for k, v in _pairs(node) if path == k.value or path.startswith(tuple(k.value + end for end in (".", "[", ":")))]
    if not found:
        return None
    key, value = max(found, key=lambda pair: len(pair[0].value))
    return key, value, path[len(key.value) :].removeprefix(".")


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
