"""Stand-in for vLLM in one pod: its HTTP server, its API key and its part of a KV transfer. It computes nothing.

What it does is read from the pod that the API server has: port, role, parallelism, served name, key and side channel come from the
container's args and environment. Followed is what vLLM documents of the NIXL connector (docs: NixlConnector usage guide; API server:
authentication below /v1 only).
"""

from __future__ import annotations

import json
import re
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

from .network import SECONDS, Answer, HttpServer, NotContactedError, PolicedNetwork, Reply, Request

Secrets = Callable[[str, str, str], str]
"""Value of a key of a Secret, by namespace and name."""
API = "/v1"
GENERATING = ("/v1/completions", "/v1/chat/completions")
WORDS = ("one", "two", "three")
JSON, EVENTS = ("content-type", "application/json"), ("content-type", "text/event-stream; charset=utf-8")
HEADLESS_PORT = 8000
"""Where a pod without an HTTP server is watched, to see that nobody calls it."""


@dataclass(frozen=True)
class Pull:
    """One attempt to fetch KV blocks: from where, and how it ended."""

    host: str
    port: int
    outcome: str


@dataclass(frozen=True)
class Settings:
    """What one vLLM container is told."""

    flags: Mapping[str, str]
    environment: Mapping[str, str]

    @classmethod
    def of(cls, pod: Mapping[str, Any], secrets: Secrets) -> Settings:
        """The settings of a pod's engine, as its kubelet would expand them."""
        container = container_of(pod, "vllm")
        environment: dict[str, str] = {}
        for entry in container["env"]:
            environment[entry["name"]] = _expanded(_value(entry, pod, secrets), environment)
        return cls(flags_of([_expanded(a, environment) for a in container["args"]]), environment)

    @property
    def port(self) -> int | None:
        """Port of the HTTP server; None for a rank without one."""
        return None if "--headless" in self.flags else int(self.flags["--port"])

    @property
    def transfer(self) -> dict[str, Any]:
        """The KV connector's configuration; empty without one."""
        found: dict[str, Any] = json.loads(self.flags.get("--kv-transfer-config", "{}"))
        return found


