"""`disagg size --calibrate`: what a stack file's measured rates say about step times."""

from __future__ import annotations

from pathlib import Path

from ..errors import Finding, Level, SpecError
from ..forecast.sizing.measured import corrections
from ..rules.evaluation import evaluate_file
from .common import find_input


def corrections_of(file: Path, model: str) -> dict[tuple[str, str], float]:
    """Factors on step times by role and instance type. Raises SpecError where the file has no measured rates of the model."""
    given = find_input(str(file))
    layout = evaluate_file(given.file, given.base).require_layout()
    groups = [g for g in layout.groups if model in {g.served.spec.model, g.served.facts.id, g.served.facts.repository}]
    found = corrections(groups)
    if not found:
        message = f"has no measured rates of {model} that step times can be compared with"
        fix = "write them with `disagg bench STACK --write-back`"
        raise SpecError([Finding("size", Level.ERROR, "--calibrate", message, str(file), "a stack file with measuredRates", fix)])
    return found
