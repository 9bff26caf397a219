"""The one entrance of a component: what a program gives it, as plain data, inputs and faults. A program need not have been type-checked."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from inspect import iscoroutine
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import pulumi
from pydantic.alias_generators import to_camel

from ..errors import Finding, Level, did_you_mean
from ..phrases import join, say, say_key
from ..spec import ClusterSpec, EnvironmentSpec, LwsSpec, NetworkSpec
from ..spec.base import Spec
from ..spec.inputs import FORMS, MEANWHILE
from ..spec.validation import LEFT_OUT, fault_of
from .sdk import is_mocked
from .wording import Wording, language, snake

NAMES: dict[Any, str] = {
    str: "a text", bool: "true or false", int: "a number", float: "a number", list: "a list", tuple: "a list", dict: "a mapping",
    Sequence: "a list", Mapping: "a mapping",
}  # fmt: skip
EXTENDED: dict[str, type[Spec]] = {"Cluster": ClusterSpec, "Environment": EnvironmentSpec, "Lws": LwsSpec, "Network": NetworkSpec}
"""Components whose arguments are those of a spec and some more."""
LATER = (pulumi.Output, Awaitable)
_PLAIN = (str, int, float)
_DEEPEST = 40
_UNKNOWN: Any = Union[str, pulumi.Output[str]]  # noqa: UP007 (a key that nobody knows is the fault, and not what stands there)


@dataclass(frozen=True)
class ComponentArgs:
    """What a component was given.

    `values` are its arguments without those that are None: plain data, inputs where the argument is one, and LEFT_OUT for what `faults` are
    about, so that the rest can be judged in the same run. A value is in no fault: it may be a secret.
    """

    component: str
    kind: type
    values: dict[str, Any]
    faults: list[Finding]
    later: Mapping[str, tuple[pulumi.Output[Any], Any, str]] = field(default_factory=dict)
    """Words that stand for Outputs in fields of a spec, each with the kind and path of what it stands for."""

    def get(self, argument: str, default: Any = None) -> Any:
        """The value of an argument."""
        return self.values.get(argument, default)

    @property
    def of_spec(self) -> dict[str, Any]:
        """The arguments that are fields of a spec which the component's arguments extend."""
        return {key: value for key, value in self.values.items() if key in _of_spec(self.kind)}

    @property
    def inputs(self) -> dict[str, Any]:
        """The arguments when nothing is wrong, with Outputs that are held to their kind when they are known; see `resolve`."""
        hints, values = _hints(self.kind), _Values(awaits=self)
        return {key: value if key in _of_spec(self.kind) else values.argument(value, hints[key], key) for key, value in self.values.items()}

    def with_outputs(self, value: Any) -> Any:
        """Data of a spec that has been checked, with the Outputs in place of the words that stood for them."""
        first = value[0] if isinstance(value, list) and value else value
        if isinstance(first, str) and first in self.later:
            output, hint, path = self.later[first]
            if isinstance(value, str) or get_origin(hint) is Sequence:
                return resolve(output, hint, path, self)
        if isinstance(value, dict):
            return {key: self.with_outputs(inner) for key, inner in value.items()}
        return [self.with_outputs(inner) for inner in value] if isinstance(value, list) else value

    @cached_property
    def _wording(self) -> Wording:
        return Wording.of(self.kind)

    def concerns(self, path: str) -> bool:
        """Whether a place in a stack file is no argument of other components alone."""
        return not self._wording.is_elsewhere(path)

    def translate(self, findings: Sequence[Finding]) -> list[Finding]:
        """Findings in the words of this component: its arguments, as the program's language spells them, after its type and name."""
        return [self._wording.translate(f).below(f"{self.component}: ") for f in findings]

    def refusal(self, findings: Sequence[Finding]) -> Exception:
        """What is raised about errors, which `translate` has made."""
        return language.get().refusal(self.component, list(findings))


def parse_args(component: str, args: Any, kind: type) -> ComponentArgs:
    """The arguments of a component, and what is wrong with them: unknown and missing keys, values of another kind than `kind` says."""
    found = _Values()
    if not isinstance(args, Mapping):
        found.fault("args", f"is {name_of_value(args)}", f"a mapping; see {kind.__name__}", "")
        return ComponentArgs(component, kind, dict.fromkeys(kind.__annotations__, LEFT_OUT), found.findings)
    hints = _hints(kind)
    known = found.keys(args, kind, "", f"add it; see {kind.__name__}")
    given = {key: args[key] for key in known if args[key] is not None}
    found.allow_outputs(_inputs_of(kind))
    values = {
        key: found.plain(value, key, hint=hints[key]) if key in _of_spec(kind) else found.argument(value, hints[key], key)
        for key, value in given.items()
    }
    required: frozenset[str] = kind.__required_keys__  # type: ignore[attr-defined]
    return ComponentArgs(component, kind, {**dict.fromkeys(required - values.keys(), LEFT_OUT), **values}, found.findings, found.later)


