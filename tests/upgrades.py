"""What today's code would do to what a released version deployed: its kept programs and stack files planned anew, and compared."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from disagg_serving.comparison.base_plan import read_plan
from disagg_serving.comparison.compare import compare
from disagg_serving.comparison.renames import find_renames
from disagg_serving.comparison.replacements import is_refused
from disagg_serving.comparison.values import differences
from disagg_serving.document.difference import Change, Op
from disagg_serving.document.resource import COMPUTED, SECRET, STACK_TYPE, Resource
from disagg_serving.errors import SpecError, ToolError
from disagg_serving.spec.stack_file import find_project
from factories import ROOT
from packaging.version import Version

from scripts import contract, release
from scripts.contract import Contract, Entry

RELEASED = ROOT / "tests/upgrade/released"
PAGES = ROOT / "docs/upgrade"
HEADING = "| what happens | type | name | why, and what to do |"
"""The table of a page in docs/upgrade whose rows allow what would fail here; types and names may hold `*`."""
KEEPING = ("protect", "retainOnDelete")
OUTPUT, CHANGE = "output", "change"
"""The type of a row about an output of a stack, and what happens to something that stays and is another."""
UNSAID = "and no page of docs/upgrade says so"
ALIAS = "no alias: give the resource aliases=[pulumi.Alias(...)] with what it was called, or where it was; else what runs is deleted and made anew"
ROW = f"""{UNSAID}: take the change back, or add a row to the table of the next version's page there, where type and name may hold `*`:
    {HEADING}
    |---|---|---|---|
    | delete | `aws:ec2/eip:Eip` | `*-nat-*` | one gateway is enough; nothing to do |"""
BACK = "anything else: no page can allow it, so take the change back"


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
    """A row of an upgrade page: users were told that this goes, is replaced, or changes."""

    op: str
    type: str
    name: str

    def covers(self, op: str, type_token: str, name: str) -> bool:
        """Whether it speaks of this."""
        return self.op == op and _matches(self.type, type_token) and _matches(self.name, name)


def _matches(pattern: str, text: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), text) is not None


def kept(released: Path = RELEASED) -> list[Kept]:
    """Every stack of every kept release."""
    found = []
    for version in sorted((f for f in released.iterdir() if f.is_dir()), key=lambda f: Version(f.name)):
        plans = version / "plans"
        found += [Kept(version.name, version / p.parent.relative_to(plans), p) for p in sorted(plans.rglob("*.json"))]
    return found


def kept_contract(version: str, released: Path = RELEASED) -> Contract:
    """What others could build on in a kept release."""
    found: Contract = json.loads((released / version / contract.FILE).read_text(encoding="utf-8"))
    return found


def written_down(since: str, pages: Path = PAGES) -> list[Written]:
    """The rows of the pages of versions newer than `since`. Raises ValueError for a row that says nothing usable."""
    found = []
    for page in sorted(p for p in pages.glob("[0-9]*.md") if Version(p.stem) > Version(since)):
        below = page.read_text(encoding="utf-8").partition(HEADING + "\n")[2].splitlines()[1:]
        for line in below[: next((i for i, text in enumerate(below) if not text.startswith("|")), None)]:
            op, kind, name, why = (cell.strip().strip("`") for cell in line.strip("|").split("|"))
            if op not in (Op.DELETE, Op.REPLACE, CHANGE) or not why:
                raise ValueError(f"{page.name}: {line}")
            found.append(Written(op, kind, name))
    return found


@cache
def today(folder: Path, stack: str) -> Mapping[str, Any] | str:
    """The plan that today's code makes of a kept stack, or why it makes none."""
    try:
        plan = release.recorded(find_project(folder), stack)
    except (SpecError, ToolError) as problem:
        return str(problem)
    errors = [c for c in plan["checks"] if c["level"] == "error"]
    return f"{errors[0]['path']} {errors[0]['message']}" if errors else plan


def faults_of(one: Kept) -> list[str]:
    """Why a kept stack cannot be updated by today's code without harm."""
    after = today(one.folder, one.stack)
    return [f"refused: {after}"] if isinstance(after, str) else list(faults(one.before(), after, written_down(one.version)))


def told(subject: str, found: list[str]) -> str:
    """Faults for whoever made the change: what was renamed first, since the rest often follows from it, and what can be done about each kind."""
    kinds = [("no alias: ", ALIAS), (UNSAID, ROW), ("", BACK)]
    of = {fault: next(i for i, (mark, _) in enumerate(kinds) if mark in fault) for fault in found}
    lines = [f"  {fault}" for fault in sorted(found, key=of.__getitem__)]
    return "\n".join([f"{subject}, faults: {len(found)}", *lines, "what to do:", *(f"  {kinds[i][1]}" for i in sorted({*of.values()}))])


