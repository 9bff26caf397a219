"""`policy/disagg-policy` where something that it needs is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from factories import ROOT


@pytest.mark.parametrize("module", ["pulumi_policy", "disagg_serving"])
def test_what_is_missing_is_named(tmp_path: Path, module: str) -> None:
    """Without the pack's host, or the library, one line says what to install, and the engine sees a failure; no traceback."""
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules[{module!r}] = None\n", encoding="utf-8")
    done = run(DISAGG_PYTHON=sys.executable, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"the policy pack needs {module.replace('_', '-')}, which {sys.executable} does not have: `make extras`")
    assert "pip install 'disagg-serving[policy]'" in done.stderr


def test_a_missing_python_is_named() -> None:
    """A copy of the folder beside which no environment lies says how to name a Python."""
    done = run(DISAGG_PYTHON="/nowhere/python")
    assert done.returncode == 1
    assert done.stderr.startswith("the policy pack needs /nowhere/python: `make extras`")
    assert "DISAGG_PYTHON" in done.stderr


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    """The program with these variables besides those of the test."""
    given = {**os.environ, **environment}
    return subprocess.run([str(ROOT / "policy/disagg-policy")], env=given, capture_output=True, text=True, check=False, timeout=60)
