"""docs/rules.md: every rule of the registry below a heading of its own, so that pages can link to it. Written by scripts/generate.py."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import getdoc
from pathlib import Path
from sys import modules

from disagg_serving.errors import Level
from disagg_serving.rules import Rule, rules

from scripts.reference import escaped, page, table

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/rules.md"
AREAS: Mapping[str, str] = {
    "environment": "Network, cluster and secrets", "namespaces": "Whose a namespace is", "roles": "Prefill and decode",
    "parallel": "Parallelism", "experts": "Expert parallelism", "engine_arguments": "The engine",
    "flags": "Flags of your own", "memory": "GPU memory",
    "calibration": "Measured memory", "weights": "Weights", "capacity": "Nodes", "reservations": "Reserved capacity", "balance": "Traffic",
    "autoscaling": "Autoscaling", "rollout": "Rollout", "gateway": "The way in", "charts": "Charts", "observability": "Observability",
    "declared_objects": "Kubernetes objects", "programs": "A program as a whole", "look_ups": "What AWS says",
}  # fmt: skip
"""Each module of rules/checks with the heading of its rules, in the order of the page. No heading is a rule's id."""


def rules_page() -> str:
    """The page. Raises KeyError for a module without a heading."""
    found: dict[str, list[Rule]] = {area: [] for area in AREAS}
    for one in rules():
        found[one.check.__module__.rpartition(".")[2]].append(one)
    intro = [
        "What `disagg check`, `disagg plan` and `pulumi up` check, generated from the registry (`make generate`). An error stops the",
        "deployment, a warning is for the reviewer, info explains. `disagg explain RULE` prints the same as stands here.",
        "",
        "An error of a rule without `firm` can be accepted in the stack file, with a reason, and is a warning then:",
        "`accept: {group-capacity: the second reservation begins on Monday}`.",
    ]
    index = [(f"[{AREAS[area]}](#{_slug(AREAS[area])})", ", ".join(f"[{r.id}](#{r.id})" for r in held)) for area, held in found.items()]
    parts = [["\n".join(_area(area, held))] for area, held in found.items()]
    return page("Rules", intro, table(("about", "rules"), index), *parts)


def _area(area: str, held: list[Rule]) -> list[str]:
    about = (getdoc(modules[held[0].check.__module__]) or "").partition("\n")[0]
    lines = [f"## {AREAS[area]}", "", about]
    for one in held:
        lines += ["", f"### {one.id}", "", f"**{_level(one)}**: {escaped(one.summary)}", "", f"Source: {escaped(one.reference)}"]
    return lines


def _slug(heading: str) -> str:
    return heading.lower().replace(",", "").replace(" ", "-")


def _level(one: Rule) -> str:
    return f"{one.level}, firm" if one.firm and one.level is Level.ERROR else str(one.level)
