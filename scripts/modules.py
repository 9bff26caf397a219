"""The modules of the package with the first line of their docstrings, a table a folder. Written by scripts/generate.py."""

from __future__ import annotations

import ast
from pathlib import Path

from scripts.reference import table

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "components/disagg_serving"
ORDER = (
    "", "spec", "catalog", "planning", "document", "forecast", "rules", "imports", "lookups", "manifests", "verify", "load", "resources", "recording",
    "comparison", "report", "cli",
)  # fmt: skip
"""Folders in the order of imports: each uses only what comes before it."""


def modules() -> list[str]:
    """A heading and a table for each folder. Raises ValueError for a folder that ORDER does not name."""
    folders: dict[str, list[Path]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        folders.setdefault(file.relative_to(PACKAGE).parent.as_posix().removeprefix("."), []).append(file)
    lines = []
    for folder in sorted(folders, key=lambda name: (ORDER.index(name.split("/")[0]), name)):
        about, rows = "", []
        for file in folders[folder]:
            text = _first(file)
            if file.stem == "__init__":
                about = text
            else:
                rows.append((f"`{file.name}`", text))
        lines += ["", f"### {folder + '/' if folder else 'The package itself'}", "", about, "", *table(("module", "is for"), rows)]
    return lines[1:]


def _first(file: Path) -> str:
    doc = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(doc.split("\n\n")[0].split())
