"""`disagg rules` and `disagg explain`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from textwrap import fill, indent
from typing import Annotated

import typer

from ..errors import Level, ToolError, did_you_mean
from ..rules import rules
from ..rules.explanations import Case, explanation_of
from ..rules.form import FORM_CHECKS
from .common import DataFormat, emit, table, terminal_width
from .complete import RULES

WIDTH = 100
"""Columns of explained text, where the terminal has not fewer."""


def list_rules(output_format: Annotated[DataFormat, typer.Option("--format", help="Output format.")] = DataFormat.TEXT) -> int:
    """List all rules with level and meaning."""
    if output_format is DataFormat.JSON:
        data = [{"id": r.id, "level": str(r.level), "summary": r.summary, "reference": r.reference} for r in rules()]
        emit(json.dumps(data, indent=2, ensure_ascii=False), None)
    else:
        emit(table([["rule", "level", "what it asks for"], *([r.id, str(r.level), r.summary] for r in rules())]), None)
    return 0


def explain(rule: Annotated[str, typer.Argument(help="Id of a rule, as in the findings.", autocompletion=RULES)]) -> int:
    """Explain a rule: what it asks for, what to do, and an example."""
    known = {i: (Level.ERROR, summary, "") for i, summary in FORM_CHECKS.items()} | {r.id: (r.level, r.summary, r.reference) for r in rules()}
    if rule not in known:
        within = [name for name in sorted(known) if rule.lower() in name]
        several = rule and len(within) > 1
        hint = f"there are {', '.join(within)}" if several else did_you_mean(rule, sorted(known)) or "`disagg rules` lists them"
        raise ToolError(f"no rule {rule} ({hint})")
    emit("\n\n".join(_explained(rule, *known[rule])), None)
    return 0


def _explained(rule: str, level: Level, summary: str, reference: str) -> Iterator[str]:
    about, width = explanation_of(rule), min(terminal_width() or WIDTH, WIDTH)
    yield f"{rule} ({level})"
    yield _wrapped(summary, width)
    yield _wrapped(f"What it means: {about.means}", width)
    yield _wrapped(f"What to do: {about.do}", width)
    for title, case in (("Example:", about.bad), ("Without the finding:", about.good)):
        if case is not None:
            yield title
            yield from _shown(case)
    if reference:
        yield _wrapped(f"Source: {reference}", width)


def _shown(case: Case) -> Iterator[str]:
    """The files of a case, each below its name where there are several."""
    parts = case.parts()
    for part in parts:
        if len(parts) > 1:
            yield indent(part.name, "  ")
        yield indent(part.text.rstrip("\n"), "    ")


def _wrapped(text: str, width: int) -> str:
    return fill(text, width, break_long_words=False, break_on_hyphens=False)
