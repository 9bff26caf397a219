"""What vLLM's configuration refuses of flags beside each other is refused here, and what the pods have to have is counted."""

from __future__ import annotations

from typing import Any

import pytest
from disagg_serving.errors import Level
from factories import aggregated, check, environment, model, role

H200 = "p5en.48xlarge"
RULES = {"context-parallel", "flag-pairs", "offload-memory", "extra-args"}


def said(data: dict[str, Any]) -> list[tuple[str, str]]:
    """Rules and places of what is refused."""
    return [(f.id, f.path.partition(".")[2]) for f in check(data).findings if f.id in RULES and f.level is Level.ERROR]


def server(*args: str, tp: int = 8, **fields: Any) -> dict[str, Any]:
    """An environment in server mode."""
    return environment(aggregated(extraArgs=list(args), server=role(tensorParallel=tp), **fields))


def split(name: str, *args: str, tp: int = 8, kind: str = H200) -> dict[str, Any]:
    """An environment with prefill and decode."""
    sides = {side: role(instanceType=kind, tensorParallel=tp) for side in ("prefill", "decode")}
    return environment(model(model=name, maxModelLen=16384, extraArgs=list(args), **sides))


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (split("llama-3.3-70b-instruct-fp8", "--decode-context-parallel-size=8"), "context-parallel"),
        (split("glm-5-fp8", "--decode-context-parallel-size=2"), "context-parallel"),
        (split("glm-5-fp8", "--decode_context_parallel_size=8"), None),
        (split("glm-5-fp8", "--decode-context-parallel-size=1"), None),
        (server("--decode-context-parallel-size=3"), "context-parallel"),
        (server("--decode-context-parallel-size=2"), "context-parallel"),
        (server("--prefill-context-parallel-size=2", tp=4), "context-parallel"),
        (server("--enable-return-routed-experts"), "flag-pairs"),
        (server("--enable-eplb"), "flag-pairs"),
        (server("--per-request-spec-decode-metrics=summary"), "flag-pairs"),
        (server("--per-request-spec-decode-metrics=summary", speculative={"method": "ngram", "numSpeculativeTokens": 2}), None),
        (server("--collect-detailed-traces=all"), "flag-pairs"),
        (server("--api-server-count=0"), "flag-pairs"),
        (server("--api-server-count=2"), None),
        (server("--api-server-count=2", tp=16), "flag-pairs"),
        (server("--kv-offloading-size=2500"), "offload-memory"),
        (server("--kv-offloading-size=64"), None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_flags_beside_each_other(data: dict[str, Any], rule: str | None) -> None:
    """Each refusal of vLLM 0.33.0 that needs no GPU is an error at the flag, and the value on its other side passes."""
    assert set(said(data)) == ({(rule, "extraArgs[0]")} if rule else set())


def test_shared_memory_above_the_request_warns() -> None:
    """Shared memory is a ceiling: above what a pod asks for it is no failure, and is said."""
    found = [f for f in check(environment(aggregated(server=role(tensorParallel=2, memoryGiB=16, shmGiB=20)))).findings if f.id == "pod-fits-node"]
    assert [(f.level, f.path) for f in found] == [(Level.WARNING, "models[0].server.shmGiB")]