class _Values:
    """Goes through values, and keeps what is wrong with them.

    `resolved` ones come out of an Output; `awaits` lets Outputs be judged for a component once they are known.
    """

    def __init__(self, *, resolved: bool = False, awaits: ComponentArgs | None = None) -> None:
        self._resolved, self._awaits = resolved, awaits
        self.findings: list[Finding] = []
        self.later: dict[str, tuple[pulumi.Output[Any], Any, str]] = {}
        self._copies: dict[tuple[int, Any], Any] = {}
        self._kept: list[Any] = []
        self._fix_of_output: str = "give a plain value"

    def fault(self, path: str, message: str, allowed: str, fix: str, name: str = "schema") -> object:
        """Keep a finding; what stands for the value."""
        self.findings.append(Finding(name, Level.ERROR, path, message, None, allowed, fix))
        return LEFT_OUT

    def allow_outputs(self, arguments: Any) -> None:
        """Say of an Output in the wrong place which arguments do take one."""
        if places := join(", ", map(say_key, arguments)):
            self._fix_of_output = say("give a plain value; an Output may stand in {}", places)

    def keys(self, args: Mapping[Any, Any], kind: Any, path: str, fix: str) -> list[str]:
        """The known keys of a mapping, after those that are unknown or missing have been noted."""
        known, at = [say_key(name) for name in sorted(kind.__annotations__)], f"{path}." if path else ""
        for key in self._texts(args, path):
            if key not in known:
                self.fault(f"{at}{key}", "is not a known key", join(", ", known), did_you_mean(key, known), "unknown-key")
        for key in sorted(kind.__required_keys__):
            if args.get(key) is None:
                self.fault(f"{at}{key}", "is required", "", fix, "missing")
        return [key for key in args if key in known]

    def argument(self, value: Any, hint: Any, path: str, *, within: bool = False) -> Any:
        """A value that a component describes itself; `within` an input Pulumi waits for what stands there, too."""
        plain, takes_outputs = _without_outputs(hint)
        takes_outputs |= within
        if isinstance(value, LATER):
            if not takes_outputs:
                return self.plain(value, path)
            return self._output(value, plain, path) if self._awaits else value
        if value is LEFT_OUT:
            return value
        origin = get_origin(plain) or plain
        fits = _is_list(value) if origin is Sequence else isinstance(value, _class_of(origin))
        if not fits:
            allowed = f"{_name_of(plain)}, or an Output of one" if takes_outputs and not self._resolved else _name_of(plain)
            return self.fault(path, f"is {name_of_value(value)}", allowed, "")
        if origin is Sequence:
            if not value and path in FORMS and not self._resolved:
                return self.fault(path, "is an empty list", "one entry or more", "")
            return [self.argument(inner, get_args(plain)[0], f"{path}[{i}]", within=takes_outputs) for i, inner in enumerate(value)]
        if origin is Mapping:
            return {
                key: self.argument(value[key], get_args(plain)[1], f"{path}.{key}", within=takes_outputs)
                for key in self._texts(value, path)
                if value[key] is not None
            }
        if is_typeddict(origin) and (takes_outputs or self._resolved):
            hints = get_type_hints(origin)
            value = {_keys_of(origin).get(key, key): inner for key, inner in value.items()}
            known = [key for key in self.keys(value, origin, path, "add it") if value[key] is not None]
            return {key: self.argument(value[key], hints[key], f"{path}.{key}", within=True) for key in known}
        if origin is Literal and value not in get_args(plain):
            return self.fault(path, "is not possible", _name_of(plain), did_you_mean(value, get_args(plain)))
        return self._word(value, path) if isinstance(value, str) else self.plain(value, path, hint=plain) if isinstance(value, Mapping) else value

    def plain(self, value: Any, path: str, above: tuple[int, ...] = (), hint: Any = None) -> Any:
        """A value as dicts and lists, known before deployment but for what `hint` says is an input; what a spec says of it is its parser's."""
        hint, takes_outputs = _without_outputs(hint)
        if isinstance(value, LATER):
            if takes_outputs:
                return self._meanwhile(value, hint, path)
            what = "an Output" if isinstance(value, pulumi.Output) else "a coroutine" if iscoroutine(value) else "an awaitable"
            if iscoroutine(value):
                value.close()  # nobody will wait for it
            return self.fault(path, f"is {what}, which only the deployment knows", "a plain value", self._fix_of_output)
        if id(value) in above or len(above) > _DEEPEST:
            return self.fault(path, "holds itself or is nested too deeply", "plain values", "write it out")
        if not isinstance(value, Mapping) and not _is_list(value):
            fits = value is None or value is LEFT_OUT or isinstance(value, _PLAIN)
            return value if fits else self.fault(path, f"is {name_of_value(value)}", "a text, a number, true, false, a list or a mapping", "")
        one = (id(value), hint)
        if one not in self._copies:  # what stands in several places is gone through once
            here = (*above, id(value))
            described = is_typeddict(hint) and isinstance(value, Mapping)
            hints = {key: _hints(hint).get(_keys_of(hint).get(key, key), _UNKNOWN) for key in value} if described else {}
            of_entries = get_args(hint)[0] if get_origin(hint) is Sequence else None
            self._kept.append(value)  # an id is that of another value once its own is gone
            self._copies[one] = (
                {key: self.plain(value[key], f"{path}.{key}", here, hints.get(key)) for key in self._texts(value, path) if value[key] is not None}
                if isinstance(value, Mapping)
                else [self.plain(inner, f"{path}[{i}]", here, of_entries) for i, inner in enumerate(value)]
            )
        return self._copies[one]

    def _meanwhile(self, value: Any, hint: Any, path: str) -> Any:
        """What stands for an Output until its component is declared: a word, or two for a list."""
        key = path.split("[", maxsplit=1)[0].rpartition(".")[2]
        word = f"{MEANWHILE.get(snake(key), 'later')}{len(self.later) + 1}"
        self.later[word] = pulumi.Output.from_input(value), hint, path
        return [word, f"{word}b"] if get_origin(hint) is Sequence else word

    def _texts(self, value: Mapping[Any, Any], path: str) -> list[str]:
        """The keys of a mapping that are texts, after others have been noted."""
        for key in value:
            if not isinstance(key, str):
                self.fault(f"{path}.{key}" if path else str(key), "is a key that is not a text", "a text", "", "unknown-key")
        return [key for key in value if isinstance(key, str)]

    def _word(self, value: str, path: str) -> Any:
        """A text that is given as it is; what an Output holds is whatever its resource made."""
        if not value:
            return self.fault(path, "is an empty text", "", "")
        form = FORMS.get(path.split("[", maxsplit=1)[0])
        if form is not None and not self._resolved and (fault := fault_of(form, value, path)) is not None:
            self.findings.append(fault)
            return LEFT_OUT
        return value

    def _output(self, value: Any, hint: Any, path: str) -> pulumi.Output[Any]:
        given = self._awaits
        if given is None:
            raise AssertionError("an Output is judged for a component")
        return resolve(pulumi.Output.from_input(value), hint, path, given)


