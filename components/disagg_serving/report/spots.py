"""Where in a stack file a finding is."""

from __future__ import annotations

from pathlib import Path

from ..errors import Finding, SpecError
from ..place import Place
from ..spec.stack_file import ENVIRONMENT_KEY
from ..yaml_io import Marks, Span

ABOVE = (("config", ENVIRONMENT_KEY), ("config", ENVIRONMENT_KEY.rpartition(":")[2]), ("config",), ())
"""Where a path of a stack file may begin: in the environment, by its full key or as Pulumi shortens it, beside it, or at the top."""


class Spots:
    """Lines and columns of findings in one file; the file's beginning for what is nowhere in it."""

    def __init__(self, file: Path | None, *, bare: bool = False) -> None:
        """Of a stack file or, with `bare`, of an environment; None where it is not known which file is meant."""
        self._file, self._bare = file, bare
        self._marks = _marks(file)

    def of(self, finding: Finding) -> Span:
        """The place of a finding, or the nearest value above what is missing."""
        if named := self._named(finding):
            return named
        found = self._found(finding)
        return next((span for span, there in found if there), found[0][0]) if found else Span(1, 1)

    def line(self, finding: Finding) -> str:
        """`Pulumi.prod.yaml:12`; empty where the finding is about nothing in the file."""
        if self._file is None or not finding.path:
            return ""
        span = self._named(finding) or next((span for span, there in self._found(finding) if there), None)
        return f"{self._file.name}:{span.line}" if span else ""

    def _named(self, finding: Finding) -> Span | None:
        """The line and column that a finding about the file's form gives itself."""
        name, *position = finding.path.rsplit(":", 2)
        if self._file and name == self._file.name and len(position) == 2 and all(map(str.isdecimal, position)):  # noqa: PLR2004 (line and column)
            return Span(int(position[0]), int(position[1]))
        return None

    def _found(self, finding: Finding) -> list[tuple[Span, bool]]:
        if self._marks is None:
            return []
        place = Place.parse(finding.path.partition(": ")[0])  # of what a place names, such as a file, the finding says where in it
        return [spot for above in ([()] if self._bare else ABOVE) if (spot := self._marks.find(place, *above))]


def _marks(file: Path | None) -> Marks | None:
    """The lines of a file, None where it cannot be read: then the findings say why, and where."""
    try:
        return Marks(file) if file else None
    except (SpecError, OSError):
        return None
