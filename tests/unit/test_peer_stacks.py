"""What public deployments say can be said: each as a stack file of our own, planned without an accepted error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from disagg_serving.rules.evaluation import Evaluation, evaluate_file
from disagg_serving.spec.stack_file import read_environment_file
from factories import ROOT

FOLDER = ROOT / "tests/data/peers"
FILES = sorted(FOLDER.glob("*.yaml"))
PAGE = (ROOT / "docs/peers.md").read_text(encoding="utf-8")
STRETCHED = {"dynamo-aws-qwen3-32b": "max-model-len"}
"""A context that --hf-overrides stretches is not known to the rule about the context."""
LEAST = 10
"""Peers that must be planned without `accept`."""


def evaluated(file: Path) -> Evaluation:
    """A peer's stack file, checked from the repository."""
    return evaluate_file(read_environment_file(file), ROOT)


def errors(file: Path) -> set[str]:
    """Rules that refuse a peer's stack file."""
    return {f.id for f in evaluated(file).findings if f.level.value == "error"}


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_peer_is_planned_without_accept(file: Path) -> None:
    """No error stands against it, and none is accepted; what cannot be said is one rule that the page names."""
    text = file.read_text(encoding="utf-8")
    assert "accept" not in text
    assert "https://github.com/" in text
    assert errors(file) <= {STRETCHED.get(file.stem, "")}
    if not errors(file):
        assert evaluated(file).require_layout().groups


def test_most_peers_are_planned() -> None:
    """Of the twelve, ten and more; none is left out of the page, and the page names no other."""
    planned = [file for file in FILES if not errors(file)]
    assert (len(FILES), len(planned) >= LEAST) == (12, True)
    assert set(re.findall(r"tests/data/peers/([a-z0-9-]+)\.yaml", PAGE)) == {file.stem for file in FILES}


@pytest.mark.parametrize("name", sorted(STRETCHED))
def test_what_is_missing_is_said(name: str) -> None:
    """While a peer is refused, the page says by which rule."""
    row = next(line for line in PAGE.splitlines() if f"peers/{name}.yaml" in line)
    assert not errors(FOLDER / f"{name}.yaml") or STRETCHED[name] in row
