"""`disagg check`."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..errors import Finding, Level, SpecError, has_errors, sort_findings, visible
from ..records import data_of
from ..report.spots import Spots
from ..report.view import FindingView, counted
from ..rules.evaluation import evaluate_file
from .common import FailOn, Hide, Only, Output, Quiet, StackOrFile, emit, find_environment, finding_view, on_terminal, terminal_width
from .look_up import LookUp, looked_up


class CheckFormat(StrEnum):
    """Output formats of check."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"


def check(  # noqa: PLR0913, PLR0917 (a command's options)
    stack: StackOrFile,
    output_format: Annotated[CheckFormat, typer.Option("--format", help="Output format.")] = CheckFormat.TEXT,
    output: Output = None,
    only: Only = None,
    hide: Hide = None,
    quiet: Quiet = False,
    fail_on: Annotated[FailOn, typer.Option("--fail-on", help="Lowest level of a finding that ends with exit code 2.")] = FailOn.ERROR,
    look_up: LookUp = False,
) -> int:
    """Check a stack or environment by the rules alone.

    Pulumi is not loaded.
    """
    findings: list[Finding]
    file: Path | None
    view = finding_view(only, hide, text=output_format is CheckFormat.TEXT, quiet=quiet)
    try:
        given = find_environment(stack)
        found, file, bare = evaluate_file(given.file, given.base), given.file.path, given.file.bare
        findings = sort_findings([*found.findings, *looked_up(found.layout, given.file)]) if look_up else found.findings
    except SpecError as problem:
        if output_format is CheckFormat.TEXT:
            raise
        findings, file, bare = problem.findings, problem.file, True
    if output_format is CheckFormat.SARIF:
        from .. import __version__  # noqa: PLC0415 (slow)
        from ..report.sarif import render_sarif  # noqa: PLC0415 (slow)

        emit(render_sarif(findings, file, version=__version__, bare=bare), output)
    elif output_format is CheckFormat.JSON:
        emit(json.dumps({"version": 1, "checks": data_of(findings)}, indent=2, ensure_ascii=False, default=str), output)
    elif on_terminal() and output is None:
        from ..report.text import render_findings  # noqa: PLC0415 (slow: rich)

        emit(render_findings(findings, Spots(file, bare=bare), view, color=True, width=terminal_width()), None, styled=True)
    else:
        emit(_lines(findings, Spots(file if findings else None, bare=bare), view), output)
    warned = fail_on is FailOn.WARNING and any(f.level is Level.WARNING for f in findings)
    return 2 if has_errors(findings) or warned else 0


def _lines(findings: list[Finding], spots: Spots, view: FindingView) -> str:
    """A line a finding, with its line in the file at the end."""
    shown = [(f, spots.line(f)) for f in findings if view.shows(f)]
    lines = [f"{f.level} [{f.id}] {f.sentence()}{f' ({visible(where)})' if where else ''}" for f, where in shown]
    errors, warnings = (sum(f.level is level for f in findings) for level in (Level.ERROR, Level.WARNING))
    return "\n".join([*lines, f"{counted(errors, 'error')}, {counted(warnings, 'warning')}{view.left_out(findings)}"])
