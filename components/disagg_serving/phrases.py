"""Phrases of findings: words with the keys and places of a stack file kept apart, so that each reader gets these as they write them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from string import Formatter
from typing import NamedTuple, Protocol, Self

from .place import Place


class Spelling:
    """How keys and places are written for a reader. This one is for readers of a stack file; others extend it."""

    def key(self, key: Place) -> str:
        """A key, or the steps to one from a mapping that needs no words."""
        return str(key)

    def place(self, place: Place) -> str:
        """A place with all steps from the top of the stack file."""
        return str(place)

    def either(self, in_file: str, in_program: str) -> str:  # noqa: ARG002 (for those that extend it)
        """Words that differ between a stack file and a program."""
        return in_file


class Slot(Protocol):
    """A part of a phrase that readers spell differently."""

    def spell(self, spelling: Spelling) -> str:
        """The part as the reader writes it."""
        ...


class _Key(NamedTuple):
    steps: Place

    def spell(self, spelling: Spelling) -> str:
        return spelling.key(self.steps)


class _At(NamedTuple):
    place: Place

    def spell(self, spelling: Spelling) -> str:
        return spelling.place(self.place)


class _Either(NamedTuple):
    in_file: str
    in_program: str

    def spell(self, spelling: Spelling) -> str:
        return spelling.either(self.in_file, self.in_program)


class Phrase(str):
    """A text that remembers its parts; as a text it is spelled as in a stack file. Copies and pickles of it are plain texts."""

    __slots__ = ("parts",)
    parts: tuple[str | Slot, ...]

    def __new__(cls, parts: Iterable[str | Slot]) -> Self:
        """The phrase of these parts."""
        kept = tuple(parts)
        phrase = super().__new__(cls, _write(kept, Spelling()))
        phrase.parts = kept
        return phrase

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Plain text."""
        return str, (str(self),)


def say(template: str, *values: object) -> Phrase:
    """A phrase: each `{}` takes the next value, which may be a Place or another phrase, and each `{maxModelLen}` is that key.

    Raises ValueError where values and braces differ in number.
    """
    parts, rest = list[str | Slot](), list(values)
    for words, name, spec, _ in Formatter().parse(template):
        parts += [words] if words else []
        if name:
            parts.append(_Key(Place.parse(name)))
        elif name is not None:
            if not rest:
                raise ValueError(f"no value for each brace of {template!r}")
            parts += _parts(rest.pop(0), spec or "")
    if rest:
        raise ValueError(f"{len(rest)} values without a brace in {template!r}")
    return Phrase(parts)


def say_key(steps: str | Place) -> Phrase:
    """A key of a stack file, or the steps to one from a mapping that needs no words: `autoscaling.maxReplicaCount`."""
    return Phrase([_Key(steps if isinstance(steps, Place) else Place.parse(steps))])


def either(in_file: str, in_program: str) -> Phrase:
    """Words for readers of a stack file, and others for those of a program."""
    return Phrase([_Either(in_file, in_program)])


def join(between: str, phrases: Iterable[str]) -> Phrase:
    """Phrases with a text between them, as str.join."""
    parts = list[str | Slot]()
    for phrase in phrases:
        parts += [between, *parts_of(phrase)] if parts else parts_of(phrase)
    return Phrase(parts)


def parts_of(text: str) -> tuple[str | Slot, ...]:
    """The parts of a phrase; a plain text is one part."""
    return text.parts if isinstance(text, Phrase) else (text,)


def spell(text: str, spelling: Spelling) -> str:
    """The text as a reader gets it."""
    return _write(parts_of(text), spelling)


def move_places(text: str, move: Callable[[Place], Place]) -> str:
    """The text with other places in it."""
    if not isinstance(text, Phrase):
        return text
    return Phrase(_At(move(part.place)) if isinstance(part, _At) else part for part in text.parts)


def _write(parts: Iterable[str | Slot], spelling: Spelling) -> str:
    return "".join(part if isinstance(part, str) else part.spell(spelling) for part in parts)


def _parts(value: object, spec: str) -> tuple[str | Slot, ...]:
    if isinstance(value, Place):
        return (_At(value),)
    return parts_of(value) if isinstance(value, Phrase) else (format(value, spec),)
