"""The Python that a revision's program needs: the one that runs here, or one with that revision's own packages."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..errors import ToolError
from ..yaml_io import inside
from .revision import Revision

FOLDER = re.compile(r"(-e|--editable|\.|/|file:|\S+ *@ *file:)(?!.*\.(whl|zip|tar\.gz)\b)")
"""A line of requirements.txt that installs a folder: its code is that of the work tree, only its dependencies count."""
INCLUDE = re.compile(r"(?:-r|-c|--requirement|--constraint)[ =]*(?P<file>[^\s=].*)")
COMMENT = re.compile(r"(^|\s)#.*$")
PINNED = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])? *== *([A-Za-z0-9.!+_-]+)")
"""A line of requirements.txt that holds everywhere: with markers or hashes it is passed by."""
HINT = "hint:"
"""With what uv begins the lines after the reason."""
SHOWN = 3
DECLARED = "pyproject.toml: dependencies"
COMPLETE = "complete"
KEPT_VARIABLES = frozenset({
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "XDG_DATA_HOME",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NETRC", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
    "http_proxy", "https_proxy", "all_proxy", "no_proxy",
})  # fmt: skip
"""What an installation sees of the environment besides the installer's own settings: packages may run code of theirs when they are built."""


class RequirementsError(ToolError):
    """A revision's packages cannot be had."""


def interpreter_of(revision: Revision, tree: Path, cache: Path) -> tuple[Path, bool]:
    """An interpreter with the packages of a revision that is checked out in `tree`, and whether it is one of its own.

    Raises RequirementsError when the packages differ from this revision's and cannot be installed.
    """
    wanted = _requirements(tree, revision.project)
    # the texts alone, since the folder may have moved
    if [*wanted.values()] == [*_requirements(revision.repository, revision.moved_to or revision.project).values()]:
        return Path(sys.executable), False
    key = hashlib.sha256(json.dumps([sys.version, wanted]).encode()).hexdigest()[:24]
    folder = cache / "python" / key
    python = folder / "bin" / "python"
    if not (folder / COMPLETE).is_file():
        _install(folder, python, tree, wanted, revision)
    return python, True


def not_as_pinned(root: Path) -> tuple[str, ...]:
    """A note on packages that the project in `root` pins (`name==version`) and that are installed here in other versions, or not at all."""
    try:
        lines = [*_lines((root / "requirements.txt").read_text(encoding="utf-8", errors="replace"))]
    except OSError:
        return ()
    found = []
    for name, wanted in (m.groups() for line in lines if (m := PINNED.fullmatch(line))):
        try:
            here = version(name)
        except PackageNotFoundError:
            here = "none"
        if here != wanted:
            found.append(f"{name} {here} instead of {wanted}")
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return (f"this branch is planned by what is installed here, not by its requirements.txt: {', '.join(found[:SHOWN])}{more}",) if found else ()


def _requirements(root: Path, project: Path) -> dict[str, str]:
    """Texts of requirements.txt and of all files that it includes, by path, and the declared dependencies where folders are installed."""
    found: dict[str, str] = {}
    todo = [posixpath.normpath((project / "requirements.txt").as_posix())]
    while todo:
        path = todo.pop()
        text = None if path in found else _text(root, path)
        if text is not None:
            found[path] = text
            todo += [
                posixpath.normpath(posixpath.join(posixpath.dirname(path), m["file"])) for line in _lines(text) if (m := INCLUDE.fullmatch(line))
            ]
    lines = [line for text in found.values() for line in _lines(text)]
    if not lines or any(FOLDER.match(line) for line in lines):
        found[DECLARED] = _declared(_text(root, (project / "pyproject.toml").as_posix()))
    return found


def _text(root: Path, path: str) -> str | None:
    """A file of a work tree; None where there is none. Raises ToolError where it lies elsewhere: an installer shows what it cannot read."""
    file = inside(root, path)
    if file is None:
        raise ToolError(f"{path}, of the requirements, leads out of the repository")
    try:
        return file.read_bytes().decode("utf-8", "replace")
    except OSError:
        return None


def _lines(text: str) -> Iterator[str]:
    """Logical lines without comments."""
    for line in text.replace("\r\n", "\n").replace("\\\n", " ").splitlines():
        bare = COMMENT.sub("", line).strip()
        if bare:
            yield bare


def _declared(text: str | None) -> str:
    try:
        declared = tomllib.loads(text or "").get("project", {}).get("dependencies", [])
    except (tomllib.TOMLDecodeError, AttributeError):
        return ""
    return "".join(f"{d}\n" for d in declared)


def _install(folder: Path, python: Path, tree: Path, wanted: Mapping[str, str], revision: Revision) -> None:
    """Make a virtual environment with the revision's packages, by uv where it is there, else by pip, from the revision's own files."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True)
    except OSError as problem:
        raise ToolError(f"no place for the packages of {revision.asked}: {folder}: {(problem.strerror or str(problem)).lower()}") from None
    listed = []
    for path, text in wanted.items():
        if path == DECLARED:
            file = folder / "declared.txt"
            file.write_text(text, encoding="utf-8")
            listed += ["-r", str(file)]
        elif any(FOLDER.match(line) for line in _lines(text)):
            # the work tree goes, so nothing may be installed from its folders; what is beside them stays as it is
            kept = [line for line in _lines(text) if not FOLDER.match(line)]
            (tree / path).write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    first = tree / revision.project / "requirements.txt"
    if first.is_file():
        listed = ["-r", first.name, *listed]
    sys.stderr.write(f"installing the packages of {revision.asked} ({revision.commit[:10]}), which are kept ...\n")
    venv = [sys.executable, "-P", "-m", "venv", str(folder)]
    install = [str(python), "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    if uv := shutil.which("uv"):
        venv, install = [*venv, "--without-pip"], [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python)]
    place, environment = tree / revision.project, _environment()
    for step in (venv, [*install, *listed]):
        done = subprocess.run(
            step, cwd=place, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            lines = [line.strip() for line in done.stderr.splitlines() if line.strip() and not line.startswith(HINT)]
            reason = lines[-1].removeprefix("cause: ") if lines else "no reason given"
            fix = "run it once where the package index is reached, or compare with a revision of the same requirements"
            raise RequirementsError(f"the requirements of {revision.commit[:10]} differ from those here and cannot be installed: {reason}; {fix}")
    (folder / COMPLETE).touch()


def _environment() -> dict[str, str]:
    """What finds the package index, with its credentials if it has any, and no others."""
    settings = {k for k in os.environ if k.startswith(("PIP_", "UV_")) and not any(word in k for word in ("TOKEN", "PUBLISH"))}
    return {k: v for k, v in os.environ.items() if k in KEPT_VARIABLES | settings}
