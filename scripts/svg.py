"""A few forms of SVG for the pictures of the documentation: light or dark as the system is, with a title and a description."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

STYLE = """\
svg{--bg:#ffffff;--fg:#1f2328;--muted:#57606a;--line:#8c959f;--box:#f6f8fa;--prefill:#fff1e5;--prefill-line:#bc4c00;--decode:#ddf4ff;
--decode-line:#0969da;--server:#dafbe1;--server-line:#1a7f37}
@media (prefers-color-scheme:dark){svg{--bg:#0d1117;--fg:#e6edf3;--muted:#9da7b3;--line:#6e7681;--box:#161b22;--prefill:#3d2312;
--prefill-line:#f0883e;--decode:#10253f;--decode-line:#58a6ff;--server:#12301c;--server-line:#3fb950}}
text{font:14px system-ui,sans-serif;fill:var(--fg)}.small{font-size:13px;fill:var(--muted)}.strong{font-weight:600}
.ground{fill:var(--bg)}.box{fill:var(--box);stroke:var(--line)}.prefill{fill:var(--prefill);stroke:var(--prefill-line)}
.decode{fill:var(--decode);stroke:var(--decode-line)}.server{fill:var(--server);stroke:var(--server-line)}
.way,.back{fill:none;stroke:var(--fg);stroke-width:1.5}.back{stroke-dasharray:5 4}
.kv{fill:none;stroke:var(--prefill-line);stroke-width:4}.head{fill:var(--fg)}.kvhead{fill:var(--prefill-line)}"""


def picture(width: int, height: int, title: str, description: str, parts: Sequence[str]) -> str:
    """A whole file. Screen readers say the title and the description."""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-labelledby="title description">\n<title id="title">{escape(title)}</title>\n<desc id="description">{escape(description)}</desc>\n'
        f"<style>\n{STYLE}\n</style>\n"
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto-start-reverse">'
        '<path class="head" d="M0 0L8 4L0 8z"/></marker><marker id="kvhead" viewBox="0 0 8 8" refX="5" refY="4" markerWidth="4" markerHeight="4" '
        'orient="auto-start-reverse"><path class="kvhead" d="M0 0L8 4L0 8z"/></marker></defs>\n'
        f'<rect class="ground" width="{width}" height="{height}" rx="6"/>\n{body}\n</svg>\n'
    )


def box(x: float, y: float, width: float, height: float, kind: str = "box") -> str:
    """A rectangle of one of the kinds that STYLE knows."""
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"/>'


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """One line of text."""
    said = f' class="{kind}"' if kind else ""
    placed = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:g}" y="{y:g}"{said}{placed}>{escape(words)}</text>'


def lines(x: float, y: float, words: Sequence[str], anchor: str = "middle") -> list[str]:
    """A heading with smaller lines below it."""
    return [text(x, y + 17 * i, line, "small" if i else "strong", anchor) for i, line in enumerate(words)]


def arrow(points: Sequence[tuple[float, float]], kind: str = "way", *, both: bool = False) -> str:
    """A way with a head at its end, or at both."""
    head = "kvhead" if kind == "kv" else "head"
    drawn = " ".join(f"{'L' if i else 'M'}{x:g} {y:g}" for i, (x, y) in enumerate(points))
    return f'<path class="{kind}" d="{drawn}" marker-end="url(#{head})"' + (f' marker-start="url(#{head})"' if both else "") + "/>"
