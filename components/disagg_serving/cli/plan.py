"""`disagg plan`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..errors import Level, SpecError, ToolError, sort_findings
from ..recording.graph import Graph
from ..recording.plan import Plan, assemble, fails, make_plan, make_plans
from ..report.json import render_json
from ..report.markdown import render_markdown
from ..report.view import counted
from ..spec.stack_file import Project, StackFile, find_project
from .common import FailOn, Hide, Notes, Only, Output, emit, find_input, finding_view, on_terminal, terminal_width
from .complete import STACKS
from .look_up import LookUp, looked_up
from .progress import Progress


class PlanFormat(StrEnum):
    """Output formats of plan."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"
    HTML = "html"


def plan(  # noqa: PLR0913, PLR0917 (a command's options)
    stack: Annotated[
        str | None,
        typer.Argument(metavar="[STACK|FILE]", help="A stack of this project, by name or file.", autocompletion=STACKS, show_default=False),
    ] = None,
    all_stacks: Annotated[bool, typer.Option("--all", help="All stacks of this project.")] = False,
    output_format: Annotated[PlanFormat, typer.Option("--format", help="Output format.")] = PlanFormat.TEXT,
    output: Output = None,
    base: Annotated[str | None, typer.Option("--base", help="Show the difference to this branch, tag or commit.", show_default=False)] = None,
    fail_on: Annotated[FailOn, typer.Option("--fail-on", help="Lowest level of a finding that ends with exit code 2.")] = FailOn.ERROR,
    resources: Annotated[bool, typer.Option("--resources", help="Show every resource, as a tree.")] = False,
    notes: Notes = False,
    only: Only = None,
    hide: Hide = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Show the verdict and errors alone, and no progress.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show all: --resources and --notes.")] = False,
    look_up: LookUp = False,
) -> int:
    """Plan a stack offline: resources, placement, cost and checks.

    With --base it also shows what a change does to them.
    """
    if all_stacks == (stack is not None):
        raise ToolError("give the name of a stack, or --all")
    view = finding_view(only, hide, text=output_format is PlanFormat.TEXT, notes=notes or verbose, quiet=quiet)
    files: dict[str, Path] = {}
    with Progress(shown=not quiet) as progress:
        if stack is None:
            project = find_project(Path.cwd())
            plans = _plans(project, None, base, progress, look_up=look_up)
            files = {name: project.stack_dir / f"Pulumi.{name}.yaml" for name in project.stacks()}
        else:
            try:
                given = find_input(stack)
                if given.project is None or given.file.bare:
                    raise ToolError(f"{stack} is not a stack of a project; `disagg check` and `disagg render` take a bare environment file")
                files[given.file.stack] = given.file.path
                progress(f"planning {given.file.stack}")
                plans = _plans(given.project, given.file, base, progress, look_up=look_up)
            except SpecError as problem:
                if output is None and output_format is PlanFormat.TEXT:
                    raise
                plans = [_refused(stack, problem)]
    code = 2 if any(fails(p, Level(fail_on.value)) for p in plans) else 0
    if output_format is PlanFormat.JSON:
        emit(render_json(plans, as_list=all_stacks), output)
    elif output_format is PlanFormat.MARKDOWN:
        emit(render_markdown(plans), output)
    elif output_format is PlanFormat.HTML:
        from ..report.html import render_html  # noqa: PLC0415 (slow: jinja2)

        emit(render_html(plans), output)
    else:
        from ..report.text import Shown, render_text  # noqa: PLC0415 (slow: rich)

        color, width = (on_terminal(), terminal_width()) if output is None else (False, None)
        ending = f"exit {code}: {_reason(plans, fail_on)}"
        emit(
            render_text(plans, color=color, width=width, shown=Shown(resources or verbose, quiet, view), files=files, ending=ending),
            output,
            styled=color,
        )
    return code


def _reason(plans: Sequence[Plan], fail_on: FailOn) -> str:
    """Why the command ends with its exit code: the number of all that can fail."""
    errors = sum(f.level is Level.ERROR for p in plans for f in p.checks)
    breaking = sum(c.severity is Level.ERROR for p in plans for c in p.changes)
    found = [counted(errors, "error")] * bool(errors) + [counted(breaking, "breaking change")] * bool(breaking)
    if fail_on is FailOn.WARNING:
        warned = sum(level is Level.WARNING for p in plans for level in (*(f.level for f in p.checks), *(c.severity for c in p.changes)))
        found += [f"{counted(warned, 'warning')} (--fail-on warning)"] * bool(warned)
    if not found and any(fails(p, Level(fail_on.value)) for p in plans):
        found = ["figures that got worse"]
    return ", ".join(found) or ("no errors" if fail_on is FailOn.ERROR else "no errors or warnings")


def _refused(stack: str, problem: SpecError) -> Plan:
    """The report on input that cannot be read: its findings alone."""
    try:
        name = find_project(Path.cwd()).name
    except (SpecError, ToolError):
        name = ""
    return assemble(name, stack, Graph(), problem.findings)


def _plans(project: Project, file: StackFile | None, base: str | None, progress: Progress, *, look_up: bool) -> list[Plan]:
    """Plans of one stack, or of all without a file; with `look_up` with what AWS says, with `base` each has its difference."""
    if file is None and not project.stacks() and base is None:
        raise ToolError("this project has no stack files")
    if base is None:
        plans = [make_plan(project, file)] if file else make_plans(project, project.stacks(), progress)
        return [_with_answers(p, project) for p in plans] if look_up else plans
    from ..comparison.base_plan import recorded, scrubbed_environment  # noqa: PLC0415 (slow)
    from ..comparison.compare import with_differences  # noqa: PLC0415 (slow)
    from ..comparison.requirements import not_as_pinned  # noqa: PLC0415 (slow)
    from ..comparison.revision import find_revision, located  # noqa: PLC0415 (slow)

    progress(f"planning {base}")
    revision = located(find_revision(project.root, base), project.name)
    revision = replace(revision, notes=(*revision.notes, *not_as_pinned(project.root)))
    with recorded(revision, file.stack if file else None) as base_plans:
        with scrubbed_environment():
            plans = [make_plan(project, file)] if file else make_plans(project, project.stacks(), progress)
        if look_up:
            plans = [_with_answers(p, project) for p in plans]
            revision = replace(revision, notes=(*revision.notes, "AWS is asked about this revision alone: what it answers counts as new"))
        return with_differences(plans, base_plans(), revision, every=file is None)


def _with_answers(plan: Plan, project: Project) -> Plan:
    """The plan with what AWS says about it; as it is where there is nothing to ask."""
    if plan.layout is None:
        return plan
    return replace(plan, checks=sort_findings([*plan.checks, *looked_up(plan.layout, project.stack_file(plan.stack))]))
