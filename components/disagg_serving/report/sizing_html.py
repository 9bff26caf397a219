"""The answer of `disagg size` as one HTML file that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup, escape

from ..document.sizing import SizedLayout, SizingDocument
from .sizing import COLUMNS, asked, cells, notes, points_of

WIDTH, HEIGHT, EDGE = 640, 260, 48
STYLE = """
:root { color-scheme: light dark; --line: #8884; --mark: #0969da; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
.answer { font-size: 1.2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; white-space: nowrap; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: right; }
th:last-child, td:last-child { text-align: left; }
svg { max-width: 100%; height: auto; }
svg text { fill: currentColor; font: 12px system-ui, sans-serif; }
svg path { stroke: var(--line); fill: none; }
svg circle { fill: var(--mark); }
"""


def render_sizing(document: SizingDocument) -> str:
    """The page."""
    parts = [
        Markup('<p class="answer">{}.</p><p>{}</p>').format(document.answer, asked(document)),
        Markup("<h2>Layouts that keep the limits</h2>{}").format(_table(document.top)),
        Markup("<h2>Cost against time per token</h2><p>What no other layout beats in both.</p>{}{}").format(_plot(document), _table(document.front)),
        Markup("<h2>What the figures stand on</h2><ul>{}</ul><p>{}</p>").format(
            Markup("").join(Markup("<li>{}</li>").format(note) for note in notes(document)), document.notice
        ),
    ]
    title = f"Sizing of {document.traffic.model}"
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><title>{escape(title)}</title><style>{STYLE}</style></head>'
        f"<body><h1>{escape(title)}</h1>{Markup().join(parts)}</body></html>\n"
    )


def _table(layouts: Sequence[SizedLayout]) -> Markup:
    head = Markup("").join(Markup("<th>{}</th>").format(name) for name in COLUMNS)
    rows = Markup("").join(
        Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td>{}</td>").format(cell) for cell in cells(layout))) for layout in layouts
    )
    return Markup('<div class="wide"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>').format(head, rows)


def _plot(document: SizingDocument) -> Markup:
    points = points_of(document)
    xs, ys = [x for x, _ in points], [y for _, y in points]

    def place(value: float, of: Sequence[float], size: int) -> float:
        least, most = math.log(min(of)), math.log(max(of))
        part = (math.log(value) - least) / (most - least) if most > least else 0.5
        return EDGE + part * (size - 2 * EDGE)

    dots = Markup("").join(
        Markup('<circle cx="{:.1f}" cy="{:.1f}" r="5"><title>{:.1f} ms a token, {:,.2f} USD/h</title></circle>').format(
            place(x, xs, WIDTH), HEIGHT - place(y, ys, HEIGHT), x, y
        )
        for x, y in points
    )
    low, right = HEIGHT - EDGE / 2, WIDTH - EDGE
    axes = Markup('<path d="M {0} 10 V {1} H {2}"/>').format(EDGE / 2, low, WIDTH - 10)
    words = Markup('<text x="{}" y="{}">{:.1f} ms a token</text><text x="{}" y="{}" text-anchor="end">{:.1f}</text>').format(
        EDGE, low + 16, min(xs), right, low + 16, max(xs)
    )
    costs = Markup('<text x="{}" y="14">USD/h, {:,.0f} to {:,.0f}</text>').format(EDGE, min(ys), max(ys))
    label = "Cost against time per token"
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}{}{}</svg>').format(WIDTH, HEIGHT, label, axes, dots, words, costs)
