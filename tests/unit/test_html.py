from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from disagg_serving.document.difference import Change, Difference, Op
from disagg_serving.errors import Finding, Level
from disagg_serving.recording.graph import Graph
from disagg_serving.recording.plan import assemble
from disagg_serving.report.html import render_html
from pages import CHANGES, HOSTILE, PAGES, hostile_plan, plan_of, plans


class Outline(HTMLParser):
    """Elements, attributes and words of a page."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.inside: dict[str, str] = {}
        self._open = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Count an element."""
        self.elements[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self._open = tag

    def handle_data(self, data: str) -> None:
        """Keep a text."""
        self.texts.append(data)
        if self._open in ("style", "script"):
            self.inside.setdefault(self._open, data)
        self._open = ""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_needs_and_allows_nothing_else(name: str) -> None:
    """A page asks for nothing: its policy allows its own style and script by their hashes, and there is nothing that either would refuse."""
    page = render_html(plans(name))
    outline = Outline(page)
    ids = [value for _, attribute, value in outline.attributes if attribute == "id"]
    (policy,) = [value for tag, attribute, value in outline.attributes if (tag, attribute) == ("meta", "content") and "default-src" in value]

    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for kind in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(outline.inside[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
        assert outline.elements[kind] == 1
    assert [a for a in outline.attributes if a[1].startswith("on") or a[1] == "style"] == []
    links = [value for _, attribute, value in outline.attributes if attribute in ("href", "src", "action", "srcset", "data", "poster", "xlink:href")]
    assert all(link.startswith("#") or link == "data:," for link in links)
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
    assert not re.search(r"@import|url\(", outline.inside["style"])


def test_hostile_names_stay_texts() -> None:
    """Names with markup, quotes and signs that turn the reading direction add no element and no attribute, and are shown as they are written."""
    outline = Outline(render_html([hostile_plan()]))
    text = " ".join(outline.texts)

    assert set(outline.elements) <= set(Outline(render_html([plan_of({"models": []}), *plans("difference"), *plans("many")])).elements)
    assert {name for _, name, _ in outline.attributes if name.startswith("on")} == set()
    assert outline.elements["script"] == outline.elements["style"] == 1
    assert outline.elements["img"] == outline.elements["h6"] == 0
    assert "<img src=x onerror=alert(1)>" in text
    assert not re.search("[\u202a-\u202e\x00-\x08\x1b]", text)
    assert all(word in text for word in ("@octocat", HOSTILE[4][:30]))


def test_everything_of_the_plan_is_in_the_page() -> None:
    """All findings, resources, pods, costs and changes stand in the page."""
    for name in PAGES:
        text = " ".join(Outline(render_html(plans(name))).texts)
        for plan in plans(name):
            for resource in plan.graph.resources.values():
                assert resource.name in text or resource.type == "pulumi:pulumi:Stack"
            for finding in plan.checks:
                assert finding.message in text
            if name != "many":
                assert all(pod in text for pool in plan.placement for node in pool.nodes for pod in node.pods)
            assert all(line.item in text for line in plan.cost.lines)
    page = " ".join(Outline(render_html(plans("difference"))).texts)
    assert all(change.effect in page for change in CHANGES)
    assert "prod-b" in page


def test_what_may_grow_and_what_waits_is_said() -> None:
    """The page of a scaled model says cost and nodes at most, and that a candidate gets no requests."""
    (plan,) = plans("growing")
    page = " ".join(Outline(render_html([plan])).texts)
    assert plan.autoscaling.at_most is not None
    most = plan.autoscaling.at_most.cost.per_month
    assert most > plan.cost.per_month
    assert page.count(f"{most:,.2f}") == 1
    assert f"{most:,.0f} a month at most" in page
    assert "5 x p5.48xlarge in decode-p5-48xlarge" in page
    assert "m-b candidate: gets no requests" in " ".join(page.split())
    assert "gets no requests" not in " ".join(Outline(render_html(plans("many"))).texts)


def test_backticks_are_code() -> None:
    """What stands between backticks in a finding, an effect or a note is shown as code, without them, and stays a text."""
    said = "run `pulumi config set --secret <b>` first"
    change = Change("urn:pulumi:t::p::a:b:C::x", "a:b:C", "x", Op.UPDATE, effect=said)
    finding = Finding("schema", Level.ERROR, "a", "is wrong", fix=said)
    plan = replace(assemble("p", "t", Graph(), [finding]), changes=[change], difference=Difference("main", "0123456789", notes=[said]))
    page = render_html([plan])
    assert page.count("run <code>pulumi config set --secret &lt;b&gt;</code> first") == 4
    assert "`pulumi" not in page
