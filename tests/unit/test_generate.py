"""`make generate` in a copy of the repository: what is generated from what is itself generated is up to date after one run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from factories import ROOT

READ = ("components", "docs", "scripts", "tests/data", "tests/upgrade/released", "pyproject.toml", "requirements.txt")
FIELD = '    prompt_limit: int | None = Field(None, description="What the test adds. Default: nothing.")\n'


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """What the generator reads and writes."""
    for name in READ:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    return tmp_path


def generate(root: Path, *args: str) -> list[str]:
    """The lines that a run prints, with the package of the copy."""
    environment = {**os.environ, "PYTHONPATH": str(root / "components")}
    done = subprocess.run([sys.executable, "scripts/generate.py", *args], cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_one_run_leaves_nothing_stale(copy: Path) -> None:
    """A new field of the spec reaches, by one run, also the plugin's schema, which is read from the generated component arguments."""
    spec = copy / "components/disagg_serving/spec/serving.py"
    head, model, rest = spec.read_text(encoding="utf-8").partition("class ModelSpec(Spec):\n")
    doc, fields = rest.split("\n\n", 1)
    spec.write_text(f"{head}{model}{doc}\n\n{FIELD}{fields}", encoding="utf-8")
    wrote = generate(copy)
    assert {
        "wrote components/disagg_serving/resources/spec_args.py",
        "wrote components/schema.json",
        "wrote docs/reference/stack-file.md",
        "wrote docs/schema/stack.schema.json",
    } <= set(wrote)
    assert generate(copy, "--check") == []
    assert '"promptLimit"' in (copy / "components/schema.json").read_text(encoding="utf-8")
