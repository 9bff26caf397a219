"""Unit tests that others write of their programs, with Pulumi's mocks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from documents import tokens
from factories import ROOT

(EXAMPLE,) = (t.content for t in tokens(ROOT / "docs/library.md") if t.type == "fence" and "def test_" in t.content)
ROLE = '"node_role": "gpu-node"'


@pytest.mark.parametrize(
    ("instead", "fails"),
    [
        (ROLE, ""),
        ('"node_role": pulumi.Output.from_input(None)', ""),
        ('"node_role": pulumi.Output.from_input(5)', "node_role: is a number"),
        ('"node_role": "gpu-node", "subnets": 1', "subnets: is not a known key"),
    ],
)
def test_a_program_is_tested_with_mocks(tmp_path: Path, instead: str, fails: str) -> None:
    """The test in the documentation passes; what a mock leaves empty stops nothing, and faults in the arguments still do."""
    assert ROLE in EXAMPLE
    file = tmp_path / "test_program.py"
    file.write_text(EXAMPLE.replace(ROLE, instead), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(file)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == (1 if fails else 0), done.stdout
    assert fails in done.stdout
