"""Rules about flags, those of fields and those that a person adds: the parser of each engine version was asked which there are."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from ...catalog.flags import Flag, flags_of, versions
from ...errors import Level, closest
from ...planning.command_line import as_text, options
from ...planning.extras import arguments_of, roles_reached, written_arguments
from ...planning.shapes import Served
from ...spec.serving import RoleName
from ..registry import Fault, Stage, Subject, meant, remove, rule, use
from .extra_arguments import is_secret, refusals

PLUGINS = {"--tool-call-parser": "--tool-parser-plugin", "--reasoning-parser": "--reasoning-parser-plugin"}
"""Flags whose values a plugin of one's own may add to."""
NUMBERS = {"int": "a whole number", "ints": "a whole number", "float": "a number", "size": "a whole number, or one as 25.6k or 4G"}
SIZE = re.compile(r"\s*(\d+[KMGT]|\d+(\.\d+)?[kmgt])\s*", re.ASCII)
"""With a power of 1024 or of 1000 behind it (vLLM: human_readable_int)."""
SIZES_AND_TEXTS = re.compile(r'"(?:[^"\\]|\\.)*"|\b\d+(?:\.\d+)?[kKmMgGtT]\b', re.ASCII)
WITHOUT_VALUE = {"switch", "optional"}
BESIDE = {"--enable-auto-tool-choice": "--tool-call-parser", "--enable-log-outputs": "--enable-log-requests"}
"""Flags with others that they need (vLLM: validate_parsed_serve_args)."""
OFF = frozenset({"0", "false", "no", "off"})
ALIKE = 0.7
"""Letters that a misspelt word of a flag has in common with the right one, as difflib counts them."""
SHOWN = 5
"""Flags that are listed where one is cut short."""


class _Parser(NamedTuple):
    """What is known of an engine's parser; `open_flags` take names that a plugin of the model's own adds."""

    version: str
    flags: Mapping[str, Flag]
    open_flags: frozenset[str] = frozenset()


class _Argument(NamedTuple):
    """An extra argument: as it stands, its flag in the parser's spelling, keys of its JSON after a dot, `=` or nothing, and the value."""

    text: str
    flag: str
    keys: str
    equals: str
    value: str

    @property
    def sets(self) -> tuple[str, str]:
        """What it sets: a switch and its negation set the same."""
        return self.flag.replace("--no-", "--", 1).replace("--disable-", "--enable-", 1), self.keys


@rule("engine-flags", Level.ERROR, Stage.FORM, "docs/engine.md: `make engine` asks vLLM's own parser")
def engine_flags(s: Subject) -> Iterator[Fault]:
    """The engine's version has the flags and values of fields and extraArgs, and extraArgs spell flags in full, once: else vLLM stops or guesses."""
    for served in s.served:
        given, version = written_arguments(served.spec), served.engine.version
        own = served.facts.serve_flags if s.catalog.models.is_added(served.facts.id) else []
        known = flags_of(version)
        if known is None and not given and not own:
            continue
        if known is None:
            message = f"are not checked: vLLM {version} was not asked for its flags"
            yield Fault(f"{served.path}.extraArgs", message, None, ", ".join(versions()), level=Level.INFO)
            continue
        yield from _of_fields(served, known)
        # extra-args has words of its own for those that are left out here
        ours = {p: _read(a) for p, a in given if a.startswith("--") and not is_secret(a) and not any(refusals("", a, version, served.spec))}
        parser = _Parser(version, known, frozenset(flag for flag, plugin in PLUGINS.items() if plugin in {one.flag for one in ours.values()}))
        for place, one in ours.items():
            path, lists = f"{served.path}.{place}", [other for other in ours if other.split("[")[0] == place.split("[")[0]]
            yield from _faults(path, one, parser)
            other = BESIDE.get(one.flag)
            if other in known and any(other not in _flags_of_role(served, name) for name in roles_reached(served.spec, place)):
                yield Fault(path, f"stops vLLM without {other}", one.text, f"{one.flag} with {other}", ways=[remove(path)])
            if one.flag in known and known[one.flag].kind != "several":
                later = lists[lists.index(place) + 1 :]
                yield from _repetitions(path, one, [ours[p] for p in later], [ours[p] for p in lists])
        yield from _of_entry(served, own, parser)


