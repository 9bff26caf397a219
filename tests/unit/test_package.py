"""What is in the distributions, and what the list beside them says."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
from factories import ROOT

from scripts.check_package import of_wheel

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_description_leads_nowhere_wrong() -> None:
    """What an index shows has no links into the repository, and names the package's own components and commands."""
    text = PROJECT["readme"]["text"]
    assert not re.findall(r"\]\((?!https://)", text)
    assert "OWNER" not in text
    from disagg_serving import resources

    named = {name for name in resources.__all__ if name[0].isupper() and not name.endswith("Args")}
    assert {name for name in named if f"import {name}`" in text or f"`{name}`" in text} == named


def test_sdist_holds_the_package_and_nothing_of_the_repository(tmp_path: Path) -> None:
    """Patterns of pyproject.toml are anchored: no README of an example, no test, no kept plan."""
    pytest.importorskip("hatch_vcs", reason="builds an sdist; `make package` installs what that needs, and CI runs it before")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)], cwd=ROOT, check=True, capture_output=True)
    (file,) = tmp_path.iterdir()
    with tarfile.open(file) as packed:
        names = [name.partition("/")[2] for name in packed.getnames()]
    assert sorted(n for n in names if not n.startswith("components/disagg_serving/")) == [
        ".gitignore",
        "LICENSE",
        "PKG-INFO",
        "README.md",
        "pyproject.toml",
    ]
    assert "components/disagg_serving/py.typed" in names


def test_list_is_of_the_wheel(tmp_path: Path) -> None:
    """The root of the SBOM is the wheel that it is about, by version and hash."""
    wheel = tmp_path / "disagg_serving-1.2.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    found = of_wheel({"metadata": {"tools": 1, "component": {"name": "disagg-serving", "type": "library"}}, "components": [2]}, wheel)
    root = found["metadata"]["component"]
    assert (root["name"], root["version"], root["purl"]) == ("disagg-serving", "1.2.0", "pkg:pypi/disagg-serving@1.2.0")
    assert root["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(b"wheel").hexdigest()}]
    assert (found["metadata"]["tools"], found["components"]) == (1, [2])
