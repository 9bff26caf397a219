"""What `disagg verify` and `disagg bench` ask on the bench: engines, router and controller that only answer.

Requests pass the real API server and kwok's kubelet server, which forwards a pod's ports and gives its log as its objects say. Behind
them stand small HTTP servers here: one for each engine with vLLM's metrics, one for each router, which moves these metrics as a request would.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from disagg_serving import labels
from disagg_serving.manifests.gateway import router_values
from disagg_serving.manifests.lws import CONTROLLER_LABELS
from disagg_serving.manifests.names import picker_name, router_labels
from disagg_serving.manifests.network_policy import PROXY_PORT
from disagg_serving.pins import lws_image
from disagg_serving.planning.connector import BACKENDS
from disagg_serving.planning.shapes import Group, Layout, Served

from bench.cluster import Cluster

START, PROMPT = "2026-11-30T00:00:00.000000000Z stdout F", 1000
CONTROLLER, LWS_SYSTEM = "lws-controller-manager", "lws-system"


@dataclass
class EngineStandIn:
    """One engine: what it says, and how to change it."""

    group: Group
    name: str
    folder: Path
    version: str = ""
    backend: str = ""
    prompt: float = 0
    local: float = 0
    transfers: float = 0
    failed: float = 0
    waiting: float = 0
    running: float = 0
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """As it is after some traffic."""
        self.reset()

    def reset(self) -> None:
        """An engine that has served two prompts as it should."""
        served = self.group.served
        split = served.spec.disaggregated
        self.version = served.engine.version
        self.backend = BACKENDS[0] if split else ""
        self.prompt, self.failed, self.waiting, self.running = 2 * PROMPT, 0, 0, 0
        self.transfers, self.local = (2, 2) if self.group.role == "decode" else (0, 2 * PROMPT)
        self.write_log()

    @property
    def log(self) -> Path:
        """Its log, in the kubelet's form."""
        return self.folder / f"{self.name}.log"

    def write_log(self) -> None:
        """The lines of a start."""
        said = ["INFO vLLM engine starts", *([f"INFO Backend {self.backend} was instantiated"] if self.backend else []), "INFO ready"]
        self.log.write_text("".join(f"{START} {line}\n" for line in said))

    def metrics(self) -> str:
        """What /metrics of vLLM looks like, as far as anybody reads it."""
        both = f'engine="0",model_name="{self.group.served.spec.name}"'
        found = {
            f"vllm:prompt_tokens_total{{{both}}}": self.prompt,
            f'vllm:prompt_tokens_by_source_total{{{both},source="local_compute"}}': self.local,
            f'vllm:prompt_tokens_by_source_total{{{both},source="external_kv_transfer"}}': self.prompt - self.local,
            f'vllm:request_success_total{{{both},finished_reason="stop"}}': self.prompt / PROMPT,
            f"vllm:num_requests_waiting{{{both}}}": self.waiting,
            f"vllm:num_requests_running{{{both}}}": self.running,
            f"vllm:prefix_cache_queries_total{{{both}}}": self.prompt,
            f"vllm:prefix_cache_hits_total{{{both}}}": 0,
        }
        if self.group.served.spec.disaggregated:
            found |= {
                f"vllm:nixl_xfer_time_seconds_count{{{both}}}": self.transfers,
                f"vllm:nixl_num_failed_transfers_total{{{both}}}": self.failed,
                f"vllm:nixl_num_failed_notifications_total{{{both}}}": 0,
            }
        return "".join(f"{name} {value}\n" for name, value in found.items())

    def answer(self, path: str) -> tuple[int, str]:
        """What it says to a GET."""
        self.requests.append(path)
        known = {"/metrics": self.metrics(), "/version": json.dumps({"version": self.version})}
        return (200, known[path]) if path in known else (404, "{}")


