"""Projects and stack files as Pulumi lays them out, read without Pulumi."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import Finding, Level, SpecError, ToolError, did_you_mean
from ..yaml_io import inside, read_yaml

NAMESPACE = "disagg-serving"
ENVIRONMENT_KEY = f"{NAMESPACE}:environment"


@dataclass(frozen=True)
class StackFile:
    """One environment's file, taken apart.

    `environment` is the raw mapping (None where the file has none), `config` the other plain keys, `secrets` the names of the
    encrypted ones: their values are never read.
    """

    path: Path
    stack: str
    environment: Any
    config: Mapping[str, Any] = field(default_factory=dict)
    secrets: frozenset[str] = frozenset()
    bare: bool = False
    imports: bool = False
    """Whether ESC environments add configuration that is not known here."""

    @property
    def region(self) -> str | None:
        """`aws:region`, if the file sets it."""
        value = self.config.get("aws:region")
        return value if isinstance(value, str) else None


@dataclass(frozen=True)
class Project:
    """A folder with a Pulumi.yaml."""

    root: Path
    name: str
    stack_dir: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    runtime: str = "python"
    main: str = "."

    @property
    def program(self) -> Path:
        """The folder of the program."""
        return self.root / self.main

    def stacks(self) -> list[str]:
        """Names of the stacks that have a file, sorted."""
        return sorted(p.name[len("Pulumi.") : -len(".yaml")] for p in self.stack_dir.glob("Pulumi.*.yaml"))

    def stack_file(self, stack: str) -> StackFile:
        """The stack's file. Raises ToolError when there is none, SpecError when it cannot be used."""
        known = self.stacks()
        if stack not in known:
            hint = did_you_mean(stack, known)
            raise ToolError(f"no stack {stack} in {_shown(self.stack_dir)} (known: {', '.join(known) or 'none'}){'; ' + hint if hint else ''}")
        file = self.stack_dir / f"Pulumi.{stack}.yaml"
        _stays_inside(file, self.root, file.name)
        return read_stack_file(file, stack)


def find_project(start: Path) -> Project:
    """The project of `start` or of the nearest folder above it. Raises ToolError when there is none."""
    file = _project_file(start)
    if file is not None:
        return read_project(file)
    raise ToolError(
        "no Pulumi.yaml here or in a folder above; change into a project, start one with `disagg init`, or give a file with a bare environment"
    )


def _project_file(start: Path) -> Path | None:
    files = (folder / name for folder in (start, *start.parents) for name in ("Pulumi.yaml", "Pulumi.yml"))
    return next((file for file in files if file.is_file()), None)


def read_project(file: Path) -> Project:
    """Parse a Pulumi.yaml. Raises SpecError when it is not a mapping with a name."""
    root = file.parent
    _stays_inside(file, root, file.name)
    data = read_yaml(file)
    if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
        raise SpecError([Finding("project", Level.ERROR, f"{file.name}: name", "is missing", None, "the project's name")], file)
    stack_dir = data.get("stackConfigDir") or "."
    config = data.get("config") or {}
    if not isinstance(config, Mapping):
        raise SpecError([Finding("project", Level.ERROR, f"{file.name}: config", "is not a mapping", config, "keys with their defaults")], file)
    for key, place in (("stackConfigDir", stack_dir), ("main", data.get("main") or ".")):
        _stays_inside(root / str(place), root, f"{file.name}: {key}")
    runtime = data.get("runtime")
    runtime = runtime.get("name") if isinstance(runtime, Mapping) else runtime
    return Project(root, data["name"], root / str(stack_dir), config, str(runtime or "python"), str(data.get("main") or "."))


def read_environment_file(path: Path) -> StackFile:
    """A stack file, or a bare environment mapping, told apart by the key `config`.

    Raises ToolError when the file cannot be read, SpecError when it is not YAML or when a link in a project leads out of its repository.
    """
    given = Path(os.path.abspath(path))  # noqa: PTH100 (resolving would follow the link)
    project = _project_file(given.parent)
    if project is not None:
        _stays_inside(given, project.parent, path.name)
    try:
        data = read_yaml(path)
    except OSError as problem:
        raise ToolError(f"{_shown(path)}: {(problem.strerror or str(problem)).lower()}") from None
    if isinstance(data, Mapping) and isinstance(data.get("config"), Mapping):
        stem = path.name.removesuffix(".yaml").removesuffix(".yml")
        return _stack_file(path, stem.removeprefix("Pulumi.") or "stack", data)
    return StackFile(path, "", data, bare=True)


def read_stack_file(path: Path, stack: str) -> StackFile:
    """Parse `Pulumi.<stack>.yaml`. Raises SpecError when it is not a mapping."""
    return _stack_file(path, stack, read_yaml(path))


def _stack_file(path: Path, stack: str, data: Any) -> StackFile:
    if data is None:
        data = {}
    config = data.get("config") or {} if isinstance(data, Mapping) else None
    if not isinstance(config, Mapping):
        raise SpecError([Finding("stack-file", Level.ERROR, "config", "is not a mapping", config, f"a mapping with {ENVIRONMENT_KEY}")], path)
    plain: dict[str, Any] = {}
    secrets: set[str] = set()
    for key, value in config.items():
        name = str(key) if ":" in str(key) else f"{NAMESPACE}:{key}"
        if isinstance(value, Mapping) and "secure" in value and len(value) == 1:
            secrets.add(name)
        else:
            plain[name] = value
    environment = plain.pop(ENVIRONMENT_KEY, None)
    return StackFile(path, stack, environment, plain, frozenset(secrets), imports=bool(data.get("environment")))


def _stays_inside(path: Path, root: Path, place: str) -> None:
    """Refuse what a link or `..` puts outside the repository of the project: a plan shows what it reads."""
    repository = next((p for p in (root, *root.parents) if (p / ".git").exists()), root)
    if inside(repository, str(path)) is None:
        raise SpecError([Finding("stack-file", Level.ERROR, place, "leads out of the repository", None, "a place inside it")])


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return path.name
