"""What a change does to what runs: `effects(before, after)` compares two layouts of one environment, pure and offline.

It compares what is rendered (pod templates, NodeClasses, NodePools, the router's values), so that whatever a field changes there is
seen. The caller gets one `Effect` for each role, router, candidate and pool that is touched, the graver ones first, and shows them
beside the resources' diff. Nothing is said about models that come newly, and nothing about what stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..errors import Level
from ..planning.pairs import in_common, reads_kv
from ..planning.placement import by_pool, pack
from ..planning.shapes import Group, Layout, Pool, Served
from ..planning.startup import ready_wait_seconds, startup_budget_seconds
from .gateway import router_values
from .node_pools import build_node_class, build_node_pool
from .serving import build_leader_worker_set

TWO_STEPS = "make it as candidate, then activate it (docs/rollout.md)"
_GRAVITY = (Level.ERROR, Level.WARNING, Level.INFO)


class Kind(StrEnum):
    """What happens to a role or a pool."""

    IN_PLACE = "in place"
    OUTAGE = "outage"
    MIXED = "mix of revisions"
    CANDIDATE = "candidate"
    ACTIVATION = "activation"
    REMOVAL = "removal"
    NODES = "nodes roll"


@dataclass(frozen=True)
class Effect:
    """What a change does: `path` is a place in the stack file, `subject` what is touched, `severity` a warning where serving suffers."""

    path: str
    subject: str
    kind: Kind
    message: str
    severity: Level = Level.INFO
    fix: str = ""

    def sentence(self) -> str:
        """The effect as one line."""
        return f"{self.path}: {self.subject}: {self.kind}: {self.message}{f'; {self.fix}' if self.fix else ''}"

    def as_dict(self) -> dict[str, str]:
        """Plain data."""
        return {
            "path": self.path,
            "subject": self.subject,
            "kind": str(self.kind),
            "message": self.message,
            "severity": str(self.severity),
            "fix": self.fix,
        }


def effects(before: Layout, after: Layout) -> list[Effect]:
    """What changes for what runs when `after` is deployed over `before`; warnings first, then by path."""
    old = {s.spec.name: s for s in before.served}
    found: list[Effect] = []
    for served in after.served:
        was = old.pop(served.spec.name, None)
        if was is not None:
            found += _Change(before, after, was, served).effects()
    for served in old.values():
        found.append(Effect(served.path, served.spec.name, Kind.REMOVAL, "is removed with its endpoint", Level.WARNING))
    found += _nodes(before, after)
    return sorted(found, key=lambda e: (_GRAVITY.index(e.severity), e.path, e.subject, e.kind))


@dataclass(frozen=True)
class _Change:
    """One model before and after."""

    before: Layout
    after: Layout
    was: Served
    now: Served

    def effects(self) -> Iterator[Effect]:
        """Of the pair that serves, of candidates, and of the router."""
        was, now, name = self.was.spec, self.now.spec, self.now.spec.name
        if was.kubernetes_namespace != now.kubernetes_namespace:
            message = f"moves to namespace {now.kubernetes_namespace}: all of it is made anew, and the old endpoint goes"
            yield Effect(f"{self.now.path}.namespace", name, Kind.OUTAGE, message, Level.WARNING)
            return
        if was.generation != now.generation:
            yield self._switch()
        elif was.roles.keys() != now.roles.keys():
            message = f"{', '.join(was.roles)} end and {', '.join(now.roles)} begin to load: no answers for {_minutes(self.now)}"
            yield Effect(self.now.path, name, Kind.OUTAGE, message, Level.WARNING, TWO_STEPS)
        else:
            yield from self._same_pair()
        yield from self._candidates()

    def _same_pair(self) -> Iterator[Effect]:
        groups, old = self.after.groups_of(self.now), {g.role: g for g in self.before.groups_of(self.was)}
        pairs = [(old[g.role], g) for g in groups]
        if self.now.spec.disaggregated:
            shared, other = in_common([g for g, _ in pairs]), in_common(groups)
            changed = [key for key in other if shared[key] != other[key]]
            tensor = {g.role: (a.spec.tensor_parallel, g.spec.tensor_parallel) for a, g in pairs}
            # while both roll, old prefill pods meet new decode pods and the other way round
            strange = not all(reads_kv(self.now, p, d) for p in tensor["prefill"] for d in tensor["decode"])
            if changed:
                message = (
                    f"{', '.join(changed)} must be alike on prefill and decode. Services and router select the new pods alone, so that revisions "
                    f"do not meet: no answers until one of each role has loaded, {_minutes(self.now)}"
                )
                yield Effect(self.now.path, self.now.spec.name, Kind.MIXED, message, Level.WARNING, TWO_STEPS)
                return
            if strange:
                message = "with tensorParallel changed in both roles, pods of the old and the new size meet that cannot read each other's KV"
                yield Effect(self.now.path, self.now.spec.name, Kind.MIXED, message, Level.WARNING, TWO_STEPS)
        for group, new in pairs:
            yield from _role(group, new)
        if self.now.spec.gateway.enabled and self.was.spec.gateway.enabled and self._router(self.was) != self._router(self.now):
            message = "the router's one pod restarts: open streams end, and for some seconds requests fail"
            yield Effect(f"{self.now.path}.gateway", self.now.spec.name, Kind.IN_PLACE, message)

    def _router(self, served: Served) -> dict[str, Any]:
        layout = self.before if served is self.was else self.after
        return router_values(served, layout.groups_of(served))

    def _switch(self) -> Effect:
        name, generation = self.now.spec.name, self.now.spec.generation
        ready = next((c for c in self.before.candidates_of(self.was) if c.spec.generation == generation), None)
        if ready is not None and _templates(self.before.groups_of(ready)) == _templates(self.after.groups_of(self.now)):
            message = f"generation {generation} gets the requests once it is available, then {_sets(self.before.groups_of(self.was))} end"
            return Effect(self.now.path, name, Kind.ACTIVATION, message)
        if ready is not None:
            message = f"the pods of generation {generation} change in the step that sends them requests"
            return Effect(self.now.path, name, Kind.ACTIVATION, message, Level.WARNING, "change the candidate first, then activate it")
        if ready_wait_seconds(self.now) is None:
            message = f"the requests go at once to pods that have yet to load: no answers for {_minutes(self.now)}"
            return Effect(self.now.path, name, Kind.OUTAGE, message, Level.WARNING, TWO_STEPS)
        message = f"{_sets(self.after.groups_of(self.now))} were no candidate: they need room beside the pair that serves, which is not checked here"
        return Effect(self.now.path, name, Kind.ACTIVATION, message, Level.WARNING, TWO_STEPS)

    def _candidates(self) -> Iterator[Effect]:
        old = {c.spec.generation: self.before.groups_of(c) for c in self.before.candidates_of(self.was)}
        for candidate in self.after.candidates_of(self.now):
            groups = self.after.groups_of(candidate)
            there = old.pop(candidate.spec.generation, None)
            if there is None:
                yield Effect(candidate.path, self.now.spec.name, Kind.CANDIDATE, f"{_sets(groups)} are made next to the pair that serves")
            elif _templates(there) != _templates(groups):
                yield Effect(candidate.path, self.now.spec.name, Kind.IN_PLACE, f"the pods of {_sets(groups)} are replaced; no request goes there")
        old.pop(self.now.spec.generation, None)
        for groups in old.values():
            yield Effect(self.now.path, self.now.spec.name, Kind.REMOVAL, f"the candidate's {_sets(groups)} end; no request goes there")


def _role(old: Group, new: Group) -> Iterator[Effect]:
    name, engines = f"{new.served.spec.name} {new.role}", min(old.replicas, new.replicas)
    if _templates([old]) != _templates([new]):
        if new.surge:
            yield Effect(new.path, name, Kind.IN_PLACE, "engines are replaced one after the other, each by one that is ready before it ends")
        elif engines == 1:
            message = f"its only engine is replaced: no answers for {_minutes(new.served)} while the model loads"
            yield Effect(new.path, name, Kind.OUTAGE, message, Level.WARNING, "add a replica or room for one, or " + TWO_STEPS)
        else:
            message = f"engines are replaced one after the other: {engines - 1} of {engines} answer, {_minutes(new.served)} each"
            yield Effect(new.path, name, Kind.IN_PLACE, message)
    if old.replicas != new.replicas:
        ends = " after their requests in flight" if new.replicas < old.replicas else ""
        message = f"from {old.replicas} to {new.replicas} engines; {'the last ones end' if ends else 'new ones load beside'}{ends}"
        yield Effect(f"{new.path}.replicas", name, Kind.IN_PLACE, message)


def _nodes(before: Layout, after: Layout) -> Iterator[Effect]:
    """Pools whose running nodes no longer are what they should be; a change of limits, budgets or window drifts none (Karpenter 1.14)."""
    old = {pool.name: pool for pool in before.pools}
    running = by_pool(before.groups)
    for pool in after.pools:
        was = old.get(pool.name)
        reasons = _drift(before, after, was, pool) if was is not None else []
        if reasons:
            yield _rolling(after, pool, running[pool.name], reasons)


def _drift(before: Layout, after: Layout, was: Pool, pool: Pool) -> list[str]:
    """Why nodes of a pool drift. Auto Mode's own list of NodeClass fields is not public: every changed one counts, as upstream."""
    reasons = []
    if before.spec.kubernetes_version != after.spec.kubernetes_version:
        reasons.append(f"Kubernetes {before.spec.kubernetes_version} to {after.spec.kubernetes_version}")
    one, other = _node_class(before, was), _node_class(after, pool)
    fields = [k for k in sorted({*one, *other}) if one.get(k) != other.get(k) and not _still_reserved(k, one, other)]
    reasons += [f"NodeClass {pool.node_class}: {', '.join(fields)}"] if fields else []
    left, right = (build_node_pool(p, layout.settings)["spec"]["template"] for p, layout in ((was, before), (pool, after)))
    fields = [k for k in sorted(right["spec"]) if left["spec"].get(k) != right["spec"][k]]
    fields += ["labels"] if left["metadata"] != right["metadata"] else []
    return reasons + ([f"NodePool {pool.name}: {', '.join(fields)}"] if fields else [])