class StandIns:
    """All of an environment, at work: engines, routers, the LeaderWorkerSet controller's Deployment."""

    def __init__(self, cluster: Cluster, layout: Layout, folder: Path) -> None:
        self.cluster, self.layout = cluster, layout
        self.engines = {name: EngineStandIn(g, name, folder) for g in layout.groups for names in g.pods() for name in names}
        self.router_status, self.keys, self.split = 200, list[str | None](), True
        self._servers: list[ThreadingHTTPServer] = []

    def start(self) -> None:
        """Listen on loopback, tell the kubelet, and put Deployments and Services where charts would."""
        objects = [o for e in self.engines.values() for o in self._kubelet(e)]
        for served in self.layout.served:
            objects += self._router(served)
        self.cluster.apply([*_controller(), *objects])
        self._forward_routers()

    def redeploy(self) -> None:
        """Deployments and Services as charts made them, and the way to the routers' new pods."""
        self.cluster.apply([*_controller(), *(o for served in self.layout.served for o in self._router(served))])
        self._forward_routers()

    def _forward_routers(self) -> None:
        for served in self.layout.served:
            namespace = served.spec.kubernetes_namespace
            self.cluster.until(lambda n=namespace, s=served: len(self._router_pods(n, s)) == 1, "router's pod")  # type: ignore[misc]
            (pod,) = self._router_pods(namespace, served)
            self.cluster.apply([_forward(namespace, pod, PROXY_PORT, self._listen(self._get, self._route))])

    def stop(self) -> None:
        """Listen no more."""
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def reset(self) -> None:
        """Everything as after some ordinary traffic."""
        self.router_status, self.split = 200, True
        self.keys.clear()
        for engine in self.engines.values():
            engine.reset()

    def role(self, role: str) -> list[EngineStandIn]:
        """The engines of a role, in order."""
        return [e for e in self.engines.values() if e.group.role == role]

    def _router_pods(self, namespace: str, served: Served) -> list[str]:
        selector = ",".join(f"{k}={v}" for k, v in router_labels(served).items())
        pods = self.cluster.items("pods", namespace, selector)
        return [p["metadata"]["name"] for p in pods if p["status"].get("phase") == "Running"]

    def _kubelet(self, engine: EngineStandIn) -> list[dict[str, Any]]:
        namespace = engine.group.namespace
        metadata = {"name": engine.name, "namespace": namespace}
        log = {"containers": ["vllm"], "logsFile": str(engine.log)}
        logs = {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Logs", "metadata": metadata, "spec": {"logs": [log]}}
        return [logs, _forward(namespace, engine.name, engine.group.engine_port, self._listen(engine.answer, None))]

    def _router(self, served: Served) -> list[dict[str, Any]]:
        """Deployment and Service as the pinned chart makes them of the generated values."""
        values, name, namespace = (
            router_values(served, self.layout.groups_of(served))["router"],
            picker_name(served),
            served.spec.kubernetes_namespace,
        )
        image, selector = values["epp"]["image"], router_labels(served)
        containers = [
            {"name": "envoy-proxy", "image": values["proxy"]["image"]},
            {"name": "epp", "image": f"{image['registry']}/{image['repository']}:{image['tag']}"},
        ]
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace}}
        service["spec"] = {"selector": selector, "ports": values["extraServicePorts"]}
        return [_deployment(name, namespace, selector, containers, values["epp"]["podAnnotations"]), service]

    def _route(self, body: Any, key: str | None) -> tuple[int, str]:
        """A completion: prefill calculates, decode receives, as long as `split`."""
        self.keys.append(key)
        if self.router_status != 200:
            return self.router_status, "no endpoint"
        if self.split:
            self.role("prefill")[0].prompt += 20
            self.role("decode")[0].transfers += 1
        self.role("decode")[0].prompt += 20
        return 200, json.dumps({"model": body["model"], "choices": [{"message": {"content": "Mercury"}}]})

    def _get(self, path: str) -> tuple[int, str]:
        return 404, path

    def _listen(self, get: Any, post: Any) -> int:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(*get(self.path))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._send(*post(body, self.headers.get("Authorization")))

            def _send(self, status: int, text: str) -> None:
                data = text.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self._servers.append(server)
        return server.server_port


def _forward(namespace: str, pod: str, port: int, target: int) -> dict[str, Any]:
    spec = {"forwards": [{"ports": [port], "target": {"port": target, "address": "127.0.0.1"}}]}
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "PortForward", "metadata": {"name": pod, "namespace": namespace}, "spec": spec}


def _controller() -> list[dict[str, Any]]:
    """The controller runs as a process here; this Deployment says what its chart's would."""
    containers = [{"name": "manager", "image": lws_image("0.11.1")}]
    return [_deployment(CONTROLLER, LWS_SYSTEM, CONTROLLER_LABELS, containers, {})]


def _deployment(name: str, namespace: str, selector: dict[str, str], containers: list[dict[str, Any]], annotations: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": {labels.MANAGED_BY: "Helm"}},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": dict(selector)},
            "template": {"metadata": {"labels": dict(selector), "annotations": annotations}, "spec": {"containers": containers}},
        },
    }
