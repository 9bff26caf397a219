"""What changes of Kubernetes objects mean: groups that restart, nodes that drift, requests that are cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .. import labels
from ..errors import Level
from .diff import NEW_ID, Op
from .effects_base import NODE_POOL, Case, Effect, Judge, case_name_of, drift, get

LWS = "kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet"
CHART = "kubernetes:helm.sh/v4:Chart"
SERVICE = "kubernetes:core/v1:Service"
PAIRED = ("prefill", "decode")
SERVED_NAME = "--served-model-name"
APART = "Services take the new pods alone, so that revisions do not meet: no answers until one of each role has loaded"
TEMPLATE = "spec.leaderWorkerTemplate"
ROUTER_CHART = "router"
EXISTING = "spec.existingCluster"
WHICH = ("kubeconfig", "context", "name", "stackReference")
"""Keys that say which cluster is adopted."""
SHARED_FLAGS = ("--revision", "--dtype", "--quantization", "--kv-cache-dtype", "--block-size", "--kv-transfer-config", "--speculative-config")
"""Flags that prefill and decode must agree on while KV goes from one to the other; a stack file has them once a model."""


def _workload(case: Case) -> Iterator[Effect]:
    name = get(case.before or case.after, "inputs.metadata.name")
    if case.op is Op.CREATE:
        yield Effect(f"{name} takes requests once its weights are loaded")
    if case.op is Op.DELETE:
        yield Effect(f"all groups of {name} end", Level.WARNING)
        yield from _served_name(case)
    if case.op is Op.REPLACE:
        yield Effect(f"all groups of {name} end and are made anew: an outage until the weights are loaded", Level.WARNING)
    if case.op not in (Op.UPDATE, Op.RENAME) or not case.before:
        return
    if case.touches(TEMPLATE):
        apart = selected_apart(case.before, case.after, case.all_after)
        if apart:
            yield Effect(APART, Level.WARNING)
        yield _rollout(case, str(name), apart=apart)
        yield from _served_name(case)
    yield from _replicas(case, str(name))


def _replicas(case: Case, name: str) -> Iterator[Effect]:
    before, after = case.values("spec.replicas")
    if before != after and isinstance(before, int) and isinstance(after, int):
        if after == 0:
            yield Effect(f"no group of {name} is left", Level.WARNING)
        elif after < before:
            end = "ends" if before - after == 1 else "end"
            yield Effect(f"{before - after} of {before} groups of {name} {end}, from the highest index down", Level.WARNING)
        else:
            yield Effect(f"{after - before} more of {name} will take requests once their weights are loaded")
    elif before != after:
        yield Effect(f"who sets the number of groups of {name} changes: an autoscaler, or this program", Level.WARNING)


def _rollout(case: Case, name: str, *, apart: bool) -> Effect:
    """Groups restart from the highest index down, `maxUnavailable` at a time; what surges needs nodes of its own.

    Where Services take the new pods alone (`apart`), those that have not restarted yet do not serve.
    """
    groups, rolling = case.values("spec.replicas")[1], get(case.after, "inputs.spec.rolloutStrategy.rollingUpdateConfiguration") or {}
    groups = 1 if groups is None else groups
    size, at_once, surge = get(case.after, f"inputs.{TEMPLATE}.size") or 1, rolling.get("maxUnavailable", 1), rolling.get("maxSurge", 0)
    group = f"group of {size} pods" if size > 1 else "pod"
    if not isinstance(at_once, int) or not isinstance(surge, int) or not groups:
        return Effect(f"every {group} of {name} restarts and loads its weights anew", Level.WARNING)
    if surge:
        return Effect(f"every {group} of {name} is replaced; {surge} more at a time need GPUs that are free", Level.WARNING)
    if groups <= at_once:
        what = f"the only {group}" if groups == 1 else f"all {groups} groups"
        return Effect(f"{name} is down until {what} has restarted and loaded the weights", Level.WARNING)
    left = "" if apart else f": {groups - at_once} of {groups} serve meanwhile"
    return Effect(f"every {group} of {name} restarts, {at_once} at a time, and loads its weights anew{left}", Level.WARNING)


def _served_name(case: Case) -> Iterator[Effect]:
    """Whoever calls a model names it: a name that nothing serves any more is refused."""
    before = _flag(case.before, SERVED_NAME)
    if before and before not in {_flag(r, SERVED_NAME) for r in case.all_after.values() if r["type"] == LWS}:
        now = _flag(case.after, SERVED_NAME)
        yield Effect(f"callers that ask for model {before} get an error{f': it is {now} from now on' if now else ''}", Level.WARNING)


def _flag(workload: Mapping[str, Any], flag: str) -> str:
    """The value of a flag (`--name=value`) of the engine, empty where it is not given."""
    args = [str(a) for t in pod_templates(workload) for c in get(t, "spec.containers") or () for a in c.get("args") or ()]
    return next((a.partition("=")[2] for a in args if a.startswith(f"{flag}=")), "")


def selected_apart(old: Mapping[str, Any], new: Mapping[str, Any], resources: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a Service selects by a label of the pods that this change gives another value: then it serves the new pods alone."""
    before, after = ({**get(pods[0], "metadata.labels")} if (pods := pod_templates(r)) else {} for r in (old, new))
    changed = {key: value for key, value in after.items() if before.get(key) != value}
    selectors = [get(r, "inputs.spec.selector") or {} for r in resources.values() if r["type"] == SERVICE]
    return any(selector.get(key) == value for selector in selectors for key, value in changed.items())


