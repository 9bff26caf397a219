"""`disagg render`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import ToolError
from ..manifests.bundle import build_all, charts, images
from ..report.files import write_files
from ..rules.evaluation import evaluate_file
from .common import StackOrFile, emit, find_environment, some_path


def render(
    stack: StackOrFile,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", parser=some_path, metavar="PATH", help="Folder for one YAML file an object, in apply order.", show_default=False
        ),
    ] = None,
    list_images: Annotated[bool, typer.Option("--images", help="List every image and chart instead.")] = False,
) -> int:
    """Write every Kubernetes object as YAML.

    Pulumi is not loaded. Secrets are shown as <secret>.
    """
    if output is None and not list_images:
        raise ToolError("give a folder with -o, or --images")
    given = find_environment(stack)
    layout = evaluate_file(given.file, given.base).require_layout()
    objects = build_all(layout)
    if list_images:
        emit("\n".join([*images(layout), *charts(layout)]), None)
    if output is not None:
        written = write_files(objects, output)
        emit(f"{len(written)} objects in {output}", None)
    return 0
