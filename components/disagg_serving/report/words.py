"""Words and colours that outputs share."""

from __future__ import annotations

from ..document.difference import PathChange
from ..errors import SHOWN_LENGTH, Level, show, visible

CONTEXT = 20
"""Characters that are shown before the place where two long texts differ."""

STYLES = {Level.ERROR: "bold red", Level.WARNING: "yellow", Level.INFO: "cyan"}


def short_type(type_token: str) -> str:
    """A type token as a person says it: `Service`, `aws Vpc`."""
    package, _, path = type_token.partition(":")
    return visible(f"{'' if package in ('disagg-serving', 'kubernetes') else package + ' '}{path.rpartition(':')[2]}")


def values_of(change: PathChange) -> tuple[str, str]:
    """Both values, cut; of long texts from where they differ."""
    before, after = change.before, change.after
    if isinstance(before, str) and isinstance(after, str) and max(len(before), len(after)) > SHOWN_LENGTH:
        same = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after)))
        start = max(0, same - CONTEXT)
        cut = "..." if start else ""
        return cut + show(before[start:]), cut + show(after[start:])
    return "nothing" if before is None else show(before), "nothing" if after is None else show(after)
