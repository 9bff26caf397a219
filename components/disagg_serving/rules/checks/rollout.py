"""Rules about the next revision of a model: what makes a candidate, whether both pairs have room, and what a step does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ...corrections import Correction
from ...errors import Level
from ...phrases import say
from ...planning.node_bounds import most_replicas, stated_bound
from ...planning.pairs import with_candidate
from ...planning.placement import bounded, by_pool, pack
from ...planning.scaling import scaled_out
from ...planning.shapes import Group, Layout, Served
from ...spec import ModelSpec
from ..documents import NIXL_CONNECTOR, OBJECT_NAMES
from ..registry import Fault, Stage, Subject, remove, rule, use

TAKEN = ("prefill", "decode", "server", "api", "epp", "gateway", "mirror", "serving")
"""Words that objects of a model end in; LWS makes a Service with the name of each set."""
RESERVE = say("reserve more for both pairs and say so in {capacity.nodes}, or give the candidate a reservation of its own")
FEWER = "give the candidate fewer engines, or smaller ones"
_NOT_COMPARED = ("generation", "candidate")


@rule("candidate-differs", Level.ERROR, Stage.FORM, "our choice: docs/rollout.md", firm=True, blocks_layout=True)
def candidate_differs(s: Subject) -> Iterator[Fault]:
    """A candidate differs from the model that it follows, and its roles are complete."""
    for i, model in enumerate(s.spec.models):
        candidate, path = model.candidate, f"models[{i}].candidate"
        if candidate is None:
            continue
        following = with_candidate(model, candidate)
        if _compared(following) == _compared(model):
            done: Correction = {f"models[{i}].generation": candidate.generation, path: None}
            ways = [[done]] if candidate.activate else [remove(path)]
            advice = "" if candidate.activate else "change something"
            allowed = say("what differs: {engine}, {model}, {weights.revision}, roles and so on")
            yield Fault(path, f"is the same as {model.name}", None, allowed, advice, ways=ways)
        if following.server is not None and len(following.roles) > 1:
            beside = " and ".join(name for name in following.roles if name != "server")
            yield Fault(f"{path}.server", f"stands beside {beside}", None, "prefill and decode, or server", "remove one mode")
        elif len(following.roles) == 1 and following.server is None:
            there = next(iter(following.roles))
            lacking = "decode" if there == "prefill" else "prefill"
            yield Fault(f"{path}.{lacking}", f"is missing beside {there}", None, "prefill and decode, or server", "add it")


@rule(
    "generation",
    Level.ERROR,
    Stage.FORM,
    f"{OBJECT_NAMES} and docs/rollout.md",
    firm=True,
    blocks_layout=True,
)
def generation(s: Subject) -> Iterator[Fault]:
    """A generation's name tells its objects from those of the pair before it, and from all others of the model."""
    for i, model in enumerate(s.spec.models):
        named = {f"models[{i}].generation": model.generation}
        if model.candidate is not None:
            place = f"models[{i}].candidate.generation"
            named[place] = model.candidate.generation
            if model.candidate.generation == model.generation:
                yield Fault(place, "is that of the pair that serves", model.generation, "another one", "choose another")
        for path, name in named.items():
            if name in TAKEN:
                yield Fault(path, "ends the names of other objects of the model", name, f"anything but {', '.join(TAKEN)}", "choose another")


@rule("candidate-weights", Level.ERROR, Stage.FORM, "our choice: docs/rollout.md", firm=True)
def candidate_weights(s: Subject) -> Iterator[Fault]:
    """A candidate with other weights reads them from another folder, and names no folder where there is no bucket."""
    for i, model in enumerate(s.spec.models):
        if model.candidate is None:
            continue
        given, s3, path = model.candidate.weights, model.weights.s3, f"models[{i}].candidate.weights"
        if s3 is None and given.s3 is not None:
            yield Fault(f"{path}.s3", "names a folder, but the model has no bucket", given.s3.prefix, "without it", ways=[remove(f"{path}.s3")])
        fixed = s3 is not None and s3.prefix is not None and not model.weights.mirror
        if fixed and s3 is not None and given.revision not in (None, model.weights.revision) and given.s3 is None:
            message = f"has no effect: both pairs read folder {s3.prefix}"
            yield Fault(f"{path}.revision", message, given.revision, say("with {weights.s3.prefix}"), say("add {weights.s3.prefix} to the candidate"))


@rule("candidate-capacity", Level.ERROR, Stage.LAYOUT, "docs/rollout.md")
def candidate_capacity(s: Subject) -> Iterator[Fault]:
    """The nodes of each pool hold the candidate's pods beside those that serve."""
    for pool, groups, bound in bounded(s.layout) if s.layout else ():
        waiting, live = [g for g in groups if not g.served.live], [g for g in groups if g.served.live]
        needed, alone = len(pack(groups)), len(pack(live)) if live else 0
        if not waiting or needed <= bound or alone > bound:
            continue
        widest = max(waiting, key=lambda g: (g.size * g.replicas, g.path))
        gpus, kind = widest.instance.gpu.count, "reserved" if widest.spec.capacity.type == "reserved" else "allowed"
        message = (
            f"does not fit: pool {pool} needs {needed} nodes ({needed * gpus} GPUs) for both pairs, of which {alone} serve, and {bound} "
            f"({bound * gpus} GPUs) are {kind}"
        )
        most = most_replicas(widest, groups, bound)
        allowed = f"at most {most} replicas" if most else ""
        advice = RESERVE if kind == "reserved" else ""
        yield Fault(widest.path, message, None, allowed, advice, ways=_ways(widest, groups, most, needed), otherwise=FEWER)


