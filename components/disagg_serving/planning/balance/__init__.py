"""Balance of prefill and decode from measured rates, the KV transfer between them, and whether to split them at all."""

from __future__ import annotations

from .advice import Advice, Reason, Situation, advice, off_balance
from .bounds import Bound, Step, decode_step, decode_tokens, prefill_tokens
from .cases import CaseRow, comparison_rows, comparison_table
from .goodput import Goodput, MeasuredPoint, Objective, search
from .law import Balance, Engines, Headroom, Side, Split, balance, best_split, headroom, optimum_ratio, split_for, waiting_factor
from .rates import BalanceError, MeasuredRate, RateCurve, Rates, Span, Workload, batch_limit, cap_by_batch, rates_at
from .runs import Calibration, MeasuredRun, calibrate, demand, output_tokens_per_second, requests_per_second
from .transfer import Endpoint, KvBytes, KvTransfer, Scenario, efa_share, head_copies, kv_bytes, kv_transfer, mla_copies

__all__ = [
    "Advice",
    "Balance",
    "BalanceError",
    "Bound",
    "Calibration",
    "CaseRow",
    "Endpoint",
    "Engines",
    "Goodput",
    "Headroom",
    "KvBytes",
    "KvTransfer",
    "MeasuredPoint",
    "MeasuredRate",
    "MeasuredRun",
    "Objective",
    "RateCurve",
    "Rates",
    "Reason",
    "Scenario",
    "Side",
    "Situation",
    "Span",
    "Split",
    "Step",
    "Workload",
    "advice",
    "balance",
    "batch_limit",
    "best_split",
    "calibrate",
    "cap_by_batch",
    "comparison_rows",
    "comparison_table",
    "decode_step",
    "decode_tokens",
    "demand",
    "efa_share",
    "head_copies",
    "headroom",
    "kv_bytes",
    "kv_transfer",
    "mla_copies",
    "off_balance",
    "optimum_ratio",
    "output_tokens_per_second",
    "prefill_tokens",
    "rates_at",
    "requests_per_second",
    "search",
    "split_for",
    "waiting_factor",
]
