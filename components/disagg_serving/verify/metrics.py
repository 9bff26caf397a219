"""What vLLM's metrics say about prefill, decode and the transfers between them.

Names from the sources of the pinned engines, checked 2026-11-30: vllm/v1/metrics/loggers.py and
vllm/distributed/kv_transfer/kv_connector/v1/nixl/stats.py of 0.27.1 and 0.33.0, equal in both; prometheus_client adds `_total` and `_count`.
"""

from __future__ import annotations

from dataclasses import dataclass

TRANSFERS = "vllm:nixl_xfer_time_seconds_count"
FAILURES = ("vllm:nixl_num_failed_transfers_total", "vllm:nixl_num_failed_notifications_total")
PROMPT_TOKENS = "vllm:prompt_tokens_total"
BY_SOURCE, LOCAL = "vllm:prompt_tokens_by_source_total", "local_compute"
ANSWERED = "vllm:request_success_total"
WAITING, RUNNING = "vllm:num_requests_waiting", "vllm:num_requests_running"
CACHE_QUERIES, CACHE_HITS = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"


@dataclass(frozen=True)
class Metrics:
    """Sums over the engine's data-parallel ranks: counters since its start, and requests as they are now."""

    transfers: float
    failures: float
    prompt_tokens: float
    local_tokens: float
    answered: float
    waiting: float
    running: float
    cache_queries: float
    cache_hits: float

    def __add__(self, other: Metrics) -> Metrics:
        return Metrics(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    def __sub__(self, other: Metrics) -> Metrics:
        return Metrics(*(a - b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


NOTHING = Metrics(*[0.0] * 9)


def read_metrics(text: str) -> Metrics:
    """Metrics in Prometheus' text form. Raises ValueError when it is none, or holds no metrics of vLLM."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 (extra: prometheus_client)

    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = f"{sample.name}/{sample.labels['source']}" if sample.name == BY_SOURCE else sample.name
            sums[name] = sums.get(name, 0.0) + sample.value
    if PROMPT_TOKENS not in sums:
        raise ValueError(f"no {PROMPT_TOKENS} among {len(sums)} metrics")
    local = sums.get(f"{BY_SOURCE}/{LOCAL}", 0.0)
    plain = [sums.get(n, 0.0) for n in (ANSWERED, WAITING, RUNNING, CACHE_QUERIES, CACHE_HITS)]
    return Metrics(sums.get(TRANSFERS, 0.0), sum(sums.get(n, 0.0) for n in FAILURES), sums[PROMPT_TOKENS], local, *plain)
