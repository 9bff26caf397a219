"""`disagg verify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..planning.shapes import Layout
from ..records import data_of
from ..report.points import render_points
from ..rules.evaluation import evaluate_file
from ..verify import canary as requests
from ..verify import sort_points
from ..verify import verify as compare
from ..verify.connection import Connection
from ..verify.points import MEANING, Status
from ..verify.reader import read_snapshot
from .common import DataFormat, StackOrFile, emit, find_environment, on_terminal, terminal_width

Kubeconfig = Annotated[
    Path | None, typer.Option("--kubeconfig", help="Kubeconfig file. Default: existingCluster.kubeconfig, else kubectl's own.", show_default=False)
]
Context = Annotated[
    str | None, typer.Option("--context", help="Its context. Default: existingCluster.context, else the current one.", show_default=False)
]


def verify(  # noqa: PLR0913, PLR0917 (options)
    stack: StackOrFile,
    output_format: Annotated[DataFormat, typer.Option("--format", help="Output format.")] = DataFormat.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    canary: Annotated[bool, typer.Option("--canary", help="Send one request through each router; its API key is read from DISAGG_API_KEY.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Seconds that this request may take.")] = 60,
) -> int:
    """Compare the running cluster with the stack file, point by point.

    Nothing is changed. The exit code is 1 also where points stay unknown.
    """
    given = find_environment(stack)
    layout = evaluate_file(given.file, given.base).require_layout()
    connection = connect(layout, given.base, kubeconfig, context)
    snapshot, outcomes = read_snapshot(connection, layout), list[requests.Outcome]()
    if canary:
        snapshot, outcomes = requests.send(connection, layout, snapshot, timeout)
    points = sort_points([*compare(layout, snapshot), *requests.check(outcomes, timeout)])
    if output_format is DataFormat.JSON:
        data = {"version": 1, "server": snapshot.server, "points": [{**data_of(p), "meaning": MEANING[p.id]} for p in points]}
        emit(json.dumps(data, indent=2, ensure_ascii=False), None)
    else:
        emit(render_points(points, snapshot.server, color=on_terminal(), width=terminal_width()), None, styled=True)
    found = {p.status for p in points}
    return 2 if Status.FAILED in found else 1 if Status.UNKNOWN in found else 0


def connect(layout: Layout, base: Path, kubeconfig: Path | None, context: str | None) -> Connection:
    """The cluster of a stack: by the options, else as its stack file says, else as kubectl would. Raises ToolError."""
    existing = layout.spec.existing_cluster
    if kubeconfig is None and existing and existing.kubeconfig:
        kubeconfig = base / Path(existing.kubeconfig).expanduser()
        context = context or existing.context
    return Connection(kubeconfig, context)
