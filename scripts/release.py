"""Keeps what a release makes of the shipped programs and stack files, for tests/upgrade. Run it at the commit that gets the tag.

usage: release.py keep VERSION    write it; a release is never written twice
       release.py check VERSION   say what differs between what is kept and what this revision makes
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from disagg_serving.document.plan import PlanDocument
from disagg_serving.errors import SpecError, ToolError
from disagg_serving.recording.plan import make_plan
from disagg_serving.records import data_of
from disagg_serving.spec.stack_file import Project, find_project
from packaging.version import InvalidVersion, Version
from pulumi import Output, StackReference

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # a script's own folder is on the path, and not the repository

from scripts import contract, versions  # noqa: E402

RELEASED = ROOT / "tests/upgrade/released"
PROGRAM = ("Pulumi.yaml", "__main__.py", "stacks")
"""What belongs to the program at the root of the repository; an example is a program as a whole."""
LEFT_OUT = shutil.ignore_patterns("README.md", "requirements*.txt", ".venv", "venv", "__pycache__")
SHIPPED = Path("tests/data/shipped")
"""The frozen copies of that program's files."""
PROGRAMS = Path("tests/upgrade/programs")
"""Programs that are kept besides: in them is all that the shipped ones leave out."""
COMPARED = ("project", "stack", "providers", "outputs", "reads")
"""What a comparison reads of a plan besides its resources."""


def keep(version: str, released: Path = RELEASED, root: Path = ROOT) -> Path:
    """Write the folder of a release: programs, stack files, their plans, the versions that it installs, and what others build on.

    Raises ToolError when it is no release, is kept already, or when one of its stacks cannot be deployed.
    """
    given = _release(version)
    kept = {Version(f.name): f for f in released.iterdir()} if released.is_dir() else {}
    target = kept.get(given, released / str(given))
    name = target.name
    if target.exists():
        raise ToolError(f"{name} is kept already: what users deployed does not change any more; remove {target} only if {name} was never released")
    if older := [str(v) for v in kept if v > given]:
        raise ToolError(f"{name} is older than {', '.join(older)}, which is kept already: today's code is none of its releases")
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(_write(Path(scratch) / name, root), target)
    return target


def stale(version: str, released: Path = RELEASED, root: Path = ROOT) -> list[str]:
    """Files of a kept release that are not what this revision makes. Raises ToolError when it is not kept."""
    given = _release(version)
    there = next((f for f in released.iterdir() if Version(f.name) == given), None)
    if there is None:
        raise ToolError(f"{version} is not kept; run `make keep VERSION={version}`")
    with tempfile.TemporaryDirectory() as scratch:
        kept, made = _contents(there), _contents(_write(Path(scratch) / there.name, root))
    return sorted(file for file in {*kept, *made} if kept.get(file) != made.get(file))


def refuse_edited(root: Path = ROOT) -> None:
    """Raise ToolError where a file of the program is not as in its frozen copy, of which tests and documentation speak. Comments may differ."""
    texts = [
        {f.relative_to(of).as_posix(): [line for line in f.read_text(encoding="utf-8").splitlines() if not line.startswith("#")] for f in _files(of)}
        for of in (root, root / SHIPPED)
    ]
    if differing := sorted(name for name in {*texts[0], *texts[1]} if texts[0].get(name) != texts[1].get(name)):
        raise ToolError(f"{', '.join(differing)}: not as in {SHIPPED}, of which tests and documentation speak; copy the file that is right")


def _files(root: Path) -> list[Path]:
    return [f for name in PROGRAM for f in (root / name, *sorted((root / name).glob("*"))) if f.is_file()]


def _release(version: str) -> Version:
    try:
        given = Version(version)
    except InvalidVersion:
        raise ToolError(f"{version} is not a version (for example 0.2.0)") from None
    if given.is_prerelease or given.local:
        raise ToolError(f"{version} is no release: nobody is promised an update from it (for example {given.base_version})")
    return given


