"""What commands share: finding the input, and writing the output."""

from __future__ import annotations

import ast
import os
import shutil
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from ..catalog import Catalog, load_catalog
from ..characters import printed
from ..errors import Level, SpecError, ToolError, did_you_mean
from ..files import write_whole
from ..report.view import FindingView
from ..rules import rules
from ..rules.form import FORM_CHECKS
from ..spec.stack_file import ENVIRONMENT_KEY, Project, StackFile, find_project, read_environment_file
from ..yaml_io import real
from .complete import RULES, STACKS


class FailOn(StrEnum):
    """The lowest level at which a command fails."""

    ERROR = "error"
    WARNING = "warning"


class Hidden(StrEnum):
    """Levels that can be left out of a text."""

    WARNING = "warning"
    INFO = "info"


StackOrFile = Annotated[
    str,
    typer.Argument(metavar="STACK|FILE", help="A stack of this project, or a YAML file with a stack or a bare environment.", autocompletion=STACKS),
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="RULE", help="Show this rule and errors alone; repeatable.", autocompletion=RULES, show_default=False),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Show errors alone, and no progress.")]
Hide = Annotated[list[Hidden] | None, typer.Option("--hide", help="Leave out findings of this level; repeatable.", show_default=False)]
Notes = Annotated[bool, typer.Option("--notes", help="Show notes in full.")]


def some_path(text: str) -> Path:
    """A path that was given; an unset variable of a shell is none."""
    if not text:
        raise typer.BadParameter("is empty: a variable may be unset")
    return Path(text)


Output = Annotated[Path | None, typer.Option("-o", "--output", parser=some_path, metavar="PATH", help="Write to this file.", show_default=False)]


CatalogDirs = Annotated[list[str] | None, typer.Option("--catalog-dir", help="A folder that adds entries; may be repeated.", show_default=False)]


class DataFormat(StrEnum):
    """Output formats of commands that print text or data."""

    TEXT = "text"
    JSON = "json"


class Input(NamedTuple):
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
            return Input(file, real(path).parent)
        try:
            project = find_project(real(path).parent)
        except ToolError:
            return Input(file, real(path).parent)
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
    except (SyntaxError, ValueError, SpecError, RecursionError, MemoryError):
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


def finding_view(only: Sequence[str] | None, hide: Sequence[Hidden] | None, *, text: bool, notes: bool = True, quiet: bool = False) -> FindingView:
    """What a reader wants to see. Raises ToolError for a rule that does not exist, and where the format holds everything."""
    if (only or hide) and not text:
        raise ToolError("--only and --hide are for --format text; the other formats hold every finding")
    known = sorted({*FORM_CHECKS, *(rule.id for rule in rules())})
    for unknown in [rule for rule in only or () if rule not in known]:
        raise ToolError(f"no rule {unknown} ({did_you_mean(unknown, known) or '`disagg rules` lists them'})")
    hidden = {Level.WARNING, Level.INFO} if quiet else {Level(level.value) for level in hide or ()}
    return FindingView(notes, frozenset(only or ()), frozenset(hidden))


def on_terminal() -> bool:
    """Whether the output may have colours: it goes to a terminal, or FORCE_COLOR asks for them (force-color.org)."""
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


def terminal_width() -> int | None:
    """Columns of the terminal, None where there is none."""
    return shutil.get_terminal_size().columns if on_terminal() else None


def emit(text: str, output: Path | None, *, styled: bool = False) -> None:
    """Write to a file, or print; what nobody sees in it is written out. With `styled` its colours are ours."""
    whole = printed(text if text.endswith("\n") else text + "\n", styled=styled)
    if output is None:
        sys.stdout.write(whole)
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_whole(output, whole)


def table(rows: list[list[str]]) -> str:
    """Rows of text as columns."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
