"""Balance of prefill and decode from measured rates, the KV transfer between them, and whether to split them at all."""

from __future__ import annotations

from .advice import Situation, advice
from .law import Balance, Headroom, Side, Split, balance, headroom
from .rates import BalanceError, MeasuredRate, RateCurve, Rates, Span, Workload, batch_limit, cap_by_batch, rates_at
from .roofline import Bound, Step, decode_tokens, prefill_tokens
from .transfer import Endpoint, KvTransfer, head_copies, kv_bytes, kv_transfer, mla_copies

__all__ = [
    "Balance",
    "BalanceError",
    "Bound",
    "Endpoint",
    "Headroom",
    "KvTransfer",
    "MeasuredRate",
    "RateCurve",
    "Rates",
    "Side",
    "Situation",
    "Span",
    "Split",
    "Step",
    "Workload",
    "advice",
    "balance",
    "batch_limit",
    "cap_by_batch",
    "decode_tokens",
    "head_copies",
    "headroom",
    "kv_bytes",
    "kv_transfer",
    "mla_copies",
    "prefill_tokens",
    "rates_at",
]
