"""Keys and places in the words of findings: what names them is a slot of a phrase, so that programs get it in their own spelling."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from disagg_serving.errors import Finding
from disagg_serving.phrases import parts_of
from disagg_serving.spec import EnvironmentSpec


def keys_in(schema: Any) -> Iterator[str]:
    """Every key of the mappings that a JSON Schema describes."""
    for name, inner in schema.items() if isinstance(schema, dict) else enumerate(schema) if isinstance(schema, list) else ():
        if name == "properties":
            yield from inner
        yield from keys_in(inner)


KEYS = frozenset(keys_in(EnvironmentSpec.model_json_schema()))
PLACE = re.compile(r"(?<![\w./-])(?:models\[\d+\]|\w+(?:\[\d*\])?(?:\.\w+(?:\[\d*\])?)+)")
"""What may be a place, with or without steps above it."""


def named_in(text: str) -> list[str]:
    """The keys with a capital inside and the places of several steps that a text names."""
    keys = [word for word in re.findall(r"\w+", text) if word in KEYS and not word.islower()]
    places = [found[0] for found in PLACE.finditer(text) if all(step in KEYS for step in re.sub(r"\[\d*\]", "", found[0]).split("."))]
    return keys + places


def loose(finding: Finding) -> list[str]:
    """What a finding names outside of a slot."""
    texts = (finding.message, finding.allowed, finding.fix)
    return [name for text in texts for part in parts_of(text) if isinstance(part, str) for name in named_in(part)]
