"""Finding catalogue entries: the package's own and the user's folders, of which later ones win. A file is read when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from ..errors import Finding, Level, SpecError, closest
from ..phrases import say
from ..spec.validation import parse
from ..yaml_io import inside, read_yaml, real
from .entries import Engine, Entry, Instance, Model

if TYPE_CHECKING:
    from .bugs import Bug
    from .metric_list import MetricList
    from .router import Router

E = TypeVar("E", bound=Entry)
PACKAGE_DIR = Path(__file__).parent
_SHIPPED: dict[Path, Any] = {}
"""The package's own entries that were read: every evaluation asks for some, and they stay as they are while a process runs."""


class Entries(Mapping[str, E], Generic[E]):
    """The entries of one kind by id. Reading a faulty file raises SpecError with the file's name in every path."""

    def __init__(self, kind: str, model: Callable[[], type[E]], dirs: Sequence[Path], base: Path) -> None:
        self.kind, self._model, self._dirs, self._base = kind, model, dirs, base
        self._read: dict[str, E] = {}

    @cached_property
    def _files(self) -> dict[str, Path]:
        return {f.name.removesuffix(".yaml"): f for d in self._dirs for f in sorted((d / self.kind).glob("*.yaml"))}

    def __getitem__(self, entry_id: str) -> E:
        if entry_id not in self._read:
            self._read[entry_id] = self._load(self._files[entry_id])
        return self._read[entry_id]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._files))

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self._files

    def is_added(self, entry_id: str) -> bool:
        """Whether an entry comes from a folder of the user's."""
        return entry_id in self._files and PACKAGE_DIR not in self._files[entry_id].parents

    def missing(self, path: str, entry_id: str, others: Sequence[str] = ()) -> Finding:
        """The finding for an id that no file has; `others` may have been meant as well."""
        known, noun = list(self), self.kind.removesuffix("s")
        add = say("add `{}/{}.yaml` to a folder of {catalogDirs}", self.kind, entry_id)
        return Finding("catalog", Level.ERROR, path, f"is not a known {noun}", entry_id, ", ".join(known), add).guessing([*known, *others])

    def unreachable(self) -> Iterator[Finding]:
        """Findings about files of the user's that no id leads to, so that nobody would see that they are not read."""
        for folder in self._dirs:
            for file in sorted((folder / self.kind).glob("*.y*ml")) if folder != PACKAGE_DIR else ():
                where, name = self._shown(file), file.name.removesuffix(".yaml")
                try:
                    data = read_yaml(file) if self._is_inside(file) else {}
                except SpecError as problem:
                    yield from (f.below(f"{where}: ") for f in problem.findings)
                    continue
                found = data.get("id", name) if isinstance(data, Mapping) else name
                if file.suffix != ".yaml":
                    yield Finding("catalog", Level.ERROR, where, "is not read", None, "a name that ends with .yaml", f"call it {file.stem}.yaml")
                elif found != name:
                    yield _misnamed(where, found, name)

    def _shown(self, file: Path) -> str:
        """A file as its owner finds it: from the folder that paths start from, or by its name in this package's catalogue."""
        return str(file.relative_to(self._base)) if file.is_relative_to(self._base) else f"{self.kind}/{file.name}"

    def _is_inside(self, file: Path) -> bool:
        return any(real(file).is_relative_to(real(d)) for d in self._dirs)

    def _load(self, file: Path) -> E:
        if file in _SHIPPED:
            return cast("E", _SHIPPED[file])
        where = self._shown(file)
        if not self._is_inside(file):
            message = "is a link that leads out of the catalogue"
            raise SpecError([Finding("catalog", Level.ERROR, where, message, None, "a file inside its folder", "copy the file")])
        try:
            entry = parse(self._model(), read_yaml(file))
        except SpecError as problem:
            raise SpecError([f.below(f"{where}: ") for f in problem.findings]) from None
        if entry.id != file.name.removesuffix(".yaml"):
            raise SpecError([_misnamed(where, entry.id, file.name.removesuffix(".yaml"))])
        if PACKAGE_DIR in file.parents:
            _SHIPPED[file] = entry
        return entry


