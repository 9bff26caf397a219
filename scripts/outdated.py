"""Shows which pins have newer versions, and since when. It proposes and changes nothing.

usage: outdated.py
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import requests
from disagg_serving import pins
from disagg_serving.catalog import load_catalog
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from pypi_simple import PYPI_SIMPLE_ENDPOINT, NoSuchProjectError, PyPISimple
from semver import Version as Semver

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # a script's own folder is on the path, and not the repository

from scripts.versions import pinned  # noqa: E402

PYPI, GO, NPM, GITHUB, DOCS = "the Python index", "the Go module proxy", "the npm registry", "GitHub", "documentation"
SECONDS = 20
AT_ONCE = 8
LAST_EPOCH = 10**6
"""Above it an epoch is a time in seconds."""
RELEASES = "https://api.github.com/repos/{}/releases/latest"
SKIPPED = {".venv", "venv", "node_modules", ".bench", "released"}


@dataclass(frozen=True)
class Pin:
    """A version that the project names: of what, who knows of newer ones under which name, where it stands, and what a range allows."""

    name: str
    version: str
    index: str
    asked: str
    where: str
    allowed: str = ""


@dataclass(frozen=True)
class Answer:
    """The newest version and its day; or, without them, why it is not known."""

    version: str = ""
    date: str = ""
    why: str = ""


class UnreachableError(Exception):
    """An index that does not answer at all."""


def find_pins(root: Path = ROOT) -> list[Pin]:
    """Every pin that a person chose; what follows from them is moved by `make lock`."""
    return [*_packages(root), *_installed(), *_modules(root), *_npm_packages(root), *_actions(root)]


def _packages(root: Path) -> Iterator[Pin]:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = [Requirement(r) for r in (*project["dependencies"], *(r for extra in project["optional-dependencies"].values() for r in extra))]
    ranges = {canonicalize_name(r.name): str(r.specifier) for r in listed}
    for file in (root / "requirements.txt", *sorted((root / "requirements").glob("*.txt"))):
        source = file.with_suffix(".in")
        chosen = set(ranges) if file.name in ("requirements.txt", "extras.txt") else None
        if source.is_file():
            lines = (line.partition("#")[0].strip() for line in source.read_text(encoding="utf-8").splitlines())
            chosen = {canonicalize_name(Requirement(line).name) for line in lines if line}
        for name, version in pinned(file).items():
            key = canonicalize_name(name)
            if chosen is None or key in chosen:
                yield Pin(name, version, PYPI, name, file.relative_to(root).as_posix(), ranges.get(key, "") if chosen else "")


def _installed() -> Iterator[Pin]:
    """What deployments install, from pins.py and the catalogue."""
    catalog, place = load_catalog(), "catalog"
    yield Pin("Kubernetes", pins.KUBERNETES.version, DOCS, pins.KUBERNETES.source, "pins.py")
    for name, pin in (("LeaderWorkerSet chart", pins.LWS_CHART), ("KEDA chart", pins.KEDA_CHART), ("DCGM exporter chart", pins.DCGM_CHART)):
        yield Pin(name, pin.version, GITHUB, _repository(pin.source), "pins.py")
    for key in catalog.engines:
        yield Pin(f"engine {key}", catalog.engines[key].version, PYPI, catalog.engines[key].engine, place)
    for key in catalog.routers:
        yield Pin(f"router {key}", catalog.routers[key].version.removeprefix("v"), GITHUB, _repository(catalog.routers[key].source[0]), place)


def _repository(source: str) -> str:
    found = re.match(r"https://github\.com/([\w.-]+/[\w.-]+)", source)
    return found[1] if found else source


def _modules(root: Path) -> Iterator[Pin]:
    for name, entry in tomllib.loads((root / "bench/versions.toml").read_text(encoding="utf-8")).items():
        if "module" in entry:
            yield Pin(name, entry["version"], GO, entry["module"], "bench/versions.toml")
        for module, _, version in (text.partition("@") for text in entry.get("with", ())):
            yield Pin(module.rpartition("/")[2], version, GO, module, "bench/versions.toml")


def _npm_packages(root: Path) -> Iterator[Pin]:
    for file in _files(root, "examples", "package.json"):
        data = json.loads(file.read_text(encoding="utf-8"))
        for name, version in {**data.get("dependencies", {}), **data.get("devDependencies", {})}.items():
            if Semver.is_valid(version):
                yield Pin(name, version, NPM, name, file.relative_to(root).as_posix())


def _actions(root: Path) -> Iterator[Pin]:
    found: dict[tuple[str, str], str] = {}
    for file in (*_files(root, ".github", "*.yml"), *_files(root, "examples", "*.yml")):
        for name, version in re.findall(r"uses: ([\w.-]+/[\w.-]+)[\w./-]*@[0-9a-f]{40} # v([\d.]+)", file.read_text(encoding="utf-8")):
            found.setdefault((name, version), file.relative_to(root).as_posix())
    yield from (Pin(name, version, GITHUB, name, where) for (name, version), where in sorted(found.items()))


def _files(root: Path, folder: str, pattern: str) -> list[Path]:
    return sorted(f for f in (root / folder).rglob(pattern) if not SKIPPED & set(f.relative_to(root).parts))


def _get(url: str) -> requests.Response:
    try:
        found = requests.get(url, timeout=SECONDS)
    except requests.RequestException as problem:
        raise UnreachableError(type(problem).__name__) from None
    return found


def _refusal(found: requests.Response | None) -> Answer:
    return Answer(why=f"it answers {found.status_code}" if found is not None else "it answers with an error")


def ask_python(name: str) -> Answer:
    """The newest release of a package that is not yanked."""
    with PyPISimple(os.environ.get("PIP_INDEX_URL", PYPI_SIMPLE_ENDPOINT)) as index:
        try:
            page = index.get_project_page(name, timeout=SECONDS)
        except NoSuchProjectError:
            return Answer(why="it has no such package")
        except requests.HTTPError as problem:
            return _refusal(problem.response)
        except requests.RequestException as problem:
            raise UnreachableError(type(problem).__name__) from None
    files = {Version(p.version): p for p in reversed(page.packages) if p.version and not p.is_yanked and not Version(p.version).is_prerelease}
    if not files:
        return Answer(why="it has no release")
    newest = max(files, key=_order)
    uploaded = files[newest].upload_time
    return Answer(str(newest), f"{uploaded:%Y-%m-%d}" if uploaded else "")


def _order(version: Version) -> tuple[tuple[int, ...], Version]:
    """How versions follow each other. An epoch is a new way to count, but some index builds by it: then it is a time, and the release counts."""
    return (version.release if version.epoch > LAST_EPOCH else (), version)


def ask_go(module: str) -> Answer:
    """The newest release of a module: of the newest of each major number the last one, since a module may have gone back from v1 to v0."""
    proxy = _setting("GOPROXY", "go", "env", "GOPROXY").split(",")[0].split("|")[0].rstrip("/")
    base = f"{proxy}/{re.sub('[A-Z]', lambda m: '!' + m[0].lower(), module)}/@v"
    found = _get(f"{base}/list")
    if not found.ok:
        return _refusal(found)
    # `+incompatible` is a version from before the module was one
    releases = [v for v in found.text.split() if Semver.is_valid(v[1:]) and not Semver.parse(v[1:]).prerelease and "+" not in v]
    if not releases:
        return Answer(why="it has no release")
    by_major: dict[int, str] = {}
    for release in sorted(releases, key=lambda v: Semver.parse(v[1:])):
        by_major[Semver.parse(release[1:]).major] = release
    dates = {release: str(about.json()["Time"]) if (about := _get(f"{base}/{release}.info")).ok else "" for release in by_major.values()}
    newest = max(dates, key=dates.__getitem__) if all(dates.values()) else list(dates)[-1]
    return Answer(newest, dates[newest][:10])


def ask_npm(name: str) -> Answer:
    """The version that the tag `latest` stands for."""
    registry = _setting("npm_config_registry", "npm", "config", "get", "registry").rstrip("/")
    found = _get(f"{registry}/{quote(name, safe='@')}")
    if not found.ok:
        return _refusal(found)
    data = found.json()
    newest = data["dist-tags"]["latest"]
    return Answer(newest, data.get("time", {}).get(newest, "")[:10])


def ask_github(repository: str) -> Answer:
    """The newest release of a repository; of a tag that holds several versions, the last."""
    found = _get(RELEASES.format(repository))
    if not found.ok:
        return _refusal(found)
    data = found.json()
    versions = re.findall(r"\d+(?:\.\d+)*", data["tag_name"])
    return Answer(versions[-1], data["published_at"][:10]) if versions else Answer(why=f"its newest release is {data['tag_name']}")


def ask_nobody(source: str) -> Answer:
    """What only a page tells."""
    return Answer(why=f"see {source}")


ASK: Mapping[str, Callable[[str], Answer]] = {PYPI: ask_python, GO: ask_go, NPM: ask_npm, GITHUB: ask_github, DOCS: ask_nobody}


def _setting(variable: str, *command: str) -> str:
    """A client's address of its registry. Raises UnreachableError where the client is not installed or has none."""
    text = os.environ.get(variable) or ""
    tool = shutil.which(command[0])
    if not text and tool:
        text = subprocess.run([tool, *command[1:]], capture_output=True, text=True, check=False).stdout.strip()
    if not text.startswith(("http://", "https://")):
        raise UnreachableError(f"{command[0]} is not installed" if not tool else f"{command[0]} has no address for it")
    return text


