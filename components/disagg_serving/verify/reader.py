"""From a connection to a snapshot: reads what the checks look at, and asks every engine."""

from __future__ import annotations

import json
from typing import Any

from ..errors import ToolError
from ..planning.shapes import Layout
from .connection import Connection, path_of
from .snapshot import Answers, Snapshot, Unread
from .view import Engine, UnreadError, View, is_true, lists_to_read, objects_to_read

LOG_BYTES = 4 * 2**20
"""How much of a log is read, from its beginning: NIXL says its backend while the engine starts."""
PAGE = 500


def read_snapshot(connection: Connection, layout: Layout) -> Snapshot:
    """All that the checks compare. Raises ToolError when the API server does not answer, or lets nothing be read."""
    version = connection.read("/version")
    objects = {ref: connection.read(path_of(ref)) for ref in objects_to_read(layout)}
    lists = {kind: _all(connection, path_of(kind)) for kind in lists_to_read(layout)}
    refused = [found for found in (*objects.values(), *lists.values()) if isinstance(found, Unread)]
    if len(refused) == len(objects) + len(lists):
        raise ToolError(f"the API server {connection.server} lets nothing be read: {refused[0].reason}; docs/verify.md has the rights that it takes")
    known = version if isinstance(version, Unread) else str(version["gitVersion"]) if version else Unread("it does not say")
    seen = Snapshot(connection.server, known, objects, lists)
    return Snapshot(seen.server, seen.version, objects, lists, _answers(connection, View(layout, seen)))


def _all(connection: Connection, path: str) -> list[dict[str, Any]] | Unread:
    found: list[dict[str, Any]] = []
    query = {"limit": str(PAGE)}
    while True:
        page = connection.read(path, query)
        if page is None:
            return Unread(f"reading {path}: the cluster does not know this kind")
        if isinstance(page, Unread):
            return page
        found += page["items"]
        if not (rest := page["metadata"].get("continue")):
            return found
        query = {"limit": str(PAGE), "continue": rest}


def _answers(connection: Connection, view: View) -> dict[tuple[str, str], Answers]:
    try:
        running = list(view.running())
    except UnreadError:
        return {}
    return {(e.group.namespace, p["metadata"]["name"]): ask(connection, e, n, p) for e, n, p in running}


def ask(connection: Connection, engine: Engine, number: int, pod: dict[str, Any]) -> Answers:
    """Log of a pod that has begun, and metrics and version of one that is ready; workers have no HTTP server."""
    namespace, name, port = engine.group.namespace, pod["metadata"]["name"], engine.group.engine_port
    waits = Unread(f"{name} is not ready")
    begun = any(not (s.get("state") or {}).get("waiting") for s in pod.get("status", {}).get("containerStatuses") or [])
    log = connection.log(namespace, name, "vllm", LOG_BYTES) if begun else waits
    if number or not is_true(pod, "Ready"):
        return Answers(log, waits, waits)
    version = connection.get(namespace, name, port, "/version")
    if isinstance(version, str):
        try:
            version = str(json.loads(version)["version"])
        except (ValueError, KeyError, TypeError):
            version = Unread("/version is not vLLM's")
    return Answers(log, connection.get(namespace, name, port, "/metrics"), version)
