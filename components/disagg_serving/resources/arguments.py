"""What kind of value each argument of a component takes, read from its TypedDict: a program need not have been type-checked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

import pulumi

from ..errors import Finding, Level, did_you_mean
from ..spec.validation import LEFT_OUT

NAMES: dict[Any, str] = {str: "a text", bool: "true or false", Sequence: "a list", list: "a list", Mapping: "a mapping"}
LATER = (pulumi.Output, Awaitable)
_DEEPEST = 40
_PLAIN_FIX = "give a plain value; ids and names from other resources have inputs of their own"


class ChecksFailed(pulumi.RunError):
    """Input that a component refuses; Pulumi shows its text without a traceback."""

    def __init__(self, findings: list[Finding]) -> None:
        """Keep every finding, and name them all in the text."""
        self.findings = findings
        super().__init__("this cannot be deployed:\n" + "\n".join(f"  {f.sentence()}" for f in findings))


refusal: ContextVar[Callable[[list[Finding]], Exception]] = ContextVar("refusal", default=ChecksFailed)
"""What is raised about an Output when it is known; a plugin has its own way to answer the engine."""


def taken(args: Mapping[str, Any], kind: type) -> tuple[dict[str, Any], list[Finding]]:
    """The arguments of a component, and what is wrong with them: unknown and missing keys, values of another kind than `kind` says.

    LEFT_OUT stands for what is wrong, so that the rest can be judged in the same run. A value is never shown: it may be a secret.
    """
    hints = _hints(kind)
    of_the_spec = {key for base in getattr(kind, "__orig_bases__", ()) if is_typeddict(base) for key in base.__annotations__}
    found = _Values()
    known = found.keys(args, kind, "", f"add it; see {kind.__name__}")
    values = {key: found.plain(args[key], key) if key in of_the_spec else found.argument(args[key], hints[key], key) for key in known}
    required: frozenset[str] = kind.__required_keys__  # type: ignore[attr-defined]
    return {**values, **{key: LEFT_OUT for key in required if values.get(key) is None}}, found.findings


def settled(given: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """Arguments in which nothing is wrong, with Outputs that are held to their kind when they are known; see `resolved`."""
    hints, values = _hints(kind), _Values(awaits=True)
    return {key: values.argument(value, hints[key], key) for key, value in given.items()}


def resolved(value: pulumi.Output[Any], hint: Any, path: str) -> pulumi.Output[Any]:
    """The Output, which stops the program with a ChecksFailed when it turns out to hold nothing, or another kind of value than `hint`."""

    def judge(known: Any) -> Any:
        found = _Values(resolved=True)
        found.argument(known, hint, path)
        if known is None:
            found.fault(path, "is an Output of nothing", _name_of(hint), "")
        if found.findings:
            raise refusal.get()(found.findings)
        return known

    return value.apply(judge)


class _Values:
    """Goes through values, and keeps what is wrong with them.

    `resolved` ones come out of an Output; `awaits` lets Outputs be judged once they are known.
    """

    def __init__(self, *, resolved: bool = False, awaits: bool = False) -> None:
        self._resolved, self._awaits = resolved, awaits
        self.findings: list[Finding] = []
        self._copies: dict[int, Any] = {}

    def fault(self, path: str, message: str, allowed: str, fix: str, name: str = "schema") -> object:
        """Keep a finding; what stands for the value."""
        self.findings.append(Finding(name, Level.ERROR, path, message, None, allowed, fix))
        return LEFT_OUT

    def keys(self, args: Mapping[str, Any], kind: Any, path: str, fix: str) -> list[str]:
        """The known keys of a mapping, after those that are unknown or missing have been noted."""
        known, at = sorted(kind.__annotations__), f"{path}." if path else ""
        for key in args:
            if key not in known:
                self.fault(f"{at}{key}", "is not a known key", ", ".join(known), did_you_mean(key, known), "unknown-key")
        for key in sorted(kind.__required_keys__):
            if args.get(key) is None:
                self.fault(f"{at}{key}", "is required", "", fix, "missing")
        return [key for key in args if key in known]

    def argument(self, value: Any, hint: Any, path: str, *, within: bool = False) -> Any:
        """A value that a component describes itself; `within` an input Pulumi waits for what stands there, too."""
        plain, takes_outputs = _without_outputs(hint)
        takes_outputs |= within
        if value is None:
            return None
        if isinstance(value, LATER):
            if not takes_outputs:
                return self.plain(value, path)
            return resolved(pulumi.Output.from_input(value), plain, path) if self._awaits else value
        origin = get_origin(plain) or plain
        fits = isinstance(value, (list, tuple)) if origin in (Sequence, list) else isinstance(value, Mapping if is_typeddict(origin) else origin)
        if not fits:
            article = "an" if type(value).__name__[0] in "aeiou" else "a"
            allowed = f"{_name_of(plain)}, or an Output of one" if takes_outputs and not self._resolved else _name_of(plain)
            return self.fault(path, f"is {article} {type(value).__name__}", allowed, "")
        if origin in (Sequence, list):
            return [self.argument(inner, get_args(plain)[0], f"{path}[{i}]", within=takes_outputs) for i, inner in enumerate(value)]
        if origin is Mapping:
            return {key: self.argument(inner, get_args(plain)[1], f"{path}.{key}", within=takes_outputs) for key, inner in value.items()}
        if is_typeddict(origin) and (takes_outputs or self._resolved):
            hints = get_type_hints(origin)
            known = self.keys(value, origin, path, "add it")
            return {key: self.argument(value[key], hints[key], f"{path}.{key}", within=True) for key in known}
        return self.plain(value, path)

    def plain(self, value: Any, path: str, depth: int = 0) -> Any:
        """A value that must be known before deployment; what a spec says about it is left to its parser."""
        if isinstance(value, LATER):
            return self.fault(path, "is an Output, which only the deployment knows", "a plain value", _PLAIN_FIX)
        if not isinstance(value, (Mapping, list, tuple)) or depth > _DEEPEST:  # the parser refuses what is deeper
            return value
        if id(value) not in self._copies:
            # what stands in several places, or in itself, is gone through once
            copy: Any = {} if isinstance(value, Mapping) else []
            self._copies[id(value)] = copy
            if isinstance(value, Mapping):
                copy |= {key: self.plain(inner, f"{path}.{key}", depth + 1) for key, inner in value.items()}
            else:
                copy += [self.plain(inner, f"{path}[{i}]", depth + 1) for i, inner in enumerate(value)]
        return self._copies[id(value)]


def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, localns={"Output": pulumi.Output, "T": Any})  # names by which Input is defined


def _name_of(hint: Any) -> str:
    origin = get_origin(hint) or hint
    return NAMES.get(origin, "a mapping" if is_typeddict(origin) else origin.__name__)


def _without_outputs(hint: Any) -> tuple[Any, bool]:
    """What an Input holds, and whether the type is one."""
    if get_origin(hint) not in (Union, UnionType):
        return hint, False
    return get_args(hint)[0], True
