"""What commands share: finding the input, and writing the output."""

from __future__ import annotations

import ast
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..catalog import Catalog, load_catalog
from ..errors import SpecError, ToolError
from ..spec.stack_file import ENVIRONMENT_KEY, Project, StackFile, find_project, read_environment_file


class FailOn(StrEnum):
    """The lowest level at which a command fails."""

    ERROR = "error"
    WARNING = "warning"


CatalogDirs = Annotated[list[str] | None, typer.Option("--catalog-dir", help="A folder that adds entries; may be repeated.", show_default=False)]


class DataFormat(StrEnum):
    """Output formats of commands that print text or data."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True)
class Input:
    """A stack or file that a command was given, and the folder from which its paths start."""

    file: StackFile
    base: Path
    project: Project | None = None


def find_input(name: str) -> Input:
    """A stack of the project here, or a file: what looks like a path is one.

    Raises ToolError when there is neither, SpecError when the file is not YAML.
    """
    path = Path(name)
    if path.suffix in (".yaml", ".yml", ".json") or "/" in name or path.is_file():
        file = read_environment_file(path)
        if file.bare:
            return Input(file, path.resolve().parent)
        try:
            project = find_project(path.resolve().parent)
        except ToolError:
            return Input(file, path.resolve().parent)
        return Input(file, project.root, project)
    project = find_project(Path.cwd())
    return Input(project.stack_file(name), project.root, project)


def find_environment(name: str) -> Input:
    """The same for commands that read `disagg-serving:environment`. Raises ToolError where the program does not: it makes its components itself."""
    given = find_input(name)
    file, project = given.file, given.project
    absent = not file.bare and file.environment is None and ENVIRONMENT_KEY not in file.secrets
    if absent and project is not None and makes_components(project):
        raise ToolError(
            f"{name} has no {ENVIRONMENT_KEY}, and the program of {project.name} makes its components itself; "
            f"`disagg plan {file.stack}` records it, with its checks and all inputs of its objects (--format html or json)"
        )
    return given


def makes_components(project: Project) -> bool:
    """Whether the project's program is one that uses components, and reads no environment from its stack files."""
    program = project.program / "__main__.py"
    if project.runtime != "python" or not program.is_file():
        return False
    try:
        nodes = list(ast.walk(ast.parse(program.read_text(encoding="utf-8"))))
        files = [project.stack_file(stack) for stack in project.stacks()]
    except (SyntaxError, ValueError, SpecError):
        return False
    imported = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    called = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return "deploy" not in imported | called and all(f.environment is None and ENVIRONMENT_KEY not in f.secrets for f in files)


def catalog_with(folders: Sequence[str] | None) -> Catalog:
    """The catalogue with a user's folders. Raises SpecError also for files in them that would not be read."""
    known = load_catalog(folders or (), Path.cwd())
    if findings := known.unreachable():
        raise SpecError(findings)
    return known


def on_terminal() -> bool:
    """Whether the output goes to a terminal, and may have colours."""
    return sys.stdout.isatty()


def terminal_width() -> int | None:
    """Columns of the terminal, None where there is none."""
    return shutil.get_terminal_size().columns if on_terminal() else None


def emit(text: str, output: Path | None) -> None:
    """Write to a file, or print."""
    if output is None:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")


def table(rows: list[list[str]]) -> str:
    """Rows of text as columns."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
