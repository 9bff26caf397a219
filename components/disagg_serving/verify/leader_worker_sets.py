"""LeaderWorkerSets and their groups: as many as planned, whole, ready."""

from __future__ import annotations

from collections.abc import Iterator

from ..manifests.serving import build_leader_worker_set
from ..planning.shapes import Group
from .points import Point, compare, failed, ok, unknown
from .snapshot import Object
from .view import Engine, UnreadError, View, is_true, planned_replicas, set_ref


def check(view: View) -> Iterator[Point]:
    """The points of each role's set and of each engine in it."""
    for group in view.layout.groups:
        subject = str(set_ref(group))
        try:
            found = view.set_of(group)
        except UnreadError as problem:
            yield unknown("set-replicas", subject, planned_replicas(group), problem)
            continue
        if found is None:
            yield failed("object", subject, "as generated", "it is not there", "`pulumi up` makes it")
            continue
        yield ok("object", subject, "there")
        yield from _set(group, found)
        for engine in view.engines(group):
            yield from _engine(view, engine)


def _set(group: Group, found: Object) -> Iterator[Point]:
    subject, spec, status = str(set_ref(group)), found["spec"], found.get("status", {})
    replicas, planned = spec.get("replicas", 1), planned_replicas(group)
    if replicas in planned:
        yield ok("set-replicas", subject, planned, replicas)
    else:
        fixed = planned.least == planned.most
        fix = "`pulumi up` sets it back, or change replicas in the stack file" if fixed else "KEDA brings it back into its bounds: see scaled-object"
        yield failed("set-replicas", subject, planned, replicas, fix)
    size = build_leader_worker_set(group)["spec"]["leaderWorkerTemplate"]["size"]
    yield compare("set-size", subject, size, spec["leaderWorkerTemplate"].get("size", 1), "`pulumi up` sets it back")
    updated = status.get("updatedReplicas", 0)
    if status.get("replicas", 0) != replicas:
        yield unknown("set-rollout", subject, f"{replicas} of {replicas}", f"the set has {status.get('replicas', 0)} groups so far", "see its groups")
    elif updated == replicas:
        yield ok("set-rollout", subject, f"{replicas} of {replicas}")
    else:
        fix = "wait, or see why the first new group is not ready"
        yield failed("set-rollout", subject, f"{replicas} of {replicas}", f"{updated} of {replicas}: a rollout goes on or is stuck", fix)


def _engine(view: View, engine: Engine) -> Iterator[Point]:
    namespace, number = engine.group.namespace, len(engine.pods)
    whole, ready = f"{number} of {number} pods on nodes", f"{number} of {number} pods ready"
    try:
        found = {name: view.pod(namespace, name) for name in engine.pods}
    except UnreadError as problem:
        yield unknown("group-whole", engine.subject, whole, problem)
        yield unknown("group-ready", engine.subject, ready, problem)
        return
    placed = {name: pod for name, pod in found.items() if pod is not None and pod["spec"].get("nodeName") and not _leaving(pod)}
    if len(placed) < number:
        missing = [name for name in engine.pods if name not in placed]
        half = "half a group: " if placed else ""
        why = "; ".join(f"{name} {_state(view, namespace, name, found[name])}" for name in missing)
        absent = all(found[name] is None for name in missing)
        why += view.warnings(namespace, "LeaderWorkerSet", [engine.group.name]) if absent else ""
        fix = "see the reason; half a group never serves: delete its leader pod when there is room again" if placed else "see the reason"
        yield failed("group-whole", engine.subject, whole, f"{half}{len(placed)} of {number} on nodes; {why}", fix)
        yield unknown("group-ready", engine.subject, ready, "its pods are not all there: see group-whole")
        return
    yield ok("group-whole", engine.subject, whole)
    waiting = [name for name, pod in placed.items() if not is_true(pod, "Ready")]
    if not waiting:
        yield ok("group-ready", engine.subject, ready)
        return
    why = "; ".join(f"{name} {_state(view, namespace, name, found[name])}" for name in waiting)
    found_ready = f"{number - len(waiting)} of {number} ready; {why}"
    yield failed("group-ready", engine.subject, ready, found_ready, f"wait while it loads, else `kubectl logs -n {namespace} {waiting[0]}`")


def _state(view: View, namespace: str, name: str, pod: Object | None) -> str:
    if pod is None:
        return f"is not there{view.warnings(namespace, 'StatefulSet', [name, name.rsplit('-', 1)[0]])}"
    status = pod.get("status", {})
    containers = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    waiting = [c["state"]["waiting"] for c in containers if (c.get("state") or {}).get("waiting")]
    text = "is leaving" if _leaving(pod) else f"is {status.get('phase', 'Pending')}"
    if waiting:
        text += f", {waiting[0].get('reason', 'waiting')}"
    restarts = sum(c.get("restartCount", 0) for c in containers)
    if restarts:
        text += f", {restarts} restarts"
    return text + view.warnings(namespace, "Pod", [name])


def _leaving(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]
