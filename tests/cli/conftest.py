"""Fixtures of the command line's tests."""

from __future__ import annotations

import pytest
from command_line import Run


@pytest.fixture
def disagg(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line."""
    return Run(capsys, monkeypatch)
