"""What today's code would do to what a released version deployed: its kept programs and stack files planned anew, and compared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from disagg_serving.errors import SpecError, ToolError
from disagg_serving.preview.comparison import STACK_TYPE, compare
from disagg_serving.preview.diff import Change, Op
from disagg_serving.preview.plan import make_plan
from disagg_serving.preview.renames import find_renames
from disagg_serving.spec.stack_file import find_project
from factories import ROOT
from packaging.version import Version

RELEASED = ROOT / "tests/upgrade/released"
PAGES = ROOT / "docs/upgrade"
HEADING = "| what happens | type | name | why, and what to do |"
"""The table of a page in docs/upgrade whose rows allow what would fail here; types and names may hold `*`."""
KEEPING = ("protect", "retainOnDelete")


@dataclass(frozen=True)
class Kept:
    """A stack as a release had it: the folder of its program and stack file, and the plan that was made of it then."""

    version: str
    folder: Path
    plan: Path

    @property
    def stack(self) -> str:
        """The stack's name."""
        return self.plan.stem

    def before(self) -> dict[str, Any]:
        """The plan of the release."""
        found: dict[str, Any] = json.loads(self.plan.read_text(encoding="utf-8"))
        return found


@dataclass(frozen=True)
class Written:
    """A row of an upgrade page: users were told that these resources are deleted or replaced."""

    op: str
    type: str
    name: str

    def covers(self, change: Change) -> bool:
        """Whether it speaks of a change."""
        return self.op == change.op and fnmatchcase(change.type, self.type) and fnmatchcase(change.name, self.name)


def kept(released: Path = RELEASED) -> list[Kept]:
    """Every stack of every kept release."""
    found = []
    for version in sorted((f for f in released.iterdir() if f.is_dir()), key=lambda f: Version(f.name)):
        plans = version / "plans"
        found += [Kept(version.name, version / p.parent.relative_to(plans), p) for p in sorted(plans.rglob("*.json"))]
    return found


def written_down(since: str, pages: Path = PAGES) -> list[Written]:
    """The rows of the pages of versions newer than `since`. Raises ValueError for a row that says nothing usable."""
    found = []
    for page in sorted(p for p in pages.glob("[0-9]*.md") if Version(p.stem) > Version(since)):
        below = page.read_text(encoding="utf-8").partition(HEADING + "\n")[2].splitlines()[1:]
        for line in below[: next((i for i, text in enumerate(below) if not text.startswith("|")), None)]:
            op, type_token, name, why = (cell.strip().strip("`") for cell in line.strip("|").split("|"))
            if op not in (Op.DELETE, Op.REPLACE) or not why:
                raise ValueError(f"{page.name}: {line}")
            found.append(Written(op, type_token, name))
    return found


@cache
def today(folder: Path, stack: str) -> Mapping[str, Any] | str:
    """The plan that today's code makes of a kept stack, or why it makes none."""
    project = find_project(folder)
    try:
        plan = make_plan(project, project.stack_file(stack)).as_dict()
    except (SpecError, ToolError) as problem:
        return str(problem)
    errors = [c for c in plan["checks"] if c["level"] == "error"]
    return f"{errors[0]['path']} {errors[0]['message']}" if errors else plan


def faults_of(one: Kept) -> list[str]:
    """Why a kept stack cannot be updated by today's code without harm."""
    after = today(one.folder, one.stack)
    return [f"refused: {after}"] if isinstance(after, str) else list(faults(one.before(), after, written_down(one.version)))


def faults(before: Mapping[str, Any], after: Mapping[str, Any], allowed: list[Written]) -> Iterator[str]:
    """What an update from one plan to another may not do, a line a resource."""
    old, new = ({r["urn"]: r for r in plan["resources"]} for plan in (before, after))
    for rename in find_renames(old, new):
        if not rename.by_alias:
            yield f"no alias: {rename.former} is now {rename.urn}"
    for change in compare(before, after, "the release", "").changes:
        former = old.get(change.former or change.urn, {"options": {}})
        kept_by = [option for option in KEEPING if former["options"].get(option)]
        if change.type == STACK_TYPE:
            yield f"another project: {change.effect}"
        elif change.op in (Op.DELETE, Op.REPLACE):
            if kept_by:
                yield f"{change.op} in spite of {kept_by[0]}: {change.urn}"
            elif not any(w.covers(change) for w in allowed):
                because = ", ".join(p.path for p in change.paths if p.forces_replacement)
                yield f"{change.op}, and no page of docs/upgrade says so: {change.urn}{' because of ' if because else ''}{because}"
        yield from (f"no longer {option}: {change.urn}" for option in kept_by if _taken_off(change, option))


def _taken_off(change: Change, option: str) -> bool:
    return any(p.path == f"options.{option}" and not p.after for p in change.paths)
