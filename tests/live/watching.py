"""Every version of a namespace's pods, EndpointSlices and Deployments, as the API server tells them one after the other."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import ssl
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from disagg_serving import labels

from bench.api import Api
from bench.processes import wait_for

WATCHED = (("api/v1", "pods"), ("apis/discovery.k8s.io/v1", "endpointslices"), ("apis/apps/v1", "deployments"))
SERVICE_OF = "kubernetes.io/service-name"
SELECTOR_FLAG = "--endpoint-selector"


class Watch:
    """Watches from entering to leaving; then answers what was ever selected together.

    A watch delivers each stored version of an object, so nothing that was true for a moment is missed, as it would be by polling.
    """

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        config = json.loads(kubeconfig.read_text(encoding="utf-8"))
        cluster = config["clusters"][0]["cluster"]
        self._server, self._namespace = urlsplit(cluster["server"]).netloc, namespace
        self._tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        self._headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        self._api = Api(kubeconfig)
        self.events: dict[str, list[dict[str, Any]]] = {kind: [] for _, kind in WATCHED}
        self._open: list[http.client.HTTPSConnection] = []
        self._threads = [threading.Thread(target=self._follow, args=(group, kind), daemon=True) for group, kind in WATCHED]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        # what the API server has stored until now is on its way
        if kind is None:
            wait_for(self._is_up_to_date, f"watches of {self._namespace}", 30)
        for connection in self._open:
            with contextlib.suppress(OSError):
                if connection.sock is not None:
                    connection.sock.shutdown(2)
        for thread in self._threads:
            thread.join(10)

    def _is_up_to_date(self) -> bool:
        """Whether the last version of each object has been told, or that it is gone."""
        return all(self._told(kind) == self._stored(group, kind) for group, kind in WATCHED)

    def _told(self, kind: str) -> dict[str, str]:
        last = {e["object"]["metadata"]["name"]: e for e in self.events[kind]}
        return {name: e["object"]["metadata"]["resourceVersion"] for name, e in last.items() if e["type"] != "DELETED"}

    def _stored(self, group: str, kind: str) -> dict[str, str]:
        items = self._api.call("GET", f"/{group}/namespaces/{self._namespace}/{kind}")["items"]
        return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in items}

    def _follow(self, group: str, kind: str) -> None:
        with contextlib.closing(http.client.HTTPSConnection(self._server, context=self._tls, timeout=600)) as connection:
            self._open.append(connection)
            connection.request("GET", f"/{group}/namespaces/{self._namespace}/{kind}?watch=true&timeoutSeconds=600", headers=self._headers)
            # leaving shuts the connection down, which ends the stream in the middle of a line or between two
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException), connection.getresponse() as stream:
                for line in stream:
                    self.events[kind].append(json.loads(line))

    def identities(self) -> dict[str, str]:
        """Identity of each engine's pod that there ever was, by uid."""
        found = (event["object"]["metadata"] for event in self.events["pods"])
        return {m["uid"]: m["labels"][labels.IDENTITY] for m in found if labels.IDENTITY in m.get("labels", {})}

    def selections(self, service: str) -> list[tuple[set[str], int]]:
        """The states of a Service's endpoints in order: identities of all of them, and how many are ready."""
        slices: dict[str, dict[str, Any]] = {}
        known, states = self.identities(), []
        for event in self.events["endpointslices"]:
            metadata = event["object"]["metadata"]
            if metadata["labels"].get(SERVICE_OF) != service:
                continue
            slices[metadata["name"]] = event["object"] if event["type"] != "DELETED" else {}
            endpoints = [e for one in slices.values() for e in one.get("endpoints") or []]
            states.append(({known[e["targetRef"]["uid"]] for e in endpoints}, sum(bool(e["conditions"].get("ready")) for e in endpoints)))
        return states

    def routed(self) -> list[set[str]]:
        """The identities that the router's pods select, after each change of one of them; those that are ending count as well."""
        pods: dict[str, str] = {}
        states = []
        for event in self.events["pods"]:
            one = event["object"]
            if labels.ROUTER_RELEASE not in one["metadata"].get("labels", {}):
                continue
            if event["type"] == "DELETED":
                pods.pop(one["metadata"]["uid"], None)
            else:
                pods[one["metadata"]["uid"]] = identity_in(one["spec"])
            states.append(set(pods.values()))
        return states

    def deployed(self) -> list[str]:
        """The identity in each version of the router's Deployment."""
        return [identity_in(e["object"]["spec"]["template"]["spec"]) for e in self.events["deployments"]]


def identity_in(pod_spec: dict[str, Any]) -> str:
    """The identity in the selector of a router's pod."""
    (found,) = _identities(pod_spec)
    return found


def _identities(pod_spec: dict[str, Any]) -> Iterator[str]:
    for container in pod_spec["containers"]:
        arguments = container.get("args", [])
        if SELECTOR_FLAG in arguments:
            selector = dict(part.split("=", 1) for part in arguments[arguments.index(SELECTOR_FLAG) + 1].split(","))
            yield selector[labels.IDENTITY]


def changes(states: list[set[str]]) -> list[set[str]]:
    """States without repetition one after the other, and without empty ones."""
    found: dict[int, set[str]] = defaultdict(set)
    for state in states:
        if state and (not found or found[len(found) - 1] != state):
            found[len(found)] = state
    return list(found.values())
