"""A recorded program: its resources, how they depend on each other, and its outputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..document.plan import Callback
from ..document.resource import Resource
from ..rules.declared import Declared, default


@dataclass(frozen=True)
class Graph:
    """All resources by URN, the stack's outputs, and by kind how many functions of the program only the engine calls."""

    resources: Mapping[str, Resource] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    callbacks: Mapping[Callback, int] = field(default_factory=dict)

    def of_type(self, type_token: str) -> list[Resource]:
        """Resources of one type, by URN."""
        return [r for r in self.resources.values() if r.type == type_token]

    def children(self, urn: str | None) -> list[Resource]:
        """Resources directly below another."""
        return [r for r in self.resources.values() if r.parent == urn]

    def requires(self, urn: str) -> set[str]:
        """Everything that exists before a resource is made, and outlives it on destroy.

        Dependencies, providers and parents count; a dependency on a component counts for all that is in it.
        """
        found: set[str] = set()
        todo = self._direct(urn)
        while todo:
            current = todo.pop()
            if current in found or current not in self.resources:
                continue
            found.add(current)
            todo |= self._direct(current)
        return found

    def _direct(self, urn: str) -> set[str]:
        resource = self.resources[urn]
        direct = {
            *resource.depends_on,
            *([resource.provider] if resource.provider else []),
            *([resource.parent] if resource.parent else []),
        }
        inside = {c.urn for d in resource.depends_on if d in self.resources and not self.resources[d].custom for c in self.children(d)}
        return direct | inside


def declared(graph: Graph, config: Collection[str] = ()) -> list[Declared]:
    """What a program makes, by kind and name; what it only reads is not its own. `config` holds the stack's configuration keys."""
    found = [r for r in graph.resources.values() if r.real and "read" not in r.options]
    return [
        Declared(f"{r.type.rsplit(':', 1)[1]} {r.name}", r.inputs, r.type, r.urn, _provider(r) or default(r.type, config), r.parent or "")
        for r in found
    ]


def _provider(resource: Resource) -> str:
    """The provider that makes what a resource stands for: a remote component hands one on to its parts, and those of `eks` are AWS's."""
    if not resource.remote:
        return resource.provider or ""
    package = resource.type.partition(":")[0]
    return str(resource.options.get("providers", {}).get("aws" if package == "eks" else package, ""))
