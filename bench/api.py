"""One open connection to an API server: a command of kubectl takes a tenth of a second of CPU time to start, and waits ask ten times a second."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from .processes import NotReadyError, wait_for

JSON, APPLY = "application/json", "application/apply-patch+yaml"
MERGE, JSON_PATCH, STRATEGIC = "application/merge-patch+json", "application/json-patch+json", "application/strategic-merge-patch+json"
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
NEW_KIND_SECONDS = 15
"""How long the server may take to serve a kind whose CRD is established."""
FAILED, TRIES = 400, 10


class ApiError(RuntimeError):
    """What the API server answered to a refused request, with its reason first."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Resource:
    """Where objects of a kind are served."""

    version: str
    kind: str
    plural: str
    namespaced: bool

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The path of one object, or of all of them; those of a namespaced kind are in `default` where no namespace is named."""
        root = f"/apis/{self.version}" if "/" in self.version else f"/api/{self.version}"
        space = f"namespaces/{namespace or 'default'}" if self.namespaced and (namespace or name) else None
        return "/".join(part for part in (root, space, self.plural, name, subresource) if part)


class Api:
    """One API server, with the credentials of a kubeconfig; safe to share between threads."""

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text(encoding="utf-8"))
        cluster = config["clusters"][0]["cluster"]
        tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        self._connection = http.client.HTTPSConnection(urlsplit(cluster["server"]).netloc, context=tls, timeout=60)
        weakref.finalize(self, self._connection.close)
        self._token = config["users"][0]["user"]["token"]
        self._lock = threading.Lock()
        self._resources: dict[str, Resource] = {}

    def ask(self, method: str, path: str, query: Mapping[str, str] | None = None, body: Any = None, headers: Mapping[str, str] | None = None) -> str:
        """One request; the text of the answer. Raises ApiError."""
        target = path + (f"?{urlencode(query, quote_via=quote)}" if query else "")
        sent = {"Authorization": f"Bearer {self._token}", "Accept": JSON, "Content-Type": JSON, **(headers or {})}
        data = json.dumps(body).encode() if body is not None else None
        for _ in range(TRIES):
            with self._lock:
                status, wait, text = self._exchange(method, target, data, sent)
            if status < FAILED:
                return text
            if wait is None:
                break
            # as every client of Kubernetes: the server says when to ask again, for example while it prepares the storage of a new kind
            time.sleep(float(wait))
        raise ApiError(status, _reason(status, text))

    def _exchange(self, method: str, target: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, str | None, str]:
        # the server closes a connection that was idle for long, or when it restarts; a second one is then as good
        for last in (False, True):
            try:
                self._connection.request(method, target, body, headers)
                answer = self._connection.getresponse()
                return answer.status, answer.getheader("Retry-After"), answer.read().decode()
            except (OSError, http.client.HTTPException):
                self._connection.close()
                if last:
                    raise
        raise AssertionError

    def call(self, method: str, path: str, query: Mapping[str, str] | None = None, body: Any = None, *, content: str = JSON) -> dict[str, Any]:
        """One request; the object of the answer. Raises ApiError."""
        found: dict[str, Any] = json.loads(self.ask(method, path, query, body, {"Content-Type": content}))
        return found

    def resource(self, name: str) -> Resource:
        """A kind by plural, singular or short name, or by `apiVersion/Kind`, once the server has it. Raises ApiError."""
        try:
            wait_for(lambda: self.knows(name), f"kind {name}", NEW_KIND_SECONDS)
        except NotReadyError as problem:
            raise ApiError(http.client.NOT_FOUND, f"the server has no resource type {name!r}: {problem}") from None
        return self._resources[name]

    def knows(self, name: str) -> bool:
        """Whether the server has a kind."""
        if name not in self._resources:
            self._discover()
        return name in self._resources

    def forget(self) -> None:
        """Ask for the kinds again: one that was removed may come back."""
        self._resources = {}

    def _discover(self) -> None:
        found: dict[str, Resource] = {}
        for root in ("/api", "/apis"):
            for group in json.loads(self.ask("GET", root, headers={"Accept": DISCOVERY}))["items"]:
                for version in group["versions"]:
                    prefix = f"{group['metadata']['name']}/" if group["metadata"].get("name") else ""
                    for entry in version["resources"]:
                        one = Resource(prefix + version["version"], entry["responseKind"]["kind"], entry["resource"], entry["scope"] == "Namespaced")
                        names = (one.plural, entry.get("singularResource") or one.plural, *entry.get("shortNames", ()))
                        full = f"{one.plural}.{group['metadata'].get('name', '')}"
                        # the first group and version that has a name is the one that kubectl takes
                        for name in (*names, full, f"{one.version}/{one.kind}"):
                            found.setdefault(name, one)
        self._resources = found


def _reason(status: int, text: str) -> str:
    try:
        said = json.loads(text)
        return f"{said.get('reason') or status}: {said.get('message', text)}"
    except (ValueError, AttributeError):
        return f"{status}: {text}"
