"""Bars of block characters: what a share is, at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

MOST, LEAST = 40, 10
"""Columns of the longest bar, as wide as the terminal allows."""


@dataclass(frozen=True)
class Bar:
    """A name, the bar's parts with the character of each, and what is said after it."""

    name: str
    parts: Sequence[tuple[str, float]]
    after: str = ""


@dataclass(frozen=True)
class BarChart:
    """Bars below each other on one scale, whose end is the greatest sum of parts or `whole`."""

    bars: Sequence[Bar]
    whole: float = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """A line a bar; its name goes above it where both have no room beside each other."""
        names, afters = (max(map(len, texts), default=0) for texts in ([b.name for b in self.bars], [b.after for b in self.bars]))
        scale = max([self.whole, *(sum(size for _, size in bar.parts) for bar in self.bars)])
        room = options.max_width - names - afters - 4
        width = min(MOST, max(room, LEAST))
        for bar in self.bars:
            if room < LEAST:
                yield Text(f" {bar.name}")
            yield Text(f" {'' if room < LEAST else bar.name.ljust(names)}  {drawn(bar.parts, scale, width)} {bar.after}".rstrip())


def drawn(parts: Sequence[tuple[str, float]], scale: float, width: int) -> str:
    """Parts as one bar of at most `width` characters; each begins where it would without rounding of those before it."""
    edges, total = [0], 0.0
    for _, size in parts:
        total += max(size, 0)
        edges.append(round(min(total / scale, 1) * width) if scale > 0 else 0)
    return "".join(sign * (end - start) for (sign, _), start, end in zip(parts, edges, edges[1:], strict=False))
