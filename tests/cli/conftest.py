"""Fixtures of the command line's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Run
from repositories import Repository, program


@pytest.fixture
def disagg(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line."""
    return Run(capsys, monkeypatch)


@pytest.fixture
def own(tmp_path: Path) -> Repository:
    """A repository with a small program of a user's own, on a branch that changes it."""
    repository = Repository(tmp_path / "own", "deploy")
    repository.commit(program("base"))
    repository.git("switch", "--quiet", "-c", "change")
    repository.commit(program("head"))
    return repository


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/disagg-serving"
