"""Prefill and decode as generated, on a CPU: requests take their KV over NIXL and are answered as by one engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from disagg_serving.forecast.capacities import shape_of
from disagg_serving.forecast.fit.kv import KvPlan, kv_plan
from disagg_serving.planning.shapes import GIB, Layout
from disagg_serving.verify.metrics import TRANSFERS, read_metrics
from engine_stacks import laid_out, pods, prompt_of, show, stack

from engine.serving import Server, logged, serving, write_model
from engine.serving_client import BYTES, FAILED, ask, ask_both, metrics, metrics_text, prefilled, warm_up

LENGTHS = (1, 100, 128, 129, 414, 1500)
"""Prompt lengths around the edges of blocks of 128 tokens."""
TOKENS = 24


@pytest.fixture(scope="module")
def layout() -> Layout:
    """The stack file of the test, through the product's checks."""
    return laid_out(stack("split"))


@pytest.fixture(scope="module")
def plan(layout: Layout) -> KvPlan:
    """What the planner makes of the KV cache of decode."""
    (decode,) = (g for g in layout.groups if g.role == "decode")
    return kv_plan(shape_of(decode))


@pytest.fixture(scope="module")
def pair(request: pytest.FixtureRequest, layout: Layout, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Both servers, ready and warm."""
    folder = tmp_path_factory.mktemp("split")
    write_model(layout.served[0].facts, folder)
    with serving(list(pods(layout).values()), folder) as (prefill, decode):
        show(request, [prefill, decode])
        with logged(prefill, decode):
            warm_up(prefill, decode, prompt_of(300))
        yield prefill, decode


@pytest.mark.parametrize("length", LENGTHS)
def test_answers_are_those_of_one_engine(length: int, pair: tuple[Server, Server], plan: KvPlan) -> None:
    """Token ids equal those of an engine that does both, and as many bytes were moved as the planner calculates for the prompt's blocks."""
    prefill, decode = pair
    with logged(*pair):
        prompt, before = prompt_of(length), metrics(decode)
        answer = ask_both(prefill, decode, prompt, TOKENS)
        after = metrics(decode)
        # a cache of its own, or the reference would be made of what was calculated for the transfer
        alone = ask(prefill, prompt, TOKENS, cache_salt="alone")
        assert answer.tokens == alone.tokens
        assert len(set(answer.tokens)) > TOKENS // 2, "the model repeats itself, so that equal answers prove little"
        assert after[TRANSFERS] - before[TRANSFERS] == 1
        assert after[BYTES] - before[BYTES] == plan.blocks_of(length) * plan.block_bytes[0]
        assert [after[name] - before[name] for name in FAILED] == [0, 0, 0]


def test_another_prompt_s_kv_gives_another_answer(pair: tuple[Server, Server]) -> None:
    """Decode uses what it was given: with the KV of another prompt of the same length it writes something else."""
    prefill, decode = pair
    with logged(*pair):
        prompt, other = prompt_of(414), prompt_of(414)
        wrong = ask(decode, prompt, TOKENS, kv_transfer_params=prefilled(prefill, other))
        assert wrong.tokens != ask(prefill, prompt, TOKENS, cache_salt="alone").tokens


def test_kv_tokens_of_the_log(pair: tuple[Server, Server], plan: KvPlan) -> None:
    """The KV cache that the engine reports holds as many tokens as the planner calculates for its size."""
    with logged(*pair):
        for server in pair:
            assert server.kv_tokens == plan.tokens_of(GIB // plan.block_bytes[0], 4096)


def test_verify_reads_the_metrics(pair: tuple[Server, Server]) -> None:
    """`disagg verify` finds in the metrics of real servers what its points are about: prompts on prefill, transfers on decode, no failure."""
    prefill, decode = pair
    with logged(*pair):
        before = [read_metrics(metrics_text(s)) for s in pair]
        ask_both(prefill, decode, prompt_of(300), TOKENS)
        on_prefill, on_decode = (read_metrics(metrics_text(s)) - b for s, b in zip(pair, before, strict=True))
        assert (on_prefill.prompt_tokens, on_prefill.transfers) == (300, 0)
        assert (on_decode.transfers, on_decode.failures, on_decode.answered) == (1, 0, 1)
        # the last token of a prompt is calculated where the answer is written
        assert on_decode.local_tokens <= 1
