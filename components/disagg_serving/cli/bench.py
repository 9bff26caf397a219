"""`disagg bench`."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..characters import printed
from ..errors import ToolError
from ..load.measure import Measured, measure
from ..load.runs import RunKind, first_runs, refuse_scaled
from ..load.start import Loader
from ..manifests.load import Run, build_load
from ..planning.shapes import Layout, Served
from ..report.load import render_runs
from ..rules.evaluation import evaluate_file
from ..yaml_io import to_yaml
from .common import DataFormat, StackOrFile, emit, find_input
from .verify import Context, Kubeconfig, connect

DAY = 86_400


def bench(  # noqa: PLR0913, PLR0917 (options)
    stack: StackOrFile,
    model: Annotated[str | None, typer.Option("--model", help="Only this model. Default: all.", show_default=False)] = None,
    run: Annotated[list[RunKind] | None, typer.Option("--run", help="A run; may be repeated. Default: traffic.", show_default=False)] = None,
    tpot_ms: Annotated[
        float | None, typer.Option("--tpot-ms", min=0.1, help="Wanted time per answer token; a decode run needs it.", show_default=False)
    ] = None,
    start: Annotated[bool, typer.Option("--start", help="Run it in the cluster. Default: print the objects.")] = False,
    write_back: Annotated[bool, typer.Option("--write-back", help="With --start: put measured rates into the stack file.")] = False,
    timeout: Annotated[int, typer.Option("--timeout", min=60, max=DAY, help="Seconds that one run may take.")] = 3600,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Chooses the prompts. Default: the time.", show_default=False)] = None,
    output_format: Annotated[DataFormat, typer.Option("--format", help="Output format; without --start text is YAML.")] = DataFormat.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> int:
    """Measure a running model with a load Job of vLLM's own generator.

    Without --start it only shows what would run.
    """
    kinds = list(dict.fromkeys(run or [RunKind.TRAFFIC]))
    if write_back and not start:
        raise ToolError("--write-back writes what a run has measured: it needs --start")
    if RunKind.DECODE in kinds and tpot_ms is None:
        raise ToolError("a decode rate holds for a time per answer token: give the one that you want as --tpot-ms")
    given = find_input(stack)
    layout = evaluate_file(given.file, given.base).require_layout()
    chosen = [s for s in layout.served if model in (None, s.spec.name)]
    if not chosen:
        raise ToolError(f"no model {model} (known: {', '.join(s.spec.name for s in layout.served)})")
    number = int(time.time()) if seed is None else seed
    planned = [(served, one) for served in chosen for one in first_runs(layout, served, kinds, number)]
    if not start:
        objects = _objects(layout, planned, timeout)
        as_json = output_format is DataFormat.JSON
        emit(json.dumps({"version": 1, "objects": objects}, indent=2) if as_json else "---\n".join(to_yaml(one) for one in objects), None)
        return 0
    refuse_scaled(layout, chosen, kinds)
    connection = connect(layout, given.base, kubeconfig, context)
    found: list[Measured] = []
    for served, one in planned:
        loader = Loader(connection, layout, served, timeout, lambda line: typer.echo(printed(line), err=True))
        found += measure(layout, served, one, tpot_ms or 0, loader.run)
    if write_back:
        _write(found, given.file.path)
    if output_format is DataFormat.JSON:
        emit(json.dumps({"version": 1, "runs": [m.as_dict() for m in found]}, indent=2), None)
    else:
        emit(render_runs(found), None)
    last = {(m.served.spec.name, m.finished.run.kind): m.verdict for m in found}
    return 2 if any(v is not None and v.rate is None for v in last.values()) else 0


def _objects(layout: Layout, planned: Sequence[tuple[Served, Run]], seconds: int) -> list[dict[str, Any]]:
    """Policies of each model once, and all Jobs."""
    objects: dict[str, dict[str, Any]] = {}
    for served, one in planned:
        made = build_load(one, served, layout.groups_of(served), layout.spec, seconds)
        objects |= {f"{o['kind']} {o['metadata']['namespace']} {o['metadata']['name']}": o for o in made}
    return list(objects.values())


def _write(found: Sequence[Measured], file: Path) -> None:
    from ..load.write_back import form_of, write_rate  # noqa: PLC0415 (extra: ruamel.yaml)

    for m in found:
        if m.verdict is not None and m.verdict.rate is not None:
            role = m.finished.run.kind
            rate = {"inputTokens": m.verdict.input_tokens, "tokensPerSecondPerGPU": int(m.verdict.rate), "measuredOn": form_of(m.served, role)}
            write_rate(file, m.served.index, role, rate)
            typer.echo(f"written to {file.name}: models[{m.served.index}].{role}.measuredRates", err=True)
