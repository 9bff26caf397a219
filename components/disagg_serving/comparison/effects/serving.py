"""What changes mean for engines: a pair that comes, gets the requests or goes, groups that restart, and who sets their number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ... import labels
from ...document.difference import Op
from ...document.resource import Resource, Resources
from ...errors import Level
from ...manifests.names import serving_service
from .cases import NODE_POOL, SERVICE, Case, Effect, get, input_at, name_of

LWS = "kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet"
SCALED_OBJECT = "kubernetes:keda.sh/v1alpha1:ScaledObject"
PAIRED = ("prefill", "decode")
SERVED_NAME = "--served-model-name"
APART = "Services take the new pods alone, so that revisions do not meet: no answers until one of each role has loaded"
TEMPLATE = "spec.leaderWorkerTemplate"
SHARED_FLAGS = ("--revision", "--dtype", "--quantization", "--kv-cache-dtype", "--block-size", "--kv-transfer-config", "--speculative-config")
"""Flags that prefill and decode must agree on while KV goes from one to the other; a stack file has them once a model."""


def engines(case: Case) -> Iterator[Effect]:
    """What becomes of the groups of a LeaderWorkerSet."""
    name = name_of(case.before or case.after)
    served, serves = serving(case.before, case.all_before), serving(case.after, case.all_after)
    if case.op is Op.CREATE:
        yield _comes(case, name, serves)
    elif case.op is Op.DELETE and name not in served:
        yield Effect(f"the candidate {name} ends; no request went to it")
    elif case.op is Op.DELETE:
        yield Effect(f"all groups of {name} end", Level.WARNING)
        yield from _served_name(case)
    elif case.op is Op.REPLACE:
        yield Effect(f"all groups of {name} end and are made anew: an outage until the weights are loaded", Level.WARNING)
    elif case.before:
        if name in serves - served:
            yield Effect(f"{name} takes the requests from now on")
        if case.touches(TEMPLATE):
            apart = selected_apart(case.before, case.after, case.all_after)
            if apart:
                yield Effect(APART, Level.WARNING)
            yield _rollout(case, name, apart=apart)
            yield from _served_name(case)
        yield from _number(case, name)


def _number(case: Case, name: str) -> Iterator[Effect]:
    """Groups that come and go, and who says how many there are."""
    before, after = case.values("spec.replicas")
    if before == after:
        return
    if not isinstance(before, int) or not isinstance(after, int):
        yield Effect(f"who sets the number of groups of {name} changes: an autoscaler, or this program", Level.WARNING)
    elif after == 0:
        yield Effect(f"no group of {name} is left", Level.WARNING)
    elif after < before:
        end = "ends" if before - after == 1 else "end"
        yield Effect(f"{before - after} of {before} groups of {name} {end}, from the highest index down", Level.WARNING)
    else:
        yield Effect(f"{after - before} more of {name} will take requests once their weights are loaded")


def _rollout(case: Case, name: str, *, apart: bool) -> Effect:
    """Groups restart from the highest index down, `maxUnavailable` at a time; what surges needs nodes of its own.

    Where Services take the new pods alone (`apart`), those that have not restarted yet do not serve.
    """
    groups, rolling = case.values("spec.replicas")[1], input_at(case.after, "spec.rolloutStrategy.rollingUpdateConfiguration") or {}
    groups = 1 if groups is None else groups
    size, at_once, surge = input_at(case.after, f"{TEMPLATE}.size") or 1, rolling.get("maxUnavailable", 1), rolling.get("maxSurge", 0)
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
    if before and before not in {_flag(r, SERVED_NAME) for r in case.all_after.values() if r.type == LWS}:
        now = _flag(case.after, SERVED_NAME)
        yield Effect(f"callers that ask for model {before} get an error{f': it is {now} from now on' if now else ''}", Level.WARNING)


def _flag(workload: Resource | None, flag: str) -> str:
    """The value of a flag (`--name=value`) of the engine, empty where it is not given."""
    args = [str(a) for t in pod_templates(workload) for c in get(t, "spec.containers") or () for a in c.get("args") or ()]
    return next((a.partition("=")[2] for a in args if a.startswith(f"{flag}=")), "")


def selected_apart(old: Resource | None, new: Resource | None, resources: Resources) -> bool:
    """Whether a Service selects by a label of the pods that this change gives another value: then it serves the new pods alone."""
    before, after = ({**get(pods[0], "metadata.labels")} if (pods := pod_templates(r)) else {} for r in (old, new))
    changed = {key: value for key, value in after.items() if before.get(key) != value}
    selectors = [input_at(r, "spec.selector") or {} for r in resources.values() if r.type == SERVICE]
    return any(selector.get(key) == value for selector in selectors for key, value in changed.items())


def pod_templates(workload: Resource | None) -> list[Mapping[str, Any]]:
    """The pod templates of a LeaderWorkerSet's recording."""
    template = input_at(workload, TEMPLATE) or {}
    return [template[key] for key in ("leaderTemplate", "workerTemplate") if isinstance(template.get(key), Mapping)]


def role_of(workload: Resource | None) -> tuple[str, str] | None:
    """Model and role of a LeaderWorkerSet by its pods' labels."""
    for template in pod_templates(workload):
        found = get(template, "metadata.labels") or {}
        if labels.PART_OF in found and labels.COMPONENT in found:
            return found[labels.PART_OF], found[labels.COMPONENT]
    return None


