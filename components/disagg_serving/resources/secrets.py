"""Secrets that a program gives and models name: one without the other is a mistake, which would leave an endpoint open or a download refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic.alias_generators import to_camel

from ..credentials import withheld
from ..errors import Finding, Level, did_you_mean
from ..phrases import say, say_key
from ..place import Place
from ..spec.validation import LEFT_OUT
from .arguments import ComponentArgs

PLACES = {"token": ("weights", "token_key"), "api_key": ("gateway", "api_key_secret")}
"""Where a model names the key of each secret."""


def of_model(given: ComponentArgs) -> Iterator[Finding]:
    """Faults in the secrets of a component with one model, which are arguments of their own."""
    for argument, parts in PLACES.items():
        key, place = _key_of(given.get("model"), parts), say_key(Place(("model", *parts)))
        if key is None and given.get(argument, LEFT_OUT) is not LEFT_OUT:
            message = say("is given, but {} names no key, so nothing would use it", place)
            fix = say("add {}, or leave {} out", place, say_key(argument))
            yield Finding("schema", Level.ERROR, argument, message, None, "", fix)
        elif key not in (None, LEFT_OUT) and argument not in given.values:
            yield Finding("missing", Level.ERROR, argument, say("is required, because {} names a key", place), None, "", "add it")


def of_models(given: ComponentArgs) -> Iterator[Finding]:
    """Faults in the secrets of a whole environment, which are given by key."""
    models, secrets = given.get("models"), given.get("secrets", {})
    if not isinstance(models, list) or not isinstance(secrets, Mapping):
        return
    named = [(say_key(Place(("models", i, *parts))), _key_of(model, parts)) for i, model in enumerate(models) for parts in PLACES.values()]
    keys = sorted({key for _, key in named if isinstance(key, str) and not withheld(key)})
    for place, key in named:
        if key in keys and key not in secrets:
            yield Finding("missing", Level.ERROR, f"secrets.{key}", say("is required, because {} names it", place), None, "", "add it")
    if not any(key is LEFT_OUT for _, key in named):
        for key in {key for key, value in secrets.items() if value is not LEFT_OUT} - set(keys):
            path = "secrets" if withheld(key) else f"secrets.{key}"
            yield Finding(
                "unknown-key", Level.ERROR, path, "is named by no model, so nothing would use it", None, ", ".join(keys), did_you_mean(key, keys)
            )


def _key_of(model: Any, parts: tuple[str, str]) -> Any:
    """The key that a model names, None where it names none, LEFT_OUT where that cannot be told."""
    here = model
    for part in parts:
        if not isinstance(here, Mapping):
            return LEFT_OUT
        here = here.get(part, here.get(to_camel(part)))
        if here is None:
            return None
    return here
