"""The answer of `disagg size` for a terminal, as Markdown, and as the head of a stack file."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..document.sizing import SizedLayout, SizingDocument, Span
from .figures import usd
from .view import counted

WORDS = {"ttft": "first token", "tpot": "time per token", "busy": "prompts", "kv": "KV cache"}
WIDTH, HEIGHT = 44, 8
"""Characters of the plot; each has 2 x 4 dots."""
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
COLUMNS = ("USD/h", "as forecast", "USD/M answer", "first token ms", "token ms", "busy", "KV", "bound by", "validated", "layout")


def text(document: SizingDocument, *, plot: bool) -> str:
    """For a terminal."""
    front = _table(document.front)
    drawn = ["", *_plot(document)] if plot and len(document.front) > 1 else []
    parts = [
        [document.answer, "", asked(document), ""],
        _table(document.top),
        ["", "Cost against time per token, of what no other layout beats in both", *front, *drawn, ""],
        notes(document),
    ]
    return "\n".join(line for part in parts for line in part)


def markdown(document: SizingDocument) -> str:
    """For a page or a comment."""
    lines = [f"**{document.answer}.**", "", asked(document), "", *_piped(document.top), ""]
    lines += ["Cost against time per token, of what no other layout beats in both:", "", *_piped(document.front), ""]
    return "\n".join([*lines, *(f"- {note}" for note in notes(document))])


def header(document: SizingDocument) -> list[str]:
    """What the stack file says about its forecast."""
    chosen = document.chosen
    return [
        f"Sized by `disagg size` for {asked(document)}.",
        f"A forecast, not measured: {document.answer}.",
        f"{usd(chosen.usd_per_million_answer_tokens)} USD per million answer tokens; bound by {WORDS[chosen.bound_by]}; {validation(chosen)}.",
        f"Step times: {document.step_data}. `disagg bench --write-back` puts measured rates in their place.",
        *(["Prices are those of Capacity Blocks: name them under capacity.reservations of each role."] * (document.traffic.pricing != "on-demand")),
    ]


def asked(document: SizingDocument) -> str:
    """The question in words."""
    t = document.traffic
    limits = [f"first token within {t.ttft_ms:g} ms"] if t.ttft_ms else []
    limits += [f"{t.tpot_ms:g} ms a token"] if t.tpot_ms else []
    kept = f"; {', '.join(limits)} for {t.percentile} % of requests" if limits else "; no limits"
    hit = f", {t.prefix_hit:.0%} of it in the prefix cache" if t.prefix_hit else ""
    return f"{t.model}, prompts of {t.input_tokens:,} tokens{hit}, answers of {t.output_tokens:,}, {t.requests_per_second:g} requests/s{kept}"


def validation(layout: SizedLayout) -> str:
    """On how many measured rows a layout stands."""
    if not layout.validated_rows:
        return "not validated: no measured run of this model on each of its GPUs"
    return f"step times of this model and GPU checked against {counted(layout.validated_rows, 'measured run')}"


def notes(document: SizingDocument) -> list[str]:
    """What the figures stand on, and what was left out."""
    wide = [f"{r.role} x {r.error[0]:.2f} to {r.error[1]:.2f}" for r in document.chosen.roles]
    found = [
        f"bars: fast and slow steps, {', '.join(wide)} of the tables' times; {validation(document.chosen)}",
        f"step times: {document.step_data}",
    ]
    corrected = [f"{r.role} x {r.corrected:.2f}" for r in document.chosen.roles if r.corrected != 1]
    if corrected:
        found.append(f"step times are scaled by own measurements: {', '.join(corrected)}")
    if document.cheapest.name != document.chosen.name:
        found.append(
            f"cheapest that passes the rules: {document.cheapest.name}, {usd(document.cheapest.usd_per_hour)} USD/h; less than 15 % is equal"
        )
    found.append(f"{counted(document.candidates, 'layout')} kept the limits")
    found += [f"refused by {r.rule}: {r.name} ({usd(r.usd_per_hour)} USD/h): {r.message}" for r in document.refused[:5]]
    if len(document.refused) > 5:  # noqa: PLR2004 (as many as are shown)
        found.append(f"refused by rules: {len(document.refused) - 5} more")
    gated = [left.reason.split(": ", 2) for left in document.left_out if left.reason.count(": ") > 1]
    others = [left for left in document.left_out if left.reason.count(": ") < 2]  # noqa: PLR2004 (gate, table and why)
    found += [f"left out, {left.count}: {left.reason}" for left in others]
    return [*found, *([f"left out, {gated[0][0]}: {', '.join(table for _, table, _ in gated)}"] if gated else [])]


def cells(layout: SizedLayout) -> list[str]:
    """The columns of a layout."""
    return [
        usd(layout.usd_per_hour), usd(layout.usd_per_hour_forecast), usd(layout.usd_per_million_answer_tokens), bars(layout.ttft_ms.percentile, 0),
        bars(layout.tpot_ms.percentile, 1), f"{layout.busy:.0%}", f"{layout.kv_use:.0%}", WORDS[layout.bound_by],
        f"{layout.validated_rows} rows" if layout.validated_rows else "no", layout.name,
    ]  # fmt: skip


def bars(span: Span, digits: int) -> str:
    """A figure with its ends."""
    low, mid, high = ("-" if v is None else f"{v:,.{digits}f}" for v in (span.low, span.mid, span.high))
    return f"{mid} ({low}-{high})"


def _table(layouts: Sequence[SizedLayout]) -> list[str]:
    rows = [list(COLUMNS), *(cells(layout) for layout in layouts)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    return ["  ".join(cell.rjust(w) if i < len(COLUMNS) - 1 else cell for i, (cell, w) in enumerate(zip(row, widths, strict=True))) for row in rows]


def _piped(layouts: Sequence[SizedLayout]) -> list[str]:
    rows = [list(COLUMNS), ["---:"] * (len(COLUMNS) - 1) + ["---"], *(cells(layout) for layout in layouts)]
    return ["| " + " | ".join(row) + " |" for row in rows]


def points_of(document: SizingDocument) -> list[tuple[float, float]]:
    """Time per token and cost of the front and the best."""
    slow = document.traffic.plan == "slow"
    both = {layout.name: layout for layout in (*document.front, *document.top)}
    found = ((one.tpot_ms.percentile.high if slow else one.tpot_ms.percentile.mid, one.usd_per_hour) for one in both.values())
    return [(x, y) for x, y in found if x is not None]


def _plot(document: SizingDocument) -> list[str]:
    """The front in dots of Braille: time per token to the right, cost upwards, both by their logarithm."""
    points = points_of(document)
    xs, ys = ([math.log(v) for v in values] for values in zip(*points, strict=True))
    grid = [[0] * WIDTH for _ in range(HEIGHT)]
    for x, y in zip(xs, ys, strict=True):
        i, j = (round(_part(v, ends) * (n - 1)) for v, ends, n in ((x, xs, 2 * WIDTH), (y, ys, 4 * HEIGHT)))
        row = 4 * HEIGHT - 1 - j
        grid[row // 4][i // 2] |= _DOTS[row % 4][i % 2]
    top, bottom = (f"{v:,.0f}" for v in (max(y for _, y in points), min(y for _, y in points)))
    left = max(len(top), len(bottom), 5)
    names = [top, *[""] * (HEIGHT - 2), bottom]
    lines = [
        f"{name:>{left}} │{''.join(chr(0x2800 + cell) if cell else ' ' for cell in row)}".rstrip() for name, row in zip(names, grid, strict=True)
    ]
    ends = f"{min(x for x, _ in points):.1f}", f"{max(x for x, _ in points):.1f} ms a token"
    return [*lines, f"{'USD/h':>{left}} └{'─' * WIDTH}", f"{'':{left}}  {ends[0]}{ends[1]:>{WIDTH - len(ends[0])}}"]


def _part(value: float, of: Sequence[float]) -> float:
    return (value - min(of)) / (max(of) - min(of)) if max(of) > min(of) else 0.5
