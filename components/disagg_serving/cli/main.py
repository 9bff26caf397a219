"""Entry point of `disagg`: exit codes and the one place where errors become text."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import typer

from ..characters import printed
from ..errors import ProgramError, SpecError, ToolError, did_you_mean

CLEAN, TOOL_FAILED, CHECKS_FAILED = 0, 1, 2

COMMANDS = {
    "plan": ("plan", "plan"),
    "check": ("check", "check"),
    "render": ("render", "render"),
    "fit": ("fit", "fit"),
    "catalog": ("catalog", "catalog"),
    "rules": ("rules", "list_rules"),
    "explain": ("rules", "explain"),
    "schema": ("schema", "schema"),
    "init": ("init", "init"),
    "import": ("import_", "import_"),
    "verify": ("verify", "verify"),
    "bench": ("bench", "bench"),
    "size": ("size", "size"),
}
"""Each command's module in this folder and its function; only the one that is called gets imported."""


def build_app(called: str | None = None) -> typer.Typer:
    """The command line with all commands, or with the one that is called."""
    app = typer.Typer(
        name="disagg",
        help="Plan and check disaggregated LLM serving on EKS, without credentials, cluster or GPU.",
        epilog="Exit codes: 0 clean, 1 the tool failed or was called wrongly, 2 checks failed.",
        no_args_is_help=True,
        add_completion=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_options)
    for name in [called] if called in COMMANDS else COMMANDS:
        module, function = COMMANDS[name]
        app.command(name)(getattr(import_module(f".{module}", __package__), function))
    return app


def _version(value: bool) -> None:
    if value:
        from .. import __version__  # noqa: PLC0415 (slow)

        typer.echo(f"disagg-serving {__version__}")
        raise typer.Exit


def _options(
    version: bool = typer.Option(False, "-V", "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Plan and check disaggregated LLM serving on EKS, without credentials, cluster or GPU."""


def _show(problem: typer.TyperException) -> None:
    """A wrong call in the words of its usage, with what a misspelt choice may have been."""
    message = str(getattr(problem, "message", "")).replace("Value error, ", "")
    if found := re.search(r"'(.*)' is not one of ('.*')", message):
        hint = did_you_mean(found[1], [choice.strip("' ") for choice in found[2].split(",")])
        message += f" {hint[0].upper()}{hint[1:]}" if hint else ""
    if message:
        problem.message = message
    show = getattr(problem, "show", None)
    if show is not None:
        show()
    else:
        typer.echo(printed(f"error: {problem}"), err=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; bad input never ends in a traceback."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        result = build_app(args[0] if args else None)(args=args, standalone_mode=False)
    except SpecError as problem:
        for finding in problem.findings:
            typer.echo(f"{finding.level}: {finding.sentence()}", err=True)
        return CHECKS_FAILED
    except ToolError as problem:
        if isinstance(problem, ProgramError):
            typer.echo(printed(problem.trace), nl=False, err=True)
        typer.echo(printed(f"error: {problem}"), err=True)
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
        typer.echo(printed(f"error: {where}{(problem.strerror or str(problem)).lower()}"), err=True)
        return TOOL_FAILED
    except (MemoryError, RecursionError):
        typer.echo("error: the input takes more memory or is nested deeper than this machine allows", err=True)
        return TOOL_FAILED
    return result if isinstance(result, int) else CLEAN


def run() -> None:
    """The console script: a process of its own that ends soon, so it saves what only long ones need."""
    # pydantic would look for plugins in the metadata of every installed package
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    gc.set_threshold(1_000_000)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever called
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 (as long as the process)
        getattr(sys, name).reconfigure(errors="backslashreplace")
    code = main()
    gc.freeze()  # or the interpreter would walk all that it is about to give back
    sys.exit(code)
