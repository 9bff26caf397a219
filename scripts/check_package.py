"""Builds the wheel once and tests that very file as users have it: outside the source tree, on every Python that it is for.

usage: check_package.py [--wheel FILE] [--dist FOLDER] [--python VERSION]...

--wheel FILE      test this file instead of building one
--dist FOLDER     where wheel, sdist and SBOM are left; without it nowhere
--python VERSION  3.11, 3.12, ...; without it all that the classifiers name, of which those that are not here are skipped. The first runs all
                  tests, the others those of the shipped stacks.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # a script's own folder is on the path, and not the repository

from scripts.versions import pinned  # noqa: E402

BIN = Path(sys.executable).parent
NEEDED = ("tests", "stacks", "examples", "docs", "Pulumi.yaml", "__main__.py", "pyproject.toml", "policy")
"""What the tests read besides the installed package."""
SUITE = ("tests/cli", "tests/golden", "tests/graph")
SHIPPED = ("tests/golden",)
OF_THE_REPOSITORY = ("tests/cli/test_docs_commands.py", "tests/graph/test_documented_stacks.py")
"""What tests the repository's pages, by git, and not the package."""
INIT = ("init", "prod", "--yes", "--model", "llama-3.3-70b-instruct-fp8", "--region", "us-east-1")


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command and stop at its failure; returns what it printed."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(done.stdout)
        raise SystemExit(f"{Path(command[0]).name} {' '.join(map(str, command[1:]))}: exit code {done.returncode}")
    return done.stdout


