"""Keeps what a release makes of the shipped programs and stack files, for tests/upgrade. Run it at the commit that gets the tag.

usage: release.py keep VERSION
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from disagg_serving.errors import SpecError, ToolError
from disagg_serving.preview.plan import make_plan
from disagg_serving.spec.stack_file import find_project
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # a script's own folder is on the path, and not the repository

from scripts import versions  # noqa: E402

RELEASED = ROOT / "tests/upgrade/released"
PROGRAM = ("Pulumi.yaml", "__main__.py", "stacks")
"""What belongs to the program at the root of the repository; an example is a program as a whole."""
LEFT_OUT = shutil.ignore_patterns("README.md", "requirements*.txt", ".venv", "venv", "__pycache__")
COMPARED = ("project", "stack", "providers")
"""What a comparison reads of a plan besides its resources."""


def keep(version: str, released: Path = RELEASED, root: Path = ROOT) -> Path:
    """Write the folder of a release: programs, stack files, their plans, and the versions that it installs.

    Raises ToolError when the release is kept already, or when one of its stacks cannot be deployed.
    """
    try:
        given = Version(version)
    except InvalidVersion:
        raise ToolError(f"{version} is not a version (for example 0.2.0)") from None
    kept = {Version(f.name): f for f in released.iterdir()} if released.is_dir() else {}
    target = kept.get(given, released / str(given))
    name = target.name
    if target.exists():
        raise ToolError(f"{name} is kept already: what users deployed does not change any more; remove {target} only if {name} was never released")
    if older := [str(v) for v in kept if v > given]:
        raise ToolError(f"{name} is older than {', '.join(older)}, which is kept already: today's code is none of its releases")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / name
        for program in _programs(root):
            copy = folder / program.relative_to(root)
            _copy(program, copy, whole=program != root)
            for stack, plan in _plans(copy).items():
                file = folder / "plans" / program.relative_to(root) / f"{stack}.json"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(plan, encoding="utf-8")
        (folder / versions.FILE).write_text(json.dumps(versions.current(root), indent=2) + "\n", encoding="utf-8")
        shutil.copytree(folder, target)
    return target


def _programs(root: Path) -> list[Path]:
    """Folders of Python programs with stack files."""
    folders = [root, *sorted(f.parent for f in (root / "examples").rglob("Pulumi.yaml") if not {".venv", "venv", "node_modules"} & set(f.parts))]
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
            plan = make_plan(project, project.stack_file(stack)).as_dict()
        except SpecError as problem:
            raise ToolError(f"{folder.name}, stack {stack}: {problem}") from None
        errors = [c for c in plan["checks"] if c["level"] == "error"]
        if errors:
            raise ToolError(f"{folder.name}, stack {stack}: {errors[0]['path']} {errors[0]['message']}")
        found[stack] = compact(plan)
    return found


def compact(plan: Mapping[str, Any]) -> str:
    """What a comparison reads of a plan, as JSON with a resource a line."""
    lines = [json.dumps(r, separators=(",", ":"), ensure_ascii=False) for r in plan["resources"]]
    head = [f"{json.dumps(key)}:{json.dumps(plan[key], separators=(',', ':'), ensure_ascii=False)},\n" for key in COMPARED]
    return "{" + "".join(head) + '"resources":[\n' + ",\n".join(lines) + "\n]}\n"


def main(argv: list[str]) -> int:
    """Keep a release."""
    if len(argv) != 2 or argv[0] != "keep":  # noqa: PLR2004 (a word and a version)
        print(__doc__)
        return 1
    try:
        print(f"kept {keep(argv[1]).relative_to(ROOT)}")
    except ToolError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
