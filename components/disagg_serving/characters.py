"""Characters that nobody sees, or takes for others: refused in what people write, and written out as numbers in what the program prints."""

from __future__ import annotations

import re
import unicodedata

_SELECTORS = (range(0x180B, 0x1810), range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {chr(n) for one in _SELECTORS for n in one}
"""Fillers, joiners and selectors, which are letters or marks to Unicode."""
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_LOOKALIKE = (
    "CYRILLIC",
    "GREEK",
    "ARMENIAN",
    "CHEROKEE",
    "COPTIC",
    "LISU",
    "FULLWIDTH",
    "MATHEMATICAL",
    "DESERET",
    "GEORGIAN",
    "LATIN SMALL LETTER DOTLESS",
)
"""Beginnings of the names of letters that look like those of ASCII: https://www.unicode.org/Public/security/16.0.0/confusables.txt."""
_WORD = re.compile(r"[^\W_]+")
_STYLE = re.compile(r"(\x1b\[[0-9;]*m)")


def hidden_in(text: str, *, lines: bool = False) -> str:
    """The first character that controls, hides or turns the text, as `U+200B`. With `lines`, tabs and ends of lines do not count."""
    if text.isascii() and text.isprintable():
        return ""
    seen = "\t\n" if lines else ""
    found = (c for c in text if c not in seen and (unicodedata.category(c) in _HIDDEN or c in _INVISIBLE))
    return next((code(c) for c in found), "")


def lookalike_in(text: str) -> str:
    """The first letter of another script in a word with letters of ASCII; empty where there is none."""
    if text.isascii():
        return ""
    mixed = (word for word in _WORD.findall(text) if not word.isascii() and any("a" <= c.lower() <= "z" for c in word))
    return next((code(c) for word in mixed for c in word if unicodedata.name(c, "").startswith(_LOOKALIKE)), "")


def foreign_in(text: str) -> str:
    """The first character outside of ASCII."""
    return next((code(c) for c in text if not c.isascii()), "")


def code(character: str) -> str:
    """A character by its number."""
    return f"U+{ord(character):04X}"


def printed(text: str, *, styled: bool = False) -> str:
    """A text as a terminal or a reviewer may get it: what is not seen is written out, in a form that JSON reads as the same character.

    With `styled`, colours of a text that is clean already are left in.
    """
    if styled:
        return "".join(part if i % 2 else printed(part) for i, part in enumerate(_STYLE.split(text)))
    if text.isascii() and not _CONTROL.search(text):
        return text
    return "".join(c if c in "\t\n" or (c.isprintable() and c not in _INVISIBLE) or c == "\u00a0" else _escaped(c) for c in text)


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def _escaped(character: str) -> str:
    data = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[i]:02x}{data[i + 1]:02x}" for i in range(0, len(data), 2))