def _flags_of_role(served: Served, role: RoleName) -> set[str]:
    """The flags that a person or the catalogue adds to a role's command line."""
    return {_read(flag).flag for flag in (*served.facts.serve_flags, *(extra.value for extra in arguments_of(served.spec, role)))}


def _of_fields(served: Served, known: Mapping[str, Flag]) -> Iterator[Fault]:
    """What fields say that the engine's version has no flag or no value for."""
    engine = f"vLLM {served.engine.version}"
    asked = {o.place: o for name, role in served.spec.roles.items() for o in options(served, name, role).values()}
    for option in asked.values():
        path, about = f"{served.path}.{option.place}", known.get(option.flag)
        if about is None:
            allowed = f"vLLM {', '.join(_elsewhere(option.flag))}"
            yield Fault(path, f"becomes {option.flag}, which is not a flag of {engine}", option.value, allowed, ways=[remove(path)])
        elif about.choices and _normalize(as_text(option.value), about) not in about.choices:
            message, ways = f"is no value that {engine} has for {option.flag}", [meant(path, option.value, about.choices) or remove(path)]
            yield Fault(path, message, option.value, ", ".join(about.choices), ways=ways)


def _of_entry(served: Served, flags: Sequence[str], parser: _Parser) -> Iterator[Fault]:
    """What is wrong with the flags of a catalogue entry that a person added."""
    path = f"{served.path}.model"
    for one in map(_read, flags):
        for fault in [*refusals(path, one.text, served.engine.version, served.spec)] or _faults(path, one, parser):
            yield Fault(path, f"has the flag {one.text} in its entry, which {fault.message}", served.spec.model, fault.allowed, "edit the entry")


def _read(arg: str) -> _Argument:
    name, equals, value = arg.partition("=")
    flag, _, keys = name.partition(".")
    return _Argument(arg, flag.replace("_", "-"), keys, equals, value)


def _faults(path: str, one: _Argument, parser: _Parser) -> Iterator[Fault]:
    arg, about, engine = one.text, parser.flags.get(one.flag), f"vLLM {parser.version}"
    if about is None:
        longer = sorted(name for name in parser.flags if name.startswith(one.flag))
        elsewhere = _elsewhere(one.flag)
        right = longer[0] if len(longer) == 1 else _meant(one.flag, longer or list(parser.flags), misspelt=not elsewhere)
        message = "is a flag cut short, which another version may read as another one" if longer else f"is not a flag of {engine}"
        allowed = ", ".join(longer) if 0 < len(longer) <= SHOWN else "its flags, spelt in full"
        if elsewhere and not longer:
            allowed = f"its flags; vLLM {', '.join(elsewhere)} has this one"
        ways = [use(path, right + arg[len(one.flag) :]) if right else []]
        yield Fault(path, message, arg, allowed, ways=ways, otherwise="see `vllm serve --help=all`")
    elif about.kind == "switch" and one.equals:
        right = _spell_switch(one, parser.flags)
        yield Fault(path, f"takes no value in {engine}", arg, one.flag, ways=[use(path, right) if right else remove(path)])
    elif one.keys and (about.kind in {*NUMBERS, "switch"} or about.choices):
        yield Fault(path, f"takes no keys in {engine}: its value is not JSON", arg, f"{one.flag}=...", ways=[remove(path)])
    elif not one.equals and (one.keys or about.kind not in WITHOUT_VALUE):
        yield Fault(path, "has no value, for which vLLM takes the next flag or stops", arg, f"{arg}=...", "join flag and value with =")
    elif not one.keys and one.equals and not (about.none and one.value in {"", "None"}) and (one.value or one.flag not in PLUGINS):
        yield from _value_faults(path, one, about, parser)


