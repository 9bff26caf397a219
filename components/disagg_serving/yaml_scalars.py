"""Plain values of YAML as Pulumi reads them, so that a plan and `pulumi up` mean the same."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

# the rules of https://github.com/go-yaml/yaml/blob/v3.0.1/resolve.go, with which Pulumi reads its files; checked 2026-12-01
PREFIX = "tag:yaml.org,2002:"
LONGEST_NUMBER = 1_000
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **{sign + word: float(sign + "inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
}
_INT = re.compile(r"([-+]?)(?:(0[xX])([0-9a-fA-F]+)|(0[bB])([01]+)|(0[oO]?)([0-7]+)|([1-9][0-9]*|0))", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_NUMERAL = re.compile(r"[-+]?[0-9][0-9a-fA-FxXoO_.eE+-]*|\.[0-9][0-9eE+-]*", re.ASCII)
_TIME = re.compile(
    r"(\d{4})-(\d\d?)-(\d\d?)(?:(?:[Tt](?=.*(?:Z|[+-]\d\d:\d\d)$)| (?!.*[Z+-]))(\d\d?):(\d\d?):(\d\d?)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))?)?",
    re.ASCII,
)
_INT64, _UINT64 = 2**63, 2**64
_KINDS: dict[str, tuple[type, ...]] = {"int": (int,), "float": (float, int), "bool": (bool,), "null": (type(None),), "timestamp": (datetime,)}


class ScalarError(ValueError):
    """A plain value that is not what its tag says, or that is too long to be a number."""


def value_of(text: str, tag: str | None, *, plain: bool) -> Any:
    """The value of a scalar: with its tag, and whether it stands without quotes. Raises ScalarError."""
    kind = tag.removeprefix(PREFIX) if tag else ""
    if kind in {"str", "!"} or not (plain or kind):
        return text
    if len(text) > LONGEST_NUMBER and _NUMERAL.fullmatch(text):
        raise ScalarError(f"a number has {len(text)} characters; at most {LONGEST_NUMBER} are read, and a text belongs in quotes")
    value = _resolved(text, times=kind in {"", "timestamp"})
    if not kind:
        return value
    found = _KINDS[kind]
    if not isinstance(value, found) or (isinstance(value, bool) and kind != "bool"):
        raise ScalarError(f"a value tagged !!{kind} is none")
    return float(value) if kind == "float" and isinstance(value, int) else value


def _resolved(text: str, *, times: bool) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "0123456789+-.":
        return text
    if text[0] == ".":
        return _float(text)
    if times and (time := _time(text)):
        return time
    number = text.replace("_", "")
    found = _INT.fullmatch(number)
    if found is None:
        return _float(number, text)
    sign, _, hexadecimal, _, binary, _, octal, decimal = found.groups()
    digits, base = next((d, b) for d, b in ((hexadecimal, 16), (binary, 2), (octal, 8), (decimal, 10)) if d is not None)
    value = int(sign + digits, base)
    if -_INT64 <= value < (_INT64 if sign else _UINT64):
        return value
    return _float(number, text)


def _float(number: str, text: str = "") -> Any:
    if _FLOAT.fullmatch(number):
        value = float(number)
        if abs(value) != float("inf"):
            return value
    return text or number


def _time(text: str) -> datetime | None:
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found[i] or 0) for i in range(1, 7))
    offset = timedelta(hours=int(found[9] or 0), minutes=int(found[10] or 0))
    try:
        zone = timezone(-offset if found[8] == "-" else offset) if offset else UTC
        return datetime(year, month, day, hour, minute, second, tzinfo=zone)
    except ValueError:  # no day of the calendar stays a text
        return None
