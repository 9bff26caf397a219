"""Every `yaml` block of the documentation that belongs into a stack file is checked and planned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from disagg_serving.errors import Level
from disagg_serving.recording.plan import make_plan
from disagg_serving.report.json import render_json
from disagg_serving.report.text import render_text
from disagg_serving.spec import CandidateSpec, EnvironmentSpec, ModelSpec, RoleSpec
from disagg_serving.spec.base import Spec
from disagg_serving.spec.stack_file import ENVIRONMENT_KEY, StackFile
from disagg_serving.yaml_io import read_yaml
from documents import Block, blocks
from factories import environment, model, role
from recording import PROJECT

ROLES = {"prefill", "decode"}
SECRETS = frozenset({"disagg-serving:apiKey", "disagg-serving:hfToken"})
ELSEWHERE = {"docs/reports.md", "docs/verify.md"}
"""Pages whose block is no part of a stack file: a step of a workflow, and a ClusterRole."""


WITH_EXPERTS = {"model": "glm-5-fp8", "maxModelLen": 32768, "prefill": role(tensorParallel=8, dataParallel=2, expertParallel=True)}
AROUND = {"docs/wide-ep.md": WITH_EXPERTS}
"""What the model of a page has besides, where it is no small dense one."""


def stack_of(page: str, piece: dict[str, Any]) -> StackFile:
    """A stack file with the piece at its place; what the page does not show is a small working environment."""
    path = Path("Pulumi.test.yaml")
    if "config" in piece:
        config = dict(piece["config"])
        return StackFile(path, "test", config.pop(ENVIRONMENT_KEY), config, SECRETS)
    if _all_of(EnvironmentSpec, piece):
        around = {"cluster": None, "network": None} if "existingCluster" in piece else {}
        data = environment(**{**around, **piece})
    elif _all_of(ModelSpec, piece):
        roles = {name: role(**given) if name in ROLES else given for name, given in piece.items()}
        data = environment(model(**AROUND.get(page, {}), **roles))
    elif _all_of(CandidateSpec, piece):
        data = environment(model(candidate=piece))
    else:
        assert _all_of(RoleSpec, piece), f"{sorted(piece)} are keys of no part of a stack file"
        data = environment(model(decode=role(**piece)))
    return StackFile(path, "test", data, {"aws:region": "us-east-1"}, SECRETS)


def _all_of(form: type[Spec], piece: dict[str, Any]) -> bool:
    return piece.keys() <= {field.alias for field in form.model_fields.values()}


def _page(block: Block) -> str:
    return block.place.rpartition(":")[0]


PIECES = [block for block in blocks("yaml", "yml") if _page(block) not in ELSEWHERE]


@pytest.mark.parametrize("block", PIECES, ids=lambda b: b.place)
def test_a_documented_stack_can_be_deployed(block: Block, tmp_path: Path) -> None:
    """Whoever copies a block gets a plan without an error, in every form that reads the stack file."""
    file = tmp_path / "block.yaml"
    file.write_text(block.text, encoding="utf-8")
    plan = make_plan(PROJECT, stack_of(_page(block), read_yaml(file)))
    assert [f.sentence() for f in plan.checks if f.level is Level.ERROR] == []
    assert plan.graph.resources
    assert json.loads(render_json([plan], as_list=False))["version"] == 1
    assert render_text([plan], color=False)


def test_blocks_are_found() -> None:
    """The test above runs over whole stack files and pieces, and what it leaves out is there."""
    assert len(PIECES) > 20
    assert {_page(b) for b in blocks("yaml", "yml")} - {_page(b) for b in PIECES} == ELSEWHERE
