"""What changes of Kubernetes objects mean: nodes that drift, requests that are cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ... import labels
from ...document.difference import NEW_ID, Op
from ...document.resource import Resource
from ...errors import Level
from .cases import NODE_POOL, SERVICE, Case, Effect, Judge, drift, input_at, name_of
from .serving import LWS, SCALED_OBJECT, engines, scaling, tried_only

CHART = "kubernetes:helm.sh/v4:Chart"
ROUTER_CHART = "router"
EXISTING = "spec.existingCluster"
WHICH = ("kubeconfig", "context", "name", "stackReference")
"""Keys that say which cluster is adopted."""


def _node_class(case: Case) -> Iterator[Effect]:
    pools = [p for p in case.all_after.values() if p.type == NODE_POOL and input_at(p, "spec.template.spec.nodeClassRef.name") == case_name(case)]
    if case.goes:
        yield Effect("nodes of this class are drained and ended, with their pods", Level.WARNING)
    elif case.op is not Op.CREATE and case.touches("spec"):
        yield from drift(case, pools)


def _node_pool(case: Case) -> Iterator[Effect]:
    if case.goes:
        yield Effect(f"nodes of {case_name(case)} are drained and ended, with their pods", Level.WARNING)
    if case.op is not Op.UPDATE:
        return
    if case.touches("spec.template"):
        yield from drift(case, [case.after] if case.after else [])
        yield from _other_zone(case)
    if case.touches("spec.limits"):
        before, after = (limits or {} for limits in case.values("spec.limits"))
        fewer = any(_number(after.get(k)) < _number(v) for k, v in before.items() if k in after)
        yield Effect("new pods stay pending beyond the lower limit" if fewer else "more nodes may be made", Level.WARNING if fewer else Level.INFO)
    if case.touches("spec.disruption"):
        yield Effect("when nodes may be replaced or ended changes")


def _other_zone(case: Case) -> Iterator[Effect]:
    """Nodes of the former zone count against the limit of a pool while pods wait for nodes of the other one."""
    before, after = (", ".join(_zones(r)) for r in (case.before, case.after))
    most = (input_at(case.after, "spec.limits") or {}).get(labels.GPU)
    if before and after and before != after and most is not None:
        yield Effect(
            f"pods wait for nodes in {after}, while those in {before} count against the limit of {most} GPUs until they are empty: where that leaves "
            f"no whole node, the rollout stands still, so raise the bound of nodes for it, or run fewer engines meanwhile",
            Level.WARNING,
        )


def _zones(pool: Resource | None) -> list[str]:
    wanted = input_at(pool, "spec.template.spec.requirements") or ()
    return next((r["values"] for r in wanted if r["key"] == labels.ZONE), [])


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0


def _chart(case: Case) -> Iterator[Effect]:
    name = case.change.name
    router = name.endswith(f"-{ROUTER_CHART}")
    if case.op is Op.DELETE:
        yield Effect("the model has no endpoint any more" if router else "the controller goes, its CRDs and what they hold stay", Level.WARNING)
    elif case.op is not Op.CREATE:
        if router and case.touches("namespace"):
            yield Effect("the router is made anew in the other namespace, and the one that runs goes: the address changes", Level.WARNING)
        elif router:
            yield Effect("the router restarts: its one pod is away for a moment, and requests in flight are cut", Level.WARNING)
        elif case.touches("version", "chart"):
            yield Effect("another version of the controller may restart every group (lws issue 797)", Level.WARNING)
        else:
            yield Effect("the controller restarts; groups that run go on")


def _service(case: Case) -> Iterator[Effect]:
    if input_at(case.before or case.after, "spec.type") != "LoadBalancer":
        if case.goes and tried_only(case):
            yield Effect("it was there to try the candidate")
        elif case.goes:
            until = " until it is there again" if case.op is Op.REPLACE else " any more"
            yield Effect(f"pods cannot be reached by this name{until}", Level.WARNING)
        return
    if case.goes:
        yield Effect("the load balancer goes, and its name with it", Level.WARNING)
    before, after = (found or {} for found in case.values("metadata.annotations"))
    scheme = f"{labels.NLB}scheme"
    if case.op is Op.UPDATE and before.get(scheme) != after.get(scheme):
        public = "the internet" if after.get(scheme) == "internet-facing" else "the network alone"
        yield Effect(f"the load balancer is made anew under another name, for {public}", Level.WARNING)
    elif case.op is Op.UPDATE and case.touches("spec.ports", "metadata.annotations"):
        yield Effect("listeners of the load balancer change: connections may be cut", Level.WARNING)
    if case.op is Op.UPDATE and case.touches("spec.loadBalancerSourceRanges"):
        yield Effect("who may call the model changes", Level.WARNING)


def _namespace(case: Case) -> Iterator[Effect]:
    if case.goes:
        yield Effect(f"everything in namespace {case_name(case)} is deleted", Level.WARNING)
    elif case.op is Op.UPDATE:
        yield Effect("what pods of this namespace may do changes")


def _policy(case: Case) -> Iterator[Effect]:
    if case.op is not Op.CREATE:
        yield Effect("who may talk to whom changes", Level.INFO if case.op is Op.UPDATE else Level.WARNING)


def _job(case: Case) -> Iterator[Effect]:
    if case.op in (Op.CREATE, Op.REPLACE):
        yield Effect("weights are copied before engines start, which takes an hour or more")


def _secret(case: Case) -> Iterator[Effect]:
    if case.goes:
        yield Effect("pods that start meanwhile wait for the secret", Level.WARNING)


def case_name(case: Case) -> str:
    """The object's name in the cluster."""
    return name_of(case.after or case.before)


def _environment(case: Case) -> Iterator[Effect]:
    """A kubeconfig is secret on both sides; only the environment says that it is another cluster's."""
    where = [path for path in case.paths() if path == EXISTING or path in {f"{EXISTING}.{key}" for key in WHICH}]
    if case.op is Op.UPDATE and where:
        yield Effect("another cluster, unless both ways lead to one: everything is made anew there, what runs on the former stays", Level.ERROR)


def _provider(case: Case) -> Iterator[Effect]:
    """By its identifier it stays the same provider, so that the engine takes what the state holds for what the new cluster holds."""
    if case.op is Op.UPDATE and any(p.path == "kubeconfig" and p.after == NEW_ID for p in case.change.paths):
        yield Effect(
            "it leads to a new cluster, which holds nothing of what the state knows: objects that are not listed are not made there, and those that "
            "change are not found, before a `pulumi refresh`",
            Level.ERROR,
        )


KUBERNETES_EFFECTS: Mapping[str, Judge] = {
    LWS: engines,
    SCALED_OBJECT: scaling,
    NODE_POOL: _node_pool,
    "kubernetes:eks.amazonaws.com/v1:NodeClass": _node_class,
    CHART: _chart,
    SERVICE: _service,
    "kubernetes:core/v1:Namespace": _namespace,
    "kubernetes:core/v1:Secret": _secret,
    "kubernetes:networking.k8s.io/v1:NetworkPolicy": _policy,
    "kubernetes:batch/v1:Job": _job,
    "pulumi:providers:kubernetes": _provider,
    "disagg-serving:index:Environment": _environment,
}
"""By type; a type that is not here has no effect to tell."""