def container_of(pod: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A container or native sidecar of a pod. Raises ValueError when there is none."""
    (found,) = [c for c in (*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]) if c["name"] == name]
    return dict(found)


def flags_of(args: Sequence[str]) -> dict[str, str]:
    """Flags with their values; a flag without a value has an empty one."""
    pairs = (a.partition("=") for a in args if a.startswith("--"))
    return {name: value for name, _, value in pairs}


def _value(entry: Mapping[str, Any], pod: Mapping[str, Any], secrets: Secrets) -> str:
    source = entry.get("valueFrom", {})
    if "fieldRef" in source:
        return str({"status.podIP": pod["status"]["podIP"]}[source["fieldRef"]["fieldPath"]])
    if "secretKeyRef" in source:
        return secrets(pod["metadata"]["namespace"], source["secretKeyRef"]["name"], source["secretKeyRef"]["key"])
    return str(entry.get("value", ""))


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda found: environment.get(found[1], found[0]), text)


class Engine:
    """One vLLM: what it was asked and what it pulled is kept in order."""

    def __init__(self, pod: Mapping[str, Any], network: PolicedNetwork, secrets: Secrets) -> None:
        self.place = network.place(pod["metadata"]["namespace"], pod["metadata"]["name"])
        self.settings = Settings.of(pod, secrets)
        self.requests: list[Request] = []
        self.pulls: list[Pull] = []
        self.handed_over: list[dict[str, Any]] = []
        """What other engines fetched here."""
        self.failure: Answer | None = None
        """What every generating request is answered with, while it is set."""
        self.go_on = threading.Event()
        """While it is cleared, a stream stops after its first chunk."""
        self.go_on.set()
        self._network = network
        self._engine_id = str(uuid.uuid4())
        self._held: dict[str, list[list[int]]] = {}
        self._http: HttpServer | None = None
        self._side_channel: _SideChannel | None = None

    @property
    def address(self) -> str:
        """The pod's address in the cluster."""
        return self.place.ip

    def start(self) -> None:
        """Listen where the generated args and environment say."""
        local = self._network.local(self.address)
        self._http = HttpServer(local, self.settings.port or HEADLESS_PORT, self._answer)
        if self.settings.transfer:
            self._side_channel = _SideChannel((local, int(self.settings.environment["VLLM_NIXL_SIDE_CHANNEL_PORT"])), self._hand_over)
            threading.Thread(target=self._side_channel.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self) -> None:
        """End both servers."""
        self.go_on.set()
        if self._http:
            self._http.stop()
        if self._side_channel:
            self._side_channel.shutdown()
            self._side_channel.server_close()

    def forget(self) -> None:
        """Start a new test: nothing recorded, nothing failing."""
        for record in (self.requests, self.pulls, self.handed_over):
            record.clear()
        self.failure = None
        self.go_on.set()

    def generated(self) -> list[Request]:
        """The requests that ask for an answer of the model."""
        return [r for r in self.requests if r.bare_path in GENERATING]

    def _answer(self, request: Request, reply: Reply) -> None:
        self.requests.append(request)
        key = self.settings.environment.get("VLLM_API_KEY")
        if key and request.path.startswith(API) and request.values("authorization") != [f"Bearer {key}"]:
            reply.send(_json(401, {"error": "Unauthorized"}))
        elif not request.path.startswith(API):
            reply.send(Answer(200, (), b"what vLLM serves without a key\n"))
        elif (request.method, request.bare_path) == ("GET", "/v1/models"):
            reply.send(_json(200, {"object": "list", "data": [{"id": self._model, "object": "model"}]}))
        elif request.method == "POST" and request.bare_path in GENERATING:
            self._generate(request, reply)
        else:
            reply.send(_json(404, {"detail": "Not Found"}))

    @property
    def _model(self) -> str:
        return self.settings.flags["--served-model-name"]

    def _generate(self, request: Request, reply: Reply) -> None:
        if self.failure:
            reply.send(self.failure)
            return
        body = request.json()
        params = (body.get("kv_transfer_params") or {}) if self.settings.transfer else {}
        if body.get("model") != self._model:
            reply.send(_json(404, {"error": {"message": f"The model `{body.get('model')}` does not exist."}}))
        elif params.get("do_remote_prefill") and not self._pull(params):
            reply.send(_json(500, {"error": {"message": "KV load failed", "type": "InternalServerError"}}))
        elif body.get("stream"):
            reply.stream(200, [EVENTS], self._events())
        elif params.get("do_remote_decode") and body.get("max_tokens") != 1:
            reply.send(_json(400, {"error": {"message": "a prefill that is handed on generates one token"}}))
        else:
            handed = {"kv_transfer_params": self._hold()} if params.get("do_remote_decode") else {}
            reply.send(_json(200, {"id": f"cmpl-{uuid.uuid4()}", "model": self._model, "choices": [_choice(" ".join(WORDS))], **handed}))

    def _events(self) -> Iterator[bytes]:
        for number, word in enumerate(WORDS):
            if number == 1:
                self.go_on.wait(SECONDS)
            yield f"data: {json.dumps({'model': self._model, 'choices': [_choice(word)]})}\n\n".encode()
        yield b"data: [DONE]\n\n"

    def _hold(self) -> dict[str, Any]:
        """Keep the blocks of a prefill until they are fetched; what the other side must know for that."""
        request_id = f"cmpl-{uuid.uuid4()}"
        first = 16 * len(self._held)
        self._held[request_id] = [list(range(first, first + 4))]
        environment = self.settings.environment
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": self._held[request_id],
            "remote_engine_id": self._engine_id,
            "remote_request_id": request_id,
            "remote_host": environment["VLLM_NIXL_SIDE_CHANNEL_HOST"],
            "remote_port": int(environment["VLLM_NIXL_SIDE_CHANNEL_PORT"]),
            "tp_size": int(self.settings.flags["--tensor-parallel-size"]),
        }

    def _hand_over(self, wanted: dict[str, Any]) -> bool:
        """Give blocks away once, to who names engine, request and blocks."""
        known = wanted.get("engine_id") == self._engine_id and self._held.get(str(wanted.get("request_id"))) == wanted.get("block_ids")
        if known:
            self.handed_over.append(wanted)
            del self._held[str(wanted["request_id"])]
        return known

    def _pull(self, params: Mapping[str, Any]) -> bool:
        """Connect to where a request says that its KV blocks are; whether they came, or the engine computes them itself."""
        host, port = str(params.get("remote_host")), int(params.get("remote_port") or 0)
        try:
            with self._network.open(self.place, host, port) as connection:
                outcome = _fetch(connection, params)
        except NotContactedError:
            outcome = "allowed, not contacted"
        except ConnectionRefusedError as refusal:
            outcome = f"refused: {refusal}"
        self.pulls.append(Pull(host, port, outcome))
        return outcome == "pulled" or self.settings.transfer.get("kv_load_failure_policy") == "recompute"


def _fetch(connection: socket.socket, params: Mapping[str, Any]) -> str:
    asked = {key: params.get(f"remote_{key}") for key in ("engine_id", "request_id", "block_ids")}
    with connection.makefile("rwb") as lines:
        lines.write(json.dumps(asked).encode() + b"\n")
        lines.flush()
        return str(json.loads(lines.readline())["outcome"])


class _SideChannel(ThreadingTCPServer):
    """Where other engines ask for blocks. The real one speaks msgpack over ZeroMQ, and the blocks themselves go over EFA."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], hand_over: Callable[[dict[str, Any]], bool]) -> None:
        self.hand_over = hand_over
        super().__init__(address, _SideChannelCall)


class _SideChannelCall(StreamRequestHandler):
    server: _SideChannel
    timeout = SECONDS

    def handle(self) -> None:
        found = self.server.hand_over(json.loads(self.rfile.readline()))
        self.wfile.write(json.dumps({"outcome": "pulled" if found else "unknown blocks"}).encode() + b"\n")


def _choice(text: str) -> dict[str, Any]:
    return {"index": 0, "text": text, "finish_reason": "length"}


def _json(status: int, body: Mapping[str, Any]) -> Answer:
    return Answer(status, (JSON,), json.dumps(body).encode())
