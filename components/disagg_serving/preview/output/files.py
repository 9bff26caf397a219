"""Kubernetes objects as YAML files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

KINDS = (
    "LeaderWorkerSet", "Namespace", "NodeClass", "NodePool", "PodDisruptionBudget", "PriorityClass", "Secret", "Service", "ServiceAccount",
)  # fmt: skip
_OURS = re.compile(rf"\d{{2,}}-({'|'.join(KINDS)})-.+\.yaml", re.IGNORECASE)
"""Names of files that an earlier run wrote; nothing else in the folder is touched."""


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes repeated values out instead of as anchors, which reviewers cannot read."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 (the library's signature)
        return True


def to_yaml(manifest: Any) -> str:
    """One object as YAML, keys in the order in which they were built."""
    return str(yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True))


def file_names(manifests: Sequence[dict[str, Any]]) -> list[str]:
    """A name an object: position in apply order, kind, namespace and name."""
    digits = max(2, len(str(len(manifests))))
    return [
        "-".join(part for part in (f"{i:0{digits}d}", m["kind"].lower(), m["metadata"].get("namespace"), m["metadata"]["name"]) if part) + ".yaml"
        for i, m in enumerate(manifests, 1)
    ]


def write_files(manifests: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """Write one file an object into `folder`, which is made if needed; files of an earlier run are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, manifest in zip(file_names(manifests), manifests, strict=True):
        path = folder / name
        path.write_text(to_yaml(manifest), encoding="utf-8")
        written.append(path)
    for old in folder.glob("*.yaml"):
        if old not in written and _OURS.fullmatch(old.name):
            old.unlink()
    return written
