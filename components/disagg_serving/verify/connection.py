"""One API server, and through it the HTTP ports of pods: the only module here that opens connections."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ..errors import ToolError
from .snapshot import Ref, Unread

SECONDS = 10
PROXY_SECONDS = 5
"""Patience with the pod proxy: where a policy keeps the API server out, packets are dropped and nobody says no."""
UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 401, 403, 404
EXTRA = "`make extras` in a clone, else pip install 'disagg-serving[cluster]'"


@dataclass(frozen=True)
class Reply:
    """What an HTTP server answered."""

    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether it is a success."""
        return 200 <= self.status < 300  # noqa: PLR2004 (HTTP)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode(errors="replace")


@dataclass(frozen=True)
class Request:
    """An HTTP request to a pod; the body is sent as JSON."""

    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Connection:
    """The API server of a kubeconfig's context.

    Raises ToolError where nothing can be read at all: no kubeconfig, no answer, credentials that it does not know.
    """

    def __init__(self, kubeconfig: Path | None, context: str | None) -> None:
        try:
            import urllib3  # noqa: PLC0415 (extra: kubernetes)
            from kubernetes import client, config  # noqa: PLC0415 (extra: kubernetes)
            from kubernetes.stream import portforward  # noqa: PLC0415 (extra: kubernetes)
        except ImportError:
            raise ToolError(f"talking to a cluster needs the package kubernetes: {EXTRA}") from None
        settings = client.Configuration()
        settings.retries = False
        try:
            config.load_kube_config(str(kubeconfig) if kubeconfig else None, context, client_configuration=settings, persist_config=False)
        # the client trusts the form of the file: what is none ends in whatever its code then meets
        except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, AttributeError, LookupError) as problem:
            where = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
            files = [Path(part).expanduser() for part in str(where).split(os.pathsep) if part]
            known = isinstance(problem, config.ConfigException)
            reason = " ".join(str(problem).split()).removesuffix(".").lower() if known else "it is not a kubeconfig"
            # the client says of a file that is not there that it is invalid
            reason = reason if any(file.exists() for file in files) else "there is no such file"
            raise ToolError(f"kubeconfig {where}: {reason}; name another one with --kubeconfig or --context") from None
        self.server = str(settings.host)
        self._api = client.ApiClient(settings)
        self._pods = client.CoreV1Api(self._api)
        self._failures = (urllib3.exceptions.HTTPError, client.ApiException, OSError)
        self._port_forward = portforward
        self._proxy_works = True

    def ask(self, method: str, path: str, query: Mapping[str, str] | None = None, body: Any = None, *, seconds: float = SECONDS) -> Reply:
        """One request to the API server. Raises ToolError when it does not answer or does not know the caller."""
        given = self._api.param_serialize(
            method, path, query_params=list((query or {}).items()), header_params={"Accept": "*/*"}, body=body, auth_settings=["BearerToken"]
        )
        try:
            answer = self._api.call_api(*given, _request_timeout=seconds)
            reply = Reply(answer.status, answer.response.read())
        except self._failures as problem:
            reason = getattr(problem, "reason", None) or problem
            raise ToolError(f"the API server {self.server} does not answer: {' '.join(str(reason).split())}") from None
        if reply.status == UNAUTHORIZED:
            raise ToolError(f"the API server {self.server} does not know these credentials; log in again, or name another --context")
        return reply

    def read(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """JSON of the API server; None where there is nothing, Unread where it may not be read."""
        reply = self.ask("GET", path, query)
        if reply.status == NOT_FOUND:
            return None
        return json.loads(reply.body) if reply.ok else Unread(refusal(reply, f"reading {path}"))

    def log(self, namespace: str, pod: str, container: str, limit_bytes: int) -> str | Unread:
        """The beginning of a container's log."""
        query = {"container": container, "limitBytes": str(limit_bytes)}
        try:
            reply = self.ask("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}/log", query)
        except ToolError as problem:
            return Unread(f"its log: {problem}")
        return reply.text if reply.ok else Unread(refusal(reply, "its log"))

    def get(self, namespace: str, pod: str, port: int, path: str) -> str | Unread:
        """A page of a pod's HTTP server: by the pod proxy, and where that does not get through, by a port forward."""
        failures = []
        if self._proxy_works:
            try:
                reply = self.ask("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy{path}", seconds=PROXY_SECONDS)
            except ToolError:
                failures.append("pod proxy: no answer")
            else:
                if reply.ok:
                    return reply.text
                failures.append(refusal(reply, "pod proxy"))
            # one patient try is enough: policies and rights are alike for all pods
            self._proxy_works = False
        found = self.forward(namespace, pod, port, Request("GET", path))
        if isinstance(found, Reply):
            if found.ok:
                return found.text
            failures.append(f"{path} answers {found.status}")
        else:
            failures.append(found.reason)
        return Unread("; ".join(failures))

    def forward(self, namespace: str, pod: str, port: int, request: Request, seconds: float = SECONDS) -> Reply | Unread:
        """A request to a pod's port through its node's kubelet, which reaches it from inside: NetworkPolicies do not count."""
        try:
            tunnel = self._port_forward(self._pods.connect_get_namespaced_pod_portforward, pod, namespace, ports=str(port))
        except self._failures as problem:
            return Unread(f"port forward: {' '.join(str(getattr(problem, 'reason', None) or problem).split())[:200]}")
        stream = tunnel.socket(port)
        stream.settimeout(seconds)
        link = http.client.HTTPConnection("localhost", port, timeout=seconds)
        link.sock = stream
        try:
            text = None if request.body is None else json.dumps(request.body)
            link.request(request.method, request.path, text, {"Connection": "close", "Content-Type": "application/json", **request.headers})
            answer = link.getresponse()
            return Reply(answer.status, answer.read())
        except TimeoutError:
            return Unread(f"port forward: no answer within {seconds:g} s")
        except (OSError, http.client.HTTPException) as problem:
            return Unread(f"port forward: {' '.join(str(tunnel.error(port) or problem or 'closed').split())[:200]}")
        finally:
            link.close()
            tunnel.close()


def refusal(reply: Reply, what: str) -> str:
    """Why the API server refused, from its Status object."""
    try:
        message = json.loads(reply.body).get("message", "")
    except (ValueError, AttributeError):
        message = reply.text
    text = " ".join(str(message).split())[:200]
    return f"{what}: {'not allowed: ' if reply.status == FORBIDDEN else ''}{text or reply.status}"


def path_of(ref: Ref) -> str:
    """Where the API server keeps an object, or all of a kind."""
    root = f"/apis/{ref.api_version}" if "/" in ref.api_version else f"/api/{ref.api_version}"
    kind = ref.kind.lower()
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}es" if kind.endswith("s") else f"{kind}s"
    scope = f"/namespaces/{ref.namespace}" if ref.namespace else ""
    return f"{root}{scope}/{plural}{f'/{ref.name}' if ref.name else ''}"
