"""Balance of prefill and decode from measured rates, the KV transfer between them, and whether to split them at all.

What a check does not need is imported by its own name: `goodput` (search over measured points), `runs` and `cases` (public measurements).
"""

from __future__ import annotations

from .advice import Advice, Reason, Situation, advice, off_balance
from .law import Balance, Engines, Headroom, Side, Split, balance, best_split, headroom, optimum_ratio, split_for, waiting_factor
from .rates import BalanceError, MeasuredRate, RateCurve, Rates, Span, Workload, batch_limit, cap_by_batch, rates_at
from .roofline import Bound, Step, decode_step, decode_tokens, prefill_tokens
from .transfer import Endpoint, KvBytes, KvTransfer, Scenario, efa_share, head_copies, kv_bytes, kv_transfer, mla_copies

__all__ = [
    "Advice",
    "Balance",
    "BalanceError",
    "Bound",
    "Endpoint",
    "Engines",
    "Headroom",
    "KvBytes",
    "KvTransfer",
    "MeasuredRate",
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
    "cap_by_batch",
    "decode_step",
    "decode_tokens",
    "efa_share",
    "head_copies",
    "headroom",
    "kv_bytes",
    "kv_transfer",
    "mla_copies",
    "off_balance",
    "optimum_ratio",
    "prefill_tokens",
    "rates_at",
    "split_for",
    "waiting_factor",
]
