"""A recorded program: its resources, how they depend on each other, and its outputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..rules.declared import Declared, default

COMPUTED, SECRET = "<computed>", "<secret>"
"""What stands for values that only the deployment knows, and for secrets."""


@dataclass(frozen=True)
class Resource:
    """One registration, as the engine would receive it. `input_dependencies` tells by key from which resources an input is made."""

    urn: str
    type: str
    name: str
    parent: str | None
    provider: str | None
    remote: bool
    custom: bool
    inputs: Mapping[str, Any]
    depends_on: tuple[str, ...]
    options: Mapping[str, Any]
    input_dependencies: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain data with the keys of `plan --format json`."""
        return {
            "urn": self.urn,
            "type": self.type,
            "name": self.name,
            "parent": self.parent,
            "provider": self.provider,
            "remote": self.remote,
            "custom": self.custom,
            "inputs": dict(self.inputs),
            "dependsOn": list(self.depends_on),
            "inputDependencies": {key: list(urns) for key, urns in self.input_dependencies.items()},
            "options": dict(self.options),
        }


@dataclass(frozen=True)
class Graph:
    """All resources by URN, the stack's outputs, and by kind how many functions of the program only the engine calls."""

    resources: Mapping[str, Resource] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    callbacks: Mapping[str, int] = field(default_factory=dict)

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
    found = [r for r in graph.resources.values() if (r.custom or r.remote) and "read" not in r.options]
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
