"""Stand-in for llm-d's endpoint picker: Envoy's external processor, led by the generated EndpointPickerConfig.

Facts from llm-d/llm-d-router, pkg/epp (tag v0.10.0); numbers of fields from envoyproxy/envoy, api/envoy/service/ext_proc/v3. The real
one scores pods by what it measures at them; here every scorer is a round robin, and a decider by prefix never splits, as for a prompt
that is short or cached. The real one watches pods; here they are listed at the start and on `refresh`. What it has in common with the
real one is what the tests are about: which pods are candidates, which role serves which stage, that a request without a body goes to
any pod, that a request is served by decode alone when no prefill pod is ready, and that headers are set and never removed.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
import trustme
import yaml
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from network_policies import Place

from bench.cluster import Cluster

from .network import PolicedNetwork

DESTINATION, PREFILLER, REQUEST_ID = "x-gateway-destination-endpoint", "x-prefiller-host-port", "x-request-id"
ROLE = "llm-d.ai/role"
ROLES = {
    "decode-filter": frozenset({"decode", "prefill-decode", "both", "encode-prefill-decode", None}),
    "prefill-filter": frozenset({"prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode"}),
}
"""Roles that a filter passes; None stands for a pod without the label."""
SCORERS = frozenset({"prefix-cache-scorer", "queue-scorer", "kv-cache-utilization-scorer", "active-request-scorer"})
DECIDERS = {"always-disagg-pd-decider": True, "prefix-based-pd-decider": False}
"""Whether a decider splits a request."""
SPLITS, SINGLE = "disagg-profile-handler", "single-profile-handler"
KNOWN = frozenset({*ROLES, *SCORERS, *DECIDERS, SPLITS, SINGLE, "approx-prefix-cache-producer", "max-score-picker"})
PARSED = ("chat/completions", "completions", "embeddings", "responses", "conversations", "chat/completions/render", "completions/render",
          "images/generations", "messages", "messages/count_tokens", "inference/v1/generate")  # fmt: skip
"""Ends of paths that the parsers take which v0.10.0 has by default; a body for another path is refused."""
PORT = 9002
SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
HEALTH, SERVING, SERVICE_UNKNOWN = "grpc.health.v1.Health", 1, 3
CHUNK = 62000
"""Bytes of a body that one message carries."""
WORKERS = 32

_FIELDS: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "HeaderValue": {"key": (1, "string"), "value": (2, "string"), "raw_value": (3, "bytes")},
    "HeaderValueOption": {"header": (1, "HeaderValue")},
    "HeaderMap": {"headers": (1, "HeaderValue*")},
    "HttpHeaders": {"headers": (1, "HeaderMap"), "end_of_stream": (3, "bool")},
    "HttpBody": {"body": (1, "bytes"), "end_of_stream": (2, "bool")},
    "HttpTrailers": {"trailers": (1, "HeaderMap")},
    "ProcessingRequest": {
        "request_headers": (2, "HttpHeaders"),
        "response_headers": (3, "HttpHeaders"),
        "request_body": (4, "HttpBody"),
        "response_body": (5, "HttpBody"),
        "request_trailers": (6, "HttpTrailers"),
        "response_trailers": (7, "HttpTrailers"),
    },
    "HeaderMutation": {"set_headers": (1, "HeaderValueOption*"), "remove_headers": (2, "string*")},
    "StreamedBodyResponse": {"body": (1, "bytes"), "end_of_stream": (2, "bool")},
    "BodyMutation": {"streamed_response": (3, "StreamedBodyResponse")},
    "CommonResponse": {"header_mutation": (2, "HeaderMutation"), "body_mutation": (3, "BodyMutation"), "clear_route_cache": (5, "bool")},
    "HeadersResponse": {"response": (1, "CommonResponse")},
    "BodyResponse": {"response": (1, "CommonResponse")},
    "TrailersResponse": {"header_mutation": (1, "HeaderMutation")},
    "HttpStatus": {"code": (1, "int32")},
    "ImmediateResponse": {"status": (1, "HttpStatus"), "body": (3, "bytes")},
    "ProcessingResponse": {
        "request_headers": (1, "HeadersResponse"),
        "response_headers": (2, "HeadersResponse"),
        "request_body": (3, "BodyResponse"),
        "response_body": (4, "BodyResponse"),
        "request_trailers": (5, "TrailersResponse"),
        "response_trailers": (6, "TrailersResponse"),
        "immediate_response": (7, "ImmediateResponse"),
    },
    "HealthCheckRequest": {"service": (1, "string")},
    "HealthCheckResponse": {"status": (1, "int32")},
}
"""Messages of the external processor and of health checks, as far as they are used; `*` marks repeated fields."""


def _classes() -> dict[str, Any]:
    kinds = descriptor_pb2.FieldDescriptorProto
    scalars = {"string": kinds.TYPE_STRING, "bytes": kinds.TYPE_BYTES, "bool": kinds.TYPE_BOOL, "int32": kinds.TYPE_INT32}
    package = "live.traffic"
    file = descriptor_pb2.FileDescriptorProto(name="live/traffic.proto", package=package, syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            of = kind.removesuffix("*")
            added = message.field.add(name=field, number=number, label=kinds.LABEL_REPEATED if kind.endswith("*") else kinds.LABEL_OPTIONAL)
            if of in scalars:
                added.type = scalars[of]
            else:
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".{package}.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in _FIELDS}


MESSAGES = _classes()


class Refusal(Exception):  # noqa: N818 - it is an answer
    """What the picker answers instead of letting a request through."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Pick:
    """Where one request went."""

    destination: Place
    prefiller: Place | None = None


