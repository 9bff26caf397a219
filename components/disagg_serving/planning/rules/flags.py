"""Rules about flags that a person adds: the engine's own parser has been asked which there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...catalog.flags import Flag, flags_of
from ...errors import Level
from .engine import is_owned, is_secret
from .registry import Fault, Stage, Subject, meant, rule, use


@rule("engine-flags", Level.ERROR, Stage.FORM, "vLLM's own parser (catalog/engines/flags)")
def engine_flags(s: Subject) -> Iterator[Fault]:
    """Extra flags are flags of the engine's version, spelt in full, with values of their kind; vLLM stops at any other."""
    for served in s.served:
        known = flags_of(served.engine.version) if served.spec.extra_args or served.facts.serve_flags else None
        if known is None:
            continue
        engine = f"vLLM {served.engine.version}"
        for i, arg in enumerate(served.spec.extra_args):
            if arg.startswith("--") and not is_owned(arg.split("=", 1)[0]) and not is_secret(arg):  # extra-args has a word for those
                yield from _faults(f"{served.path}.extraArgs[{i}]", arg, known, engine)
        for arg in served.facts.serve_flags:
            for fault in _faults(f"{served.path}.model", arg, known, engine):
                yield Fault(fault.path, f"has the flag {arg} in its entry, which {fault.message}", served.spec.model, fault.allowed)


def _faults(path: str, arg: str, known: Mapping[str, Flag], engine: str) -> Iterator[Fault]:
    name, equals, value = arg.partition("=")
    # underscores are hyphens to vLLM's parser, and what follows a dot is a key of the flag's JSON
    flag = name.replace("_", "-").split(".", 1)[0]
    about = known.get(flag)
    if about is None:
        longer = [k for k in known if k.startswith(flag)]
        right = longer if len(longer) == 1 else [str(c[path]) for c in meant(path, flag, list(known))]
        yield Fault(path, f"is not a flag of {engine}", arg, "its flags, spelt in full", ways=[use(path, *(k + equals + value for k in right))])
    elif about.kind == "switch" and equals:
        yield Fault(path, f"takes no value in {engine}", arg, flag, ways=[use(path, name)])
    elif about.kind not in {"switch", "optional"} and not equals and "." not in name:
        yield Fault(path, f"needs a value in {engine}", arg, f"{flag}=...", "join flag and value with =")
    elif equals and about.kind in {"int", "float"} and not _is_number(value, whole=about.kind == "int"):
        yield Fault(path, "is not a number", arg, "a whole number" if about.kind == "int" else "a number")
    elif equals and about.choices and about.kind == "str" and value not in about.choices:
        right = [str(c[path]) for c in meant(path, value, about.choices)]
        ways = [use(path, *(f"{name}={v}" for v in right))]
        yield Fault(path, f"is not a value of {engine}", arg, ", ".join(about.choices), ways=ways)


def _is_number(text: str, *, whole: bool) -> bool:
    try:
        return (int if whole else float)(text) is not None
    except ValueError:
        return False
