"""Errors that a stack file accepts with a reason."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

import pytest
import yaml
from bad_input import CASES
from disagg_serving.errors import Level
from disagg_serving.manifests.bundle import build_all
from disagg_serving.recording.plan import placement_of
from disagg_serving.recording.topology import topology_of
from disagg_serving.records import data_of
from disagg_serving.rules import Stage, rules
from disagg_serving.rules.explanations import explanation_of
from disagg_serving.spec.stack_file import ENVIRONMENT_KEY
from factories import check, environment, layout, model, role

REASON = "the second reservation begins on Monday"
FIRM = {r.id for r in rules() if r.firm}
ERRORS = {r.id for r in rules() if r.level is Level.ERROR and r.stage is not Stage.LOOK_UP}


@cache
def acceptable() -> list[tuple[str, str, dict[str, Any]]]:
    """Bad input whose errors are all of one rule that may be accepted, of tests and of what `explain` shows: name, rule, environment."""
    given = [(case.name, case.data) for case in CASES if not case.files]
    shown = [(rule, explanation_of(rule).bad) for rule in sorted(ERRORS - FIRM)]
    given += [(rule, yaml.safe_load(bad.stack)["config"][ENVIRONMENT_KEY]) for rule, bad in shown if bad and bad.stack and not bad.files]
    found = []
    for name, data in given:
        if not isinstance(data, dict) or "config" in data:
            continue
        ids = {f.id for f in check(deepcopy(data)).findings if f.level is Level.ERROR}
        if len(ids) == 1 and (only := next(iter(ids))) in ERRORS - FIRM:
            found.append((name, only, data))
    return found


def test_an_accepted_error_is_a_warning_and_renders() -> None:
    """Whatever may be accepted leaves something that can be rendered, and the reason stands in the sentence and in the data."""
    for name, rule, data in acceptable():
        result = check({**deepcopy(data), "accept": {rule: REASON}})
        assert rule not in {f.id for f in result.findings if f.level is Level.ERROR}, name
        lowered = [f for f in result.findings if f.id == rule and f.accepted]
        assert {f.level for f in lowered} == {Level.WARNING}, name
        assert all(f.sentence().endswith(f"; accepted: {REASON}") and data_of(f)["accepted"] == REASON for f in lowered), name
        assert result.layout is not None, name
        assert build_all(result.layout), name


def test_most_rules_can_be_accepted() -> None:
    """The cases above cover the rules that may be accepted; a rule without a case would be one nobody tried."""
    tried = {rule for _, rule, _ in acceptable()}
    with_files_or_others = {"weights-streamer", "engine-version"}
    of_objects = {r.id for r in rules() if r.stage is Stage.OBJECTS}  # no stack file makes such an object
    assert ERRORS - FIRM - tried - of_objects == with_files_or_others


@pytest.mark.parametrize("rule", sorted(FIRM & ERRORS))
def test_firm_rules_cannot_be_accepted(rule: str) -> None:
    """A rule that guards secrets or the form says so instead of looking away."""
    result = check(environment(model(), accept={rule: REASON}))
    (refusal,) = [f for f in result.findings if f.id == "accepted"]
    assert (refusal.level, refusal.path) == (Level.ERROR, f"accept.{rule}")


def test_firm_findings_stay_errors() -> None:
    """Even named in `accept`, an error of a firm rule stops the deployment."""
    result = check(environment(model(extraEnv={"HF_HOME": "/x"}), accept={"extra-env": REASON}))
    assert {f.id for f in result.findings if f.level is Level.ERROR} == {"accepted", "extra-env"}


def test_a_misspelt_rule_is_explained() -> None:
    """An exception for a rule that is not there is an error with a suggestion."""
    (refusal,) = [f for f in check(environment(model(), accept={"group-capacty": REASON})).findings if f.level is Level.ERROR]
    assert "did you mean group-capacity?" in refusal.sentence()


def test_a_reason_is_needed() -> None:
    """A word is no reason."""
    assert not check(environment(model(), accept={"group-capacity": "ok"})).ok


def test_an_acceptance_that_accepts_nothing_is_said() -> None:
    """An exception that outlives its cause would hide the next error of its kind."""
    result = check(environment(model(), accept={"group-capacity": REASON}))
    assert result.ok
    assert [f.path for f in result.findings if f.id == "accepted"] == ["accept.group-capacity"]


def test_only_the_named_rule_is_lowered() -> None:
    """Other errors of the same run stay errors."""
    data = environment(model(decode=role(capacity={"nodes": 1}, replicas=9, tensorParallel=8)), accept={"pod-fits-node": REASON})
    assert "group-capacity" in {f.id for f in check(data).findings if f.level is Level.ERROR}


def test_a_pod_for_which_no_node_exists_is_shown_as_such() -> None:
    """Who accepts a pod larger than its node still gets a plan, and it says that the pod lands nowhere."""
    data = environment(model(prefill=role(memoryGiB=4000)), accept={"pod-fits-node": "a larger type comes in spring"})
    made = layout(data)
    assert [p.unplaced for p in placement_of(made)] == [[], ["m-prefill-0"]]
    assert "prefill-p5-48xlarge" in topology_of(made)


def test_a_reason_is_more_than_a_word() -> None:
    """A short reason is refused as a short text."""
    (found,) = [f for f in check(environment(model(), accept={"group-capacity": "later"})).findings if f.level is Level.ERROR]
    assert found.message == "is too short"


@pytest.mark.parametrize("level", [Level.WARNING, Level.INFO])
def test_only_errors_are_accepted(level: Level) -> None:
    """A reason for a rule that only warns or explains does nothing, which is said once, with the way out."""
    rule_id = next(r.id for r in rules() if r.level is level and not r.firm and r.stage is Stage.FORM)
    (about,) = [f for f in check(environment(accept={rule_id: REASON})).findings if f.path == f"accept.{rule_id}"]
    assert (about.id, about.level) == ("accepted", Level.INFO)
    assert "only errors can be accepted" in about.message
    assert dict(about.corrections[0]) == {f"accept.{rule_id}": None}
