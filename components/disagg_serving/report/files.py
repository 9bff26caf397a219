"""Kubernetes objects as YAML files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..yaml_io import to_yaml

INDEX = ".disagg-render"
"""Lists what the last run wrote into a folder; nothing else there is ever removed."""


def file_names(manifests: Sequence[dict[str, Any]]) -> list[str]:
    """A name an object: position in apply order, kind, namespace and name."""
    digits = max(2, len(str(len(manifests))))
    return [
        "-".join(part for part in (f"{i:0{digits}d}", m["kind"].lower(), m["metadata"].get("namespace"), m["metadata"]["name"]) if part) + ".yaml"
        for i, m in enumerate(manifests, 1)
    ]


def write_files(manifests: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """Write one file an object into `folder`, which is made if needed; files that an earlier run wrote and this one does not are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    index = folder / INDEX
    before = index.read_text(encoding="utf-8").split("\n") if index.is_file() else []
    names = file_names(manifests)
    for name, manifest in zip(names, manifests, strict=True):
        (folder / name).write_text(to_yaml(manifest), encoding="utf-8")
    for name in before:
        if name and name not in names and "/" not in name:
            (folder / name).unlink(missing_ok=True)
    index.write_text("\n".join(names) + "\n", encoding="utf-8")
    return [folder / name for name in names]
