"""What the program says about bad input: findings, collected, sorted and printed in one form everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any

from .corrections import Correction, instruction, written
from .credentials import withheld, without
from .guesses import likely
from .phrases import say
from .records import LEFT_OUT, WRITTEN_AS, Record


class Level(StrEnum):
    """How much a finding weighs: an error stops `pulumi up`, a warning is for the reviewer, info explains."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """Its place among the levels, 0 for the worst."""
        return list(Level).index(self)


SHOWN_LENGTH, SHOWN_DEPTH, SHOWN_ITEMS = 80, 6, 6
MAX_PLAIN_NUMBER = 10**15
_BYTE = 0x100


def _plain(value: Any) -> Any:
    """A value for programs: what JSON would write otherwise than a person is a text."""
    return value if value is None or isinstance(value, (str, bool)) or _printable(value) else show(value)


@dataclass(frozen=True)
class Finding(Record):
    """A result of a check."""

    # texts are lowercase, without a final period, and phrases where they name keys or places
    id: str
    """Rule, see `disagg rules`."""
    level: Level
    path: str
    """Place in the stack file, such as `models[0].decode.tensorParallel`; empty where it is about the whole."""
    message: str
    value: Any = field(default=None, metadata={WRITTEN_AS: _plain})
    """What stands at the path; null where it is not shown since it may be a secret, or nothing stands there."""
    allowed: str = ""
    """What may stand there."""
    fix: str = ""
    """What to do."""
    reference: str = ""
    corrections: tuple[Correction, ...] = field(default=(), metadata=LEFT_OUT)
    """Values by path: each correction alone removes the finding; null takes a key out. Left out where there is none."""
    accepted: str = field(default="", metadata=LEFT_OUT)
    """The stack file's reason to live with it. Left out where it is not accepted."""

    def __post_init__(self) -> None:
        # a message must not repeat what is refused because it may be a secret
        if withheld(self.value):
            object.__setattr__(self, "value", None)

    def sentence(self) -> str:
        """The finding as one line: path, value, message, allowed values and fix."""
        return f"{visible(self.path)}: {self.reason()}" if self.path else self.reason()

    def reason(self) -> str:
        """The sentence without the path."""
        shown = "" if self.value is None else f"{show(self.value)} "
        allowed = f" (allowed: {self.allowed})" if self.allowed else ""
        fix = f"; {self.fix}" if self.fix else ""
        accepted = f"; accepted: {self.accepted}" if self.accepted else ""
        return visible(f"{shown}{self.message}{allowed}{fix}{accepted}")

    def with_fix(self, value: Any) -> Finding:
        """The finding with another value at its place as its fix; None takes out what is there."""
        return replace(self, fix=instruction(value), corrections=({self.path: value},))

    def guessing(self, known: Sequence[str]) -> Finding:
        """The finding with the words that its value may have been meant to be, each of them as a correction."""
        meant = likely(self.value, known)
        if not meant:
            return self
        return replace(self, fix=did_you_mean(self.value, known), corrections=tuple({self.path: word} for word in meant))

    def below(self, prefix: str) -> Finding:
        """The same finding with its path put under `prefix`; what would have to be corrected there is no longer a stack file."""
        joint = "" if not self.path or self.path.startswith("[") or prefix.endswith(" ") else "."
        joined = prefix + joint + self.path
        return replace(self, path=joined, corrections=())


def conceal(findings: Iterable[Finding], secrets: frozenset[str]) -> list[Finding]:
    """The findings without a word of these secrets, wherever a message, a path or a correction repeats one."""
    return [_concealed(one, secrets) for one in findings] if secrets else [*findings]


def _concealed(finding: Finding, secrets: frozenset[str]) -> Finding:
    texts = {name: getattr(finding, name) for name in ("path", "message", "allowed", "fix", "accepted")}
    new: dict[str, Any] = {name: clean for name, text in texts.items() if (clean := without(str(text), secrets)) != str(text)}
    shown = "" if finding.value is None else f"{show(finding.value)} {finding.value}"
    if shown and without(shown, secrets) != shown:
        new["value"] = None
    if without(str(finding.corrections), secrets) != str(finding.corrections):
        new["corrections"] = ()
    return replace(finding, **new) if new else finding


