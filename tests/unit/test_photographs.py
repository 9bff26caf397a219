"""The pictures of a plan in the documentation show the plan of today."""

from __future__ import annotations

import pytest
from disagg_serving.report.html import render_html
from pages import shipped
from photographs import FOLDER, NAMES, photographed, words_in_view


@pytest.mark.parametrize("name", NAMES)
def test_pictures_show_the_plan_of_today(name: str) -> None:
    """Whoever changes a word of the page or of prod's findings makes the pictures anew; a change that nobody sees asks for nothing."""
    assert photographed(FOLDER / f"{name}.png") == words_in_view(render_html([shipped("prod")])), "run `make pictures`"


def test_only_words_in_view_count() -> None:
    """What is closed, hidden, chosen from a list or left out of the picture is not compared; every other word is."""
    page = (
        "<head><title>a</title></head><body><p>seen <b>too</b><br>and this</p><details><summary>head</summary><p>closed</p></details>"
        "<p hidden>no <b>never</b></p><select><option>one</option></select><section id='p0-resources'><h2>Resources</h2></section><p>end</p></body>"
    )
    assert words_in_view(page) == "seen\ntoo\nand this\nhead\nend\n"
    words = words_in_view(render_html([shipped("prod")]))
    assert {"Can be deployed, with 1 warning", "pd-tensor-parallel", "6 pods on 2 nodes", "GPU of decode"} <= set(words.split("\n"))
