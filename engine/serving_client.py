"""Requests to running servers: aggregated, and through prefill and decode as llm-d's routing sidecar sends them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from disagg_serving.verify.metrics import FAILURES

from .serving import Server

SECONDS = 300
"""For one answer on a busy machine."""
HANDSHAKES = 3
ASK_PREFILL: dict[str, Any] = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
BYTES = "vllm:nixl_bytes_transferred_sum"
FAILED = (*FAILURES, "vllm:nixl_num_kv_expired_reqs_total")


class RefusedError(Exception):
    """An answer other than 200: its status and text."""


@dataclass(frozen=True)
class Answer:
    """Tokens of an answer, and the transfer parameters that came with it."""

    tokens: tuple[int, ...]
    transfer: Mapping[str, Any] | None


def ask(server: Server, prompt: Sequence[int], tokens: int, *, request_id: str | None = None, **more: Any) -> Answer:
    """One completion of `tokens` tokens, the likeliest each. Raises RefusedError, URLError."""
    body = {
        "model": server.served_name,
        "prompt": list(prompt),
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": False,
        "return_token_ids": True,
        **more,
    }
    headers = {"Content-Type": "application/json", "X-Request-Id": request_id or uuid4().hex}
    request = urllib.request.Request(f"{server.url}/v1/completions", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as problem:
        raise RefusedError(f"{problem.code}: {problem.read().decode(errors='replace')[:500]}") from None
    return Answer(tuple(found["choices"][0]["token_ids"]), found.get("kv_transfer_params"))


def prefilled(prefill: Server, prompt: Sequence[int], *, request_id: str | None = None) -> Mapping[str, Any]:
    """What decode is told to read: the answer of prefill, which writes one token."""
    found = ask(prefill, prompt, 1, request_id=request_id, kv_transfer_params=ASK_PREFILL, max_completion_tokens=1).transfer
    if found is None:
        raise RefusedError("prefill sent no kv_transfer_params")
    return found


def ask_both(prefill: Server, decode: Server, prompt: Sequence[int], tokens: int) -> Answer:
    """One completion through prefill, then decode, under one request id."""
    request_id = uuid4().hex
    transfer = prefilled(prefill, prompt, request_id=request_id)
    return ask(decode, prompt, tokens, request_id=request_id, kv_transfer_params=transfer)


def warm_up(prefill: Server, decode: Server, prompt: Sequence[int]) -> None:
    """An ordinary answer of each, then one through both. Raises RefusedError when the third try fails.

    On a CPU with AMX an engine dies if its first work is a transferred prompt, since nothing has asked the kernel for AMX before; and on a
    busy machine the first handshake takes longer than the five seconds that the connector gives it.
    """
    for server in (prefill, decode):
        ask(server, prompt, 2)
    for left in reversed(range(HANDSHAKES)):
        try:
            ask_both(prefill, decode, [*prompt, left + 300], 2)
        except RefusedError:
            if not left:
                raise
        else:
            return


def metrics_text(server: Server) -> str:
    """Its metrics as Prometheus reads them."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=SECONDS) as answer:
        text: str = answer.read().decode()
    return text


def metrics(server: Server) -> dict[str, float]:
    """Its metrics, summed over labels."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 (an extra)

    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(metrics_text(server)):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    return sums
