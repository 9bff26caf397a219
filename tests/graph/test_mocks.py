"""Unit tests that others write of their programs, with Pulumi's mocks."""

from __future__ import annotations

import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest
from documents import tokens
from factories import ROOT

(EXAMPLE,) = (t.content for t in tokens(ROOT / "docs/library.md") if t.type == "fence" and "def test_" in t.content)
ROLE = '"node_role": "gpu-node"'


CASES = {
    "shown": (ROLE, ""),
    "empty": ('"node_role": pulumi.Output.from_input(None)', ""),
    "number": ('"node_role": pulumi.Output.from_input(5)', "node_role: is a number"),
    "unknown": ('"node_role": "gpu-node", "subnets": 1', "subnets: is not a known key"),
}
"""What stands in the example in the role's place, and the fault that its test then ends with."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """How the example's test ends in each case: an empty text, or what is said; in a process of its own, as others run it."""
    assert ROLE in EXAMPLE
    folder = tmp_path_factory.mktemp("mocks")
    for name, (instead, _) in CASES.items():
        (folder / f"test_{name}.py").write_text(EXAMPLE.replace(ROLE, instead), encoding="utf-8")
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--junit-xml={report}", "."]
    subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=False)
    found = ET.parse(report).getroot().iter("testcase")  # noqa: S314 (pytest's own)
    return {case.attrib["classname"].removeprefix("test_"): "".join(f.text or "" for f in case if f.tag in {"failure", "error"}) for case in found}


@pytest.mark.parametrize("case", CASES)
def test_a_program_is_tested_with_mocks(outcomes: dict[str, str], case: str) -> None:
    """The test in the documentation passes; what a mock leaves empty stops nothing, and faults in the arguments still do."""
    said, (_, fails) = outcomes[case], CASES[case]
    assert fails in said
    assert bool(said) is bool(fails), said