def kv_contract(workload: Resource | None) -> list[Any]:
    """What both roles of a model must have in common for KV to pass: images, the model argument, and flags about the cache."""
    return [
        (c.get("image"), [a for i, a in enumerate(c.get("args") or ()) if i == 0 or str(a).startswith(SHARED_FLAGS)])
        for template in pod_templates(workload)
        for c in get(template, "spec.containers") or ()
    ]


def serving(workload: Resource | None, resources: Resources) -> frozenset[str]:
    """Names of the sets that the Services of a set's model select; of a candidate that waits, the Services have other names.

    Where there is no such Service, the set itself.
    """
    found = role_of(workload)
    if found is None:
        return frozenset({name_of(workload)})
    names = {serving_service(found[0], role) for role in ("prefill", "decode", "server")}
    near = [r for r in resources.values() if r.type == SERVICE and _namespace(r) == _namespace(workload) and name_of(r) in names]
    selected = {str(name) for r in near if (name := (input_at(r, "spec.selector") or {}).get(labels.LWS_NAME))}
    return frozenset(selected or {name_of(workload)})


def tried_only(case: Case) -> bool:
    """Whether a Service that goes led to a candidate alone."""
    name = (input_at(case.before, "spec.selector") or {}).get(labels.LWS_NAME)
    sets = [r for r in case.all_before.values() if r.type == LWS and _namespace(r) == _namespace(case.before) and name_of(r) == name]
    return any(name not in serving(r, case.all_before) for r in sets)


def _comes(case: Case, name: str, serves: frozenset[str]) -> Effect:
    """A new set: a candidate, the first one, or one that takes over from another."""
    if name not in serves:
        return Effect(f"{name} is a candidate: no request goes to it")
    if not _taken_over(case):
        return Effect(f"{name} takes requests once its weights are loaded")
    if labels.WAIT_FOR not in (input_at(case.after, "metadata.annotations") or {}):
        return Effect(
            f"requests go to {name} at once, and nothing waits for it: no answers until its weights are loaded; as a candidate it would load first",
            Level.WARNING,
        )
    pool, most, needed = _room(case)
    if most is not None and needed > most:
        return Effect(
            f"`up` waits for {name} in vain: pool {pool} may have {most} GPUs, and both pairs need {needed} while it waits; make it a candidate "
            f"first, and activate it when it is available",
            Level.ERROR,
        )
    return Effect(f"`up` waits until {name} is available, beside the pair that serves; then it takes the requests")


def _taken_over(case: Case) -> bool:
    """Whether other sets of the model served before."""
    role = role_of(case.after)
    others = [r for r in case.all_before.values() if r.type == LWS and _namespace(r) == _namespace(case.after)]
    return any((found := role_of(r)) and role and found[0] == role[0] for r in others)


def _room(case: Case) -> tuple[str, int | None, int]:
    """The pool of a set, its limit in GPUs, and how many all sets on it ask for at the least while the old ones still run."""
    pool = _pool(case.after)
    sets = {**case.all_before, **case.all_after}.values()
    needed = sum(_gpus(r) for r in sets if r.type == LWS and _pool(r) == pool)
    limits = [input_at(r, "spec.limits") or {} for r in case.all_after.values() if r.type == NODE_POOL and name_of(r) == pool]
    most = [int(limit[labels.GPU]) for limit in limits if str(limit.get(labels.GPU, "")).isdigit()]
    return pool, most[0] if most else None, needed


def _pool(workload: Resource | None) -> str:
    return next((str(found) for t in pod_templates(workload) if (found := (get(t, "spec.nodeSelector") or {}).get(labels.POOL))), "")


def _gpus(workload: Resource | None) -> int:
    """GPUs of all groups of a set; of one that is scaled, those of one group."""
    groups, size = input_at(workload, "spec.replicas"), input_at(workload, f"{TEMPLATE}.size") or 1
    pods = [
        sum(int((get(c, "resources.limits") or {}).get(labels.GPU, 0)) for c in get(template, "spec.containers") or ())
        for template in pod_templates(workload)
    ]
    return (1 if groups is None else groups) * (pods[0] + pods[-1] * (size - 1)) if pods else 0


def scaling(case: Case) -> Iterator[Effect]:
    """What becomes of the number of engines of a role that KEDA scales."""
    name = name_of(case.before or case.after)
    if case.op is not Op.UPDATE:
        return
    least, most = case.values("spec.minReplicaCount"), case.values("spec.maxReplicaCount")
    if most[1] < most[0]:
        yield Effect(f"engines of {name} beyond {most[1]} end at once, whatever waits", Level.WARNING)
    elif most[1] > most[0]:
        yield Effect(f"up to {most[1] - most[0]} more engines of {name} may be made")
    if least[1] > least[0]:
        yield Effect(f"{name} has {least[1]} engines at the least, whatever its load")
    elif least[1] < least[0]:
        yield Effect(f"engines of {name} down to {least[1]} end where they are not missed")
    if case.touches("spec.triggers", "spec.advanced"):
        yield Effect(f"when engines of {name} are added and removed changes")


def _namespace(resource: Resource | None) -> Any:
    return input_at(resource, "metadata.namespace")