class Scheduling:
    """An EndpointPickerConfig, read as strictly as the real one does. Raises ValueError for what the stand-in does not know."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        if (config.get("kind"), config.get("apiVersion")) != ("EndpointPickerConfig", "llm-d.ai/v1alpha1"):
            raise ValueError(f"{config.get('apiVersion')} {config.get('kind')} is no EndpointPickerConfig")
        if odd := set(config) - {"apiVersion", "kind", "plugins", "schedulingProfiles"}:
            raise ValueError(f"unknown keys {sorted(odd)}")
        types = {p.get("name", p["type"]): p["type"] for p in config["plugins"]}
        if unknown := set(types.values()) - KNOWN:
            raise ValueError(f"unknown plugins {sorted(unknown)}")
        self._filters: dict[str, list[str]] = {}
        for profile in config["schedulingProfiles"]:
            referred = [types[p["pluginRef"]] for p in profile["plugins"]]
            self._filters[profile["name"]] = [t for t in referred if t in ROLES]
        (handler,) = [p for p in config["plugins"] if p["type"] in {SPLITS, SINGLE}]
        self._single = handler["type"] == SINGLE
        decider = handler.get("parameters", {}).get("deciders", {}).get("prefill")
        self._splits = decider is not None and DECIDERS[types[decider]]
        if self._single and len(self._filters) != 1:
            raise ValueError("a single profile is wanted")

    def stages(self) -> list[str]:
        """Profiles in the order in which they run; the first one's pod is the destination."""
        if self._single:
            return list(self._filters)
        return ["decode", *(["prefill"] if self._splits and "prefill" in self._filters else [])]

    def passes(self, stage: str, place: Place) -> bool:
        """Whether a pod may serve a stage."""
        return all(place.labels.get(ROLE) in ROLES[f] for f in self._filters[stage])


class Picker:
    """One endpoint picker beside one Envoy, for the pods of one model."""

    def __init__(self, cluster: Cluster, network: PolicedNetwork, router: Place, values: Mapping[str, Any]) -> None:
        servers, epp = values["modelServers"], values["epp"]
        self.scheduling = Scheduling(yaml.safe_load(epp["pluginsCustomConfig"][epp["pluginsConfigFile"]]))
        self.picks: list[Pick] = []
        self._cluster, self._network, self._router = cluster, network, router
        self._selector = ",".join(f"{key}={value}" for key, value in servers["matchLabels"].items())
        (port,) = servers["targetPorts"]
        self._port = int(port["number"])
        self._turns: dict[str, int] = {}
        self._lock = threading.Lock()
        self._server: grpc.Server | None = None

    def start(self) -> None:
        """List the pods, and serve Envoy with a certificate of our own."""
        self.refresh()
        certificate = trustme.CA().issue_cert("localhost")
        pair = (certificate.private_key_pem.bytes(), certificate.cert_chain_pems[0].bytes())
        self._server = grpc.server(ThreadPoolExecutor(WORKERS, thread_name_prefix="picker"))
        self._server.add_generic_rpc_handlers((_service("Process", self._process), _health()))
        self._server.add_secure_port(f"{self._network.local(self._router.ip)}:{PORT}", grpc.ssl_server_credentials([pair]))
        self._server.start()

    def stop(self) -> None:
        """End at once, as a killed process."""
        if self._server:
            self._server.stop(grace=None).wait()
            self._server = None

    def refresh(self) -> None:
        """The pods that can serve now: of the router's namespace, with the generated labels, and ready."""
        found = self._cluster.items("pods", str(self._router.namespace), self._selector)
        self._pods = sorted(
            (self._network.place(p["metadata"]["namespace"], p["metadata"]["name"]) for p in found if _is_ready(p)), key=lambda p: p.name
        )

    def _process(self, requests: Iterator[Any], _: grpc.ServicerContext) -> Iterator[Any]:
        """One HTTP request and its answer, in both directions as they come."""
        headers: dict[str, str] = {}
        body, answer, streams = bytearray(), bytearray(), False
        for message in requests:
            if message.HasField("request_headers"):
                headers = _headers(message.request_headers)
                if message.request_headers.end_of_stream:
                    # the real one chooses at random among all pods, whatever their role: what has no body needs no model
                    yield from self._routed(headers, None)
            elif message.HasField("request_body"):
                body += message.request_body.body
                if message.request_body.end_of_stream:
                    yield from self._routed(headers, bytes(body))
            elif message.HasField("response_headers"):
                streams = "text/event-stream" in _headers(message.response_headers).get("content-type", "")
                yield _response("response_headers", header_mutation=_mutation({"x-went-into-resp-headers": "true"}))
            elif message.HasField("response_body"):
                answer += message.response_body.body
                ends = message.response_body.end_of_stream
                if streams or ends:
                    yield from _bodies("response_body", bytes(answer), ends=ends)
                    answer.clear()

    def _routed(self, headers: Mapping[str, str], body: bytes | None) -> Iterator[Any]:
        try:
            pick = self._any() if body is None else self._schedule(headers, body)
            self._network.ask(self._router, pick.destination.ip, self._port)
        except Refusal as refusal:
            yield _immediate(refusal.status, str(refusal))
            return
        except ConnectionRefusedError as refusal:
            # on Envoy's behalf, which would time out
            yield _immediate(503, str(refusal))
            return
        with self._lock:
            self.picks.append(pick)
        chosen = {DESTINATION: f"{self._network.local(pick.destination.ip)}:{self._port}"}
        if pick.prefiller:
            chosen[PREFILLER] = f"{pick.prefiller.ip}:{self._port}"
        if body is not None:
            chosen |= {"content-length": str(len(body)), REQUEST_ID: headers.get(REQUEST_ID, str(uuid.uuid4()))}
        yield _response("request_headers", header_mutation=_mutation(chosen), clear_route_cache=True)
        if body is not None:
            yield from _bodies("request_body", body, ends=True)

    def _any(self) -> Pick:
        return Pick(self._next("any", self._pods) or _refuse(500, "no pods available in datastore"))

    def _schedule(self, headers: Mapping[str, str], body: bytes) -> Pick:
        path = headers.get(":path", "").partition("?")[0].rstrip("/")
        if not path.endswith(PARSED):
            _refuse(400, f"no parser registered matching path suffix for: {path}")
        try:
            json.loads(body)
        except ValueError as problem:
            _refuse(400, str(problem))
        if not self._pods:
            _refuse(503, "failed to find endpoint candidates for serving the request")
        first, *others = [self._next(s, [p for p in self._pods if self.scheduling.passes(s, p)]) for s in self.scheduling.stages()]
        # a stage after the first that finds no pod is left out
        return Pick(first or _refuse(429, "failed to find available decode workers"), *others)

    def _next(self, stage: str, places: Sequence[Place]) -> Place | None:
        if not places:
            return None
        with self._lock:
            turn = self._turns[stage] = self._turns.get(stage, -1) + 1
        return places[turn % len(places)]


