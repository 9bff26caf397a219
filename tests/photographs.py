"""Pictures of plans in docs/pictures: each carries the words that were in view, so that one that has become stale is noticed without a browser."""

from __future__ import annotations

import struct
import zlib
from html.parser import HTMLParser
from pathlib import Path

from factories import ROOT

FOLDER = ROOT / "docs/pictures"
NAMES = [f"plan-{scheme}-{width}" for scheme in ("light", "dark") for width in (1280, 400)]
KEYWORD = "Description"
"""The PNG chunk's keyword for what a picture shows (PNG, third edition, 11.3.3.2)."""
LEFT_OUT = "p0-resources"
"""The part of the page that is not photographed: it is long, and closed."""
_UNSEEN = {"head", "script", "style", "option", "template"}
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, bool]] = []
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _VOID:
            return
        given = dict(attrs)
        inside = self.open[-1] if self.open else ("", True)
        shut = inside[0] == "details" and tag != "summary"
        seen = inside[1] and not shut and tag not in _UNSEEN and "hidden" not in given and given.get("id") != LEFT_OUT
        self.open.append((tag, seen))

    def handle_endtag(self, tag: str) -> None:
        while self.open and tag in {one for one, _ in self.open} and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if data.strip() and self.open and self.open[-1][1]:
            self.found.append(" ".join(data.split()))


def words_in_view(html: str) -> str:
    """The words of a page as it opens, one piece of text a line: without what is hidden, closed or left out of the picture."""
    reader = _Words()
    reader.feed(html)
    return "\n".join(reader.found) + "\n"


def photographed(file: Path) -> str:
    """The words that were in view when a picture was made. Raises KeyError for a PNG that does not say them."""
    data, at, found = file.read_bytes(), 8, {}
    while at < len(data):
        (length,), kind = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        if kind == b"iTXt":
            keyword, _, rest = data[at + 8 : at + 8 + length].partition(b"\0")
            packed = rest[2:].split(b"\0", 2)[2]
            found[keyword.decode("latin-1")] = (zlib.decompress(packed) if rest[0] else packed).decode("utf-8")
        at += length + 12
    return found[KEYWORD]
