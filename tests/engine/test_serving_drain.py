"""A decode pod that is deleted: nobody's request fails, with the generated preStop sleep, grace period and shutdown timeout."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from engine_stacks import laid_out, pods, prompt_of, show, stack

from engine.serving import Server, logged, serving, write_model
from engine.serving_client import RefusedError, ask, ask_both, prefilled, warm_up

LONG_SECONDS = 12
"""Of an answer that is being written when SIGTERM comes."""
BEFORE_SIGTERM = 4
"""Seconds before it at which that request is sent."""
LATE = 8
"""Tokens of a request that comes too late."""


@pytest.fixture
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Both servers, ready and warm."""
    folder, layout = tmp_path_factory.mktemp("drain"), laid_out(stack("split"))
    write_model(layout.served[0].facts, folder)
    with serving(list(pods(layout).values()), folder) as (prefill, decode):
        show(request, [prefill, decode])
        with logged(prefill, decode):
            warm_up(prefill, decode, prompt_of(300))
        yield prefill, decode


def test_deletion_of_a_decode_pod(pair: tuple[Server, Server]) -> None:
    """Requests that arrive during the preStop sleep succeed, one in flight at SIGTERM finishes, and all is over before the grace period."""
    prefill, decode = pair
    with logged(*pair), ThreadPoolExecutor() as pool:
        start = time.monotonic()
        ask(decode, prompt_of(100), 100)
        tokens = min(3800, round(100 / (time.monotonic() - start) * (LONG_SECONDS + BEFORE_SIGTERM)))
        deleted, deletion = time.monotonic(), pool.submit(decode.delete)
        during = ask_both(prefill, decode, prompt_of(200), 8)
        assert len(during.tokens) == 8
        assert not decode.terminated.is_set(), "the answer took longer than the preStop sleep: the machine is too busy to tell"
        prompt = prompt_of(200)
        transfer = prefilled(prefill, prompt)
        time.sleep(max(0, decode.pod.pre_stop_seconds - BEFORE_SIGTERM - (time.monotonic() - deleted)))
        in_flight = pool.submit(ask, decode, prompt, tokens, kv_transfer_params=transfer)
        decode.terminated.wait()
        assert not in_flight.done(), "the answer was too short to be in flight at SIGTERM"
        assert tokens_of_late_request(decode) < LATE
        assert len(in_flight.result().tokens) == tokens
        ended = deletion.result()
        assert ended.by_itself
        assert ended.seconds < decode.pod.grace_seconds


def tokens_of_late_request(decode: Server) -> int:
    """What a request that arrives after SIGTERM gets, for which the sleep is there: an error, or 200 with an answer that is broken off."""
    time.sleep(1)
    try:
        return len(ask(decode, prompt_of(200), LATE).tokens)
    except RefusedError:
        return 0
