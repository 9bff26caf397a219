"""What an engine refuses and what our checks refuse, side by side over the same inputs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from disagg_serving import labels
from disagg_serving.errors import Level
from disagg_serving.verify.metrics import TRANSFERS
from engine_stacks import evaluated, laid_out, laid_out_anyway, pods, prompt_of, show, stack

from bench.processes import NotReadyError, wait_for
from engine.serving import Server, logged, serving, write_model
from engine.serving_client import FAILED, RefusedError, ask, ask_both, metrics

COPY = "tiny-llama-copy"
HASH = "NIXL compatibility hash mismatch"
BETWEEN_ROLES = {
    "model string": ("repository", f"disagg-serving/{COPY}", HASH),
    "KV dtype": ("kvCacheDtype", "fp8", HASH),
    "block size": ("blockSize", 64, "Local block size 64 is not divisible by remote block size 128"),
}
"""Fields of decode that prefill has otherwise, and the engine's words about it."""
NO_STAGES = "consumer (decode) does not support pipeline_parallel_size > 1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where models and logs are."""
    return tmp_path_factory.mktemp("refusals")


@pytest.fixture(scope="module")
def prefill(request: pytest.FixtureRequest, folder: Path) -> Iterator[Server]:
    """Prefill as the stack file says."""
    layout = laid_out(stack("split"))
    model = write_model(layout.served[0].facts, folder)
    # the same weights under another name, as a second mount or mirror of them would be
    (folder / COPY).symlink_to(model)
    with serving([pods(layout)["tiny-prefill-0"]], folder) as (server,):
        show(request, [server])
        yield server


def with_decode(**fields: Any) -> dict[str, Any]:
    """The environment with fields of decode alone."""
    found = stack("split")
    found["models"][0]["decode"] |= fields
    return found


@pytest.mark.parametrize("name", BETWEEN_ROLES)
def test_roles_that_differ(name: str, prefill: Server, folder: Path, request: pytest.FixtureRequest) -> None:
    """Decode with another model string, KV dtype or block size than prefill gets no KV; no stack file can say it, and no router pairs the two."""
    field, value, words = BETWEEN_ROLES[name]
    said = [f.path for f in evaluated(with_decode(**{field: value})).findings if f.level is Level.ERROR]
    assert said == [f"models[0].decode.{field}"]
    # a revision beside the one that serves may differ, and is kept apart from it
    both = laid_out(stack("split", candidate={"generation": "b", field: value}))
    served, following = (next(g for g in both.groups if g.name == n) for n in ("tiny-prefill", "tiny-b-decode"))
    assert served.labels[labels.IDENTITY] != following.labels[labels.IDENTITY]
    with serving([pods(both)["tiny-b-decode-0"]], folder / field, models=folder, first_core=1) as (decode,), logged(prefill, decode):
        show(request, [decode])
        ask(decode, prompt_of(300), 2)
        with pytest.raises(RefusedError, match=r"^500"):
            ask_both(prefill, decode, prompt_of(300), 2)
        assert words in decode.text
        # it lives on, and `disagg verify` sees the failure
        ask(decode, prompt_of(300), 2)
        wait_for(lambda: sum(metrics(decode)[name] for name in FAILED) > 0, "failures among the metrics", 30)
        assert metrics(decode)[TRANSFERS] == 0


def test_pipeline_stages_on_decode(folder: Path) -> None:
    """Decode with two pipeline stages does not start, and rule nixl-pipeline-parallel says so before."""
    environment = with_decode(pipelineParallel=2)
    assert [(f.id, f.path) for f in evaluated(environment).findings if f.level is Level.ERROR] == [
        ("nixl-pipeline-parallel", "models[0].decode.pipelineParallel")
    ]
    pod = pods(laid_out_anyway(environment))["tiny-decode-0"]
    assert "--pipeline-parallel-size=2" in pod.command
    with pytest.raises(NotReadyError) as caught, serving([pod], folder / "stages", models=folder):
        pass
    assert NO_STAGES in (folder / "stages" / pod.name / "log.txt").read_text(), caught.value
