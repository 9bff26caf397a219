"""What the real engine refuses is refused here, and what is refused here although the engine takes it has a reason."""

from __future__ import annotations

import pytest

from engine.agreement import PAGE, Row, page, rows, unexplained
from engine.build import PARSERS


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Row]]:
    """All inputs with both verdicts, by version."""
    return {engine.version: rows(engine, tmp_path_factory.mktemp(engine.version)) for engine in PARSERS}


def test_every_difference_is_explained(answers: dict[str, list[Row]]) -> None:
    """No rule is stricter or looser than the engine without a reason that names its source."""
    assert {version: unexplained(found) for version, found in answers.items()} == {version: [] for version in answers}


def test_both_sides_of_each_border(answers: dict[str, list[Row]]) -> None:
    """A grid that one side takes whole would show nothing."""
    for found in answers.values():
        for rule in {r.grid.rule for r in found} - {"engine-version"}:
            mine = [r for r in found if r.grid.rule == rule]
            assert any(r.refused for r in mine), rule
            assert not all(r.refused for r in mine) or rule == "extra-args", rule


def test_page_is_what_the_engine_says(answers: dict[str, list[Row]]) -> None:
    """The page in docs is of these inputs and these answers; `python -m engine.agreement` writes it."""
    written = PAGE.read_text(encoding="utf-8")
    day = written.split("Written on ", 1)[1].split(" ", 1)[0]
    assert written == page(answers, day)
