"""The workflows for users, and the project's own, under the linter that knows GitHub's syntax."""

from __future__ import annotations

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


def test_linter_reads_them(repository: Path) -> None:
    """An input that the action does not have is found, so the check above looks at the files."""
    plan = repository / ".github/workflows/plan.yml"
    plan.write_text(plan.read_text().replace("          base: ", "          bse: "))
    assert 'input "base" is not defined' in lint(repository).stdout or "missing input" in lint(repository).stdout