def _value_faults(path: str, one: _Argument, about: Flag, parser: _Parser) -> Iterator[Fault]:
    arg, value = one.text, _normalize(one.value, about)
    if about.kind in NUMBERS and not _is_number(about.kind, value):
        yield Fault(path, f"is not {NUMBERS[about.kind]}", arg, f"{one.flag}= and {NUMBERS[about.kind]}", otherwise="correct the value")
    elif about.kind in {"json", "object"} and not _is_json(value, whole=about.kind == "object"):
        what = "JSON" if about.kind == "json" else "a JSON object"
        yield Fault(path, f"is not {what}", arg, f"{one.flag}= and {what}, or {one.flag}.key=value", otherwise="correct the value")
    elif about.choices and one.flag not in parser.open_flags and value not in about.choices:
        right = closest(value, about.choices)
        allowed = ", ".join(f"{one.flag}={choice}" for choice in about.choices)
        ways = [use(path, f"{one.flag}={right}") if right else remove(path)]
        yield Fault(path, f"is no value that vLLM {parser.version} has", arg, allowed, ways=ways)


def _normalize(value: str, about: Flag) -> str:
    return value.lower().replace("-", "_") if about.kind == "word" else value


def _repetitions(path: str, one: _Argument, later: Sequence[_Argument], ours: Sequence[_Argument]) -> Iterator[Fault]:
    """Of a flag that stands twice the last one counts, and keys of a flag replace its whole value."""
    if any(other.sets == one.sets for other in later):
        yield Fault(path, "has no effect: the same flag stands here again", one.text, "each flag once", ways=[remove(path)])
    elif not one.keys and any(other.keys and other.flag == one.flag for other in ours):
        message = f"has no effect: vLLM does not add {one.flag}.key=value to it"
        yield Fault(path, message, one.text, "all in one of the two ways", "put the keys into the JSON")


def _spell_switch(one: _Argument, known: Collection[str]) -> str:
    """What a switch with a value is meant to be; an empty text where the parser has no such switch."""
    about, on = _split_switch(one.flag)
    return _switch(about, not on, known) if one.value.lower() in OFF else one.flag


def _split_switch(flag: str) -> tuple[str, bool]:
    """What a flag is about, and whether it turns that on."""
    name, on = flag.removeprefix("--"), True
    for negation in ("no-", "disable-"):
        on ^= name.startswith(negation)
        name = name.removeprefix(negation)
    return name.removeprefix("enable-"), on


def _switch(about: str, on: bool, known: Collection[str]) -> str:  # noqa: FBT001 (a pair of _split_switch)
    """The parser's own spelling of a switch that is turned on or off; an empty text where it has none."""
    forms = ("", "enable-", "no-disable-") if on else ("no-", "no-enable-", "disable-")
    return next((f"--{form}{about}" for form in forms if f"--{form}{about}" in known), "")


def _meant(flag: str, known: Sequence[str], *, misspelt: bool) -> str:
    """The flag that is meant, never one that says the opposite; an empty text where none is, word by word, near enough."""
    name = flag.lower()
    about, on = _split_switch(name)
    alike = [one for one in known if misspelt and _split_switch(one)[1] == on and _alike(one, name)]
    return _switch(about, on, known) or closest(name, alike)


def _alike(one: str, other: str) -> bool:
    """Whether two flags differ in letters or hyphens only, not in what they are about."""
    pairs = [*zip_longest(one.split("-"), other.split("-"), fillvalue="")]
    return one.replace("-", "") == other.replace("-", "") or all(a == b or closest(a, [b], ALIKE) for a, b in pairs)


def _elsewhere(flag: str) -> list[str]:
    """The vLLM versions that have a flag."""
    return [version for version in versions() if flag in (flags_of(version) or {})]


def _is_json(text: str, *, whole: bool) -> bool:
    try:
        # in an object, and only there, vLLM takes sizes too
        read = json.loads(SIZES_AND_TEXTS.sub(lambda found: "0" if SIZE.fullmatch(found[0]) else found[0], text) if whole else text)
    except (ValueError, RecursionError):
        return False
    return isinstance(read, dict) or not whole


def _is_number(kind: str, text: str) -> bool:
    if kind == "size" and SIZE.fullmatch(text):
        return True
    try:
        (float if kind == "float" else int)(text)
    except ValueError:
        return False
    return True