def _misnamed(where: str, entry_id: object, name: str) -> Finding:
    fix = f"call the file {entry_id}.yaml, or write id: {name}"
    return Finding("catalog", Level.ERROR, f"{where}: id", "is not the file's name", entry_id, name, fix)


class Catalog:
    """Instance types, models, engine images and their known bugs, router releases and lists of metrics."""

    def __init__(self, dirs: Sequence[Path] = (), base: Path | None = None) -> None:
        """The package's catalogue and `dirs`; messages name files from `base` on."""
        folders, start = (PACKAGE_DIR, *dirs), real(base or Path.cwd()) if dirs else PACKAGE_DIR
        self._dirs = dirs
        self.instances = Entries("instances", lambda: Instance, folders, start)
        self.models = Entries("models", lambda: Model, folders, start)
        self.engines = Entries("engines", lambda: Engine, folders, start)
        self.routers = Entries("routers", _router, folders, start)
        self.metrics = Entries("metrics", _metric_list, folders, start)
        self.bugs = Entries("engines/bugs", _bug, folders, start)

    def known_model(self, name: str) -> Model | None:
        """The model of an id, or of the repository on Hugging Face that an entry names; None where there is none. Raises as entries do."""
        if name in self.models:
            return self.models[name]
        return next((m for m in self._of_repositories() if m.repository.casefold() == name.casefold()), None) if "/" in name else None

    def unknown_model(self, path: str, name: str) -> Finding:
        """The finding for a name that is neither an id, a repository of an entry, nor a path."""
        return self.models.missing(path, name, [m.repository for m in self._of_repositories()] if "/" in name else ())

    def _of_repositories(self) -> list[Model]:
        return [self.models[i] for i in self.models]

    def unreachable(self) -> list[Finding]:
        """Errors about what lies in the user's folders and is never read: files under another name than their id, and folders that are misspelt."""
        if not self._dirs:
            return []
        shelves: list[Entries[Any]] = [self.instances, self.models, self.engines, self.routers, self.metrics, self.bugs]
        kinds = [shelf.kind for shelf in shelves if "/" not in shelf.kind]
        odd = [d for folder in self._dirs for d in sorted(folder.iterdir()) if d.is_dir() and d.name not in kinds and any(d.glob("*.yaml"))]
        likely = [(d, closest(d.name, kinds, 0.8)) for d in odd]
        misspelt = [
            Finding("catalog", Level.ERROR, f"{d.parent.name}/{d.name}", "is not read", None, ", ".join(kinds), f"did you mean {kind}?")
            for d, kind in likely
            if kind
        ]
        return [*misspelt, *(finding for shelf in shelves for finding in shelf.unreachable())]


def _router() -> type[Router]:
    from .router import Router  # noqa: PLC0415 (slow)

    return Router


def _metric_list() -> type[MetricList]:
    from .metric_list import MetricList  # noqa: PLC0415 (slow)

    return MetricList


def is_path(name: str, base: Path) -> bool:
    """Whether a model's name means a config.json or its folder: it is written as a path, or there is one below `base`."""
    written = name.startswith((".", "/")) or name.endswith((".json", "/")) or name.count("/") > 1
    return written or ((file := inside(base, name)) is not None and file.exists())


def _bug() -> type[Bug]:
    from .bugs import Bug  # noqa: PLC0415 (slow)

    return Bug


def load_catalog(dirs: Sequence[str] = (), base: Path | None = None) -> Catalog:
    """The catalogue with the user's folders, relative to `base`.

    Raises SpecError for a folder that does not exist or leads out of `base`.
    """
    folders, findings = [], []
    for i, text in enumerate(dirs):
        folder = inside(base or Path.cwd(), text)
        if folder is None or not folder.is_dir():
            findings.append(Finding("catalog-dir", Level.ERROR, f"catalogDirs[{i}]", "is not a folder of the project", text, "a folder below it"))
        else:
            folders.append(folder)
    if findings:
        raise SpecError(findings)
    return Catalog(folders, base)
