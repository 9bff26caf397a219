"""Step times between the points of a table: logarithms of times, linear in the logarithms of what they depend on."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from ...catalog.step_times import LEAST_MS, StepTable

SETTLED = 1024
"""Tokens of context that a mixed step of a table without a share of attention is taken to hold already."""


class Axis:
    """The points of one axis."""

    def __init__(self, points: Sequence[int]) -> None:
        """From the smallest point on."""
        self.points, self._logs = points, [math.log(p) for p in points]

    def at(self, x: float) -> tuple[int, float]:
        """The point below `x`, and how far it is on the way to the next one; ends stand for what is beyond them."""
        x = min(max(x, self.points[0]), self.points[-1])
        i = min(max(bisect_right(self.points, x) - 1, 0), len(self.points) - 2)
        return i, (math.log(x) - self._logs[i]) / (self._logs[i + 1] - self._logs[i])


class Times:
    """Milliseconds of the steps of one engine; batch and context are those of one data-parallel rank.

    Noise of single kernels is smoothed away: no time falls where batch, chunk, context or length grow.
    """

    def __init__(self, table: StepTable, axes: Mapping[str, Axis]) -> None:
        """A table, with the axes of all tables."""
        self._axes = axes
        self._prefill = [math.log(v) for v in accumulate(table.prefill, max)]
        self._decode = _logs(table.decode)
        self._alone = _logs([[row[0] - part] for row, part in zip(table.decode, table.attention, strict=True)])
        self._split = all(part > 0 for part in table.attention)
        self._shared, self._prompt = _logs(table.shared), _logs(table.prompt)

    def prefill(self, tokens: float) -> float:
        """One prompt alone."""
        i, part = self._axes["lengths"].at(tokens)
        return math.exp(self._prefill[i] * (1 - part) + self._prefill[i + 1] * part)

    def decode(self, batch: float, context: float) -> float:
        """A step in which each of the batch gets a token."""
        return self._between(self._decode, ("batches", batch), ("contexts", context))

    def mixed(self, chunk: float, batch: float, prompt: float, context: float) -> float:
        """A step with so many tokens of prompts, and a token for each of the batch."""
        shared = self._between(self._shared, ("chunks", chunk), ("mixed", batch))
        if not self._split:
            longer = max(0.0, self.prefill(prompt) / prompt - self.prefill(chunk) / chunk) * chunk if prompt > chunk else 0.0
            return shared + longer + max(0.0, self.decode(batch, context) - self.decode(batch, SETTLED))
        i, part = self._axes["batches"].at(batch)
        alone = math.exp(self._alone[i][0] * (1 - part) + self._alone[i + 1][0] * part)
        read = self._between(self._prompt, ("chunks", chunk), ("prompts", max(prompt, chunk)))
        return shared + read + max(0.0, self.decode(batch, context) - alone)

    def _between(self, table: Sequence[Sequence[float]], row: tuple[str, float], column: tuple[str, float]) -> float:
        (i, a), (j, b) = self._axes[row[0]].at(row[1]), self._axes[column[0]].at(column[1])
        first = table[i][j] * (1 - b) + table[i][j + 1] * b
        second = table[i + 1][j] * (1 - b) + table[i + 1][j + 1] * b
        return math.exp(first * (1 - a) + second * a)


def axes_of(points: Mapping[str, Sequence[int]]) -> dict[str, Axis]:
    """The axes by name."""
    return {name: Axis(values) for name, values in points.items()}


def _logs(table: Sequence[Sequence[float]]) -> list[list[float]]:
    """Logarithms of a table that grows along both axes."""
    rows: list[list[float]] = []
    for row in table:
        grown = list(accumulate(row, max))
        rows.append([max(a, b) for a, b in zip(grown, rows[-1], strict=True)] if rows else grown)
    return [[math.log(max(v, LEAST_MS)) for v in row] for row in rows]
