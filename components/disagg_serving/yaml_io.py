"""Reading YAML strictly: safe types only, and a key given twice is an error instead of a silent loss."""

from __future__ import annotations

from collections.abc import Hashable
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
        raise SpecError([Finding("yaml", Level.ERROR, path.name, f"is larger than {MAX_BYTES} bytes", None, "a smaller file")])
    try:
        return yaml.load(data, Loader=_Loader)  # noqa: S506 (a subclass of the safe loader)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as problem:
        mark = getattr(problem, "problem_mark", None)
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        what = " ".join(str(getattr(problem, "problem", None) or problem).split())
        finding = Finding("yaml", Level.ERROR, f"{path.name}{place}", f"is not valid YAML: {what}", None, "", "correct the line")
        raise SpecError([finding]) from None


def inside(base: Path, text: str) -> Path | None:
    """`text` as a path below `base`, or None where it leads out or is no path at all."""
    try:
        path = (base / text).resolve()
        path.exists()
    except (OSError, ValueError):
        return None
    return path if path.is_relative_to(base.resolve()) else None
