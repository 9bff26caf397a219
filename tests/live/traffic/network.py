"""Connections between pods that run nowhere: asked of the policies in the API server first, then opened on loopback.

A pod of kwok has an address and nothing that answers there. Each gets an address of loopback of its own, so that the ports of its
stand-ins are the generated ones. Nothing but loopback is ever contacted.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import unquote

from network_policies import Network, Place

from bench.cluster import Cluster

SECONDS = 30
"""How long one side waits for the other; far more than any step takes, on a busy machine too."""
HOP_BY_HOP = frozenset({"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "content-length"})
"""Headers of one connection, which a proxy does not hand on."""
_SUBNETS = 2**15


class NotContactedError(OSError):
    """The policies let it through, but there is nothing behind the address on the bench: the test must not go there."""


class PolicedNetwork:
    """The pods of a cluster by address, and the policies between them, both as the API server has them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._local: dict[str, str] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read policies, namespaces and pods again."""
        namespaces = {n["metadata"]["name"]: n["metadata"].get("labels", {}) for n in self._cluster.items("namespaces")}
        self._network = Network(self._cluster.items("networkpolicies"), namespaces)
        self.pods = [p for p in self._cluster.items("pods") if p.get("status", {}).get("podIP")]
        self._places = {p["status"]["podIP"]: _place(p) for p in self.pods}
        for ip in self._places:
            self._local.setdefault(ip, _loopback(len(self._local)))

    def pod(self, namespace: str, name: str) -> dict[str, Any]:
        """A pod by its name."""
        (found,) = [p for p in self.pods if (p["metadata"]["namespace"], p["metadata"]["name"]) == (namespace, name)]
        return found

    def place(self, namespace: str, name: str) -> Place:
        """A pod as one end of a connection."""
        return _place(self.pod(namespace, name))

    def local(self, ip: str) -> str:
        """The address of loopback that stands for a pod's address."""
        return self._local[ip]

    def ask(self, source: Place, ip: str, port: int) -> None:
        """Whether `source` may open a connection there. Raises ConnectionRefusedError with the policies that refuse it."""
        refusal = self._network.refusal(source, self._places.get(ip, Place(ip, ip)), port)
        if refusal:
            raise ConnectionRefusedError(refusal)

    def open(self, source: Place, ip: str, port: int) -> socket.socket:
        """A connection to a pod. Raises ConnectionRefusedError as `ask`, and NotContactedError for what is allowed and not on the bench."""
        self.ask(source, ip, port)
        if ip not in self._local:
            raise NotContactedError(f"{source} may connect to {ip}:{port}")
        return socket.create_connection((self._local[ip], port), SECONDS)


def _place(pod: Mapping[str, Any]) -> Place:
    metadata = pod["metadata"]
    return Place(metadata["name"], pod["status"]["podIP"], metadata["namespace"], metadata.get("labels", {}))


def _loopback(number: int) -> str:
    """Addresses that no other run on this machine takes at the same time: a block of its own for each process."""
    block = os.getpid() % _SUBNETS
    if number >= 250:
        raise ValueError("more pods than addresses")
    return f"127.{128 + block // 256 % 127}.{block % 256}.{number + 1}"


@dataclass(frozen=True)
class Request:
    """One HTTP request as it came in, names of headers in lower case."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def bare_path(self) -> str:
        """The path as servers match it: without its query, and with escapes resolved."""
        return unquote(self.path.partition("?")[0])

    def values(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for key, value in self.headers if key == name]

    def json(self) -> dict[str, Any]:
        """The body as an object. Raises ValueError when it is none."""
        found = json.loads(self.body)
        if not isinstance(found, dict):
            raise ValueError("the body is no JSON object")  # noqa: TRY004 - the text is wrong, not the call
        return found


@dataclass(frozen=True)
class Answer:
    """One HTTP answer, read to its end."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


class Reply(BaseHTTPRequestHandler):
    """What a server answers one request with: all at once, or as a stream of chunks."""

    protocol_version = "HTTP/1.1"
    # an answer in several writes would wait for the other side's acknowledgement
    disable_nagle_algorithm = True
    timeout = SECONDS
    server: HttpServer

    def send(self, answer: Answer) -> None:
        """Answer at once."""
        self._head(answer.status, (*answer.headers, ("content-length", str(len(answer.body)))))
        self.wfile.write(answer.body)

    def stream(self, status: int, headers: Iterable[tuple[str, str]], chunks: Iterable[bytes]) -> None:
        """Answer with a stream that ends with the iteration; each chunk leaves at once."""
        self._head(status, (*headers, ("transfer-encoding", "chunked")))
        for chunk in chunks:
            if chunk:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        self.wfile.write(b"0\r\n\r\n")

    def _head(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def _serve(self) -> None:
        request = Request(self.command, self.path, tuple((name.lower(), value) for name, value in self.headers.items()), self._body())
        self.server.answer(request, self)

    do_GET = do_POST = do_PUT = do_DELETE = do_OPTIONS = _serve  # noqa: N815 - the names that the standard library calls

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the standard library's name
        """Say nothing: servers keep what they were asked."""


class HttpServer(ThreadingHTTPServer):
    """An HTTP server on one pod's address, until `stop`."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: str, port: int, answer: Callable[[Request, Reply], None]) -> None:
        self.answer = answer
        self._connections: set[socket.socket] = set()
        super().__init__((address, port), Reply)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def server_bind(self) -> None:
        """Listen, without asking the machine's resolver what the address is called."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection, and keep it for `stop`."""
        connection, client = super().get_request()
        self._connections.add(connection)
        return connection, client

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what went wrong, unless the other side just left."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def stop(self) -> None:
        """Listen no more, and end what is open."""
        self.shutdown()
        self.server_close()
        for connection in list(self._connections):
            self.shutdown_request(connection)


class Connection(http.client.HTTPConnection):
    """An HTTP connection of a pod, or of something outside the cluster, through the policies."""

    def __init__(self, network: PolicedNetwork, source: Place, ip: str, port: int) -> None:
        super().__init__(ip, port, timeout=SECONDS)
        self._network, self._source = network, source

    def connect(self) -> None:
        """Ask the policies, then connect. Raises as `PolicedNetwork.open`."""
        self.sock = self._network.open(self._source, self.host, self.port)

    def begin(self, request: Request) -> http.client.HTTPResponse:
        """Send a request as it is; the answer is read by the caller."""
        self.putrequest(request.method, request.path, skip_host=bool(request.values("host")), skip_accept_encoding=True)
        for name, value in request.headers:
            if name not in HOP_BY_HOP:
                self.putheader(name, value)
        if request.body or request.method == "POST":
            self.putheader("content-length", str(len(request.body)))
        self.endheaders(request.body or None)
        return self.getresponse()


def call(network: PolicedNetwork, source: Place, ip: str, port: int, request: Request) -> Answer:
    """One request from one place to another. Raises as `PolicedNetwork.open`, and OSError or HTTPException for a broken connection."""
    connection = Connection(network, source, ip, port)
    try:
        response = connection.begin(request)
        return Answer(response.status, tuple((n.lower(), v) for n, v in response.getheaders()), response.read())
    finally:
        connection.close()