@rule("candidate-growth", Level.WARNING, Stage.LAYOUT, "docs/rollout.md")
def candidate_growth(s: Subject) -> Iterator[Fault]:
    """What a candidate may grow to, once it serves alone, fits the nodes that are reserved or allowed, as for those that serve."""
    for served, layout in ((c, s.layout) for c in s.layout.candidates) if s.layout and s.layout.pools else ():
        following = scaled_out([*_others(layout, served), *(_serving(g) for g in layout.groups_of(served))])
        for pool, groups in by_pool(following).items():
            grows = [g for g in groups if g.served.index == served.index and g.spec.autoscaling]
            bound, needed = stated_bound(groups), len(pack(groups))
            if not grows or bound is None or needed <= bound:
                continue
            widest = max(grows, key=lambda g: (g.size * g.replicas, g.path))
            place, most = f"{widest.path}.autoscaling.maxReplicaCount", most_replicas(widest, groups, bound)
            kind = "reserved" if widest.spec.capacity.type == "reserved" else "allowed"
            message = f"is refused when the candidate is activated: pool {pool} then needs {needed} nodes at most engines, and {bound} are {kind}"
            yield Fault(place, message, widest.replicas, f"at most {most}" if most else "", ways=[use(place, most) if most else []], otherwise=FEWER)


@rule("rollout-step", Level.INFO, Stage.LAYOUT, "docs/rollout.md")
def rollout_step(s: Subject) -> Iterator[Fault]:
    """What a candidate's step does, and what comes next."""
    for served in s.served if s.layout else ():
        candidate = served.spec.candidate
        if not served.candidate or candidate is None or s.layout is None:
            continue
        groups = s.layout.groups_of(served)
        sets, path = ", ".join(g.name for g in groups), f"models[{served.index}].candidate"
        if candidate.activate:
            restart = "; the router's pod restarts, which ends open streams" if served.spec.gateway.enabled else ""
            message = f"sends requests to {sets} once they are available, then removes the pair that served{restart}{_begins(groups)}"
            advice = "afterwards move its fields and its generation into the model and remove candidate, which changes nothing"
            yield Fault(f"{path}.activate", message, advice=advice)
        else:
            unknown = "" if s.spec.makes_pools else ", on nodes whose number is not known here"
            message = f"makes {sets} next to the pair that serves: {_more(s.layout.groups, groups)}{unknown}; no request goes there yet"
            advice = say("try it (docs/rollout.md), then turn {candidate.activate} on")
            if any(g.spec.least_replicas < g.spec.most_replicas for g in groups):
                advice = say("try it (docs/rollout.md), raise its {minReplicaCount} to the engines that serve now, then turn {candidate.activate} on")
            yield Fault(path, message, advice=advice)


@rule("pair-identity", Level.INFO, Stage.LAYOUT, f"{NIXL_CONNECTOR}metadata.py")
def pair_identity(s: Subject) -> Iterator[Fault]:
    """Prefill and decode of two revisions never work together, so a change of what they share interrupts serving unless it is a candidate."""
    for served in s.served if s.layout else ():
        if served.live and not served.candidate and served.spec.disaggregated:
            message = "engine, model, revision, dtypes, speculation or flags, changed in place, cost an outage while both roles load again"
            yield Fault(served.path, message, None, "", "make such a change as candidate")


def _others(layout: Layout, served: Served) -> list[Group]:
    """The groups of all other models that get requests."""
    return [g for g in layout.groups if g.served.live and g.served.index != served.index]


def _serving(group: Group) -> Group:
    """A group of a candidate as it is once it gets the requests."""
    spec = group.served.spec
    active = spec.candidate.model_copy(update={"activate": True}) if spec.candidate else None
    return replace(group, served=replace(group.served, spec=spec.model_copy(update={"candidate": active})))


def _begins(groups: Sequence[Group]) -> str:
    """With how many engines scaled roles take over: the autoscaler has not counted for them yet."""
    least = " and ".join(f"{g.name} with {g.spec.least_replicas}" for g in groups if g.spec.autoscaling)
    return f"; {least}: the engines that they had as candidate, whatever number the autoscaler gave the pair that served" if least else ""


def _compared(model: ModelSpec) -> dict[str, Any]:
    measured: dict[str, Any] = {"calibration": None, "measured_rates": []}
    whole = model.model_copy(update={n: r.model_copy(update=measured) for n, r in model.roles.items()})
    return {n: getattr(whole, n) for n in ModelSpec.model_fields if n not in _NOT_COMPARED}


def _more(everyone: Sequence[Group], groups: Sequence[Group]) -> str:
    """Nodes that are only there for some groups, by instance type."""
    names = {g.name for g in groups}
    rest, counted = by_pool([g for g in everyone if g.name not in names]), Counter[str]()
    for pool, members in by_pool(everyone).items():
        counted[members[0].instance.id] += len(pack(members)) - (len(pack(rest[pool])) if pool in rest else 0)
    return ", ".join(f"{count} more {instance}" for instance, count in sorted(counted.items()) if count) or "no more nodes"


def _ways(group: Group, groups: Sequence[Group], most: int, needed: int) -> list[list[Correction]]:
    """Fewer replicas of the candidate, or more nodes, which everybody who states the bound of the pool has to state alike."""
    number = "autoscaling.minReplicaCount" if group.spec.autoscaling else "replicas"
    stated = [g.path for g in groups if g.spec.capacity.nodes is not None and (g.served.live or _given(g))]
    more: Correction = {f"{path}.capacity.nodes": needed for path in stated}
    return [use(f"{group.path}.{number}", most) if most else [], [more] if more and group.spec.capacity.type != "reserved" else []]


def _given(group: Group) -> bool:
    candidate = group.served.spec.candidate
    return candidate is not None and getattr(candidate, group.role) is not None
