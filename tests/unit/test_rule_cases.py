"""Each rule and each form check finds what its file shows, and nothing in the mended case."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from textwrap import indent

import pytest
from disagg_serving.cli.main import build_app, main
from disagg_serving.errors import Finding, Level, SpecError
from disagg_serving.recording.plan import make_plans
from disagg_serving.rules import rules
from disagg_serving.rules.evaluation import evaluate_file, judge
from disagg_serving.rules.explanations import CASES_DIR, Case, explanation_of
from disagg_serving.rules.form import FORM_CHECKS
from disagg_serving.spec.stack_file import find_project
from factories import ROOT
from slots import loose

LEVELS: Mapping[str, Level] = dict.fromkeys(FORM_CHECKS, Level.ERROR) | {r.id: r.level for r in rules()}
EXPLANATIONS = {rule: explanation_of(rule) for rule in sorted(file.stem for file in CASES_DIR.glob("*.yaml"))}
ALSO: Mapping[str, set[str]] = {"accepted": {"group-capacity"}}
"""Errors that a bad case cannot do without: what is not accepted stays an error."""
PROJECT = "name: example\nruntime: python\n"


def findings_of(case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    """What the tool says about a case: `check`, with recorded answers where there are some; `plan` for a program; else the case's command."""
    given = {"Pulumi.yaml": PROJECT, "Pulumi.test.yaml": case.stack or "config: {}\n", **case.files}
    if case.program is not None:
        given["__main__.py"] = case.program
    for name, text in given.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    try:
        if case.command is not None:
            monkeypatch.chdir(folder)
            tool, *argv = shlex.split(case.command)
            assert (tool, build_app(argv[0])(args=argv, standalone_mode=False)) == ("disagg", 0)
            return []
        project = find_project(folder)
        if case.program is not None:
            (plan,) = make_plans(project, ["test"])
            return list(plan.checks)
        found = evaluate_file(project.stack_file("test"), folder)
        answers = case.looked_up()
        return [*found.findings, *(judge(found.require_layout(), answers) if answers else ())]
    except SpecError as problem:
        return problem.findings


def test_every_rule_has_a_file() -> None:
    """A rule or form check without an explanation is not done, and no file is about a rule that is gone."""
    assert EXPLANATIONS.keys() == LEVELS.keys()


@pytest.mark.parametrize("rule", [rule for rule, about in EXPLANATIONS.items() if about.tested_in is None])
def test_cases(rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bad case has the finding, at the rule's level, as the only error and with slots for keys; the good one does not have it, and no error."""
    about = EXPLANATIONS[rule]
    assert about.bad
    assert about.good
    bad = findings_of(about.bad, tmp_path / "bad", monkeypatch)
    assert LEVELS[rule] in {f.level for f in bad if f.id == rule}, [f.sentence() for f in bad]
    assert {f.id for f in bad if f.level is Level.ERROR} <= {rule} | ALSO.get(rule, set()), [f.sentence() for f in bad]
    assert about.bad.program or [(f.sentence(), names) for f in bad if (names := loose(f))] == []

    good = findings_of(about.good, tmp_path / "good", monkeypatch)
    silent = {Level.ERROR, Level.WARNING, LEVELS[rule]}
    assert [f.sentence() for f in good if (f.id == rule and f.level in silent) or f.level is Level.ERROR] == []


def test_what_needs_more_than_files_has_a_test() -> None:
    """Where a file names a test, that test is there and looks for the rule."""
    named = {rule: about.tested_in.split("::") for rule, about in EXPLANATIONS.items() if about.tested_in}
    assert named.keys() == {"base-not-compared"}
    for rule, (file, function) in named.items():
        _, found, body = (ROOT / file).read_text(encoding="utf-8").partition(f"def {function}(")
        assert found
        assert f'"{rule}"' in body.partition("\ndef ")[0]


@pytest.mark.parametrize("rule", EXPLANATIONS)
def test_texts_are_short(rule: str) -> None:
    """What a file says are a few sentences that do not say the summary again, and its cases fit a screen."""
    about = EXPLANATIONS[rule]
    summaries = FORM_CHECKS | {r.id: r.summary for r in rules()}
    for text, most in ((about.means, 4), (about.do, 3)):
        assert text.endswith(".")
        assert "\n" not in text.strip()
        assert text.count(". ") < most
        assert text != summaries[rule]
    for case in (about.bad, about.good):
        for text in [t for t in (case.stack, case.program) if t] if case else []:
            assert len(text.splitlines()) <= 40
            assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("rule", ["kubernetes-version", "look-up-quota", "base-not-compared"])
def test_explain(rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`disagg explain` says level, summary, meaning, what to do and source in lines of at most 100 columns, and each file of both cases as it is."""
    assert main(["explain", rule]) == 0
    printed, about = capsys.readouterr().out, EXPLANATIONS[rule]
    summary, source = next(((r.summary, f"Source: {r.reference}") for r in rules() if r.id == rule), (FORM_CHECKS.get(rule, ""), ""))
    assert printed.startswith(f"{rule} ({LEVELS[rule]})\n")
    words = " ".join(printed.split())
    for text in (summary, f"What it means: {about.means}", f"What to do: {about.do}", source):
        assert " ".join(text.split()) in words
    for case in filter(None, (about.bad, about.good)):
        for part in case.parts():
            assert indent(part.text.rstrip("\n"), "    ") in printed
    assert max(map(len, printed.splitlines())) <= 100
    assert printed.count("\n\nExample:\n\n") == printed.count("\n\nWithout the finding:\n\n") == (about.bad is not None)
