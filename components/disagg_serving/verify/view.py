"""A layout beside a snapshot: what checks look up in both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, wraps

from ..manifests.bundle import build_all
from ..manifests.names import picker_name
from ..manifests.serving import build_leader_worker_set
from ..planning.shapes import Group, Layout
from .points import Point, unknown
from .snapshot import Answers, Object, Ref, Snapshot, Unread

SHOWN_EVENT = 220
NOT_COMPARED = ("Secret", "LeaderWorkerSet", "Job")
"""Kinds with checks of their own, and Secrets, which are never read."""


Check = Callable[["View"], Iterator[Point]]


class UnreadError(Exception):
    """Something that a check needs was not read; the text says why."""


def unknown_unread(name: str, subject: str, expected: str) -> Callable[[Check], Check]:
    """For a check that reads all that it needs before its first point: where it cannot, one unknown point stands for all of its."""

    def decorate(check: Check) -> Check:
        @wraps(check)
        def checked(view: View) -> Iterator[Point]:
            try:
                yield from check(view)
            except UnreadError as problem:
                yield unknown(name, subject, expected, problem)

        return checked

    return decorate


@dataclass(frozen=True, eq=False)
class Engine:
    """One group of a LeaderWorkerSet, as far as it is planned: its pods by name, the leader first."""

    group: Group
    index: int
    pods: tuple[str, ...]

    @property
    def subject(self) -> str:
        """How points name it."""
        return f"{self.group.namespace}/{self.pods[0]}"


class View:
    """What checks ask."""

    def __init__(self, layout: Layout, snapshot: Snapshot) -> None:
        self.layout, self.snapshot = layout, snapshot

    @cached_property
    def made(self) -> list[Object]:
        """The generated objects."""
        return build_all(self.layout)

    @property
    def compared(self) -> list[Object]:
        """The generated objects whose fields are compared one by one."""
        return [o for o in self.made if o["kind"] not in NOT_COMPARED]

    def get(self, ref: Ref) -> Object | None:
        """An object, None where it is not there. Raises UnreadError."""
        found = self.snapshot.objects.get(ref, Unread("it was not asked for"))
        if isinstance(found, Unread):
            raise UnreadError(found.reason)
        return found

    def all(self, kind: Ref) -> Sequence[Object]:
        """All objects of a kind in a namespace. Raises UnreadError."""
        found = self.snapshot.lists.get(kind, Unread("they were not asked for"))
        if isinstance(found, Unread):
            raise UnreadError(found.reason)
        return found

    def set_of(self, group: Group) -> Object | None:
        """The LeaderWorkerSet of a role. Raises UnreadError."""
        return self.get(set_ref(group))

    def wanted(self, group: Group) -> int:
        """Engines that the cluster's LeaderWorkerSet wants, of those that are planned for; 0 without one. Raises UnreadError."""
        found = self.set_of(group)
        return int(found.get("spec", {}).get("replicas", 1)) if found else 0

    def engines(self, group: Group) -> list[Engine]:
        """The planned engines that the LeaderWorkerSet wants too: a wrong number is told once, by `set-replicas`. Raises UnreadError."""
        number = min(self.wanted(group), planned_replicas(group).most)
        return [Engine(group, i, names) for i, names in enumerate(replace(group, replicas=number).pods())]

    def pod(self, namespace: str, name: str) -> Object | None:
        """A pod. Raises UnreadError."""
        return next((p for p in self.all(pods_in(namespace)) if p["metadata"]["name"] == name), None)

    def running(self) -> Iterator[tuple[Engine, int, Object]]:
        """Planned pods that are there, each with its engine and number in it. Raises UnreadError."""
        for group in self.layout.groups:
            for engine in self.engines(group):
                for number, name in enumerate(engine.pods):
                    pod = self.pod(group.namespace, name)
                    if pod is not None:
                        yield engine, number, pod

    @cached_property
    def nodes(self) -> dict[str, Object]:
        """All nodes by name. Raises UnreadError."""
        return {n["metadata"]["name"]: n for n in self.all(NODES)}

    def answers(self, namespace: str, name: str) -> Answers:
        """What a pod said."""
        nothing = Unread("the pod was not asked")
        return self.snapshot.answers.get((namespace, name), Answers(nothing, nothing, nothing))

    def warnings(self, namespace: str, kind: str, names: Sequence[str]) -> str:
        """The newest warning about one of these objects, in brackets with a space before; empty where there is none."""
        try:
            events = self.all(events_in(namespace))
        except UnreadError as problem:
            return f" (events: {problem})"
        about = [
            e for e in events if e.get("type") == "Warning" and e["involvedObject"].get("kind") == kind and e["involvedObject"].get("name") in names
        ]
        if not about:
            return ""
        newest = max(about, key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or e["metadata"].get("creationTimestamp") or ""))
        text = " ".join(f"{newest.get('reason')}: {newest.get('message', '')}".split())
        return f" ({text if len(text) <= SHOWN_EVENT else text[: SHOWN_EVENT - 3] + '...'})"


NODES = Ref("v1", "Node", "")


def pods_in(namespace: str) -> Ref:
    """All pods of a namespace."""
    return Ref("v1", "Pod", namespace)


def events_in(namespace: str) -> Ref:
    """All events of a namespace."""
    return Ref("v1", "Event", namespace)


def slices_in(namespace: str) -> Ref:
    """All EndpointSlices of a namespace."""
    return Ref("discovery.k8s.io/v1", "EndpointSlice", namespace)


def deployments_in(namespace: str) -> Ref:
    """All Deployments of a namespace."""
    return Ref("apps/v1", "Deployment", namespace)


@dataclass(frozen=True)
class Bounds:
    """A planned number, or the range in which an autoscaler chooses it."""

    least: int
    most: int

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"

    def __contains__(self, number: int) -> bool:
        return self.least <= number <= self.most


def planned_replicas(group: Group) -> Bounds:
    """Engines that the stack file asks for; a range where none are generated because KEDA scales the set."""
    number = build_leader_worker_set(group)["spec"].get("replicas")
    return Bounds(group.spec.least_replicas, group.spec.most_replicas) if number is None else Bounds(int(number), int(number))


def set_ref(group: Group) -> Ref:
    """The LeaderWorkerSet of a role."""
    return Ref.of(build_leader_worker_set(group))


def objects_to_read(layout: Layout) -> list[Ref]:
    """The objects that are looked at one by one: what is generated, without Secrets, and the Services of the routers' charts."""
    made = [Ref.of(o) for o in build_all(layout) if o["kind"] != "Secret"]
    routers = [s for s in layout.served if s.spec.gateway.enabled]
    return made + [Ref("v1", "Service", s.spec.kubernetes_namespace, picker_name(s)) for s in routers]


def lists_to_read(layout: Layout) -> list[Ref]:
    """The kinds of which all are read, in the namespaces of the models and of the LeaderWorkerSet controller."""
    spaces = sorted({s.spec.kubernetes_namespace for s in layout.served})
    each = [make(n) for n in spaces for make in (pods_in, events_in, slices_in, deployments_in)]
    lws = layout.spec.lws.namespace
    # events about nodes are in `default`
    return list(dict.fromkeys([NODES, *each, deployments_in(lws), events_in(lws), events_in("default")]))


def is_true(thing: Object, condition: str) -> bool:
    """Whether a status condition is true."""
    return any(c["type"] == condition and c["status"] == "True" for c in thing.get("status", {}).get("conditions") or [])


def label_of(thing: Object, key: str) -> str:
    """A label's value, `none` where it is not set."""
    return str((thing["metadata"].get("labels") or {}).get(key, "none"))
