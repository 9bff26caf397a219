"""What a load run asks of the API server, one request after the other; tests/live/test_load.py asks a real one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from disagg_serving.errors import ToolError
from disagg_serving.load.runs import RunKind, first_runs
from disagg_serving.load.start import Loader
from disagg_serving.verify.connection import Connection, Reply
from disagg_serving.verify.snapshot import Unread
from factories import ROOT
from snapshots import metrics, stack_layout

RESULT = (ROOT / "tests/data/load-0.33.0.json").read_text(encoding="utf-8")
JOBS, POLICIES = "/apis/batch/v1/namespaces/llama-70b/jobs", "/apis/networking.k8s.io/v1/namespaces/llama-70b/networkpolicies"


class Server(Connection):
    """An API server whose Job ends after some looks at it, well or not."""

    def __init__(self, *, looks: int = 3, end: str = "Complete", refuse: str = "", log: str | Unread = RESULT, page: str | Unread = "") -> None:
        self.server, self.looks, self.end, self.refuse, self.said, self.page = "https://x.invalid", looks, end, refuse, log, page or metrics()
        self.there: set[str] = set()
        self.asked: list[tuple[str, str]] = []

    def ask(self, method: str, path: str, query: Any = None, body: Any = None, *, seconds: float = 0) -> Reply:  # noqa: ARG002
        """Keep what is made and taken away."""
        if method == "POST":
            if self.refuse and self.refuse in path:
                return Reply(403, b'{"message": "forbidden"}')
            self.there.add(f"{path}/{body['metadata']['name']}")
        elif method == "DELETE":
            self.there.discard(path)
        self.asked.append((method, path))
        return Reply(200, b"{}")

    def read(self, path: str, query: Any = None) -> Any:
        """A Job on its way, and its pod."""
        if "/pods" in path:
            assert query["labelSelector"].startswith("job-name=llama-70b-load-")
            return {"items": [{"metadata": {"name": "pod"}}]}
        self.looks -= 1
        done = [{"type": self.end, "status": "True"}] if self.looks < 0 else []
        return {"status": {"conditions": done}}

    def log(self, namespace: str, pod: str, container: str, limit_bytes: int) -> str | Unread:  # noqa: ARG002
        """The result, or what the generator said."""
        return self.said if container == "result" else "line 1\nout of memory"

    def get(self, namespace: str, pod: str, port: int, path: str) -> str | Unread:  # noqa: ARG002
        """Metrics of each engine."""
        return self.page


def loader(server: Server, seconds: int = 60) -> Loader:
    """Runs of prod."""
    layout = stack_layout("prod")
    return Loader(server, layout, layout.served[0], seconds, lambda _: None, poll=0)


def run(server: Server, seconds: int = 60) -> Any:
    """One prefill run."""
    made = loader(server, seconds)
    (wanted,) = first_runs(made.layout, made.served, [RunKind.PREFILL], 5)
    return made.run(wanted)


def test_a_run_is_started_watched_read_and_cleaned_up() -> None:
    """Policies before the Job, a look at all engines at each poll, the result of the Job's log, and the policies gone afterwards."""
    server = Server()
    found = run(server)
    assert [path for method, path in server.asked if method == "POST"] == [POLICIES, POLICIES, JOBS]
    assert server.there == {f"{JOBS}/llama-70b-load-prefill-5"}
    assert found.result.completed == json.loads(RESULT)["completed"]
    # two prefill and four decode engines
    assert [(s.prefill.prompt_tokens, s.decode.prompt_tokens) for s in found.samples] == [(4000, 8000)] * 3


def test_a_look_at_half_of_the_engines_is_none() -> None:
    """A sum without an engine that could not be asked would say that its role is idle."""
    assert run(Server(page=Unread("no right"))).samples == []
    assert run(Server(page="<html>")).samples == []


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (Server(end="Failed"), "failed; the end of its log: line 1 | out of memory"),
        (Server(refuse="jobs"), 'cannot be made: {"message": "forbidden"}'),
        (Server(refuse="networkpolicies"), "NetworkPolicy llama-70b/load-generator cannot be made"),
        (Server(log=Unread("its log: not allowed")), "its log: not allowed"),
        (Server(log="no json"), "no result of vllm bench serve"),
    ],
)
def test_a_run_that_fails_leaves_no_policy(server: Server, words: str) -> None:
    """Whatever goes wrong is said, and what let the Job through is gone."""
    with pytest.raises(ToolError) as problem:
        run(server)
    assert words in str(problem.value)
    assert [path for path in server.there if "networkpolicies" in path] == []


def test_a_run_that_does_not_end_is_removed() -> None:
    """After the time that it was given the Job goes too."""
    server = Server(looks=10**9)
    with pytest.raises(ToolError, match="did not end within 0 s and was removed; give it more with --timeout"):
        run(server, 0)
    assert server.there == set()
