"""What commands share: finding the input, and writing the output."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ..errors import ToolError
from ..spec.stack_file import Project, StackFile, find_project, read_environment_file


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
