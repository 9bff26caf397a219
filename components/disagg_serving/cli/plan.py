"""`disagg plan`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..errors import Level, ToolError
from ..spec.stack_file import find_project
from .common import emit, find_input, on_terminal, terminal_width


class PlanFormat(StrEnum):
    """Output formats of plan."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"
    HTML = "html"


class FailOn(StrEnum):
    """The lowest level at which a command fails."""

    ERROR = "error"
    WARNING = "warning"


def plan(
    stack: Annotated[str | None, typer.Argument(help="Name of a stack of this project.", show_default=False)] = None,
    all_stacks: Annotated[bool, typer.Option("--all", help="All stacks of this project.")] = False,
    output_format: Annotated[PlanFormat, typer.Option("--format", help="Output format.")] = PlanFormat.TEXT,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write to this file instead.", show_default=False)] = None,
    fail_on: Annotated[FailOn, typer.Option("--fail-on", help="Lowest level of a finding that ends with exit code 2.")] = FailOn.ERROR,
) -> int:
    """Record the stack's whole program offline: resources, placement, cost and checks."""
    from ..preview.plan import fails, make_plan, make_plans  # noqa: PLC0415

    if all_stacks == (stack is not None):
        raise ToolError("give the name of a stack, or --all")
    if stack is not None:
        given = find_input(stack)
        if given.project is None or given.file.bare:
            raise ToolError(f"{stack} is not a stack of a project; `disagg check` and `disagg render` take a bare environment file")
        plans = [make_plan(given.project, given.file)]
    else:
        project = find_project(Path.cwd())
        if not project.stacks():
            raise ToolError("this project has no stack files")
        plans = make_plans(project, project.stacks())
    if output_format is PlanFormat.JSON:
        from ..preview.output.json import render_json  # noqa: PLC0415

        emit(render_json(plans, as_list=all_stacks), output)
    elif output_format is PlanFormat.MARKDOWN:
        from ..preview.output.markdown import render_markdown  # noqa: PLC0415

        emit(render_markdown(plans), output)
    elif output_format is PlanFormat.HTML:
        from ..preview.output.html import render_html  # noqa: PLC0415

        emit(render_html(plans), output)
    else:
        from ..preview.output.text import render_text  # noqa: PLC0415

        emit(render_text(plans, color=on_terminal() and output is None, width=terminal_width() if output is None else None), output)
    return 2 if any(fails(p.findings, Level(fail_on.value)) for p in plans) else 0
