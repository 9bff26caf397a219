"""How many examples property tests draw: few and the same ones in `make test`, many and others each time in `make fuzz`."""

from __future__ import annotations

from hypothesis import settings

USUAL = 100
"""Examples of a property that asks for no number of its own."""
FUZZ = 20
"""How many times as many `make fuzz` draws."""


def examples(few: int) -> int:
    """The number under the profile that is loaded, for a property that draws `few` in `make test`."""
    return few * settings().max_examples // USUAL
