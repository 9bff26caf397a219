"""Every option of the engine and every variable of its parts with what is said about it, for `disagg explain --flag` and the reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..catalog.flags import flags_of, options_of, short_flags, spelt, versions
from ..catalog.verdicts import FREE, OURS, Verdict, every_option, readers, variable, variables, verdict_of
from ..phrases import say
from ..planning.command_line import OWNED, why_ours

MEANS = {
    "ours": "The project sets it, from a field or by itself: giving it is an error, unless it says what holds anyway.",
    "free": "It may be added.",
    "counted": "It takes memory, GPUs or disk: the forecast counts it, or a warning says that it does not.",
    "breaks": "It takes away what the project relies on: an error that no stack file can accept.",
    "pd-refused": "It stops or breaks an engine that moves KV: an error with prefill and decode. In server mode it may be added.",
    "role-only": "It is for some of an engine's pods: an error where others would get it, too.",
}
"""What each verdict comes to."""


class Option(NamedTuple):
    """One option or variable with its verdict; `spellings` are the others that mean it, and `known` says which versions or parts have it."""

    name: str
    verdict: Verdict
    known: tuple[str, ...]
    spellings: tuple[str, ...] = ()
    default: str | None = None

    @property
    def sentence(self) -> str:
        """What is said of it: the reason, what to do instead, and the values that pass."""
        about = self.verdict
        values = f"; {', '.join(v for v in about.passes if v)} may be given" if any(about.passes) else ""
        only = f"; only {', '.join(about.refuses)}" if about.refuses else ""
        where = ", where pods talk over EFA" if about.over_efa else ""
        return f"{say(about.reason)}{where}{only}{values}" + (f"; {say(about.instead)}" if about.instead else "")


def options() -> list[Option]:
    """Every option of every version, by name."""
    return [_option(name) for name in every_option()]


def every_variable() -> list[Option]:
    """Every variable, by name."""
    parts = readers()
    return [Option(name, about, tuple(part for part in parts if name in parts[part])) for name, about in sorted(variables().items())]


def _option(name: str) -> Option:
    found = verdict_of(name)
    having = tuple(v for v in versions() if name in options_of(v))
    others = {n for v in having for n, flag in (flags_of(v) or {}).items() if flag.option == name and n != name}
    others |= {n for v in having for n, long in short_flags(v).items() if long == name}
    if name in OWNED:
        set_anyway = found if found is not None and found.verdict != "free" else None
        reason = why_ours(name) + (f"; else it {set_anyway.reason}" if set_anyway else "")
        found = OURS._replace(reason=reason, instead=OWNED[name])
    default = next((flag.default for v in having if (flag := options_of(v)[name]).default is not None), None)
    return Option(name, found or FREE, having, tuple(sorted(others)), default)


def look_up(word: str) -> Iterator[Option]:
    """The option or variable that a spelling means: all that it may be, where it is cut short."""
    if variable(word) is None:
        word = word if word.startswith("-") else f"--{word}"
        newest = versions()[-1]
        flag = word.partition("=")[0]
        long = short_flags(newest).get(flag.partition(".")[0], flag)
        seen = {found.option for v in versions() for found in spelt(v, long)}
        yield from (_option(name) for name in sorted(seen))
    if (about := variable(word)) is not None:
        parts = readers()
        yield Option(word, about, tuple(part for part in parts if word in parts[part]))
