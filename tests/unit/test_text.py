"""Plans for a terminal: texts of a stack file neither move the cursor nor begin a line of their own."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from changes import plan_of
from disagg_serving.errors import Level
from disagg_serving.recording.plan import Plan
from disagg_serving.report.bars import Bar, BarChart
from disagg_serving.report.text import Shown, render_text, to_text
from disagg_serving.report.view import FindingView
from factories import SHIPPED, STACKS
from pages import hostile_plan

PROD = plan_of("prod", "{}")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("color", [False, True])
def test_hostile_texts_stay_texts(color: bool) -> None:  # noqa: FBT001
    """A name cannot clear the screen, turn the reading direction or write a line that a CI system takes for a command."""
    text = render_text([hostile_plan()], color=color, width=100_000)
    plain = COLOURS.sub("", text)
    assert (plain != text) == color
    assert all(line.isprintable() for line in plain.splitlines())
    assert not any(line.strip().startswith("::") for line in plain.splitlines())
    assert plain.count("\\x0a::error file=a::b\\x1b[2J") > 20


def shown_at(width: int, plan: Plan = PROD, **options: Any) -> list[str]:
    """The lines of a plan in a terminal of this width."""
    return render_text([plan], color=False, width=width, **options).splitlines()


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_no_width_loses_a_figure(stack: str, width: int) -> None:
    """At every width no line is wider than the terminal, and each figure and name of the widest text is there, whole."""
    plan = plan_of(stack, "{}")
    lines, widest = shown_at(width, plan), shown_at(400, plan)
    assert max(map(len, lines)) <= width
    assert "…" not in "\n".join(lines)
    said = figures("\n".join(lines))
    assert not {word: n for word, n in figures("\n".join(widest)).items() if said[word] < n}


def figures(text: str) -> Counter[str]:
    """How often each number and name with a number occurs."""
    return Counter(word.strip(",:;") for word in text.split() if any(map(str.isdigit, word)))


def test_the_first_line_is_the_verdict() -> None:
    """Whoever reads one line knows whether the stack can be deployed, where the pods land and what a month costs."""
    assert re.match(r"prod: Can be deployed, with 1 warning; 6 pods on 2 nodes; [\d,]+ USD a month$", shown_at(120)[0])
    refused = replace(PROD, checks=[replace(PROD.checks[0], level=Level.ERROR)])
    assert shown_at(120, refused)[0].startswith("prod: Cannot be deployed: 1 check fails; ")


def test_prod_fits_a_screen() -> None:
    """The plan that `make preview` prints has at most 60 lines, and the tree of resources and the notes come on demand."""
    assert len(shown_at(120, shown=Shown(findings=FindingView(notes=False)), ending="exit 0: no errors")) <= 60
    assert not any("NatGateway" in line for line in shown_at(120))
    assert any("NatGateway" in line for line in shown_at(120, shown=Shown(resources=True)))


def test_findings_name_their_line() -> None:
    """A finding about a value points to its line of the stack file."""
    file = SHIPPED / "stacks/Pulumi.prod.yaml"
    (line,) = [line for line in shown_at(120, files={"prod": file}) if line.startswith("warning pd-tensor-parallel")]
    number = int(line.rpartition("Pulumi.prod.yaml:")[2])
    assert "tensorParallel: 2" in file.read_text(encoding="utf-8").splitlines()[number - 1]


def test_what_is_not_shown_is_counted() -> None:
    """A view leaves findings out and says how many, never an error."""
    findings = [replace(PROD.checks[0], id=f"rule-{level}", level=level) for level in Level]
    plan = replace(PROD, checks=findings)
    for view, seen in (
        (FindingView(hidden=frozenset({Level.INFO, Level.WARNING})), {"error"}),
        (FindingView(only=frozenset({"rule-info"})), {"error", "info"}),
        (FindingView(only=frozenset({"rule-info"}), hidden=frozenset({Level.INFO})), {"error"}),
    ):
        text = "\n".join(shown_at(120, plan, shown=Shown(findings=view)))
        assert {str(level) for level in Level if f"rule-{level}" in text} == seen
        assert f"1 error, 1 warning, 1 note; {3 - len(seen)} not shown" in text
    folded = "\n".join(shown_at(120, plan, shown=Shown(findings=FindingView(notes=False))))
    assert "1 note (--notes): rule-info" in folded


@pytest.mark.parametrize("width", [40, 80, 200])
def test_bars_are_in_proportion(width: int) -> None:
    """A bar of half the value has half the length, within a character, and parts follow each other without a gap."""
    chart = BarChart([Bar("a", [("█", 30), ("▒", 10)]), Bar("b", [("█", 15), ("▒", 5)])])
    first, second = to_text(chart, color=False, width=width).splitlines()
    assert abs(first.count("█") - 2 * second.count("█")) <= 2
    assert abs(3 * first.count("▒") - first.count("█")) <= 3
    assert re.fullmatch(r" a  █+▒+", first)
    assert max(len(first), len(second)) <= width