def _refuse(status: int, text: str) -> Any:
    raise Refusal(status, text)


def _is_ready(pod: Mapping[str, Any]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions") or [])


def _headers(message: Any) -> dict[str, str]:
    return {h.key: h.raw_value.decode(errors="replace") or h.value for h in message.headers.headers}


def _mutation(headers: Mapping[str, str]) -> Any:
    """Headers to set. How one that is there already is treated is left to Envoy's default, as the real one does."""
    value, option = MESSAGES["HeaderValue"], MESSAGES["HeaderValueOption"]
    return MESSAGES["HeaderMutation"](set_headers=[option(header=value(key=k, raw_value=v.encode())) for k, v in headers.items()])


def _response(part: str, **common: Any) -> Any:
    kind = MESSAGES["HeadersResponse" if part.endswith("headers") else "BodyResponse"]
    return MESSAGES["ProcessingResponse"](**{part: kind(response=MESSAGES["CommonResponse"](**common))})


def _bodies(part: str, body: bytes, *, ends: bool) -> Iterator[Any]:
    for start in range(0, max(1, len(body)), CHUNK):
        last = start + CHUNK >= len(body)
        streamed = MESSAGES["StreamedBodyResponse"](body=body[start : start + CHUNK], end_of_stream=ends and last)
        yield _response(part, body_mutation=MESSAGES["BodyMutation"](streamed_response=streamed))


def _immediate(status: int, text: str) -> Any:
    answer = MESSAGES["ImmediateResponse"](status=MESSAGES["HttpStatus"](code=status), body=text.encode())
    return MESSAGES["ProcessingResponse"](immediate_response=answer)


def _service(method: str, process: Any) -> grpc.GenericRpcHandler:
    request, response = MESSAGES["ProcessingRequest"], MESSAGES["ProcessingResponse"]
    handler = grpc.stream_stream_rpc_method_handler(process, request.FromString, response.SerializeToString)
    return grpc.method_handlers_generic_handler(SERVICE, {method: handler})


def _health() -> grpc.GenericRpcHandler:
    def check(request: Any, _: grpc.ServicerContext) -> Any:
        return MESSAGES["HealthCheckResponse"](status=SERVING if request.service == SERVICE else SERVICE_UNKNOWN)

    request, response = MESSAGES["HealthCheckRequest"], MESSAGES["HealthCheckResponse"]
    handler = grpc.unary_unary_rpc_method_handler(check, request.FromString, response.SerializeToString)
    return grpc.method_handlers_generic_handler(HEALTH, {"Check": handler})
