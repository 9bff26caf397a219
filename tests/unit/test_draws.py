"""What the tests draw depends on the tests alone."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def drawn() -> list[int]:
    """Two hundred numbers, as a property would get them."""
    seen: list[int] = []

    @settings(max_examples=200, database=None)
    @given(st.integers())
    def collect(number: int) -> None:
        seen.append(number)

    collect()
    return seen


def test_other_modules_do_not_change_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module full of numbers, imported before, changes no example: neither do the order of the tests and the code next door."""
    before = drawn()
    monkeypatch.chdir(tmp_path)
    for n in range(50):
        path = tmp_path / f"numbers_{n}.py"
        path.write_text(f"A = {list(range(10_000 + 100 * n, 10_100 + 100 * n))}\n", encoding="utf-8")
        module = ModuleType(path.stem)
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, path.stem, module)
    assert drawn() == before
