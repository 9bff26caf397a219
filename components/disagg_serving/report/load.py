"""Load runs as text: what was sent and counted, the rate or why there is none, and what the plan says."""

from __future__ import annotations

from collections.abc import Iterable

from ..document.traffic import Forecast
from ..load.measure import Measured


def render_runs(runs: Iterable[Measured]) -> str:
    """Each run with its counts, and the plan's forecast beside them."""
    return "\n".join(line for run in runs for line in _lines(run))


def _lines(measured: Measured) -> list[str]:
    run, result, verdict = measured.finished.run, measured.finished.result, measured.verdict
    pace = f"{run.rate:g} requests/s" if run.rate else f"{run.concurrency} at a time"
    sent, answered = (f"{tokens / result.seconds:,.0f}" for tokens in (result.input_tokens, result.output_tokens))
    lines = [
        f"{measured.served.spec.name} {run.kind}: {run.requests} requests of {run.input_tokens} + {run.output_tokens} tokens, {pace}",
        f"  {result.requests_per_second:.2f} requests/s, {sent} prompt and {answered} answer tokens/s; {result.failed} failed",
    ]
    for name, by_percentile in result.milliseconds.items():
        lines.append(f"  {name.upper():<5}" + "".join(f"  {which} {value:,.1f}" for which, value in by_percentile.items()) + " ms")
    if verdict is not None:
        found = f"{verdict.rate:,.0f} tokens/s/GPU at {verdict.input_tokens:,} prompt tokens" if verdict.rate is not None else ""
        lines.append(f"  rate of {run.kind}: {found or 'not measured: ' + verdict.reason}")
    return lines + [f"  plan: {line}" for line in _forecast(measured.forecast)]


def _forecast(known: Forecast | None) -> list[str]:
    if known is None:
        return ["no forecast: it is made for prefill and decode"]
    if known.problem:
        return [known.problem]
    rate, busy, wait = known.requests_per_second, known.utilisation, known.prefill_wait_seconds
    if rate is None or busy is None:
        return list(known.bounds)
    lines = [f"{rate.kind} {rate.capacity:g} requests/s, bound by {known.bound_by}"]
    lines.append(f"at {rate.wanted:g} requests/s prefill busy {busy.prefill:.0%}, decode {busy.decode:.0%}")
    return [*lines, f"a prompt waits {wait:.2g} s for prefill"] if wait is not None else lines
