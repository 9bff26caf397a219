"""Talking to a bench's API server with kubectl: apply, read, wait."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .build import OUT
from .processes import wait_for

CONNECTION_TRIES = 4


class KubectlError(RuntimeError):
    """What the API server answered to a refused request."""


class Cluster:
    """One API server, as its administrator."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig

    def kubectl(self, *args: str, stdin: str | None = None) -> str:
        """Run kubectl. Raises KubectlError with the server's answer."""
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

    def apply(self, objects: Iterable[dict[str, Any]], *extra: str) -> str:
        """Apply on the server's side, with unknown fields refused."""
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        return self.kubectl("apply", "--server-side", "--force-conflicts", "--validate=strict", *extra, "-f", "-", stdin=listed)

    def items(self, kind: str, *args: str) -> list[dict[str, Any]]:
        """All objects of a kind, in all namespaces unless `args` say otherwise."""
        scope = () if "-n" in args else ("-A",)
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, *scope, "-o", "json", *args))["items"]
        return found

    def get(self, kind: str, name: str, namespace: str | None = None) -> dict[str, Any]:
        """One object."""
        where = ("-n", namespace) if namespace else ()
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, name, *where, "-o", "json"))
        return found

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
