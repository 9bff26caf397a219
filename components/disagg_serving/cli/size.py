"""`disagg size`."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..errors import ToolError
from ..records import data_of
from ..report.sizing import header, markdown, text
from ..spec.stack_file import find_project
from ..yaml_io import real
from .common import CatalogDirs, catalog_with, emit, on_terminal
from .new_project import SCHEMA, schema_of, stack_text
from .sizing_options import Options, checked_answer, question


class SizeFormat(StrEnum):
    """Output formats of size."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    HTML = "html"


def size(  # noqa: PLR0913, PLR0917 (an option each)
    model: Annotated[str, typer.Option(help="Catalogue id, name on Hugging Face, or path of a config.json.", show_default=False)],
    input_tokens: Annotated[str, typer.Option(metavar="INTEGER", help="Mean prompt length.", show_default=False)],
    output_tokens: Annotated[str, typer.Option(metavar="INTEGER", help="Mean answer length.", show_default=False)],
    requests_per_second: Annotated[str, typer.Option(metavar="NUMBER", help="Mean arrival rate.", show_default=False)],
    ttft_ms: Annotated[str | None, typer.Option(metavar="NUMBER", help="Limit of the time to the first token.", show_default=False)] = None,
    tpot_ms: Annotated[str | None, typer.Option(metavar="NUMBER", help="Limit of the time per further token.", show_default=False)] = None,
    percentile: Annotated[str, typer.Option(metavar="50|90|95", help="So many percent of the requests keep the limits.")] = "90",
    prefix_hit: Annotated[str, typer.Option(metavar="NUMBER", help="Share of prompt tokens that the prefix cache holds already.")] = "0",
    max_model_len: Annotated[str | None, typer.Option(metavar="INTEGER", help="Longest request; else from the means.", show_default=False)] = None,
    instances: Annotated[str | None, typer.Option(help="Instance types that may be used, with commas; else all.", show_default=False)] = None,
    region: Annotated[str, typer.Option(help="AWS region of the stack file.")] = "us-east-1",
    mode: Annotated[str, typer.Option(metavar="any|aggregated|disaggregated", help="Whether prefill and decode may or must be apart.")] = "any",
    pricing: Annotated[str, typer.Option(metavar="on-demand|capacity-block", help="Prices to compare.")] = "on-demand",
    nodes: Annotated[str | None, typer.Option(metavar="INTEGER", help="GPU nodes there are; else up to 64 a role.", show_default=False)] = None,
    plan: Annotated[str, typer.Option(metavar="slow|forecast", help="Keep the limits with slow steps, or as forecast.")] = "slow",
    kv_cache_dtype: Annotated[str, typer.Option(help="Dtype of the KV cache.")] = "auto",
    calibrate: Annotated[Path | None, typer.Option(help="Stack file with measuredRates, by which step times are scaled.", show_default=False)] = None,
    top: Annotated[str, typer.Option(metavar="INTEGER", help="Layouts to show.")] = "5",
    write: Annotated[str | None, typer.Option(metavar="STACK|FILE", help="Write the stack file of the answer.", show_default=False)] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that exists.")] = False,
    output_format: Annotated[SizeFormat, typer.Option("--format", help="Output format.")] = SizeFormat.TEXT,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the report to a file.", show_default=False)] = None,
    catalog_dir: CatalogDirs = None,
) -> int:
    """Find the cheapest deployment that keeps a traffic's limits.

    It calculates with measured step times and needs no GPU.
    """
    known = catalog_with(catalog_dir)
    target = _target(write, force=force) if write else None
    options = Options(
        model, input_tokens, output_tokens, requests_per_second, ttft_ms, tpot_ms, percentile, prefix_hit, max_model_len, instances, region, mode,
        pricing, nodes, plan, kv_cache_dtype, top,
    )  # fmt: skip
    corrections = None
    if calibrate is not None:
        from .calibrate import corrections_of  # noqa: PLC0415 (seldom)

        corrections = corrections_of(calibrate, model)
    ask, wish, shown = question(options, known, corrections)
    found = checked_answer(ask, wish, known, Path.cwd(), shown)
    if output_format is SizeFormat.JSON:
        emit(json.dumps(data_of(found.document), indent=2, ensure_ascii=False), output)
    elif output_format is SizeFormat.MARKDOWN:
        emit(markdown(found.document), output)
    elif output_format is SizeFormat.HTML:
        from ..report.sizing_html import render_sizing  # noqa: PLC0415 (slow: jinja2)

        emit(render_sizing(found.document), output)
    else:
        emit(text(found.document, plot=on_terminal() or output is None), output)
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        project = _project_schema(target)
        target.write_text(stack_text(wish.region, found.environment, project, "\n# ".join(header(found.document))), encoding="utf-8")
        typer.echo(f"wrote {target}; next: disagg plan {write}", err=output_format is not SizeFormat.TEXT)
    return 0


def _target(write: str, *, force: bool) -> Path:
    """The file to write. Raises ToolError where one exists."""
    path = Path(write)
    if path.suffix not in {".yaml", ".yml"} and "/" not in write:
        try:
            folder = find_project(Path.cwd()).stack_dir
        except ToolError:
            folder = Path.cwd()
        path = folder / f"Pulumi.{write}.yaml"
    if path.exists() and not force:
        raise ToolError(f"{path} exists and is left as it is; name another file, or write over it with --force")
    return path


def _project_schema(target: Path) -> str | None:
    """Path of the stack schema from a stack file, None where there is none."""
    try:
        return schema_of(target, find_project(real(target).parent))
    except ToolError:
        return SCHEMA if (target.parent / SCHEMA).is_file() else None
