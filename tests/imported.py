"""Deployments of peers as tests import them: from texts, or from the forms in tests/data/imports."""

from __future__ import annotations

from typing import Any

import pytest
from disagg_serving.errors import SpecError
from disagg_serving.imports.forms import Source, read_sources
from disagg_serving.imports.found import Kind
from disagg_serving.imports.stack import Imported, Wish, assemble
from factories import ROOT

FORMS = ROOT / "tests/data/imports"


def imported(*sources: Source | str, **wish: Any) -> Imported:
    """What some texts come to; a text alone is a file `given`."""
    found, secrets = read_sources([s if isinstance(s, Source) else Source("given", s) for s in sources])
    return assemble(found, Wish(secrets=secrets, **wish), ROOT)


def form(name: str, **wish: Any) -> Imported:
    """What a form of tests/data comes to."""
    return imported(Source(name, (FORMS / name).read_text(encoding="utf-8")), **wish)


def refused(*texts: str) -> list[str]:
    """What is said about texts that cannot be imported."""
    with pytest.raises(SpecError) as caught:
        imported(*texts)
    return [finding.sentence() for finding in caught.value.findings]


def noted(found: Imported, kind: Kind) -> dict[str, str]:
    """What became of keys, flags and variables, with the reason."""
    return {note.what: note.why for note in found.found.notes if note.kind is kind}
