"""One request through the router, and whether prefill and decode both had a part in it."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from ..manifests.names import router_labels
from ..manifests.network_policy import PROXY_PORT
from ..planning.shapes import API_PORT, Layout, Served
from .connection import Connection, Reply, Request
from .engine_answers import metrics_of
from .metrics import NOTHING, Metrics
from .points import Point, failed, ok, unknown
from .reader import read_snapshot
from .snapshot import Snapshot, Unread
from .view import View, is_true, pods_in

KEY_VARIABLE = "DISAGG_API_KEY"
"""Where the API key of a guarded endpoint is read from: never an argument, which other processes see."""
PROMPT = "Note {number}. Name the planets of the solar system in the order of their distance from the sun."
"""With a number of its own each time: what a prefix cache holds already would not be transferred."""
MOST_TOKENS = 8


@dataclass(frozen=True)
class Outcome:
    """What one model's request came to: the answer, and how far the sums of each role's metrics moved."""

    served: Served
    reply: Reply | Unread
    prefill: Metrics | Unread
    decode: Metrics | Unread


def send(connection: Connection, layout: Layout, before: Snapshot, seconds: float) -> tuple[Snapshot, list[Outcome]]:
    """A request to each model; the snapshot that is taken afterwards, and what came of them. Raises ToolError like the reader."""
    key = os.environ.get(KEY_VARIABLE)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    replies = [(served, _request(connection, View(layout, before), served, headers, seconds)) for served in layout.served]
    after = read_snapshot(connection, layout)
    return after, [Outcome(s, r, *(_moved(layout, s, role, before, after) for role in ("prefill", "decode"))) for s, r in replies]


def check(outcomes: list[Outcome], seconds: float) -> Iterator[Point]:
    """The points of each request."""
    for o in outcomes:
        name = o.served.spec.name
        wanted = f"200 within {seconds:g} s"
        answered = _answer(o.reply)
        if answered is None:
            yield ok("canary-answer", name, wanted)
        else:
            yield failed("canary-answer", name, wanted, answered, _fix(o.reply))
        # otherwise decode may answer a short prompt alone
        always = o.served.spec.gateway.routing.disaggregation == "always" or not o.served.spec.gateway.enabled
        if o.served.spec.disaggregated and always:
            yield _split(o, answered=answered is None)


def _split(o: Outcome, *, answered: bool) -> Point:
    name, subject, wanted = "canary-split", o.served.spec.name, "prompt tokens on prefill, a transfer to decode, no failure"
    if not answered:
        return unknown(name, subject, wanted, "the request was not answered: see canary-answer")
    if isinstance(o.prefill, Unread):
        return unknown(name, subject, wanted, o.prefill.reason)
    if isinstance(o.decode, Unread):
        return unknown(name, subject, wanted, o.decode.reason)
    found = f"{o.prefill.prompt_tokens:.0f} prompt tokens on prefill, {o.decode.transfers:.0f} transfers, {o.decode.failures:.0f} failures"
    if o.prefill.prompt_tokens > 0 and o.decode.transfers > 0 and not o.decode.failures:
        return ok(name, subject, wanted, found)
    return failed(name, subject, wanted, found, "see prefill-used, kv-transfers and nixl-backend")


def _request(connection: Connection, view: View, served: Served, headers: dict[str, str], seconds: float) -> Reply | Unread:
    namespace, wanted = served.spec.kubernetes_namespace, router_labels(served)
    port = PROXY_PORT
    if not served.spec.gateway.enabled:
        # without a router clients call the leaders themselves
        wanted, port = {**view.layout.groups_of(served)[-1].labels}, API_PORT
    found = view.snapshot.lists.get(pods_in(namespace))
    pods = [] if found is None or isinstance(found, Unread) else found
    ready = [p for p in pods if wanted.items() <= (p["metadata"].get("labels") or {}).items() and is_true(p, "Ready")]
    if not ready:
        return Unread("no ready pod of the router")
    prompt = PROMPT.format(number=secrets.randbelow(10**9))
    body = {"model": served.spec.served_model_name or served.spec.name, "messages": [{"role": "user", "content": prompt}], "max_tokens": MOST_TOKENS}
    # by a port forward: the pod proxy keeps the Authorization header for itself
    request = Request("POST", "/v1/chat/completions", body, headers)
    return connection.forward(namespace, ready[0]["metadata"]["name"], port, request, seconds)


def _moved(layout: Layout, served: Served, role: str, before: Snapshot, after: Snapshot) -> Metrics | Unread:
    sums = []
    for snapshot in (before, after):
        view, total = View(layout, snapshot), NOTHING
        for engine in (e for g in layout.groups_of(served) if g.role == role for e in view.engines(g)):
            found = metrics_of(view, engine)
            if isinstance(found, Unread):
                return found
            total += found
        sums.append(total)
    return sums[1] - sums[0]


def _answer(reply: Reply | Unread) -> str | None:
    """What is wrong with an answer."""
    if isinstance(reply, Unread):
        return reply.reason
    if not reply.ok:
        return f"{reply.status}: {' '.join(reply.text.split())[:200]}"
    try:
        choices = json.loads(reply.body)["choices"]
    except (ValueError, KeyError, TypeError):
        return "200, but no chat completion"
    return None if choices else "200, but no choices"


def _fix(reply: Reply | Unread) -> str:
    if isinstance(reply, Reply) and reply.status in (401, 403):
        return f"give the endpoint's API key as the environment variable {KEY_VARIABLE}"
    return "see router-ready, service-endpoints and the logs of router and engines"