def answers(index: str, names: Sequence[str]) -> dict[str, Answer]:
    """What an index says about each name. Raises UnreachableError when it does not answer the first."""
    first, *rest = dict.fromkeys(names)
    found = {first: ASK[index](first)}

    def patient(name: str) -> Answer:
        try:
            return ASK[index](name)
        except UnreachableError as problem:
            return Answer(why=str(problem))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return found | dict(zip(rest, pool.map(patient, rest), strict=True))


def report(found: Sequence[Pin]) -> tuple[list[str], bool]:
    """Lines of the report, and whether anybody could be asked."""
    rows, notes, current, asked = [], list[str](), 0, False
    for index in ASK:
        group = [p for p in found if p.index == index]
        if not group:
            continue
        try:
            known = answers(index, [p.asked for p in group])
        except UnreachableError as problem:
            notes.append(f"{index} cannot be asked ({problem}); pins that are not compared: {', '.join(p.name for p in group)}")
            continue
        asked |= index != DOCS
        for pin in group:
            answer = known[pin.asked]
            if answer.why:
                notes.append(f"{pin.name} {pin.version} ({pin.where}): {answer.why}")
            elif same(answer.version, pin.version):
                current += 1
            else:
                rows.append((pin.name, pin.version, answer.version, answer.date, pin.where, _outside(pin, answer)))
    head = ("what", "pinned", "newest", "of", "in", "")
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *sorted(rows))] if rows else []
    return [*table, f"{current} pins are the newest, {len(rows)} are not", *notes], asked


def same(one: str, other: str) -> bool:
    """Whether two versions are the same, however they are written (1.36 and v1.36.0)."""
    return one.removeprefix("v") == other.removeprefix("v") or (_is_python(one) and _is_python(other) and Version(one) == Version(other))


def _is_python(text: str) -> bool:
    return bool(re.fullmatch(r"v?(\d+!)?\d+(\.\d+)*", text))


def _outside(pin: Pin, answer: Answer) -> str:
    beyond = pin.allowed and Version(answer.version) not in Requirement(f"x{pin.allowed}").specifier
    return f"outside {pin.allowed}" if beyond else ""


def main() -> int:
    """Print the report; exit code 1 where nothing could be asked."""
    lines, asked = report(find_pins())
    print("\n".join(lines))
    if not asked:
        print("no network: nothing was compared", file=sys.stderr)
    return 0 if asked else 1


if __name__ == "__main__":
    sys.exit(main())