def interpreter(version: str) -> Path | None:
    """A Python of a version, for example 3.12: the one that runs here, one on the path, or one of pyenv's."""
    if version == "{}.{}".format(*sys.version_info):
        return Path(sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [shutil.which(f"python{version}"), *sorted(map(str, (pyenv / "versions").glob(f"{version}.*/bin/python")))]
    for candidate in filter(None, found):
        asked = subprocess.run([candidate, "-c", "import sys; print('{}.{}'.format(*sys.version_info))"], capture_output=True, text=True, check=False)
        if asked.returncode == 0 and asked.stdout.strip() == version:
            return Path(candidate)
    return None


def wanted() -> list[str]:
    """The versions of the classifiers, that of the interpreter that runs here first."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    found = [m[1] for c in classifiers if (m := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", c))]
    return sorted(found, key=lambda v: v != "{}.{}".format(*sys.version_info))


def build(folder: Path) -> Path:
    """The wheel, made from the sdist by the pinned tools, and inspected."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    run(BIN / "check-wheel-contents", "--config", ROOT / "pyproject.toml", wheel, cwd=folder)
    return wheel


class Environment:
    """A virtual environment without anything in it, and an empty folder to work in."""

    def __init__(self, base: Path, folder: Path) -> None:
        run(BIN / "uv", "venv", "--quiet", "--python", base, folder / "venv", cwd=folder)
        self.folder, self.bin = folder, folder / "venv/bin"

    def install(self, *what: str | Path) -> None:
        """Install packages, compiled as pip does it."""
        run(BIN / "uv", "pip", "install", "--quiet", "--compile-bytecode", "--python", self.bin / "python", *what, cwd=self.folder)

    def disagg(self, *args: str, cwd: Path) -> str:
        """A command of the installed package."""
        return run(self.bin / "disagg", *args, cwd=cwd)


def first_plan(place: Environment, wheel: Path) -> None:
    """What a new user does: install the wheel, write a stack, plan it."""
    start, project = time.monotonic(), place.folder / "new"
    project.mkdir()
    place.install(wheel, "-c", pins(place.folder))
    version = parse_wheel_filename(wheel.name)[1]
    told = place.disagg("--version", cwd=project).strip()
    if told != f"disagg-serving {version}":
        raise SystemExit(f"{wheel.name} says that it is {told}")
    place.disagg(*INIT, cwd=project)
    text = place.disagg("plan", "prod", cwd=project)
    if "llama-3-3-70b-instruct-fp8-prefill-0" not in text:
        raise SystemExit(f"the plan of a new project does not name its pods:\n{text}")
    print(f"  from the wheel to a first plan, in an empty folder: {time.monotonic() - start:.1f} s", flush=True)


def pins(folder: Path) -> Path:
    """The runtime's pins, without the source tree."""
    file = folder / "pins.txt"
    file.write_text("".join(f"{name}=={version}\n" for name, version in pinned(ROOT / "requirements.txt").items()), encoding="utf-8")
    return file


def bill_of_materials(place: Environment, wheel: Path) -> Path:
    """What the wheel installs, as CycloneDX; the packages must be those that are pinned, each with its licence.

    They have no hashes: an environment does not say of which files it was installed, and the pins name none.
    """
    file = wheel.with_name(f"{wheel.name.split('-py3')[0]}.cdx.json")
    # some packages declare their licence in words alone, which the tool takes for a text
    known = ("--output-reproducible", "--gather-license-texts", "--mc-type", "library", "--pyproject", ROOT / "pyproject.toml", "-o", file)
    run(BIN / "cyclonedx-py", "environment", *known, place.bin / "python", cwd=place.folder)
    data = of_wheel(json.loads(file.read_text(encoding="utf-8")), wheel)
    file.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    if unlicensed := [c["name"] for c in data["components"] if not c.get("licenses")]:
        raise SystemExit(f"the SBOM has no licence of {', '.join(unlicensed)}")
    listed = {canonicalize_name(c["name"]): c["version"] for c in data["components"]}
    expected = {canonicalize_name(name): version for name, version in pinned(ROOT / "requirements.txt").items()}
    if listed != expected:
        raise SystemExit(f"the SBOM differs from requirements.txt: {sorted(listed.items() ^ expected.items())}")
    return file


def of_wheel(data: dict[str, Any], wheel: Path) -> dict[str, Any]:
    """The list of this very wheel: the tool reads name and licence from pyproject.toml, where the version is the tag's and not written."""
    version = str(parse_wheel_filename(wheel.name)[1])
    digest = {"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}
    root = data["metadata"]["component"]
    about = {"version": version, "purl": f"pkg:pypi/{root['name']}@{version}", "hashes": [digest]}
    return {**data, "metadata": {**data["metadata"], "component": {**root, **about}}}


def suite(place: Environment, tests: tuple[str, ...]) -> None:
    """Tests against the installed wheel, in a folder without the package's sources."""
    place.install("-r", pins(place.folder), *(part for kind in ("extras", "dev") for part in ("-r", ROOT / f"requirements/{kind}.txt")))
    project = place.folder / "project"
    project.mkdir()
    for item in NEEDED:
        source = ROOT / item
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, project / item)
    place.disagg("plan", "prod", "--format", "json", "-o", str(place.folder / "plan.json"), cwd=project)
    start = time.monotonic()
    others = (f"--ignore={test}" for test in OF_THE_REPOSITORY)
    print("  " + run(place.bin / "python", "-m", "pytest", "-n", "auto", *others, *tests, cwd=project).strip().splitlines()[-1])
    print(f"  {', '.join(tests)}: {time.monotonic() - start:.0f} s", flush=True)


def tested(wheel: Path, versions: list[str], folder: Path, *, required: bool) -> Iterator[str]:
    """Test a wheel on each version that is here; yields those that were."""
    for version in versions:
        base = interpreter(version)
        if base is None:
            if required:
                raise SystemExit(f"Python {version} is not here")
            print(f"Python {version}: skipped, it is not here", flush=True)
            continue
        print(f"Python {version}:", flush=True)
        place = folder / version
        place.mkdir()
        environment = Environment(base, place)
        first_plan(environment, wheel)
        if version == versions[0]:
            print(f"  {bill_of_materials(environment, wheel).name}: as pinned", flush=True)
        suite(environment, SUITE if version == versions[0] else SHIPPED)
        yield version


def main() -> int:
    """Build, inspect, install, plan, list, test."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("--dist", type=Path)
    parser.add_argument("--python", action="append")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dist = folder / "dist"
        dist.mkdir()
        wheel = Path(shutil.copy(given.wheel, dist)) if given.wheel else build(dist)
        versions = list(tested(wheel, given.python or wanted(), folder, required=bool(given.python)))
        if given.dist:
            given.dist.mkdir(parents=True, exist_ok=True)
            for file in dist.iterdir():
                shutil.copy(file, given.dist)
    done = "tested" if given.wheel else "built, inspected and tested"
    print(f"{wheel.name}: {done} outside the source tree on Python {', '.join(versions)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
