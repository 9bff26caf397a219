"""Running pods against the generated template: image, command line, environment, everything else, and where they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..manifests.serving import build_pod_template
from ..planning.placement import place, pool_key
from ..planning.scaling import at_most
from .compare import mismatches
from .nodes import OWN_POINTS
from .objects import sentence
from .points import Point, failed, ok, unknown
from .snapshot import Object
from .view import Bounds, Engine, UnreadError, View, planned_replicas, unknown_unread

REPLACE = "`pulumi up`, or undo the change of its LeaderWorkerSet"
CONTAINERS = ("initContainers", "containers")
CREDENTIALS = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_WEB_IDENTITY_TOKEN_FILE")
"""Variables by which EKS Pod Identity, or a role for a service account, hands credentials to a pod."""
FIELDS = {"pod-image": ("image",), "pod-args": ("command", "args"), "pod-env": ("env",)}
"""Fields of containers with points of their own."""


@unknown_unread("pod-spec", "all pods", "as generated")
def check(view: View) -> Iterator[Point]:
    """The points of each pod that is there, and of each pool."""
    running = list(view.running())
    for engine, number, pod in running:
        yield from _drift(engine, number, pod)
        if pod["spec"].get("nodeName"):
            yield _pool(view, engine, pod)
        if engine.group.served.weights_uri:
            yield _credentials(engine, pod, made=view.layout.spec.existing_cluster is None or not view.layout.spec.existing_cluster.kubeconfig)
    yield from _pools(view, [(engine, pod) for engine, _, pod in running])


def _drift(engine: Engine, number: int, pod: Object) -> Iterator[Point]:
    subject = f"{engine.group.namespace}/{pod['metadata']['name']}"
    template = build_pod_template(engine.group, worker=number > 0)
    for name, fields in FIELDS.items():
        yield _compared(name, subject, _only(template["spec"], fields), pod["spec"])
    rest = {key: value for key, value in template["spec"].items() if key not in CONTAINERS}
    rest |= _without(template["spec"], {f for fields in FIELDS.values() for f in fields})
    yield _compared("pod-spec", subject, {"metadata": template["metadata"], "spec": rest}, pod)


def _credentials(engine: Engine, pod: Object, *, made: bool) -> Point:
    """EKS puts credentials into a pod at its admission; one that came before its Pod Identity association has none for its whole life."""
    subject, wanted = f"{engine.group.namespace}/{pod['metadata']['name']}", " or ".join(CREDENTIALS)
    given = {e["name"] for c in pod["spec"]["containers"] for e in c.get("env", ())}
    found = sorted(given & {*CREDENTIALS})
    if found:
        return ok("pod-credentials", subject, wanted, ", ".join(found))
    why = "no container has it: the pod was admitted before its Pod Identity association took effect"
    if not made:
        return unknown("pod-credentials", subject, wanted, "no container has it; on a cluster by kubeconfig nodes may have rights of their own")
    return failed("pod-credentials", subject, wanted, why, "delete the pod; a restart of its container does not help")


def _compared(name: str, subject: str, expected: Any, found: Any) -> Point:
    wrong = mismatches(expected, found, more=True)
    return failed(name, subject, "as generated", sentence(wrong), REPLACE) if wrong else ok(name, subject, "as generated")


def _only(spec: dict[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    return {kind: [{k: c[k] for k in ("name", *fields) if k in c} for c in spec[kind]] for kind in CONTAINERS if kind in spec}


def _without(spec: dict[str, Any], fields: set[str]) -> dict[str, Any]:
    return {kind: [{k: v for k, v in c.items() if k not in fields} for c in spec[kind]] for kind in CONTAINERS if kind in spec}


def _pool(view: View, engine: Engine, pod: Object) -> Point:
    subject, node = f"{engine.group.namespace}/{pod['metadata']['name']}", pod["spec"]["nodeName"]
    key = pool_key(engine.group)
    wanted = dict(_pool_labels(engine))
    try:
        found = view.nodes.get(node)
    except UnreadError as problem:
        return unknown("pod-pool", subject, key, problem)
    if found is None:
        return failed("pod-pool", subject, key, f"its node {node} is gone", "the pod is replaced when the node controller has seen it")
    has = found["metadata"].get("labels") or {}
    wrong = {k: has.get(k, "none") for k, v in wanted.items() if has.get(k) != v}
    if not wrong:
        return ok("pod-pool", subject, key)
    return failed(
        "pod-pool", subject, key, f"{node}: {', '.join(f'{k} {v}' for k, v in wrong.items())}", "put the node's labels back, or delete the pod"
    )


def _pool_labels(engine: Engine) -> dict[str, str]:
    """What the pool gives its nodes; the zone has a point of its own."""
    return {k: v for k, v in engine.group.node_selector.items() if k not in OWN_POINTS}


def _pools(view: View, running: list[tuple[Engine, Object]]) -> Iterator[Point]:
    used: dict[str, set[str]] = defaultdict(set)
    counts: dict[str, int] = defaultdict(int)
    for engine, pod in running:
        if pod["spec"].get("nodeName"):
            used[pool_key(engine.group)].add(pod["spec"]["nodeName"])
            counts[pool_key(engine.group)] += 1
    most = {pool: len(nodes) for pool, _, nodes in place(at_most(view.layout))}
    for pool, _, nodes in place(view.layout):
        planned, wanted = Bounds(len(nodes), most[pool]), _wanted_pods(view, pool)
        expected, found = f"{planned} nodes", f"{len(used[pool])} nodes"
        if counts[pool] != wanted:
            why = f"{counts[pool]} of {wanted} pods are on nodes"
            yield unknown("pool-nodes", pool, expected, why, "see set-replicas and group-whole")
        elif len(used[pool]) in planned:
            yield ok("pool-nodes", pool, expected, found)
        else:
            fix = "pods that were placed while a node was missing stay where they are: delete those of the node with the fewest"
            yield failed("pool-nodes", pool, expected, found, fix)


def _wanted_pods(view: View, pool: str) -> int:
    """Pods of a pool's sets as far as their numbers are as planned; a wrong one is told by `set-replicas`."""
    total = 0
    for group in (g for g in view.layout.groups if pool_key(g) == pool):
        planned = planned_replicas(group)
        number = max(planned.least, min(planned.most, view.wanted(group)))
        total += sum(len(names) for names in replace(group, replicas=number).pods())
    return total
