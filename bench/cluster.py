"""Talking to a bench's API server: apply, read, change, delete, wait."""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import time
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from .api import APPLY, JSON_PATCH, MERGE, STRATEGIC, Api, ApiError
from .build import OUT
from .processes import wait_for

CONNECTION_TRIES = 4
MANAGER = "bench"
GONE_SECONDS = 120


class KubectlError(RuntimeError):
    """What kubectl said when it failed."""


class Cluster:
    """One API server, with the rights of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig

    @cached_property
    def api(self) -> Api:
        """The connection, opened with the first request."""
        return Api(self.kubeconfig)

    def kubectl(self, *args: str, stdin: str | None = None) -> str:
        """Run kubectl, for what it does beyond one request. Raises KubectlError with the server's answer."""
        for _ in range(CONNECTION_TRIES):
            done = subprocess.run(
                [str(OUT / "bin/kubectl"), f"--kubeconfig={self.kubeconfig}", *args], input=stdin, capture_output=True, text=True, check=False
            )
            if done.returncode == 0:
                return done.stdout
            if "Unable to connect" not in done.stderr and "TLS handshake timeout" not in done.stderr:
                break
            time.sleep(1)
        raise KubectlError(done.stderr.strip())

    def apply(self, objects: Iterable[dict[str, Any]], *, dry_run: bool = False) -> list[dict[str, Any]]:
        """Apply on the server's side, with unknown fields refused; the objects as the server has them then.

        All objects are tried. Raises ApiError with what the server said about each that it refused.
        """
        query = {"fieldManager": MANAGER, "force": "true", "fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        taken, refused = [], list[ApiError]()
        for one in objects:
            try:
                resource, metadata = self.api.resource(f"{one['apiVersion']}/{one['kind']}"), one["metadata"]
                path = resource.path(metadata.get("namespace"), metadata["name"])
                taken.append(self.api.call("PATCH", path, query, one, content=APPLY))
            except ApiError as error:
                refused.append(error)
        if refused:
            raise ApiError(refused[0].status, "\n".join(map(str, refused)))
        return taken

    def items(self, kind: str, namespace: str | None = None, selector: str | None = None) -> list[dict[str, Any]]:
        """All objects of a kind, in all namespaces unless one is named."""
        resource = self.api.resource(kind)
        found = self.api.call("GET", resource.path(namespace), {"labelSelector": selector} if selector else None)["items"]
        return [{"apiVersion": resource.version, "kind": resource.kind, **one} for one in found]

    def get(self, kind: str, name: str, namespace: str | None = None) -> dict[str, Any]:
        """One object. Raises ApiError."""
        return self.api.call("GET", self.api.resource(kind).path(namespace, name))

    def patch(self, kind: str, name: str, change: Any, namespace: str | None = None, *, strategic: bool = False) -> dict[str, Any]:
        """Change an object, or a part of it, as in `pods/status`: a list is a JSON patch, a mapping is merged. Raises ApiError."""
        whole, _, subresource = kind.partition("/")
        content = JSON_PATCH if isinstance(change, list) else STRATEGIC if strategic else MERGE
        return self.api.call("PATCH", self.api.resource(whole).path(namespace, name, subresource), {"fieldManager": MANAGER}, change, content=content)

    def scale(self, kind: str, name: str, namespace: str, replicas: int) -> None:
        """Ask for so many replicas, as an autoscaler does."""
        self.patch(f"{kind}/scale", name, {"spec": {"replicas": replicas}}, namespace)

    def cordon(self, *nodes: str, on: bool = True) -> None:
        """Let nodes take no pods, or take them again."""
        for node in nodes:
            self.patch("nodes", node, {"spec": {"unschedulable": on or None}})

    def delete(self, kind: str, name: str, namespace: str | None = None, *, wait: bool = True) -> None:
        """Delete an object, and wait until it is gone. Raises ApiError."""
        path = self.api.resource(kind).path(namespace, name)
        uid = self.api.call("GET", path)["metadata"]["uid"] if wait else ""
        self.api.call("DELETE", path, {"propagationPolicy": "Background"})
        if wait:
            self.until(lambda: self._gone(path, uid), f"{kind} {name} gone", GONE_SECONDS)

    def delete_all(self, *kinds: str, namespace: str | None = None, selector: str | None = None, wait: bool = True) -> None:
        """Delete all objects of kinds, in all namespaces unless one is named, and wait until they are gone."""
        gone = []
        for kind in kinds:
            resource = self.api.resource(kind)
            for one in self.items(kind, namespace, selector):
                path = resource.path(one["metadata"].get("namespace"), one["metadata"]["name"])
                self._delete(path)
                gone.append((path, one["metadata"]["uid"]))
        if wait:
            self.until(lambda: all(self._gone(*one) for one in gone), f"{', '.join(kinds)} gone", GONE_SECONDS)

    def end(self, kind: str, name: str, namespace: str | None = None) -> None:
        """Delete an object at once: no grace period, and no finalizer that anybody would have to take away."""
        path = self.api.resource(kind).path(namespace, name)
        self._delete(path, {"gracePeriodSeconds": "0"})
        with contextlib.suppress(ApiError):
            self.api.call("PATCH", path, None, {"metadata": {"finalizers": None}}, content=MERGE)

    def _delete(self, path: str, options: dict[str, str] | None = None) -> None:
        try:
            self.api.call("DELETE", path, {"propagationPolicy": "Background", **(options or {})})
        except ApiError as error:
            # somebody else was quicker
            if error.status != http.client.NOT_FOUND:
                raise

    def _gone(self, path: str, uid: str) -> bool:
        try:
            return bool(self.api.call("GET", path)["metadata"]["uid"] != uid)
        except ApiError as error:
            if error.status == http.client.NOT_FOUND:
                return True
            raise

    def established(self, *crds: str) -> None:
        """Wait until CRDs can be used; `kubectl wait` stumbles over a status that is not there yet."""

        def all_are() -> bool:
            found = {c["metadata"]["name"]: c for c in self.items("crd")}
            return all(
                any(s["type"] == "Established" and s["status"] == "True" for s in found[name].get("status", {}).get("conditions") or [])
                for name in crds
            )

        wait_for(all_are, f"CRDs {', '.join(crds)}")

    def until(self, condition: Callable[[], object], what: str, seconds: float = 60) -> None:
        """Wait for a state of the cluster; the message lists pods and nodes as they are when it does not come."""
        try:
            wait_for(condition, what, seconds)
        except RuntimeError as problem:
            raise AssertionError(f"{problem}\n{self.kubectl('get', 'nodes,nodeclaims,pods', '-A', '-o', 'wide')}") from None
