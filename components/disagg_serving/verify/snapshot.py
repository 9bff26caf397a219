"""What was read of a cluster at one time, as plain data; what could not be read says why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True)
class Unread:
    """Why something was not read: no right, no answer, no such thing asked for."""

    reason: str


@dataclass(frozen=True, order=True)
class Ref:
    """An object by its API version, kind, namespace (empty for the cluster) and name; without a name, all of its kind there."""

    api_version: str
    kind: str
    namespace: str
    name: str = ""

    @classmethod
    def of(cls, made: Mapping[str, Any]) -> Ref:
        """The reference of a generated object."""
        metadata = made["metadata"]
        return cls(made["apiVersion"], made["kind"], metadata.get("namespace", ""), metadata["name"])

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Answers:
    """What one engine's pod said: the beginning of its log, its metrics in Prometheus' text form, its version."""

    log: str | Unread
    metrics: str | Unread
    version: str | Unread


@dataclass(frozen=True)
class Snapshot:
    """A cluster. `objects` holds None for what is not there; `answers` are by namespace and pod name."""

    server: str
    version: str | Unread
    objects: Mapping[Ref, Object | Unread | None] = field(default_factory=dict)
    lists: Mapping[Ref, Sequence[Object] | Unread] = field(default_factory=dict)
    answers: Mapping[tuple[str, str], Answers] = field(default_factory=dict)
