"""`--look-up` of check and plan, and look-ups of programs: asked only on demand, and never in the way."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pulumi
import pytest
from aws_answers import REGION, Aws
from command_line import Run, bare, write_project
from disagg_serving import lookups
from disagg_serving.errors import ToolError
from disagg_serving.resources.base import Watch, require_layout, watched
from disagg_serving.resources.wording import ChecksFailed
from factories import check, environment, model, role
from repositories import Repository

WHOLE_NODES = {"prefill": role(tensorParallel=8), "decode": role(tensorParallel=8)}
P5 = ("p5.48xlarge", "us-east-1a")


def account(monkeypatch: pytest.MonkeyPatch, aws: Aws) -> list[tuple[str, str | None]]:
    """Let look-ups talk to this account; what sessions were opened, with region and profile."""
    opened: list[tuple[str, str | None]] = []

    def open_session(region: str, profile: str | None = None) -> Any:
        opened.append((region, profile))
        return aws.session

    monkeypatch.setattr(lookups, "open_session", open_session)
    return opened


def test_check_and_plan_show_the_same_answers(disagg: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both commands have the findings of look-ups among the others, with the profile of the stack, and end with exit code 2 for an error."""
    opened = account(monkeypatch, Aws().quota(0).offers(P5).prices(60))
    data = environment(model(**WHOLE_NODES))
    project = write_project(tmp_path, {"aws:region": REGION, "aws:profile": "platform", "disagg-serving:environment": data})
    assert disagg("check", "test", "--look-up", "--format", "json", cwd=project) == 2
    found = [c for c in json.loads(disagg.out)["checks"] if c["id"].startswith("look-up-")]
    assert {(c["id"], c["level"]) for c in found} == {("look-up-quota", "error"), ("look-up-price", "warning")}
    assert disagg("plan", "test", "--look-up", "--format", "json", cwd=project) == 2
    plan = json.loads(disagg.out)
    assert [c for c in plan["checks"] if c["id"].startswith("look-up-")] == found
    assert opened == [(REGION, "platform")] * 2
    assert disagg("plan", "test", "--format", "json", cwd=project) == 0
    offline = json.loads(disagg.out)
    assert {k: v for k, v in plan.items() if k != "checks"} == {k: v for k, v in offline.items() if k != "checks"}, "answers change nothing else"
    assert len(opened) == 2


def test_answers_are_part_of_a_difference(disagg: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What AWS says about this revision is new beside the base, which is not asked; the plan says so."""
    account(monkeypatch, Aws().quota(0).offers(P5).prices(60))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    repository = Repository(tmp_path / "repository")
    project = write_project(repository.folder, {"aws:region": REGION, "disagg-serving:environment": environment(model(**WHOLE_NODES))})
    repository.commit({})
    assert disagg("plan", "test", "--look-up", "--base", "main", "--format", "json", cwd=project) == 2
    plan = json.loads(disagg.out)
    assert [c for c in plan["checks"] if c["id"].startswith("look-up-")] == plan["difference"]["checks"]["new"] != []
    assert "AWS is asked about this revision alone: what it answers counts as new" in plan["difference"]["notes"]


def test_without_the_extra(disagg: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where boto3 is not installed the option says how to install it, and nothing else needs it."""
    monkeypatch.setitem(sys.modules, "boto3", None)
    for name in ("disagg_serving.lookups", "disagg_serving.lookups.aws"):
        monkeypatch.delitem(sys.modules, name)
    file = bare(tmp_path, environment(model(**WHOLE_NODES)))
    assert disagg("check", str(file), "--look-up") == 1
    assert disagg.err == "error: look-ups need boto3, which is not installed: `make extras` in a clone, else pip install 'disagg-serving[aws]'\n"
    assert disagg("check", str(file)) == 0


def test_input_too_faulty_to_ask_about(disagg: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rules stop before a layout nothing is asked, and the errors are shown."""
    opened = account(monkeypatch, Aws())
    assert disagg("check", str(bare(tmp_path, environment(model(decode=role(tensorParallel=3))))), "--look-up") == 2
    assert opened == []


def said(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What a program writes to Pulumi's log, by level."""
    found: dict[str, list[str]] = {"warn": [], "info": []}
    for level, lines in found.items():
        monkeypatch.setattr(pulumi.log, level, lambda text, *_, lines=lines: lines.append(text))
    return found


def asking() -> Any:
    """The evaluation of a stack that asks for look-ups."""
    return check(environment(model(**WHOLE_NODES), lookUps=True))


def test_a_program_shows_answers_and_stops_at_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """During preview and up answers are in Pulumi's log; one of level error stops them like an error of any rule."""
    log = said(monkeypatch)
    account(monkeypatch, Aws().quota(1000).offers(P5).prices(60))
    evaluation = asking()
    assert require_layout(evaluation) is evaluation.layout, "the layout that resources are made of is the same one"
    assert any("+9.0% against the catalogue's" in line for line in log["warn"])
    assert any("vCPUs are the account's quota" in line for line in log["info"])
    account(monkeypatch, Aws().quota(0).offers(P5).prices(60))
    with pytest.raises(ChecksFailed, match="L-417A185B"):
        require_layout(asking())


def test_a_program_is_not_stopped_by_missing_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without rights, profile or boto3 a program goes on with a warning."""
    log = said(monkeypatch)
    refused = Aws()
    for service, operation in (("service-quotas", "GetServiceQuota"), ("ec2", "DescribeInstanceTypeOfferings"), ("pricing", "GetProducts")):
        refused.refuses(service, operation, "AccessDeniedException")
    account(monkeypatch, refused)
    assert require_layout(asking()) is not None
    assert len([line for line in log["warn"] if "could not be looked up" in line]) == 3

    def no_session(*_: Any) -> Any:
        raise ToolError("look-ups need boto3")

    monkeypatch.setattr(lookups, "open_session", no_session)
    assert require_layout(asking()) is not None
    assert "lookUps: look-ups need boto3" in log["warn"]


def test_neither_the_offline_plan_nor_other_stacks_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a plan is recorded, and for a stack that does not ask, no session is opened."""
    said(monkeypatch)
    opened = account(monkeypatch, Aws())
    token = watched.set(Watch())
    try:
        require_layout(asking())
    finally:
        watched.reset(token)
    require_layout(check(environment(model(**WHOLE_NODES))))
    assert opened == []
