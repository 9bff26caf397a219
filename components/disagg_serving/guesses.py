"""Which known word a misspelt or shortened one was meant to be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

MOST = 3
SHORTEST = 2
"""Characters of a word that is taken for the beginning of others."""


def likely(word: object, known: Sequence[str], cutoff: float = 0.6) -> list[str]:
    """Known words that another may stand for, the most likely first: those it begins, then those it abbreviates, then those spelt like it.

    What begins with another letter is not spelt like it: `g5.xlarge` is no slip of `p5.4xlarge`.
    """
    text = _folded(str(word))
    if not text:
        return []
    same = [k for k in known if _folded(k) == text]
    begun = [k for k in known if len(text) >= SHORTEST and _folded(k).startswith(text)]
    short = [k for k in known if _initials(k) == text and len(text) >= SHORTEST]
    close = get_close_matches(str(word), [k for k in known if _folded(k)[:1] == text[:1]], n=1, cutoff=cutoff)
    return next((found[:MOST] for found in (same, begun, short, close) if found), [])


def _folded(word: str) -> str:
    """A word without case and separators."""
    return re.sub(r"[\W_]", "", word).casefold()


def _initials(word: str) -> str:
    """`tensorParallel` -> `tp`."""
    return "".join(part[0] for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", word)).casefold()
