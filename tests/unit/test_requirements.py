"""The lists of pinned packages: they are installed into one environment, one after the other."""

from __future__ import annotations

from collections import defaultdict

from factories import ROOT


def test_lists_agree() -> None:
    """A package that two lists name has one version in both, or the second installation would take back what the first made."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in (ROOT / "requirements.txt", *(ROOT / "requirements").glob("*.txt")):
        for line in file.read_text().splitlines():
            name, pinned, version = line.partition("==")
            if pinned:
                found[name.strip().lower()].add(version.split(" ", 1)[0])
    assert {name: versions for name, versions in found.items() if len(versions) > 1} == {}
    assert found["pulumi"]
    assert found["pytest"]
