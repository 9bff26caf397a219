"""The workflows for users, and the project's own, under the linter that knows GitHub's syntax."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from factories import ROOT

from bench.build import OUT


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A user's repository: the example's workflows and the action that they call; and beside them the project's own workflows."""
    shutil.copytree(ROOT / "examples/github-actions/.github", tmp_path / ".github")
    shutil.copytree(ROOT / ".github", tmp_path / ".github", dirs_exist_ok=True)
    (tmp_path / ".git").mkdir()  # what it takes a repository by
    return tmp_path


def lint(repository: Path) -> subprocess.CompletedProcess[str]:
    """What actionlint says."""
    return subprocess.run([OUT / "bin/actionlint"], cwd=repository, capture_output=True, text=True, check=False)


def test_linter_finds_nothing(repository: Path) -> None:
    """Events, expressions, inputs of the action and permissions are right."""
    done = lint(repository)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("name", "right", "wrong", "words"),
    [
        ("plan", "          base: ", "          bse: ", 'input "base" is not defined|missing input'),
        ("release", "needs: [build, test]", "needs: [build, tset]", 'needs job "tset" which does not exist'),
        ("ci", "cancel-in-progress: ${{ github.event_name", "cancel-in-progress: ${{ github.evnt_name", 'property "evnt_name" is not defined'),
    ],
)
def test_linter_reads_them(repository: Path, name: str, right: str, wrong: str, words: str) -> None:
    """A mistake in a workflow for users or in one of the project's own is found, so the check above looks at the files."""
    file = repository / f".github/workflows/{name}.yml"
    text = file.read_text()
    assert right in text
    file.write_text(text.replace(right, wrong))
    assert re.search(words, lint(repository).stdout)
