"""The Python that a revision's program needs: the one that runs here, or one with that revision's own packages."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from ..errors import ToolError
from .revision import Revision

Read = Callable[[str], str | None]
LOCAL = ("-e", "--editable", ".", "/", "file:")
"""What a line of requirements.txt begins with that installs a folder: its code is that of the work tree, only its dependencies count."""
COMPLETE = "complete"


def interpreter_of(revision: Revision, cache: Path) -> tuple[Path, bool]:
    """An interpreter with the revision's packages, and whether it is one of its own.

    Raises ToolError when the packages differ from this revision's and cannot be installed.
    """
    project = PurePosixPath(revision.project.as_posix())
    wanted = _requirements(revision.read, project)
    if wanted == _requirements(_reader(revision.repository), project):
        return Path(sys.executable), False
    key = hashlib.sha256("\n".join([sys.version, *wanted]).encode()).hexdigest()[:24]
    folder = cache / "python" / key
    python = folder / "bin" / "python"
    if not (folder / COMPLETE).is_file():
        _install(folder, python, wanted, revision)
    return python, True


def _reader(root: Path) -> Read:
    def read(path: str) -> str | None:
        try:
            return (root / path).read_text(encoding="utf-8")
        except OSError:
            return None

    return read


def _requirements(read: Read, project: PurePosixPath) -> list[str]:
    """The lines of requirements.txt and of the files that it includes, sorted; of local folders their declared dependencies."""
    lines, local = list(_lines(read, project / "requirements.txt")), False
    found = set()
    for line in lines:
        if line.startswith(LOCAL):
            local = True
        else:
            found.add(line)
    if local or not lines:
        found |= set(_declared(read(str(project / "pyproject.toml"))))
    return sorted(found)


def _lines(read: Read, file: PurePosixPath, depth: int = 0) -> Iterator[str]:
    for raw in (read(str(file)) or "").splitlines():
        line = raw.split(" #")[0].strip()
        if not line or line.startswith("#"):
            continue
        option, _, other = line.partition(" ")
        if option in ("-r", "--requirement") and depth < 5:  # noqa: PLR2004 (files that include each other end somewhere)
            yield from _lines(read, file.parent / other.strip(), depth + 1)
        else:
            yield line


def _declared(text: str | None) -> list[str]:
    try:
        declared = tomllib.loads(text or "").get("project", {}).get("dependencies", [])
    except tomllib.TOMLDecodeError:
        return []
    return [str(d) for d in declared]


def _install(folder: Path, python: Path, wanted: list[str], revision: Revision) -> None:
    """Make a virtual environment with the revision's packages, by uv where it is there, else by pip."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True)
    except OSError as problem:
        raise ToolError(f"no place for the packages of {revision.asked}: {folder}: {(problem.strerror or str(problem)).lower()}") from None
    listed = folder / "requirements.txt"
    listed.write_text("\n".join(wanted) + "\n", encoding="utf-8")
    uv = shutil.which("uv")
    if uv:
        steps = [
            [uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(folder)],
            [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python), "-r", str(listed)],
        ]
    else:
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "-r", str(listed)]
        steps = [[sys.executable, "-m", "venv", str(folder)], [str(python), *install]]
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            reason = next((line for line in reversed(done.stderr.strip().splitlines()) if line.strip()), "no reason given").strip()
            fix = "run it once where the package index is reached, or compare with a revision of the same requirements"
            raise ToolError(f"the requirements of {revision.commit[:10]} differ from those here and cannot be installed: {reason}; {fix}")
    (folder / COMPLETE).touch()