def _contents(folder: Path) -> dict[str, bytes]:
    return {f.relative_to(folder).as_posix(): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def _write(folder: Path, root: Path) -> Path:
    for program in _programs(root):
        place = program.relative_to(root)
        if place.is_relative_to(PROGRAMS):
            place = Path(PROGRAMS.name, place.relative_to(PROGRAMS))
        _copy(program, folder / place, whole=program != root)
        for stack, plan in _plans(folder / place).items():
            file = folder / "plans" / place / f"{stack}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(plan, encoding="utf-8")
    (folder / versions.FILE).write_text(json.dumps(versions.current(root), indent=2) + "\n", encoding="utf-8")
    (folder / contract.FILE).write_text(contract.as_text(contract.contract()), encoding="utf-8")
    return folder


def _programs(root: Path) -> list[Path]:
    """Folders of Python programs with stack files."""
    found = (f for place in ("examples", PROGRAMS) for f in (root / place).rglob("Pulumi.yaml"))
    folders = [root, *sorted(f.parent for f in found if not {".venv", "venv", "node_modules"} & set(f.relative_to(root).parts))]
    return [f for f in folders if (project := find_project(f)).runtime == "python" and project.stacks()]


def _copy(program: Path, target: Path, *, whole: bool) -> None:
    if whole:
        shutil.copytree(program, target, ignore=LEFT_OUT)
        return
    target.mkdir(parents=True)
    for name in PROGRAM:
        source = program / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=LEFT_OUT)
        else:
            shutil.copy(source, target / name)


def _plans(folder: Path) -> dict[str, str]:
    """The plan of each stack of a program as text, a resource a line."""
    project = find_project(folder)
    found = {}
    for stack in project.stacks():
        try:
            plan = recorded(project, stack)
        except SpecError as problem:
            raise ToolError(f"{folder.name}, stack {stack}: {problem}") from None
        errors = [c for c in plan["checks"] if c["level"] == "error"]
        if errors:
            raise ToolError(f"{folder.name}, stack {stack}: {errors[0]['path']} {errors[0]['message']}")
        found[stack] = compact(plan)
    return found


def recorded(project: Project, stack: str) -> dict[str, Any]:
    """The plan of a stack with two more keys: its outputs, and `reads`, the outputs of other stacks that it must find there."""
    reads: set[str] = set()

    def note(reference: StackReference, name: str) -> Output[Any]:
        reads.add(name)
        return require(reference, name)

    require = StackReference.require_output
    with patch.object(StackReference, "require_output", note):
        plan = make_plan(project, project.stack_file(stack))
    return {**data_of(plan, PlanDocument), "outputs": dict(plan.graph.outputs), "reads": sorted(reads)}


def compact(plan: Mapping[str, Any]) -> str:
    """What a comparison reads of a plan, as JSON with a resource a line."""
    lines = [json.dumps(r, separators=(",", ":"), ensure_ascii=False) for r in plan["resources"]]
    head = [f"{json.dumps(key)}:{json.dumps(plan[key], separators=(',', ':'), ensure_ascii=False)},\n" for key in COMPARED]
    return "{" + "".join(head) + '"resources":[\n' + ",\n".join(lines) + "\n]}\n"


def main(argv: list[str]) -> int:
    """Keep a release, or check one; exit code 1 where that fails."""
    if len(argv) != 2 or argv[0] not in ("keep", "check"):  # noqa: PLR2004 (a word and a version)
        print(__doc__, file=sys.stderr)
        return 1
    try:
        refuse_edited()
        if argv[0] == "keep":
            print(f"kept {keep(argv[1]).relative_to(ROOT)}")
            return 0
        differing = stale(argv[1])
    except ToolError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    if differing:
        print(f"error: what is kept of {argv[1]} is not what this revision makes: {', '.join(differing)}", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
