"""How pods are reached, and what is said where they are not; the network itself is in tests/live."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from disagg_serving.errors import ToolError
from disagg_serving.verify.canary import Outcome, check, send
from disagg_serving.verify.connection import Connection, Reply, Request
from disagg_serving.verify.metrics import NOTHING
from disagg_serving.verify.points import Status
from disagg_serving.verify.reader import read_snapshot
from disagg_serving.verify.snapshot import Unread
from snapshots import as_planned, stack_layout

FORBIDDEN = Reply(403, json.dumps({"message": 'pods "p" is forbidden: no pods/proxy'}).encode())


class Wire(Connection):
    """A connection whose two ends are functions."""

    def __init__(self, ask: Callable[[str], Reply], forward: Callable[[Request], Reply | Unread]) -> None:
        self.server, self._proxy_works = "https://cluster.invalid", True
        self._ask, self._forward = ask, forward
        self.asked: list[str] = []

    def ask(self, method: str, path: str, query: Any = None, body: Any = None, *, seconds: float = 0) -> Reply:  # noqa: ARG002
        """One request."""
        self.asked.append(path)
        return self._ask(path)

    def forward(self, namespace: str, pod: str, port: int, request: Request, seconds: float = 0) -> Reply | Unread:  # noqa: ARG002
        """A request by port forward."""
        self.asked.append(f"forward {pod}:{port}{request.path}")
        return self._forward(request)


def silent(_: str) -> Reply:
    """Packets are dropped."""
    raise ToolError("the API server does not answer")


def test_the_pod_proxy_comes_first() -> None:
    """Where the proxy gets through, reading takes no more rights than reading."""
    wire = Wire(lambda _: Reply(200, b"page"), lambda _: Unread("not asked"))
    assert wire.get("m", "p", 8000, "/metrics") == "page"
    assert wire.asked == ["/api/v1/namespaces/m/pods/p:8000/proxy/metrics"]


@pytest.mark.parametrize("ask", [silent, lambda _: FORBIDDEN, lambda _: Reply(503, b"dial tcp: i/o timeout")])
def test_a_port_forward_where_the_proxy_does_not_get_through(ask: Callable[[str], Reply]) -> None:
    """Policies, rights or no answer: then a port forward, and the proxy is not waited for again at the next pod."""
    wire = Wire(ask, lambda _: Reply(200, b"page"))
    assert [wire.get("m", pod, 8000, "/metrics") for pod in ("p", "q")] == ["page", "page"]
    assert [path for path in wire.asked if "proxy" in path] == ["/api/v1/namespaces/m/pods/p:8000/proxy/metrics"]


def test_both_reasons_are_said() -> None:
    """Where neither way gets through, both say why."""
    wire = Wire(lambda _: FORBIDDEN, lambda _: Unread("port forward: no right"))
    found = wire.get("m", "p", 8000, "/metrics")
    assert isinstance(found, Unread)
    assert found.reason == 'pod proxy: not allowed: pods "p" is forbidden: no pods/proxy; port forward: no right'
    failing = Wire(silent, lambda _: Reply(500, b""))
    assert failing.get("m", "p", 8000, "/metrics") == Unread("pod proxy: no answer; /metrics answers 500")


def test_lists_are_read_to_their_end() -> None:
    """A list in pages is one list, and where nothing may be read that is one sentence."""
    layout = stack_layout("dev")

    def pages(path: str) -> Reply:
        if path == "/version":
            return Reply(200, b'{"gitVersion": "v1.36.3"}')
        if path == "/api/v1/nodes":
            first = sum(p == path for p in wire.asked) == 1
            item = {"metadata": {"name": "a" if first else "b"}}
            return Reply(200, json.dumps({"items": [item], "metadata": {"continue": "x"} if first else {}}).encode())
        return Reply(404, b"")

    wire = Wire(pages, lambda _: Unread("x"))
    found = read_snapshot(wire, layout)
    nodes = next(v for k, v in found.lists.items() if k.kind == "Node")
    assert not isinstance(nodes, Unread)
    assert [n["metadata"]["name"] for n in nodes] == ["a", "b"]
    with pytest.raises(ToolError, match=r"lets nothing be read: reading /api/v1/namespaces/kube-system/configmaps/amazon-vpc-cni: not allowed"):
        read_snapshot(Wire(lambda _: FORBIDDEN, lambda _: Unread("x")), layout)


def test_the_key_of_the_canary_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API key goes into one header of one request, by a port forward, because the pod proxy would keep the header for itself."""
    monkeypatch.setenv("DISAGG_API_KEY", "key-of-the-test")
    sent: list[Request] = []

    def forward(request: Request) -> Reply:
        sent.append(request)
        return Reply(200, b'{"choices": [{}]}')

    picture = as_planned(stack_layout("dev"))
    wire = Wire(lambda _: Reply(404, b""), forward)
    _, outcomes = send(wire, picture.layout, picture.snapshot(), 5)
    (request,) = sent
    assert request.headers == {"Authorization": "Bearer key-of-the-test"}
    assert request.body["model"] == "qwen3-32b"
    assert [p.status for p in check(outcomes, 5)] == [Status.OK]
    assert "key-of-the-test" not in repr(list(check(outcomes, 5)))


@pytest.mark.parametrize(
    ("reply", "words", "fix"),
    [
        (Unread("port forward: no answer within 5 s"), "no answer within 5 s", "router-ready"),
        (Reply(401, b'{"error": "Unauthorized"}'), "401", "DISAGG_API_KEY"),
        (Reply(503, b"no healthy upstream"), "503: no healthy upstream", "router-ready"),
        (Reply(200, b"<html>"), "200, but no chat completion", "router-ready"),
        (Reply(200, b'{"choices": []}'), "200, but no choices", "router-ready"),
    ],
)
def test_an_answer_that_is_none(reply: Reply | Unread, words: str, fix: str) -> None:
    """What came instead of an answer is said, with what to do, and whether the request was split is then unknown."""
    served = stack_layout("prod").served[0]
    answer, split = check([Outcome(served, reply, NOTHING, NOTHING)], 5)
    assert (answer.status, split.status) == (Status.FAILED, Status.UNKNOWN)
    assert words in answer.found
    assert fix in answer.fix
