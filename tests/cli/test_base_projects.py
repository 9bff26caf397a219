"""`disagg plan --base` over whole projects: what is printed for every stack, and a project that lies elsewhere in the base."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from command_line import Run
from factories import ROOT, SHIPPED, STACKS, environment
from jsonschema import Draft202012Validator
from repositories import Repository

ENV = "disagg-serving:environment"
STACK = {"config": {"aws:region": "us-east-1", ENV: environment()}}


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_plans_with_a_base_keep_to_the_schema(tmp_path: Path, disagg: Run) -> None:
    """Every shipped stack, changed since its base, and one that is gone, new or refused: what is printed is what docs/schema says."""
    shipped = {f"stacks/Pulumi.{s}.yaml": yaml.safe_load((SHIPPED / f"stacks/Pulumi.{s}.yaml").read_text(encoding="utf-8")) for s in STACKS}
    files = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("Pulumi.yaml", "__main__.py")}
    repository = Repository(tmp_path / "repository")
    repository.commit({**files, **shipped, "stacks/Pulumi.gone.yaml": STACK})
    for file in shipped.values():
        file["config"][ENV]["models"][0]["maxModelLen"] = 16000
    refused = {"config": {ENV: {"name": "x", "colour": "red"}}}
    repository.write({**shipped, "stacks/Pulumi.gone.yaml": None, "stacks/Pulumi.new.yaml": STACK, "stacks/Pulumi.refused.yaml": refused})
    assert disagg("plan", "--all", "--base", "HEAD", "--format", "json", cwd=repository.project) == 2
    plans = {p["stack"]: p for p in json.loads(disagg.out)}
    assert {*plans} == {*STACKS, "gone", "new", "refused"}
    assert all(plans[s]["changes"] and plans[s]["difference"]["compared"] for s in STACKS)
    schema = Draft202012Validator(json.loads((ROOT / "docs/schema/plan.schema.json").read_text(encoding="utf-8")))
    for plan in plans.values():
        schema.validate(plan)


def test_a_project_that_moved_is_compared_with_itself(own: Repository, disagg: Run) -> None:
    """A project in another folder is no new one: it is found by its name, and the plan says where it was."""
    own.commit({"requirements.txt": "nothing-that-exists==1\n"})
    own.git("branch", "--force", "main")
    own.git("mv", "deploy", "infrastructure")
    own.git("commit", "--quiet", "-m", "move")
    moved = own.folder / "infrastructure"
    assert disagg("plan", "test", "--base", "main", "--format", "json", cwd=moved) == 0
    assert json.loads(disagg.out)["changes"] == []
    (note,) = [n for n in json.loads(disagg.out)["difference"]["notes"] if "moved" in n]
    assert note.endswith("main has it in deploy, this branch in infrastructure")
    file = moved / "Pulumi.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("name: ", "name: other-"), encoding="utf-8")
    assert disagg("plan", "test", "--base", "main", "--format", "json", cwd=moved) == 0
    assert {c["op"] for c in json.loads(disagg.out)["changes"]} == {"create"}


def test_what_is_installed_otherwise_than_pinned_is_noted(own: Repository, disagg: Run) -> None:
    """A branch is planned by the packages that are installed here; where its requirements.txt pins others, the plan says which."""
    pins = f"# pins\npulumi=={version('pulumi')}\npyyaml==0.0.1\nnothing-that-exists[x]==1  # why\nother>=1\n"
    own.commit({"requirements.txt": pins})
    assert disagg("plan", "test", "--base", "HEAD", "--format", "json", cwd=own.project) == 0
    (note,) = [n for n in json.loads(disagg.out)["difference"]["notes"] if "requirements.txt" in n]
    assert note.endswith(f": pyyaml {version('pyyaml')} instead of 0.0.1, nothing-that-exists none instead of 1")
    own.commit({"requirements.txt": f"pulumi=={version('pulumi')}\n"})
    assert disagg("plan", "test", "--base", "HEAD", "--format", "json", cwd=own.project) == 0
    assert not [n for n in json.loads(disagg.out)["difference"]["notes"] if "requirements.txt" in n]
