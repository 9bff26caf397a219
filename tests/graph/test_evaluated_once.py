"""A plan evaluates its environment once: the recorded program takes over what was found, as long as it asks the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from disagg_serving.recording.plan import make_plan
from disagg_serving.rules import evaluation
from disagg_serving.rules.evaluation import Question
from disagg_serving.spec.stack_file import find_project
from factories import ROOT, STACKS, environment, model
from recording import PROJECT


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every spec that is evaluated."""
    found: list[Any] = []
    original = evaluation.evaluate_spec

    def noted(spec: Any, *args: Any, **options: Any) -> Any:
        found.append(spec)
        return original(spec, *args, **options)

    monkeypatch.setattr(evaluation, "evaluate_spec", noted)
    return found


@pytest.mark.parametrize("stack", STACKS)
def test_a_stack_is_evaluated_once(stack: str, evaluated: list[Any]) -> None:
    """The program of a shipped stack does not repeat the checks of its file."""
    plan = make_plan(PROJECT, PROJECT.stack_file(stack))
    assert plan.graph.resources
    assert len(evaluated) == 1


def test_a_program_that_changes_its_environment_is_evaluated_again(tmp_path: Path, evaluated: list[Any]) -> None:
    """What the program asks is answered for its own input, also where that differs from the stack file in one value."""
    (tmp_path / "Pulumi.yaml").write_text("name: disagg-serving\nruntime: python\n")
    (tmp_path / "Pulumi.test.yaml").write_text("config: {}\n")
    (tmp_path / "__main__.py").write_text(
        "import json\n"
        "from pulumi.runtime.config import CONFIG, set_config\n"
        "from disagg_serving.resources.program import deploy\n"
        "environment = json.loads(CONFIG.get()['disagg-serving:environment'])\n"
        "environment['models'][0]['decode']['replicas'] = 3\n"
        "set_config('disagg-serving:environment', json.dumps(environment))\n"
        "deploy()\n"
    )
    project = find_project(tmp_path)
    file = replace(project.stack_file("test"), environment=environment(model()))
    plan = make_plan(project, file)
    assert [spec.models[0].decode.replicas for spec in evaluated] == [1, 3]
    sets = {r.name: r.inputs["spec"]["replicas"] for r in plan.graph.of_type("kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet")}
    assert sorted(sets.values()) == [1, 3]


def test_what_makes_two_questions_one() -> None:
    """Data, folder and the stack's keys have to be equal; keys that no rule reads, and another way to the folder, make no difference."""
    file = PROJECT.stack_file("prod")
    question = Question.of_file(file, ROOT)
    assert question.same_as(Question.of_file(replace(file, config={**file.config, "other:key": "x"}), ROOT / "tests" / ".."))
    for other in (
        question._replace(data={**question.data, "name": "other"}),
        question._replace(base=ROOT / "tests"),
        question._replace(stack=replace(question.stack, region="eu-west-1")),
        Question.of_file(replace(file, config={**file.config, "disagg-serving:apiKey": "x"}), ROOT),
        Question.of_file(replace(file, secrets=file.secrets | {"aws:token"}), ROOT),
    ):
        assert not question.same_as(other)
