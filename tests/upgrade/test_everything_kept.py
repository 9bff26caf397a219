"""That nothing is left out of what a release keeps: all that the code can declare stands in a plan of tests/upgrade/programs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import upgrades
from disagg_serving.spec.stack_file import find_project
from factories import ROOT

from scripts import release

PACKAGE = ROOT / "components/disagg_serving"
SDKS = {"aws", "eks", "k8s"}
OF_PULUMI = {"StackReference"}
NO_RESOURCE = {("manifests", "load.py"), ("manifests", "picker.py")}
"""Modules whose objects are not declared: the Job of `disagg bench`, and a file inside a ConfigMap's text."""


def test_every_kind_is_in_a_kept_program() -> None:
    """A resource or object of a new kind needs a stack of tests/upgrade/programs that makes it, before a release is kept without it."""
    declared = {name for file in sorted(PACKAGE.glob("[mr]*/**/*.py")) for name in kinds_in(file)}
    assert {"ScaledObject", "PodMonitor", "Record", "Observability", "Provider", "StackReference"} <= declared, "the search is blind"
    assert len(declared) > 40
    projects = [find_project(f.parent) for f in (ROOT / release.PROGRAMS).rglob("Pulumi.yaml")]
    plans = [upgrades.today(p.root, stack) for p in projects for stack in p.stacks()]
    assert [plan for plan in plans if isinstance(plan, str)] == []
    made = {_name(r["type"]) for plan in plans if not isinstance(plan, str) for r in plan["resources"]}
    assert sorted(declared - made) == [], "let a stack of tests/upgrade/programs make it"


def kinds_in(file: Path) -> Iterator[str]:
    """The last words of the types that a module names: resource classes of SDKs, type tokens of our own, kinds of manifests."""
    if file.relative_to(PACKAGE).parts in NO_RESOURCE:
        return
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("disagg-serving:index:"):
            yield _name(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name, root = node.func.attr, _root(node.func)
            if name[0].isupper() and ((root in SDKS and not name.endswith("Args")) or (root == "pulumi" and name in OF_PULUMI)):
                yield name
        elif isinstance(node, ast.Dict):
            keys = {key.value: value for key, value in zip(node.keys, node.values, strict=True) if isinstance(key, ast.Constant)}
            kind = keys.get("kind")
            if isinstance(kind, ast.Constant) and {"apiVersion", "metadata"} <= keys.keys():
                yield str(kind.value)


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _name(type_token: str) -> str:
    return "Provider" if type_token.startswith("pulumi:providers:") else type_token.rsplit(":", 1)[1]
