"""Stand-in for llm-d's routing sidecar beside vLLM in a decode pod: the protocol nixlv2 of v0.10.0, in words of our own.

Facts from llm-d/llm-d-router, pkg/sidecar/proxy (tag v0.10.0). With `x-prefiller-host-port` a request goes there first, as a prefill
of one token, then with what that answered to vLLM beside; without it the body passes as it is. A prefill that fails is the client's
answer: nothing is computed locally instead. Only POSTs to four paths are looked into, everything else passes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from http.client import HTTPException, HTTPResponse
from typing import Any

from .engine import JSON, container_of, flags_of
from .network import HOP_BY_HOP, Answer, Connection, HttpServer, PolicedNetwork, Reply, Request, call

PREFILLER, RANK = "x-prefiller-host-port", "x-data-parallel-host-port"
REMOVED = (PREFILLER, "x-kv-cache-source-host-port", "x-encoder-hosts-ports")
REQUEST_ID = "x-request-id"
INTERCEPTED = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses")
PREFILL_PARAMS = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    **dict.fromkeys(("remote_engine_id", "remote_block_ids", "remote_host", "remote_port")),
}
TOKEN_LIMITS = {"/v1/responses": ("max_output_tokens",)}
COMPLETION_LIMITS = ("max_tokens", "max_completion_tokens", "min_tokens")
UNDERSTOOD = {"--kv-connector": "nixlv2", "--secure-proxy": "false"}
PORTS = ("--port", "--model-server-port")
_CHUNK = 65536


class Sidecar:
    """One sidecar; what it was asked is kept in order."""

    def __init__(self, pod: Mapping[str, Any], network: PolicedNetwork) -> None:
        flags = flags_of(container_of(pod, "routing-sidecar")["args"])
        odd = {name: value for name, value in flags.items() if name not in PORTS and UNDERSTOOD.get(name) != value}
        if odd or not set(flags) >= {*PORTS, *UNDERSTOOD}:
            raise ValueError(f"the stand-in does not follow these args of the sidecar: {flags}")
        self.port, self.behind = (int(flags[name]) for name in PORTS)
        self.place = network.place(pod["metadata"]["namespace"], pod["metadata"]["name"])
        self.requests: list[Request] = []
        self._network = network
        self._http: HttpServer | None = None

    def start(self) -> None:
        """Listen where the generated args say."""
        self._http = HttpServer(self._network.local(self.place.ip), self.port, self._answer)

    def stop(self) -> None:
        """Listen no more."""
        if self._http:
            self._http.stop()

    def _answer(self, request: Request, reply: Reply) -> None:
        self.requests.append(request)
        if (request.method, request.path) == ("GET", "/health"):
            reply.send(Answer(200, (), b""))
        elif request.method == "POST" and request.bare_path in INTERCEPTED:
            self._intercept(request, reply)
        else:
            self._decode(request, reply)

    def _intercept(self, request: Request, reply: Reply) -> None:
        prefillers = [p.strip() for value in request.values(PREFILLER) for p in value.split(",")]
        inner = without(request, REMOVED)
        if prefillers and prefillers[0]:
            self._split(inner, prefillers[0], reply)
        else:
            self._decode(inner, reply)

    def _split(self, request: Request, prefiller: str, reply: Reply) -> None:
        try:
            body = request.json()
        except ValueError as problem:
            reply.send(_error(400, "BadRequestError", str(problem)))
            return
        # added, not set: vLLM reads the first, which is the picker's
        request = Request(request.method, request.path, (*request.headers, (REQUEST_ID, str(uuid.uuid4()))), request.body)
        prefilled = self._prefill(with_body(request, prefill_body(request.bare_path, body)), prefiller)
        if not 200 <= prefilled.status < 300:
            reply.send(Answer(prefilled.status, tuple(handed_on(prefilled.headers)), prefilled.body))
            return
        params = json.loads(prefilled.body).get("kv_transfer_params")
        self._decode(with_body(request, {**body, "kv_transfer_params": params}), reply)

    def _prefill(self, request: Request, prefiller: str) -> Answer:
        host, _, port = prefiller.rpartition(":")
        try:
            return call(self._network, self.place, host, int(port), request)
        except (OSError, HTTPException, ValueError) as problem:
            return Answer(502, (), str(problem).encode())

    def _decode(self, request: Request, reply: Reply) -> None:
        if request.values(RANK):
            # a rank that this pod does not have; with one rank no header is right
            reply.send(Answer(400, (), b""))
            return
        connection = Connection(self._network, self.place, self.place.ip, self.behind)
        try:
            response = connection.begin(request)
            reply.stream(response.status, handed_on(response.getheaders()), _chunks(response))
        except ConnectionRefusedError as problem:
            reply.send(_error(503, "ServiceUnavailable", str(problem)))
        finally:
            connection.close()


def prefill_body(path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of the prefill: one token, no stream, and KV-transfer fields of the sidecar's own."""
    limits = TOKEN_LIMITS.get(path, COMPLETION_LIMITS)
    kept = {key: value for key, value in body.items() if key != "stream_options"}
    return {**kept, "stream": False, **dict.fromkeys(limits, 1), "kv_transfer_params": dict(PREFILL_PARAMS)}


def without(request: Request, names: Iterable[str]) -> Request:
    """A request without some headers."""
    removed = frozenset(names)
    return Request(request.method, request.path, tuple(h for h in request.headers if h[0] not in removed), request.body)


def with_body(request: Request, body: Mapping[str, Any]) -> Request:
    """A request with another body."""
    return Request(request.method, request.path, request.headers, json.dumps(body).encode())


def handed_on(headers: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Headers of an answer that a proxy hands on."""
    return ((name, value) for name, value in headers if name.lower() not in HOP_BY_HOP)


def _chunks(response: HTTPResponse) -> Iterator[bytes]:
    while chunk := response.read1(_CHUNK):
        yield chunk


def _error(code: int, kind: str, message: str) -> Answer:
    return Answer(code, (JSON,), json.dumps({"object": "error", "message": message, "type": kind, "code": code}).encode())
