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
from ..rules.options import MEANS, every_variable, look_up, options
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


def explain(
    rule: Annotated[str | None, typer.Argument(help="Id of a rule, as in the findings.", autocompletion=RULES)] = None,
    flag: Annotated[str | None, typer.Option(help="A flag of `vllm serve`, however spelt, or a variable, instead of a rule.")] = None,
) -> int:
    """Explain a rule: what it asks for, what to do, and an example. Or what a flag of the engine means."""
    if flag is not None:
        emit("\n\n".join(_flag_explained(flag)), None)
        return 0
    if rule is None:
        raise ToolError("name a rule, or a flag with --flag (`disagg rules` lists the rules)")
    known = {i: (Level.ERROR, summary, "") for i, summary in FORM_CHECKS.items()} | {r.id: (r.level, r.summary, r.reference) for r in rules()}
    if rule not in known:
        within = [name for name in sorted(known) if rule.lower() in name]
        several = rule and len(within) > 1
        hint = f"there are {', '.join(within)}" if several else did_you_mean(rule, sorted(known)) or "`disagg rules` lists them"
        raise ToolError(f"no rule {rule} ({hint})")
    emit("\n\n".join(_explained(rule, *known[rule])), None)
    return 0


def _flag_explained(flag: str) -> Iterator[str]:
    width = min(terminal_width() or WIDTH, WIDTH)
    found = [*look_up(flag)]
    if not found:
        known = [one.name for one in (*options(), *every_variable())]
        hint = did_you_mean(flag, known) or "docs/reference/engine-options.md lists flags and variables"
        raise ToolError(f"no flag or variable {flag} is known ({hint})")
    for one in found:
        about = one.verdict
        yield f"{one.name} ({about.verdict})"
        if about.reason:
            yield _wrapped(f"It {one.sentence}.", width)
        yield _wrapped(MEANS[about.verdict], width)
        if about.counts:
            yield _wrapped(f"Counts as {about.counts}.", width)
        if one.spellings:
            yield _wrapped(f"Also spelt {', '.join(one.spellings)}.", width)
        if one.known:
            yield _wrapped(f"{'Of vLLM' if one.name.startswith('-') else 'Read by'} {', '.join(one.known)}.", width)
        if about.source:
            yield _wrapped(f"Source: {about.source}", width)


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
