"""Tables for a terminal that are never cut: where one is wider than the terminal, each row becomes a block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

INDENT = 3


@dataclass(frozen=True)
class Row:
    """The cells of a row, each on one line; a `last` row, such as a sum, is set off from the others."""

    cells: Sequence[str]
    style: str = ""
    last: bool = False


@dataclass(frozen=True)
class Sheet:
    """Rows below headings; the first cell names the row. A heading that begins with `*` is of numbers, which are set to the right."""

    headings: Sequence[str]
    rows: Sequence[Row]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table where it fits into the console, else the blocks."""
        table = self._table()
        if Measurement.get(console, options.update(width=10_000), table).maximum <= options.max_width:
            yield table
        else:
            for row in self.rows:
                yield from self._block(row, options.max_width)

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
        for heading in self.headings:
            table.add_column(heading.removeprefix("*"), justify="right" if heading.startswith("*") else "left", no_wrap=True)
        for row in self.rows:
            if row.last:
                table.add_section()
            table.add_row(*row.cells, style=row.style)
        return table

    def _block(self, row: Row, width: int) -> RenderResult:
        """The row's name, then each heading with its cell; a line ends between two of them and never inside one that fits a line."""
        name, *cells = row.cells
        yield Text(f" {name}", row.style or "bold")
        headings = (heading.removeprefix("*") for heading in self.headings[1:])
        lines = [""]
        for pair in [f"{heading} {cell}" for heading, cell in zip(headings, cells, strict=True) if cell]:
            joined = f"{lines[-1]}, {pair}" if lines[-1] else pair
            if len(joined) > width - INDENT and lines[-1]:
                lines.append(pair)
            else:
                lines[-1] = joined
        yield from (Padding(Text(line), (0, 0, 0, INDENT)) for line in lines if line)
