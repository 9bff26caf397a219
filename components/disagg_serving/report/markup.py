"""Texts of a stack file inside Markdown that GitHub shows: whatever stands in them, they stay texts."""

from __future__ import annotations

import html
import re

from ..errors import visible

MOST = 400
"""Characters of one text that are shown."""
_SIGNS = re.compile(r"([\\`*_\[\]~])|(?<=^)([-+#=])|(?<=^\d)([.)])")
_PLAIN_CODE = re.compile(r"[^`|\\]+")
_ACTIVE = re.compile(r"@(?=\w)|#(?=\d)|(?<=\bGH)-(?=\d)|\bwww(?=\.)|(?<=\w):(?=//)|:(?=[a-z0-9_+-]+:)", re.IGNORECASE)
"""What GitHub turns into mentions, references to issues, links and emoji, after Markdown and so in spite of its escapes."""
_JOINT = "\N{ZERO WIDTH SPACE}"


def code(text: object, most: int = MOST) -> str:
    """A text as code, in which neither Markdown nor HTML nor a mention works; also in a table's cell."""
    shown = shorten(visible(" ".join(str(text).split())), most)
    if not shown or _PLAIN_CODE.fullmatch(shown):
        return f"`{shown}`" if shown else ""
    # backticks, bars and backslashes end spans and cells; as numbers they end nothing
    return f"<code>{''.join(c if c.isalnum() or c == ' ' else f'&#{ord(c)};' for c in shown)}</code>"


def prose(text: object, most: int = MOST) -> str:
    """A text as plain words: Markdown and HTML are escaped, mentions, references, links and emoji broken by a sign that is not seen."""
    shown = shorten(visible(" ".join(str(text).split())), most)
    broken = _ACTIVE.sub(lambda m: m[0] + _JOINT, shown)
    return html.escape(_SIGNS.sub(r"\\\g<0>", broken), quote=False).replace("|", "&#124;").replace("$", "<span>$</span>")


def shorten(text: str, most: int) -> str:
    """A text of at most so many characters."""
    return text if len(text) <= most else text[: most - 3] + "..."


def fenced(text: str, language: str = "") -> list[str]:
    """Lines as a block of code, whatever they hold."""
    fence = "`" * max(3, max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return [f"{fence}{language}", *text.rstrip("\n").split("\n"), fence]
