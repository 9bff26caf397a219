"""Plans for a terminal: texts of a stack file neither move the cursor nor begin a line of their own."""

from __future__ import annotations

import re

import pytest
from disagg_serving.report.text import render_text
from pages import hostile_plan

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
