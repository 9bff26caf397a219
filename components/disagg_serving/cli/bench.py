"""`disagg bench`."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from ..errors import ToolError
from ..load.runs import RunKind, first_runs
from ..manifests.load import build_load
from ..manifests.serving import build_service
from ..planning.evaluation import evaluate_file
from .check import CheckFormat
from .common import emit, find_input
from .verify import Context, Kubeconfig, connect

if TYPE_CHECKING:
    from ..load.measure import Measured
    from ..planning.shapes import Layout

DAY = 86_400


def bench(  # noqa: PLR0913, PLR0917 (options)
    stack: Annotated[str, typer.Argument(metavar="STACK|FILE", help="A stack of this project, or a YAML file with a stack or a bare environment.")],
    model: Annotated[str | None, typer.Option("--model", help="Only this model. Default: all.", show_default=False)] = None,
    run: Annotated[list[RunKind] | None, typer.Option("--run", help="A run; may be repeated. Default: traffic.", show_default=False)] = None,
    tpot_ms: Annotated[
        float | None, typer.Option("--tpot-ms", min=0.1, help="Wanted time per answer token; a decode run needs it.", show_default=False)
    ] = None,
    start: Annotated[bool, typer.Option("--start", help="Run it in the cluster. Default: print the objects.")] = False,
    write_back: Annotated[bool, typer.Option("--write-back", help="With --start: put measured rates into the stack file.")] = False,
    timeout: Annotated[int, typer.Option("--timeout", min=60, max=DAY, help="Seconds that one run may take.")] = 3600,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Chooses the prompts. Default: the time.", show_default=False)] = None,
    output_format: Annotated[CheckFormat, typer.Option("--format", help="Output format of --start.")] = CheckFormat.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> int:
    """Measure a running model with a load Job of vLLM's own generator; without --start only show what would run."""
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
        objects = {}
        for served, one in planned:
            leaders = build_service(layout.groups_of(served)[-1])["metadata"]["name"]
            objects |= {
                (o["kind"], o["metadata"]["namespace"], o["metadata"]["name"]): o for o in build_load(one, served, leaders, layout.spec, timeout)
            }
        emit(yaml.safe_dump_all(objects.values(), sort_keys=False, width=1000), None)
        return 0
    from ..load.measure import measure  # noqa: PLC0415 (only where a cluster is asked)
    from ..load.start import Loader  # noqa: PLC0415
    from ..load.write_back import write_rate  # noqa: PLC0415

    connection = connect(layout, given.base, kubeconfig, context)
    found: list[Measured] = []
    for served, one in planned:
        loader = Loader(connection, layout, served, timeout, lambda line: typer.echo(line, err=True))
        found += measure(layout, served, one, tpot_ms or 0, loader.run)
    if write_back:
        for m in found:
            if m.verdict is not None and m.verdict.rate is not None:
                role = m.finished.run.kind
                write_rate(given.file.path, m.served.index, role, m.verdict.input_tokens, int(m.verdict.rate))
                typer.echo(f"written to {given.file.path.name}: models[{m.served.index}].{role}.measuredRates", err=True)
    if output_format is CheckFormat.JSON:
        emit(json.dumps({"version": 1, "runs": [m.as_dict(layout) for m in found]}, indent=2, ensure_ascii=False), None)
    else:
        emit("\n".join(line for m in found for line in _lines(m, layout)), None)
    last = {(m.served.spec.name, m.finished.run.kind): m.verdict for m in found}
    return 2 if any(v is not None and v.rate is None for v in last.values()) else 0


def _lines(measured: Measured, layout: Layout) -> list[str]:
    """One run: what was sent and counted, the rate or why there is none, and what the plan says."""
    data = measured.as_dict(layout)
    result, times = data["result"], data["result"]["milliseconds"]
    pace = f"{data['requestsPerSecond']:g} requests/s" if data["requestsPerSecond"] else f"{data['concurrency']} at a time"
    lines = [
        f"{data['model']} {data['run']}: {data['requests']} requests of {data['inputTokens']} + {data['outputTokens']} tokens, {pace}",
        f"  {result['requestsPerSecond']:.2f} requests/s, {result['inputTokensPerSecond']:,.0f} prompt and "
        f"{result['outputTokensPerSecond']:,.0f} answer tokens/s; {result['failed']} failed",
    ]
    lines += [f"  {m.upper():<5}" + "".join(f"  {name} {value:,.1f}" for name, value in times[m].items()) + " ms" for m in times]
    if "rate" in data:
        rate = data["rate"]
        found = (
            f"{rate['tokensPerSecondPerGPU']:,.0f} tokens/s/GPU at {rate['inputTokens']:,} prompt tokens"
            if rate
            else f"not measured: {data['notMeasured']}"
        )
        lines.append(f"  rate of {data['run']}: {found}")
    return lines + [f"  plan: {line}" for line in _forecast(data["forecast"])]


def _forecast(known: dict[str, Any] | None) -> list[str]:
    if known is None:
        return ["no forecast: it is made for prefill and decode"]
    if "problem" in known:
        return [known["problem"]]
    if "requestsPerSecond" not in known:
        return list(known["bounds"])
    rate, busy = known["requestsPerSecond"], known["utilisation"]
    wait = known["prefillWaitSeconds"]
    waits = f"; a prompt waits {wait:.2g} s for prefill" if wait is not None else ""
    return [
        f"{rate['kind']} {rate['capacity']:g} requests/s, bound by {known['boundBy']}; prefill busy {busy['prefill']:.0%}, decode {busy['decode']:.0%}{waits}"
    ]
