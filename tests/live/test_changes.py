"""The table of changes on the real engine and Kubernetes provider: the plan says of every object what the engine's preview says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from changes import CASES, Case, edit, short
from disagg_serving.comparison.compare import compare
from disagg_serving.document.difference import Op
from disagg_serving.recording.plan import Plan, make_plan
from disagg_serving.spec.stack_file import find_project

from bench.control_plane import ControlPlane
from bench.engine import Engine, Step, for_stack

FIELDS = ("models.", "nodePools.", "networkPolicy.", "name")
"""What a stack on an existing cluster has, too."""
LOCAL_CASES = [c for c in CASES if c.stack == "prod" and c.after and all(key.startswith(FIELDS) for key in (*c.after, *c.before))]
OBJECT_CASES = [c for c in LOCAL_CASES if {line.split()[1] for line in c.expected} - {"Chart"}]
"""Cases that change Kubernetes objects there; what charts expand to is not in the plan."""
REPLACING = {"replace", "create-replacement", "delete-replaced"}


@pytest.fixture(scope="module")
def deployed(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """The local stack, deployed as shipped."""
    engine = for_stack("local", plane.kubeconfig, tmp_path_factory.mktemp("changes"))
    engine.run("config", "set", "--secret", "--stack", "local", "disagg-serving:apiKey", "key")
    engine.up()
    yield engine
    engine.destroy()


@pytest.fixture
def shipped(deployed: Engine) -> Iterator[Engine]:
    """The same, with its stack file restored afterwards."""
    text = deployed.stack_file.read_text(encoding="utf-8")
    yield deployed
    deployed.stack_file.write_text(text, encoding="utf-8")


def plan(engine: Engine) -> Plan:
    """What `disagg plan` says of the stack file as it stands."""
    project = find_project(engine.project)
    return make_plan(project, project.stack_file(engine.stack))


def engine_operations(steps: list[Step], urns: set[str]) -> dict[str, str]:
    """The engine's operation by URN; the steps of a replacement are one."""
    found = {s.urn: "replace" if s.op in REPLACING else s.op for s in steps if s.urn in urns}
    return {urn: op for urn, op in found.items() if op != "same"}


@pytest.mark.parametrize("case", OBJECT_CASES, ids=lambda c: c.name)
def test_the_engine_previews_the_same(shipped: Engine, case: Case) -> None:
    """Of every Kubernetes object that the program declares, the engine's preview and the plan name the same operation."""
    before = plan(shipped)
    shipped.edit(lambda e: edit(e, case.after))
    after = plan(shipped)
    objects = {r.urn for p in (before, after) for r in p.resources if r.type.startswith("kubernetes:") and not r.remote}
    expected: dict[str, str] = {}
    for change in compare(before, after, "base", "").changes:
        if change.op is Op.RENAME and change.former:
            expected |= {change.urn: "create", change.former: "delete"}
        else:
            expected[change.urn] = str(change.op)
    found = engine_operations(shipped.preview(), objects)
    named = {urn: f"{short(urn.split('::')[2])} {urn.rsplit('::', 1)[1]}" for urn in objects}
    assert {named[u]: op for u, op in found.items()} == {named[u]: op for u, op in expected.items() if u in objects}
    assert found


def test_there_are_enough_of_them() -> None:
    """Most kinds of change reach Kubernetes objects of a stack without AWS."""
    assert len(OBJECT_CASES) >= 25
