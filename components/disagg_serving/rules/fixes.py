"""The words of a fix, made of its correction: an imperative for a reader who looks at one place of the stack file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..corrections import Correction, instruction, written
from ..phrases import join, say, say_key
from ..place import TOP, Place
from ..spec.places import role_of

_CUTS = ("pipelineParallel", "dataParallel", "expertParallel")
_LAYOUT = frozenset({"tensorParallel", *_CUTS, "instanceType", "calibration", "all2allBackend"})
"""Fields of a role that say together how an engine is cut, and on what: a sentence of their own."""


def words(correction: Correction, at: Place) -> str:
    """The correction as an imperative for a reader who looks at the place `at`."""
    sides, rest = _by_role(correction)
    first = next(iter(sides.values()), {})
    if len(sides) > 1 and len({role.index_in("models") for role in sides}) == 1 and all(side == first for side in sides.values()):
        shown = next((role for role in sides if at.is_in(role)), next(iter(sides)))
        parts = [say("{} in both roles", _role_words(shown, first, at if shown.contains(at) else Place((*shown.steps, ""))))]
    else:
        parts = [say("{}{}", _role_words(role, side, at), _where(role, side, at)) for role, side in sides.items()]
    return _and([*parts, *(_one(place, value, at, _shared(place, at)) for place, value in rest.items())])


def _by_role(correction: Correction) -> tuple[dict[Place, dict[str, Any]], dict[Place, Any]]:
    """Fields of roles, by the role's place, and the other entries."""
    sides: dict[Place, dict[str, Any]] = {}
    rest: dict[Place, Any] = {}
    for path, value in correction.items():
        place = Place.parse(path)
        role = role_of(place)
        if role is not None and place != role:
            sides.setdefault(role, {})[str(place.below(role))] = value
        else:
            rest[place] = value
    return sides, rest


def _role_words(role: Place, fields: Mapping[str, Any], at: Place) -> str:
    if _is_layout(fields):
        more = [say_key(cut) if fields[cut] is True else say("{} {}", say_key(cut), written(fields[cut])) for cut in _CUTS if cut in fields]
        cuts = say(" with {}", _and(more)) if more else ""
        text = say("use {tensorParallel} {}{} on {}", fields["tensorParallel"], cuts, fields["instanceType"])
        gone = [say_key(name) for name, value in fields.items() if value is None]
        return say("{} without {}", text, _and(gone)) if gone else text
    known = role if at.is_in(role) else _model_of(role) if at.is_in(_model_of(role)) else TOP
    return _and([_one(Place.parse(f"{role}.{name}"), value, at, known) for name, value in fields.items()])


def _where(role: Place, fields: Mapping[str, Any], at: Place) -> str:
    """The role's name, where neither the place nor the words tell it."""
    return f" in {role.steps[-1]}" if _is_layout(fields) and not at.is_in(role) else ""


def _is_layout(fields: Mapping[str, Any]) -> bool:
    return "tensorParallel" in fields and "instanceType" in fields and fields.keys() <= _LAYOUT


def _one(place: Place, value: Any, at: Place, known: Place) -> str:
    """What to do at one place; the part `known` of it needs no words."""
    if place == at:
        return instruction(value)
    name = place if known == TOP else say_key(place.below(known))
    return say("remove {}", name) if value is None else say("set {}: {}", name, written(value))


def _shared(place: Place, at: Place) -> Place:
    """What of a place needs no words beside `at`: the mapping that both are in, or the model."""
    mapping = at
    while mapping.is_entry:
        mapping = mapping.parent
    for above in (mapping.parent, _model_of(place)):
        if above.steps and place.is_in(above) and above.contains(at):
            return above
    return TOP


def _model_of(place: Place) -> Place:
    """The model that a place is in; the whole file where it is in none."""
    return Place(place.steps[:2] if place.index_in("models") is not None else ())


def _and(words: Sequence[str]) -> str:
    return join(" and ", words)
