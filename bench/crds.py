"""CRDs as they are released, without the descriptions of their fields."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

VALUES = ("default", "enum", "example")
"""Parts of a schema that hold values and no schemas."""


@cache
def crds(folder: Path, pattern: str = "*.yaml") -> list[dict[str, Any]]:
    """The CRDs of a folder, for all that validates the same.

    Descriptions are nine tenths of LWS' CRDs, 2.5 of 2.8 MB (v0.9.0): each control plane would read and store them, and publish them to each
    client that asks for schemas.
    """
    found = [one for file in sorted(folder.glob(pattern)) for one in yaml.load_all(file.read_text(encoding="utf-8"), yaml.CSafeLoader)]
    for one in found:
        for version in one["spec"]["versions"]:
            version["schema"] = _bare(version["schema"])
    return found


def _bare(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_bare(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key != "description"}
    return {
        # names of properties, of which one may be `description`
        key: {name: _bare(one) for name, one in value.items()} if key == "properties" else value if key in VALUES else _bare(value)
        for key, value in kept.items()
    }
