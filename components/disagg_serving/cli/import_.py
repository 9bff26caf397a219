"""`disagg import`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..characters import printed
from ..errors import ToolError
from ..imports.forms import Source, read_sources
from ..imports.source import refuse
from ..imports.stack import Wish, assemble
from ..imports.text import account, stack_text
from ..yaml_io import MAX_BYTES
from . import answers
from .common import CatalogDirs, emit
from .new_project import check_command, own_project, project_files, schema_of, shown, target_of, write_new

STANDARD_INPUT = "-"


def import_(  # noqa: PLR0913, PLR0917 (an option each)
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Values, manifests or command lines of one deployment; - is standard input.")],
    write: Annotated[
        str | None, typer.Option(metavar="STACK", help="Write this stack's file; without a project here, also the project.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the stack file here instead of to standard output.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the stack file if it exists.")] = False,
    region: Annotated[str | None, typer.Option(help="AWS region. Default: the one of the files' zones, else us-east-1.", show_default=False)] = None,
    zone: Annotated[list[str] | None, typer.Option(help="Availability zone, first that of the GPU nodes; repeat it.", show_default=False)] = None,
    instance_type: Annotated[str | None, typer.Option(help="Instance type of the GPU nodes, whatever the files say.", show_default=False)] = None,
    catalog_dir: CatalogDirs = None,
) -> int:
    """Read a peer's deployment and write it as a stack file.

    It also lists what a stack file cannot say, and what the rules find.

    llm-d and production-stack values, Dynamo and KServe objects, plain Deployments and LeaderWorkerSets, Compose files, `vllm serve` command lines.
    """
    if write is not None and output is not None:
        raise ToolError("say --write STACK or --output FILE, not both")
    project = own_project() if write is not None else None
    target = target_of(write, project, overwrite=True) if write is not None else output
    if target is not None and target.exists() and not force:
        raise ToolError(f"{shown(target)} exists and is left as it is; choose another name, or say --force")
    if region is not None:
        answers.region(region)
    if zone:
        answers.zones(zone, region or zone[0].rstrip("abcdefghijklmnopqrstuvwxyz"))
    found, secrets = read_sources([_source(file) for file in dict.fromkeys(files)])
    name = write or (target.stem.removeprefix("Pulumi.") if target is not None else "imported")
    base = project.root if project is not None else Path.cwd()
    wish = Wish(name, region or "", tuple(zone or ()), instance_type or "", tuple(catalog_dir or ()), secrets)
    imported = assemble(found, wish, base)
    names = [_name(file) for file in dict.fromkeys(files)]
    text = stack_text(imported, names, schema_of(target, project) if write is not None and target is not None else None)
    said = account(imported, secrets)
    if target is None:
        emit(text, None)
        typer.echo(printed(said), err=True)
    else:
        new = {} if write is None or project is not None else project_files()
        if force:
            target.unlink(missing_ok=True)
        write_new({**new, target: text})
        told = [f"wrote {shown(file)}" for file in (*new, target)]
        next_step = check_command(write, new=bool(new)) if write is not None else f"next: disagg check {shown(target)}"
        emit("\n".join([*told, said, "", next_step]), None)
    return 2 if imported.failed else 0


def _source(file: str) -> Source:
    """A file's text, or what comes in. Raises ToolError when it cannot be read, SpecError when it is no text."""
    try:
        if file == STANDARD_INPUT:
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(MAX_BYTES + 1)
        return Source(_name(file), data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise refuse(_name(file), "is no text in UTF-8", allowed="YAML or command lines") from None
    except OSError as problem:
        raise ToolError(f"{file}: {(problem.strerror or str(problem)).lower()}") from None


def _name(file: str) -> str:
    return "standard input" if file == STANDARD_INPUT else file
