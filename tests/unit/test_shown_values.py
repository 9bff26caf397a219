"""Values of a stack file, and of inputs, in what people read."""

from __future__ import annotations

import html
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from disagg_serving.document.difference import Change, Difference, Op, PathChange
from disagg_serving.errors import Finding, Level, show
from disagg_serving.recording.graph import Graph
from disagg_serving.recording.plan import assemble
from disagg_serving.report.html import render_html
from disagg_serving.report.markdown import render_markdown
from disagg_serving.report.text import render_text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"decode": {"replicas": 2, "spot": True, "pool": None}}, "{decode: {replicas: 2, spot: true, pool: null}}"),
        ([True, "true", "1", "a b", 1.5, date(2026, 11, 30)], '[true, "true", "1", "a b", 1.5, 2026-11-30]'),
        (False, "false"),
        (list(range(10)), "[0, 1, 2, 3, 4, 5, ...]"),
        ({}, "{}"),
    ],
)
def test_values_are_shown_as_a_stack_file_has_them(value: Any, shown: str) -> None:
    """Findings, changes in each format, and the value in JSON speak YAML, never Python."""
    assert show(value) == shown
    assert f"a: {shown} is wrong" == Finding("schema", Level.ERROR, "a", "is wrong", value).sentence()
    change = Change("urn:pulumi:t::p::a:b:C::x", "a:b:C", "x", Op.UPDATE, [PathChange("spec.a", value, "x")])
    plan = replace(assemble("p", "t", Graph(), []), changes=[change], difference=Difference("main", "0123456789"))
    assert f"{shown} -> x" in render_text([plan], color=False)
    assert f"`{shown}`" in render_markdown([plan])
    assert html.escape(shown, quote=True).replace("&quot;", "&#34;") in render_html([plan])


def test_a_small_file_that_stands_for_a_huge_value_is_cut() -> None:
    """Lists of lists of one list, and a list in itself, take no time and no room."""
    many: Any = "x"
    for _ in range(40):
        many = [many] * 40
    itself: list[Any] = []
    itself.append(itself)
    assert len(show(many)) <= 80
    assert show(itself) == "[[[[[[...]]]]]]"