def faults(before: Mapping[str, Any], after: Mapping[str, Any], allowed: list[Written]) -> Iterator[str]:
    """What an update from one plan to another may not do, a line a resource or output."""
    plans = [read_plan(data) for data in (before, after)]
    old, new = ({r.urn: r for r in plan.resources} for plan in plans)
    renames = find_renames(old, new)
    for rename in renames:
        if not rename.by_alias:
            yield f"no alias: {rename.former} is now {rename.urn}"
    for change in compare(plans[0], plans[1], "the release", "").changes:
        former = old.get(change.former or change.urn)
        kept_by = [option for option in KEEPING if former and former.options.get(option)]
        if change.type == STACK_TYPE:
            yield f"another project: {change.effect}"
        elif change.op in (Op.DELETE, Op.REPLACE):
            if kept_by:
                yield f"{change.op} in spite of {kept_by[0]}: {change.urn}"
            elif not any(w.covers(change.op, change.type, change.name) for w in allowed):
                because = ", ".join(p.path for p in change.paths if p.forces_replacement)
                yield f"{change.op}, {UNSAID}: {change.urn}{' because of ' if because else ''}{because}"
        elif change.op is not Op.CREATE:
            yield from (f"the API server refuses to change {p.path}: {change.urn}" for p in change.paths if is_refused(change.type, p.path))
        yield from (f"no longer {option}: {change.urn}" for option in kept_by if _taken_off(change, option))
    yield from _transforms_taken_off(old, new, {r.former: r.urn for r in renames})
    yield from _outputs(before.get("outputs", {}), after.get("outputs", {}), allowed)
    for name in sorted({*after.get("reads", ())} - {*before.get("reads", ())}):
        yield f"reads the output {name} of another stack, which one of the release need not have"


def _taken_off(change: Change, option: str) -> bool:
    return any(p.path == f"options.{option}" and not p.after for p in change.paths)


def _transforms_taken_off(old: Mapping[str, Resource], new: Mapping[str, Resource], renamed: Mapping[str, str]) -> Iterator[str]:
    """Charts by whose transforms their CRDs outlive them: only the engine runs those, but that they are there can be seen."""
    for urn, resource in old.items():
        now = new.get(renamed.get(urn, urn))
        if now is not None and resource.options.get("transforms", 0) > now.options.get("transforms", 0):
            yield f"no longer transformed: {now.urn}"


def _outputs(before: Mapping[str, Any], after: Mapping[str, Any], allowed: list[Written]) -> Iterator[str]:
    """What programs read that refer to the stack: names, and texts that are known beforehand. Numbers are forecasts and may be others."""
    for path, value, now in differences(before, after):
        numbers = isinstance(value, (int, float)) and isinstance(now, (int, float))
        op = str(Op.DELETE) if now is None else CHANGE
        same = value is None or numbers or (now is not None and any(v in (COMPUTED, SECRET) for v in (value, now)))
        if not same and not any(w.covers(op, OUTPUT, path) for w in allowed):
            yield f"{op}, {UNSAID}: {OUTPUT} {path}, which was {json.dumps(value)[:80]}"


def contract_faults(before: Contract, after: Contract, allowed: list[Written]) -> Iterator[str]:
    """What others built on and would not find any more, a line an entry."""
    for part, entries in before.items():
        now = after.get(part, {})
        for path, entry in entries.items():
            op, said = (CHANGE, _lost(entry, now[path], printed=_is_printed(part, path))) if path in now else (str(Op.DELETE), [""])
            if not any(w.covers(op, part, path) for w in allowed):
                yield from (f"{op}, {UNSAID}: {part} {path} {what}".rstrip() for what in said)
        owners = {_owner(path) for path in entries}
        for path in sorted(now.keys() - entries.keys()):
            demanded = now[path].get("required") and not _is_printed(part, path) and _owner(path) in owners
            if demanded and not any(w.covers(CHANGE, part, path) for w in allowed):
                yield f"{CHANGE}, {UNSAID}: {part} {path} is new and required"


def _is_printed(part: str, path: str) -> bool:
    return part == contract.PRINTED or " output " in path


def _owner(path: str) -> str:
    """Of what a key is one: a component, a type, a mapping of a stack file."""
    return re.split(r"[ .](?=[^ .]*$)", path)[0]


def _lost(before: Entry, after: Entry, *, printed: bool) -> list[str]:
    """How an entry is less than it was: what is given may be more, what is printed may be less."""
    mine, theirs = (after, before) if printed else (before, after)
    wider = {"integer"} & set(mine.get("kinds", ())) if "number" in theirs.get("kinds", ()) else set()
    kinds = set() if "any" in theirs.get("kinds", ()) else set(mine.get("kinds", ())) - set(theirs.get("kinds", ())) - wider
    found = [f"is {'also' if printed else 'no longer'} {kind}" for kind in sorted(kinds)]
    if not printed and "values" in after:
        gone = [v for v in before.get("values", ()) if v not in after["values"]]
        found += [f"no longer takes {v}" for v in gone] if "values" in before else [f"takes only {', '.join(map(str, after['values']))}"]
    if bool(mine.get("required")) < bool(theirs.get("required")):
        found.append("is no longer always there" if printed else "is required")
    found += ["takes no Output any more"] if after.get("plain") and not before.get("plain") else []
    found += ["is deleted with its chart"] if before.get("retainOnDelete") and not after.get("retainOnDelete") else []
    return [*found, *(f"is no longer left alone at {p}" for p in before.get("ignoreChanges", ()) if p not in after.get("ignoreChanges", ()))]