def resolve(value: pulumi.Output[Any], hint: Any, path: str, given: ComponentArgs) -> pulumi.Output[Any]:
    """The Output, which stops the program with a refusal when it turns out to hold nothing, or another kind of value than `hint`.

    Under the mocks of a program's unit tests nothing is not known: a mock need not invent what AWS would fill in.
    """
    mocked = is_mocked()

    def judge(known: Any) -> Any:
        if known is None and mocked:
            return pulumi.Output.from_input(pulumi.UNKNOWN)
        found = _Values(resolved=True)
        if known is None:
            found.fault(path, "is an Output of nothing", _name_of(hint), "")
        value = None if known is None else found.argument(known, hint, path)
        if found.findings:
            raise given.refusal(given.translate(found.findings))
        return value

    return value.apply(judge)


def _inputs_of(kind: type) -> list[str]:
    """Arguments, and keys in them, where an Output may stand."""
    found = []
    for key, hint in _hints(kind).items():
        plain, takes_outputs = _without_outputs(hint)
        takes_outputs |= any(_without_outputs(inner)[1] for inner in get_args(plain))
        found += [key] if takes_outputs else [f"{key}.{inner}" for inner in _inputs_of(plain)] if is_typeddict(plain) else []
    return found


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, localns={"Output": pulumi.Output, "T": Any})  # names by which Input is defined


def _of_spec(kind: type) -> set[str]:
    spec = EXTENDED.get(kind.__name__.removesuffix("Args"))
    return set(spec.model_fields) if spec else set()


def _keys_of(kind: Any) -> dict[str, str]:
    """Keys as other languages spell them, with their names in Python."""
    return {to_camel(key): key for key in kind.__annotations__}


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


def _class_of(origin: Any) -> Any:
    return Mapping if is_typeddict(origin) else str if origin is Literal else origin


def _name_of(hint: Any) -> str:
    origin = get_origin(hint) or hint
    if origin is Literal:
        return ", ".join(get_args(hint))
    return NAMES.get(origin, "a mapping" if is_typeddict(origin) else f"a {origin.__name__}")


def name_of_value(value: Any) -> str:
    """The kind of a value, in words."""
    if value is None or value == "":
        return "empty"
    return NAMES.get(type(value), f"an object of class {type(value).__name__}")


def _without_outputs(hint: Any) -> tuple[Any, bool]:
    """What an Input holds, and whether the type is one."""
    if get_origin(hint) not in (Union, UnionType):
        return hint, False
    return get_args(hint)[0], True