def _node_class(layout: Layout, pool: Pool) -> dict[str, Any]:
    from .bundle import node_identity  # noqa: PLC0415 (bundle puts all manifests together)

    (shape,) = [c for c in layout.node_classes if c.name == pool.node_class]
    spec: dict[str, Any] = build_node_class(shape, node_identity(layout.spec), layout.settings)["spec"]
    return spec


def _still_reserved(key: str, one: dict[str, Any], other: dict[str, Any]) -> bool:
    """A node stays as long as its own reservation is named."""
    if key != "capacityReservationSelectorTerms":
        return False
    return {t["id"] for t in one.get(key, ())} <= {t["id"] for t in other.get(key, ())}


def _rolling(after: Layout, pool: Pool, running: Sequence[Group], reasons: Sequence[str]) -> Effect:
    settings, nodes = after.settings, pack(running)
    window = settings.maintenance_window
    if pool.max_nodes > len(nodes):
        when = (
            f"one at a time from {window.day} {window.start_utc} UTC within {window.hours} h, each after a new node has started; pods of the old one "
            f"keep it up to {settings.termination_grace_hours} h longer"
        )
        fix = ""
    else:
        when = (
            f"not in the maintenance window, since the bound of {pool.max_nodes} leaves no node to start first, but each "
            f"{settings.expire_after_hours} h after it was made, at any hour, and before its successor starts"
        )
        fix = f"set capacity.nodes: {len(nodes) + 1} to have them replaced in the window"
    message = f"{len(nodes)} x {pool.instance.id} ({'; '.join(reasons)}): {when}. {_interrupted(running, nodes)}"
    return Effect(pool.path, f"pool {pool.name}", Kind.NODES, message, Level.WARNING, fix)


def _interrupted(running: Sequence[Group], nodes: Sequence[Any]) -> str:
    """How many engines of each role the loss of one node takes at most."""
    parts = []
    for group in running:
        engine_of = {pod: engine[0] for engine in group.pods() for pod in engine}
        most = max(len({engine_of[p] for p in node.pods if p in engine_of}) for node in nodes)
        all_of = f", which is an outage of {_minutes(group.served)}" if most == group.replicas and group.served.live else ""
        parts.append(f"{most} of {group.replicas} engines of {group.name}{all_of}")
    return f"A node takes with it {'; '.join(parts)}"


def _templates(groups: Sequence[Group]) -> list[Any]:
    return [build_leader_worker_set(g)["spec"]["leaderWorkerTemplate"] for g in groups]


def _sets(groups: Sequence[Group]) -> str:
    return ", ".join(g.name for g in groups)


def _minutes(served: Served) -> str:
    return f"up to {startup_budget_seconds(served) // 60} minutes"
