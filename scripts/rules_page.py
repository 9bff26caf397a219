"""docs/rules.md: every rule of the registry below a heading of its own, so that pages can link to it. Written by scripts/generate.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import unified_diff
from inspect import getdoc
from pathlib import Path
from sys import modules

from disagg_serving.errors import Level
from disagg_serving.rules import Rule, form, rules
from disagg_serving.rules.explanations import Case, explanation_of
from disagg_serving.rules.form import FORM_CHECKS

from scripts.reference import cited, escaped, page, table

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/rules.md"
AREAS: Mapping[str, str] = {
    "environment": "Network, cluster and secrets", "namespaces": "Whose a namespace is", "roles": "Prefill and decode",
    "pairing": "What both roles share", "connector": "The KV connector",
    "parallel": "Parallelism", "experts": "Expert parallelism", "engine_arguments": "The engine",
    "speculation": "Draft models", "existing_nodes": "Nodes that exist", "engine_bugs": "Known bugs of engines",
    "extra_arguments": "Flags and variables of your own", "flags": "Flags that the parser knows",
    "cross_checks": "Flags beside each other", "memory": "GPU memory",
    "calibration": "Measured memory", "weights": "Weights", "capacity": "Nodes", "reservations": "Reserved capacity", "balance": "Traffic",
    "limits": "Limits of the workload",
    "autoscaling": "Autoscaling", "rollout": "Rollout", "gateway": "The way in", "charts": "Charts", "observability": "Observability",
    "declared_objects": "Kubernetes objects", "programs": "A program as a whole", "look_ups": "What AWS says",
}  # fmt: skip
"""Each module of rules/checks with the heading of its rules, in the order of the page. No heading is a rule's id."""
FORM = "Reading a stack file"
AROUND = 3
"""Lines shown before and after a changed one."""
MAIN = {"Pulumi.prod.yaml", "__main__.py"}
"""Files that need no name above them."""


def rules_page() -> str:
    """The page. Raises KeyError for a module without a heading."""
    found: dict[str, list[Rule]] = {area: [] for area in AREAS}
    for one in rules():
        found[one.check.__module__.rpartition(".")[2]].append(one)
    intro = [
        "What `disagg check`, `disagg plan` and `pulumi up` check, generated from the registry (`make generate`). An error stops the",
        "deployment, a warning is for the reviewer, info explains.",
        "",
        "An error of a rule without `firm` can be accepted in the stack file, with a reason, and is a warning then:",
        "`accept: {group-capacity: the second reservation begins on Monday}`.",
        "",
        "Each rule has an example that a test runs: `-` lines have the finding, `+` lines end it. `disagg explain RULE` prints both files whole.",
    ]
    headed = {FORM: list(FORM_CHECKS), **{AREAS[area]: [r.id for r in held] for area, held in found.items()}}
    index = [(f"[{heading}](#{_slug(heading)})", ", ".join(f"[{i}](#{i})" for i in ids)) for heading, ids in headed.items()]
    parts = [["\n".join(_form())], *(["\n".join(_area(area, held))] for area, held in found.items())]
    return page("Rules", intro, table(("about", "rules"), index), *parts)


def _form() -> list[str]:
    lines = [f"## {FORM}", "", (getdoc(form) or "").partition("\n")[0]]
    for check, summary in FORM_CHECKS.items():
        lines += ["", f"### {check}", "", f"**error, firm**: {escaped(summary)}", *_explained(check)]
    return lines


def _area(area: str, held: list[Rule]) -> list[str]:
    about = (getdoc(modules[held[0].check.__module__]) or "").partition("\n")[0]
    lines = [f"## {AREAS[area]}", "", about]
    for one in held:
        lines += ["", f"### {one.id}", "", f"**{_level(one)}**: {escaped(one.summary)}", *_explained(one.id)]
        lines += ["", f"Source: {cited(one.reference, 'docs')}"]
    return lines


def _explained(rule: str) -> Iterator[str]:
    about = explanation_of(rule)
    yield from ("", f"What it means: {escaped(about.means)}", "", f"What to do: {escaped(about.do)}")
    if about.bad is not None and about.good is not None:
        yield from _mended(about.bad, about.good)


def _mended(bad: Case, good: Case) -> Iterator[str]:
    """What ends the finding: the lines of the bad case that the good one changes, with those around them."""
    ends = {part.name: part.text for part in good.parts()}
    before = {part.name: part.text for part in bad.parts()}
    changed = [name for name in {**before, **ends} if before.get(name) != ends.get(name)]
    for name in changed:
        lines = unified_diff(before.get(name, "").splitlines(), ends.get(name, "").splitlines(), n=AROUND, lineterm="")
        yield from ("", *([f"{name}:", ""] if len(changed) > 1 or name not in MAIN else []), "```diff")
        yield from ("..." if line.startswith("@@") else line for line in [*lines][3:])
        yield "```"


def _slug(heading: str) -> str:
    return heading.lower().replace(",", "").replace(" ", "-")


def _level(one: Rule) -> str:
    return f"{one.level}, firm" if one.firm and one.level is Level.ERROR else str(one.level)
