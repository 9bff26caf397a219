"""Load runs as text: what was sent and counted, the rate or why there is none, and what the plan says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def render_runs(runs: Iterable[Mapping[str, Any]]) -> str:
    """Runs in the form of their json output."""
    return "\n".join(line for run in runs for line in _lines(run))


def _lines(run: Mapping[str, Any]) -> list[str]:
    result, times = run["result"], run["result"]["milliseconds"]
    pace = f"{run['requestsPerSecond']:g} requests/s" if run["requestsPerSecond"] else f"{run['concurrency']} at a time"
    tokens = f"{result['inputTokensPerSecond']:,.0f} prompt and {result['outputTokensPerSecond']:,.0f} answer tokens/s"
    lines = [
        f"{run['model']} {run['run']}: {run['requests']} requests of {run['inputTokens']} + {run['outputTokens']} tokens, {pace}",
        f"  {result['requestsPerSecond']:.2f} requests/s, {tokens}; {result['failed']} failed",
    ]
    lines += [f"  {m.upper():<5}" + "".join(f"  {name} {value:,.1f}" for name, value in times[m].items()) + " ms" for m in times]
    if "rate" in run:
        rate = run["rate"]
        found = f"{rate['tokensPerSecondPerGPU']:,.0f} tokens/s/GPU at {rate['inputTokens']:,} prompt tokens" if rate else ""
        lines.append(f"  rate of {run['run']}: {found or 'not measured: ' + run['notMeasured']}")
    return lines + [f"  plan: {line}" for line in _forecast(run["forecast"])]


def _forecast(known: Mapping[str, Any] | None) -> list[str]:
    if known is None:
        return ["no forecast: it is made for prefill and decode"]
    if "problem" in known:
        return [known["problem"]]
    if "requestsPerSecond" not in known:
        return list(known["bounds"])
    rate, busy, wait = known["requestsPerSecond"], known["utilisation"], known["prefillWaitSeconds"]
    lines = [f"{rate['kind']} {rate['capacity']:g} requests/s, bound by {known['boundBy']}"]
    lines.append(f"at {rate['wanted']:g} requests/s prefill busy {busy['prefill']:.0%}, decode {busy['decode']:.0%}")
    return [*lines, f"a prompt waits {wait:.2g} s for prefill"] if wait is not None else lines