def pod_templates(workload: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The pod templates of a LeaderWorkerSet's recording."""
    template = get(workload, f"inputs.{TEMPLATE}") or {}
    return [template[key] for key in ("leaderTemplate", "workerTemplate") if isinstance(template.get(key), Mapping)]


def role_of(workload: Mapping[str, Any]) -> tuple[str, str] | None:
    """Model and role of a LeaderWorkerSet by its pods' labels."""
    for template in pod_templates(workload):
        found = get(template, "metadata.labels") or {}
        if labels.PART_OF in found and labels.COMPONENT in found:
            return found[labels.PART_OF], found[labels.COMPONENT]
    return None


def kv_contract(workload: Mapping[str, Any]) -> list[Any]:
    """What both roles of a model must have in common for KV to pass: images, the model argument, and flags about the cache."""
    return [
        (c.get("image"), [a for i, a in enumerate(c.get("args") or ()) if i == 0 or str(a).startswith(SHARED_FLAGS)])
        for template in pod_templates(workload)
        for c in get(template, "spec.containers") or ()
    ]


def _node_class(case: Case) -> Iterator[Effect]:
    pools = [
        p for p in case.all_after.values() if p["type"] == NODE_POOL and get(p, "inputs.spec.template.spec.nodeClassRef.name") == case_name(case)
    ]
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
        yield from drift(case, [case.after])
    if case.touches("spec.limits"):
        before, after = (get(r, "inputs.spec.limits") or {} for r in (case.before, case.after))
        fewer = any(_number(after.get(k)) < _number(v) for k, v in before.items() if k in after)
        yield Effect("new pods stay pending beyond the lower limit" if fewer else "more nodes may be made", Level.WARNING if fewer else Level.INFO)
    if case.touches("spec.disruption"):
        yield Effect("when nodes may be replaced or ended changes")


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
    if get(case.before or case.after, "inputs.spec.type") != "LoadBalancer":
        if case.goes:
            until = " until it is there again" if case.op is Op.REPLACE else " any more"
            yield Effect(f"pods cannot be reached by this name{until}", Level.WARNING)
        return
    if case.goes:
        yield Effect("the load balancer goes, and its name with it", Level.WARNING)
    before, after = (get(r, "inputs.metadata.annotations") or {} for r in (case.before, case.after))
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
    return case_name_of(case.after or case.before)


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
    LWS: _workload,
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