class SpecError(Exception):
    """Input that cannot be used. Carries every finding of the run, not only the first, and the file where one as a whole is unusable."""

    def __init__(self, findings: Iterable[Finding], file: Path | None = None) -> None:
        self.findings = sort_findings(findings)
        self.file = file
        super().__init__("\n".join(f.sentence() for f in self.findings))


class ToolError(Exception):
    """The tool was called wrongly or could not do its work (exit code 1); the text is for a person."""


class ProgramError(ToolError):
    """A stack's program did not come to its end: what it declared before is no plan. `trace` is where, from the program's own lines on."""

    def __init__(self, stack: str, reason: str, trace: str = "") -> None:
        self.reason, self.trace = visible(" ".join(reason.split())), trace
        super().__init__(f"the program of stack {stack} stopped: {self.reason}")


class Terminated(SystemExit):
    """A signal ends this process; no program that runs in it did."""


def sort_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Findings without repetition: errors first, then by path and id."""
    unique = {(f.id, f.path, f.message): f for f in findings}
    return sorted(unique.values(), key=lambda f: (f.level.rank, f.path, f.id, f.message))


def has_errors(findings: Iterable[Finding]) -> bool:
    """Whether any finding stops the deployment."""
    return any(f.level is Level.ERROR for f in findings)


def show(value: Any) -> str:
    """A value as a person would recognise it from the stack file, cut to a readable length; in quotes where blanks stand around it."""
    try:
        text = _flow(value) if isinstance(value, (list, tuple, dict)) else str(value)
    except (ValueError, RecursionError):  # a number of more digits than Python prints, a list that holds itself
        return "a value too long to show"
    if isinstance(value, str) and value != value.strip() and value.strip():  # a blank that nobody sees may be the fault
        start, end = value[: len(value) - len(value.lstrip())], value[len(value.rstrip()) :]
        return f'"{start}{_cut(" ".join(text.split()))}{end}"'
    return _cut(" ".join((text.lower() if isinstance(value, bool) else text).split()))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_LENGTH else text[: SHOWN_LENGTH - 3] + "..."


def _flow(value: Any, depth: int = SHOWN_DEPTH) -> str:
    """A structure in YAML's flow style; what is deep or long is cut, since a small file may stand for a huge one."""
    if not isinstance(value, (list, tuple, dict)):
        return written(value)
    if depth == 0:
        return "..."
    first = list(islice(value, SHOWN_ITEMS))
    more = ["..."] * (len(value) > SHOWN_ITEMS)
    if isinstance(value, dict):
        return "{" + ", ".join([*(f"{_flow(key, 1)}: {_flow(value[key], depth - 1)}" for key in first), *more]) + "}"
    return "[" + ", ".join([*(_flow(one, depth - 1) for one in first), *more]) + "]"


def visible(text: str) -> str:
    """A text without signs that move the cursor, turn the reading direction or hide: they are written out as numbers."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" if ord(c) < _BYTE else f"\\u{ord(c):04x}" for c in text)


def _printable(value: Any) -> bool:
    return isinstance(value, (int, float)) and -MAX_PLAIN_NUMBER <= value <= MAX_PLAIN_NUMBER


def did_you_mean(word: object, known: Sequence[str]) -> str:
    """A suggestion for a misspelt or shortened word, or an empty text."""
    found = likely(word, known)
    return say(f"did you mean {', '.join('{}' for _ in found[:-1])}{' or ' if len(found) > 1 else ''}{{}}?", *found) if found else ""


def closest(word: object, known: Sequence[str], cutoff: float = 0.6) -> str:
    """The one known word that a misspelt one can stand for; an empty text where there is none, or several."""
    found = likely(word, known, cutoff)
    return found[0] if len(found) == 1 else ""
