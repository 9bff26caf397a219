"""The project's Markdown as tests read it: documents, headings, links, fenced blocks, commands."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from factories import ROOT
from markdown_it import MarkdownIt
from markdown_it.token import Token

NOT_PROSE = ("changelog.d/", "tests/golden/")


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    file: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """File and line, for a test's name."""
        return f"{self.file.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command that a page tells to type; `comment` is what stands behind it."""

    block: Block
    text: str
    comment: str


@cache
def documents() -> tuple[Path, ...]:
    """Every Markdown file that people read."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return tuple(ROOT / name for name in sorted(set(names)) if not name.startswith(NOT_PROSE) and (ROOT / name).exists())


@cache
def tokens(file: Path) -> tuple[Token, ...]:
    """A document, parsed as GitHub does."""
    return tuple(MarkdownIt("commonmark").enable("table").parse(file.read_text(encoding="utf-8")))


@cache
def anchors(file: Path) -> frozenset[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    seen: Counter[str] = Counter()
    found = set()
    parsed = tokens(file)
    for token, after in pairwise(parsed):
        if token.type == "heading_open":
            words = "".join(t.content for t in after.children or [] if t.type in ("text", "code_inline"))
            slug = re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")
            found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
    return frozenset(found)


def links(file: Path) -> Iterator[str]:
    """Where a document's links and pictures lead."""
    for token in tokens(file):
        if token.type == "html_block":
            yield from re.findall(r' (?:src|srcset)="([^"]*)"', token.content)
        for inner in token.children or []:
            where = inner.attrs.get("href") or inner.attrs.get("src")
            if where is not None:
                yield str(where)


def blocks(*languages: str) -> list[Block]:
    """All fenced blocks in these languages."""
    fences = ((file, token) for file in documents() for token in tokens(file) if token.type == "fence")
    return [Block(file, (t.map or [0])[0] + 1, t.info.strip(), t.content) for file, t in fences if t.info.strip() in languages]


def commands() -> list[Command]:
    """All commands: lines of `console` blocks after `$ `, with what a backslash continues."""
    found = []
    for block in blocks("console", "bash", "sh", "shell"):
        for line in re.sub(r"\\\n\s*", "", block.text).split("\n"):
            if line.startswith("$ "):
                text, _, comment = line[2:].partition(" # ")
                found.append(Command(block, text.strip(), comment.strip()))
    return found


def build_site(folder: Path) -> Path:
    """The documentation site as `make docs` builds it; a warning is an error."""
    build = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "-d", str(folder / "doctrees"), "-c", "docs", "."]
    done = subprocess.run([*build, str(folder / "html")], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "html"
