"""What kind of value each argument of a component takes, read from its TypedDict: a program need not have been type-checked."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

import pulumi

from ..errors import Finding, Level

NAMES: dict[Any, str] = {str: "a text", bool: "true or false", Sequence: "a list", list: "a list", Mapping: "a mapping"}


def wrong_values(args: Mapping[str, Any], kind: type) -> list[Finding]:
    """Values of another kind than `kind` says, and Outputs where a plain value is needed; what a spec says itself is left to its parser.

    A value is never shown: it may be a secret.
    """
    hints = get_type_hints(kind, localns={"Output": pulumi.Output, "T": Any})  # names by which Input is defined
    of_the_spec = {key for base in getattr(kind, "__orig_bases__", ()) if is_typeddict(base) for key in base.__annotations__}
    return [finding for key, value in args.items() for finding in (_outputs(value, key) if key in of_the_spec else _faults(value, hints[key], key))]


def _faults(value: Any, hint: Any, path: str, *, within: bool = False) -> Iterator[Finding]:
    plain, takes_outputs = _without_outputs(hint)
    takes_outputs |= within  # Pulumi waits for what stands in an input, too
    if value is None:
        return
    if isinstance(value, (pulumi.Output, Awaitable)):
        if not takes_outputs:
            yield from _outputs(value, path)
        return
    origin = get_origin(plain) or plain
    fits = isinstance(value, (list, tuple)) if origin in (Sequence, list) else isinstance(value, Mapping if is_typeddict(origin) else origin)
    if not fits:
        allowed = NAMES.get(origin, "a mapping" if is_typeddict(origin) else origin.__name__)
        article = "an" if type(value).__name__[0] in "aeiou" else "a"
        yield Finding(
            "schema", Level.ERROR, path, f"is {article} {type(value).__name__}", None, f"{allowed}, or an Output of one" if takes_outputs else allowed
        )
    elif origin in (Sequence, list):
        for i, inner in enumerate(value):
            yield from _faults(inner, get_args(plain)[0], f"{path}[{i}]", within=takes_outputs)
    elif origin is Mapping:
        for key, inner in value.items():
            yield from _faults(inner, get_args(plain)[1], f"{path}.{key}", within=takes_outputs)
    else:
        yield from _outputs(value, path)


def _without_outputs(hint: Any) -> tuple[Any, bool]:
    """What an Input holds, and whether the type is one."""
    if get_origin(hint) not in (Union, UnionType):
        return hint, False
    return get_args(hint)[0], True


def _outputs(value: Any, path: str) -> Iterator[Finding]:
    """A finding for each Output in a value that must be known before deployment."""
    if isinstance(value, pulumi.Output):
        fix = "give a plain value; ids and names from other resources have inputs of their own"
        yield Finding("schema", Level.ERROR, path, "is an Output, which only the deployment knows", None, "a plain value", fix)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _outputs(inner, f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        for i, inner in enumerate(value):
            yield from _outputs(inner, f"{path}[{i}]")
