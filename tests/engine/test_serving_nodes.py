"""One engine over two nodes: leader and worker as generated find each other and answer."""

from __future__ import annotations

import pytest
from disagg_serving.forecast.capacities import shape_of
from disagg_serving.forecast.fit.kv import kv_plan
from disagg_serving.planning.shapes import GIB
from engine_stacks import laid_out, pods, prompt_of, show, stack

from engine.serving import logged, serving, write_model
from engine.serving_client import ask


def test_two_nodes_answer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Both pods of a group pass their probes, the engine has a rank in each, and a request is answered the same way twice."""
    folder, layout = tmp_path_factory.mktemp("wide"), laid_out(stack("wide"))
    (group,) = layout.groups
    write_model(layout.served[0].facts, folder)
    leader, worker = pods(layout).values()
    assert [leader.command[-5:-1], worker.command[-5:-1]] == [
        ("--nnodes=2", f"--node-rank={rank}", f"--master-addr={leader.address}", "--master-port=29501") for rank in (0, 1)
    ]
    with serving([leader, worker], folder) as servers, logged(*servers):
        show(request, servers)
        prompt = prompt_of(300)
        answer = ask(servers[0], prompt, 24)
        assert len(set(answer.tokens)) > 12
        assert ask(servers[0], prompt, 24, cache_salt="again").tokens == answer.tokens
        for rank, server in enumerate(servers):
            assert f"world_size=2 rank={rank} local_rank=0" in server.text
        plan = kv_plan(shape_of(group))
        assert plan.token_bytes == (1024,)
        assert servers[0].kv_tokens == plan.tokens_of(GIB // plan.block_bytes[0], 4096)
