"""Where the parts of a model stand in a stack file."""

from __future__ import annotations

from typing import get_args

from ..place import Place
from .serving import RoleName

_ROLES = frozenset(get_args(RoleName))


def pair_path(index: int, *, candidate: bool) -> str:
    """Where a pair of roles stands in the stack file: a model, or its candidate."""
    return f"models[{index}]{'.candidate' if candidate else ''}"


def pair_of(place: Place) -> Place | None:
    """The pair that a place is in, `models[0]` or `models[0].candidate`; None outside of models."""
    if place.index_in("models") is None:
        return None
    return Place(place.steps[: 3 if place.steps[2:3] == ("candidate",) else 2])


def role_of(place: Place) -> Place | None:
    """The role of a pair that a place is in, None where it is in none."""
    pair = pair_of(place)
    name = place.below(pair).steps[:1] if pair else ()
    return Place((*pair.steps, *name)) if pair and _ROLES & {*name} else None
