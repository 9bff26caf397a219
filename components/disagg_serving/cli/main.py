"""Entry point of `disagg`: exit codes and the one place where errors become text."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from .. import __version__
from ..errors import SpecError, ToolError
from . import catalog, check, plan, render, schema

CLEAN, TOOL_FAILED, CHECKS_FAILED = 0, 1, 2

app = typer.Typer(
    name="disagg",
    help="Plan and check disaggregated LLM serving on EKS, without credentials, cluster or GPU.",
    epilog="Exit codes: 0 clean, 1 the tool failed or was called wrongly, 2 checks failed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("plan")(plan.plan)
app.command("check")(check.check)
app.command("render")(render.render)
app.command("catalog")(catalog.catalog)
app.command("rules")(catalog.list_rules)
app.command("explain")(catalog.explain)
app.command("schema")(schema.schema)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"disagg-serving {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Plan and check disaggregated LLM serving on EKS, without credentials, cluster or GPU."""


def _show(problem: typer.TyperException) -> None:
    show = getattr(problem, "show", None)
    if show is not None:
        show()
    else:
        typer.echo(f"error: {problem}", err=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; bad input never ends in a traceback."""
    try:
        result = app(args=list(argv) if argv is not None else None, standalone_mode=False)
    except SpecError as problem:
        for finding in problem.findings:
            typer.echo(f"{finding.level}: {finding.sentence()}", err=True)
        return CHECKS_FAILED
    except ToolError as problem:
        typer.echo(f"error: {problem}", err=True)
        return TOOL_FAILED
    except typer.TyperException as problem:
        _show(problem)
        return TOOL_FAILED
    except (typer.Abort, KeyboardInterrupt):
        typer.echo("stopped", err=True)
        return TOOL_FAILED
    except BrokenPipeError:
        sys.stderr.close()
        return TOOL_FAILED
    except OSError as problem:
        where = f"{problem.filename}: " if problem.filename else ""
        typer.echo(f"error: {where}{(problem.strerror or str(problem)).lower()}", err=True)
        return TOOL_FAILED
    return result if isinstance(result, int) else CLEAN


def run() -> None:
    """The console script."""
    sys.exit(main())
