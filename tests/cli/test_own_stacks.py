"""The stack files of stacks/ as they are now: the only tests that an edit there can fail. All others read tests/data/shipped."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Run
from disagg_serving.spec.stack_file import find_project
from factories import ROOT


@pytest.mark.parametrize("stack", find_project(ROOT).stacks())
def test_own_stacks_are_planned_and_rendered(disagg: Run, tmp_path: Path, stack: str) -> None:
    """Each stack file passes its checks, and every object of it can be made."""
    assert disagg("check", stack, cwd=ROOT) == 0, disagg.out
    assert disagg("plan", stack, cwd=ROOT) == 0, disagg.out
    assert disagg("render", stack, "-o", str(tmp_path / "out"), cwd=ROOT) == 0, disagg.out
    assert [*(tmp_path / "out").iterdir()]
