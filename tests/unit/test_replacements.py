"""The table of replacements against the descriptions of inputs in the pinned pulumi_aws."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from factories import ROOT


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The script that proposes."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    yield import_module("check_replacements")
    sys.modules.pop("check_replacements", None)


def test_the_table_lists_what_descriptions_say(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Each listed path begins with an input of its type, and no input is left out whose description says that it makes a new resource."""
    assert script.main() == 0, capsys.readouterr().out


def test_what_is_left_out_is_proposed(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing input and one that is none are each a line."""
    text = script.TABLE.read_text(encoding="utf-8").replace("bootstrapSelfManagedAddons, ", "nothingOfTheKind, ")
    monkeypatch.setattr(script, "TABLE", tmp_path / "table.yaml")
    script.TABLE.write_text(text, encoding="utf-8")
    assert script.main() == 1
    lines = capsys.readouterr().out.splitlines()[:-1]
    assert len(lines) == 2
    assert "aws:eks/cluster:Cluster: bootstrapSelfManagedAddons is not listed" in lines[0]
    assert lines[1] == "aws:eks/cluster:Cluster: nothingOfTheKind is listed and is no input"
