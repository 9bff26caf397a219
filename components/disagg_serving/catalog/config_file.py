"""Reading a config.json: its numbers one by one, so that every fault is found at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import Finding, Level, SpecError
from ..yaml_io import read_file, real

LARGEST_BYTES = 10**15
MOST_BYTES = 100_000_000
"""The index of a large checkpoint is a file of some megabytes."""


class Config:
    """Whole numbers out of a config.json; what is not one becomes a finding and counts as 1 meanwhile."""

    def __init__(self, data: Any, where: str = "") -> None:
        self.data: Mapping[str, Any] = data if isinstance(data, dict) else {}
        self.findings: list[Finding] = []
        self._where = f"{where}: " if where else ""

    def number(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """The number under `key`, or `default` where the key is absent or null; without a default the key is required."""
        value = self.data.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # some tools write sizes as 1.5e+11
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= LARGEST_BYTES:
            return value
        message = "is missing" if value is None else "is not a positive whole number"
        self.findings.append(Finding("model-config", Level.ERROR, self._where + key, message, value, "a positive whole number, as on Hugging Face"))
        return 1

    def refuse(self, key: str, message: str, value: Any, allowed: str) -> None:
        """Add a finding about `key`."""
        self.findings.append(Finding("model-config", Level.ERROR, self._where + key, message, value, allowed))

    def first(self, *keys: str) -> int:
        """The number under the first of `keys` that is there, or 0."""
        return next((self.number(key) for key in keys if self.data.get(key) is not None), 0)


def read_json(file: Path, root: Path | None) -> dict[str, Any]:
    """The object in a JSON file. Raises SpecError when it cannot be read, or when a link leads out of `root`."""
    if root is not None and not real(file).is_relative_to(real(root)):
        raise refused("", "is a link that leads out of the project", file.name, "a file inside it")
    try:
        text = read_file(file, MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise refused("", f"is larger than {MOST_BYTES} bytes", file.name, "a config.json as on Hugging Face")
        data = json.loads(text)
    except OSError as problem:
        raise refused("", f"cannot be read: {(problem.strerror or 'no such file').lower()}", file.name, "a config.json or its folder") from None
    except (ValueError, RecursionError):
        raise refused("", "is not JSON", file.name, "a config.json as on Hugging Face") from None
    if not isinstance(data, dict):
        raise refused("", "is not a JSON object", file.name, "a config.json as on Hugging Face")
    return data


def refused(path: str, message: str, value: Any, allowed: str) -> SpecError:
    """The error about one place of a config.json."""
    return SpecError([Finding("model-config", Level.ERROR, path, message, value, allowed)])
