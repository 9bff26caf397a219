"""Plans of several stacks: in each format a table of all stands first, and the worst is the first of them."""

from __future__ import annotations

import re
from dataclasses import replace

from disagg_serving.document.difference import Change, Difference, Op
from disagg_serving.errors import Finding, Level
from disagg_serving.report.html import render_html
from disagg_serving.report.markdown import render_markdown
from disagg_serving.report.text import render_text
from factories import environment
from pages import plan_of

PLAN = plan_of(environment())
BREAKS = Change("u", "aws:ec2/vpc:Vpc", "v", Op.REPLACE, (), "breaks", Level.ERROR)
LOSES = Change("w", "aws:ec2/eip:Eip", "e", Op.DELETE, (), "loses", Level.WARNING)
PLANS = [
    replace(PLAN, stack="a-fine", checks=[], difference=Difference("main", "abc")),
    replace(PLAN, stack="b-wrong", checks=[Finding("rule", Level.ERROR, "models", "is wrong")] * 2),
    replace(PLAN, stack="c-lesser", checks=[Finding("rule", Level.WARNING, "models", "is odd")]),
    replace(PLAN, stack="d-breaks", checks=[], changes=[BREAKS, LOSES], difference=Difference("main", "abc")),
]
WORST_FIRST = ["b-wrong", "d-breaks", "c-lesser", "a-fine"]


def positions(text: str) -> list[str]:
    """The stacks in the order in which each is first named."""
    return sorted(WORST_FIRST, key=text.index)


def test_the_worst_stack_stands_first() -> None:
    """Whoever opens a report of many stacks sees which one breaks, what it costs, and need not look for it."""
    text, markdown, html = (f(PLANS) for f in (lambda p: render_text(p, color=False), render_markdown, render_html))
    page = html[html.index("<main") :]
    for form in (text, markdown, page):
        assert positions(form) == WORST_FIRST
        assert "2 checks fail" in form
        assert form.index("a-fine") < form.index("is wrong"), "the table of all stands before what is said of one"
    assert re.findall(r'<article class="plan" id="(\w+)"', page) == ["p0", "p1", "p2", "p3"]
    links = dict(re.findall(r'<a href="#(p\d)">([\w-]+)</a>', page))
    assert [links[f"p{i}"] for i in range(4)] == WORST_FIRST
    assert re.search(r"^ ?b-wrong +Cannot be deployed", text, re.MULTILINE)


def test_one_stack_needs_no_table() -> None:
    """A plan of one stack begins with its verdict."""
    assert "overview-title" not in render_html(PLANS[:1])
    assert render_text(PLANS[:1], color=False).startswith("a-fine: Can be deployed")


def test_how_much_a_change_weighs_is_a_word() -> None:
    """Colours and order alone would leave out who sees neither."""
    page = render_html(PLANS[3:])
    assert re.search(r'<span class="level">error</span> <span class="op replace">replaced</span>', page)
    assert re.search(r'<span class="level">warning</span> <span class="op delete">deleted</span>', page)
    markdown = render_markdown(PLANS[3:])
    assert "- **error**, replaced `aws Vpc`" in markdown
    assert "- warning, deleted `aws Eip`" in markdown
