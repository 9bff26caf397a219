"""The step times against measured runs of separate prefill and decode: the rows `P/D` of tests/data/sizing-rows.csv, shown without a limit.

They ran on other engines than vLLM (TensorRT-LLM, SGLang), whose kernels the tables do not hold.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence

from disagg_serving.catalog.step_times import Form
from disagg_serving.forecast.sizing.units import times_of
from disagg_serving.forecast.speed.queue import waiting
from disagg_serving.forecast.speed.times import Times

MODEL = "deepseek-r1"
_FORM = re.compile(r"(\d+)P tp(\d+)dp(\d+) (\d+)D tp(\d+)dp(\d+)")


def forecast(row: Mapping[str, str]) -> tuple[float, float] | None:
    """Milliseconds of a token, and answer tokens a second and GPU, with so many clients; None without step times."""
    found = _FORM.fullmatch(row["form"])
    if found is None:
        return None
    prefills, tp, dp, decodes, decode_tp, decode_dp = (int(n) for n in found.groups())
    read, write = (times_of(MODEL, row["gpu"], Form(a, b, b > 1)) for a, b in ((tp, dp), (decode_tp, decode_dp)))
    if isinstance(read, str) or isinstance(write, str):
        return None
    prompt, answer, clients = float(row["isl"]), float(row["osl"]), float(row["concurrency"])
    low, high = 0.0, clients / (answer * write.decode(1, prompt))
    for _ in range(40):
        rate = (low + high) / 2
        token = _token(write, rate * answer / decodes / decode_dp, prompt + answer / 2)
        service = read.prefill(prompt)
        busy = rate / prefills / dp * service
        first = service + waiting(busy, service, prefills * dp)[0] if busy < 1 else float("inf")
        low, high = (rate, high) if token is not None and rate * (first + token * answer) < clients else (low, rate)
    token = _token(write, low * answer / decodes / decode_dp, prompt + answer / 2)
    gpus = prefills * tp * dp + decodes * decode_tp * decode_dp
    return (token, 1000 * low * answer / gpus) if token else None


def _token(times: Times, tokens: float, context: float) -> float | None:
    """The step at which a rank writes so many tokens a ms; None where no batch does."""
    batch = 1.0
    for _ in range(200):
        step = times.decode(batch, context)
        if tokens * step > 1024:  # noqa: PLR2004 (the end of the tables)
            return None
        batch = (batch + max(1.0, tokens * step)) / 2
    return times.decode(batch, context)


def report_pairs(rows: Sequence[Mapping[str, str]]) -> str:
    """One line."""
    pairs = [row for row in rows if "P/D" in row["set"]]
    found = [(forecast(row), row) for row in pairs]
    tokens = [abs(f[0] / float(row["measured_tpot_ms"]) - 1) for f, row in found if f]
    rates = [abs(f[1] / float(row["measured_out_tok_s_gpu"]) - 1) for f, row in found if f and row["measured_out_tok_s_gpu"]]
    two = [f"{statistics.median(errors):.0%} ({statistics.fmean(errors):.0%})" for errors in (tokens, rates)]
    return f"prefill and decode apart, other engines' kernels: {len(tokens)} of {len(pairs)} rows, time per token {two[0]}, rate {two[1]}; no limit"
