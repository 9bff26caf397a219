"""The report of what the real engine refuses fits the rules that there are."""

from __future__ import annotations

import re

import pytest
from disagg_serving.catalog import Catalog
from disagg_serving.catalog.flags import versions
from disagg_serving.rules import rules
from factories import ROOT

from engine.agreement import GRIDS, IMAGES, environment, page
from engine.build import PARSERS
from engine.grids import ELSEWHERE

PAGE = (ROOT / "docs/engine-agreement.md").read_text(encoding="utf-8")
OF_FORM = {"schema"}
RULES = {r.id: r for r in rules()}


def test_every_rule_about_vllm_was_asked_or_says_why_not() -> None:
    """A rule whose reference is vLLM has a grid, or a reason why no parser can answer for it; neither speaks of rules that are gone."""
    about_vllm = {r.id for r in rules() if re.search(r"vllm-project/|vLLM", r.reference)}
    asked = {g.rule for g in GRIDS}
    assert about_vllm <= asked | ELSEWHERE.keys()
    assert (asked | ELSEWHERE.keys()) - OF_FORM <= RULES.keys()
    assert not asked & ELSEWHERE.keys()


@pytest.mark.parametrize("grid", GRIDS, ids=lambda g: g.rule)
def test_page_has_every_input(grid: object) -> None:
    """The page was written with the inputs that stand in the code today."""
    (found,) = (g for g in GRIDS if g is grid)
    section = PAGE.split(f"\n## {found.rule}\n", 1)[1].split("\n## ", 1)[0]
    assert [line.split(" | ")[0].removeprefix("| ") for line in section.splitlines() if line.startswith("| ")][1:] == [
        p.what.replace("|", "\\|") for p in found.probes
    ]


def test_every_reason_is_about_an_input() -> None:
    """A reason whose pattern fits no input explains nothing."""
    for grid in GRIDS:
        for pattern in grid.differs:
            assert any(re.fullmatch(pattern, p.what) for p in grid.probes), (grid.rule, pattern)
        assert len({p.what for p in grid.probes}) == len(grid.probes)


def test_page_leaves_nothing_unexplained() -> None:
    """A difference without a reason would stand on the page as such."""
    assert "**unexplained**" not in PAGE
    assert all(line.rstrip(" |").endswith("| 0") for line in PAGE.splitlines() if re.match(r"\| `[a-z-]+` \| \d", line))


def test_page_is_of_the_engines_that_are_asked() -> None:
    """The pinned versions, the lists of flags, the catalogue's notes and the page's head are of the same versions and days."""
    asked = [e.version for e in PARSERS]
    assert sorted(asked) == sorted(versions()) == sorted(IMAGES)
    assert f"vLLM {' and '.join(asked)};" in PAGE
    day = re.search(r"Written on ([\d-]+)", PAGE)
    assert day is not None
    catalog = Catalog()
    for engine in (catalog.engines[e] for e in catalog.engines):
        of_version = engine.version in asked
        assert bool(engine.verified_on) == of_version, engine.id
        assert all(str(v.date) <= day[1] for v in engine.verified_on if "rules" in v.checks)


def test_an_unexplained_difference_is_shown() -> None:
    """The page says of a difference without a reason that it has none."""
    from dataclasses import replace

    from engine.agreement import Row, unexplained
    from engine.cases import Verdict

    grid = replace(GRIDS[0], differs={}, probes=GRIDS[0].probes[:1])
    refused = Row(grid, grid.probes[0], ("heads",), Verdict("x", "ok", ""))
    taken = Row(grid, grid.probes[0], ("memory-fit",), Verdict("x", "config", "ValueError: no"))
    alike = Row(grid, grid.probes[0], ("heads",), Verdict("x", "config", "ValueError: no"))
    assert [len(unexplained([r])) for r in (refused, taken, alike)] == [1, 1, 0]
    assert "**unexplained**" in page({"0.33.0": [refused]}, "2026-11-30")
    assert environment(grid.probes[0], "0.33.0")["models"][0]["engine"] == IMAGES["0.33.0"]
