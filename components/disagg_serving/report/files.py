"""Kubernetes objects as YAML files."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..files import write_whole
from ..yaml_io import MAX_BYTES, read_file, to_yaml

INDEX = ".disagg-render"
"""Lists what the last run wrote into a folder; nothing else there is ever removed."""
OURS = re.compile(r"\d{2,}-[a-z0-9.-]+\.yaml")


def file_names(manifests: Sequence[dict[str, Any]]) -> list[str]:
    """A name an object: position in apply order, kind, namespace and name."""
    digits = max(2, len(str(len(manifests))))
    return [
        "-".join(part for part in (f"{i:0{digits}d}", m["kind"].lower(), m["metadata"].get("namespace"), m["metadata"]["name"]) if part) + ".yaml"
        for i, m in enumerate(manifests, 1)
    ]


def write_files(manifests: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """Write one file an object into `folder`, which is made if needed; files that an earlier run wrote and this one does not are removed.

    All files are written beside before the first takes its place, and the index names old and new ones meanwhile: whatever ends the run, the
    folder holds a rendering, or the next run removes what is left. A link in the folder is replaced, never followed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    before, names = _written_before(folder), file_names(manifests)
    for left in folder.glob(f"{INDEX}-*"):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
    beside = Path(tempfile.mkdtemp(prefix=f"{INDEX}-", dir=folder))
    try:
        for name, manifest in zip(names, manifests, strict=True):
            write_whole(beside / name, to_yaml(manifest), follow=False)
        write_whole(folder / INDEX, "\n".join([*names, *sorted(before - {*names})]) + "\n", follow=False)
        for name in names:
            (beside / name).replace(folder / name)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    for name in before - {*names}:
        (folder / name).unlink(missing_ok=True)
    write_whole(folder / INDEX, "\n".join(names) + "\n", follow=False)
    return [folder / name for name in names]


def _written_before(folder: Path) -> set[str]:
    """Names in the index that can be of a rendering: whoever put the index there decides about nothing else."""
    index = folder / INDEX
    if index.is_symlink() or not index.is_file():
        return set()
    lines = read_file(index, MAX_BYTES).decode("utf-8", "replace").split("\n")
    return {line for line in lines if OURS.fullmatch(line) and not (folder / line).is_dir()}
