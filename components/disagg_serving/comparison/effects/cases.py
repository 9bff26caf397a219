"""What the effects of AWS resources and of Kubernetes objects share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...document.difference import Change, Op
from ...document.resource import Resource, Resources
from ...errors import Level

NODE_POOL = "kubernetes:karpenter.sh/v1:NodePool"
SERVICE = "kubernetes:core/v1:Service"


@dataclass(frozen=True)
class Effect:
    """A sentence, and its weight."""

    text: str
    level: Level = Level.INFO


@dataclass(frozen=True)
class Case:
    """One change with what stands around it: the resource's recordings, and all resources of both plans by URN.

    `before` is None for what is created, `after` for what is deleted.
    """

    change: Change
    before: Resource | None
    after: Resource | None
    all_before: Resources
    all_after: Resources
    rolling: Mapping[str, str] = field(default_factory=dict)
    """What becomes of drifted nodes, by pool, where the layout is known."""

    @property
    def op(self) -> Op:
        """What happens to it."""
        return self.change.op

    @property
    def goes(self) -> bool:
        """Whether the thing that exists is deleted."""
        return self.op in (Op.DELETE, Op.REPLACE)

    def paths(self) -> list[str]:
        """Paths of the inputs that change."""
        return [p.path for p in self.change.paths if not p.path.startswith("options.")]

    def touches(self, *prefixes: str) -> bool:
        """Whether a changed path begins with one of these."""
        return any(path.startswith(prefixes) for path in self.paths())

    def values(self, path: str) -> tuple[Any, Any]:
        """The inputs' values at a dotted path, before and after; None where there is none."""
        return input_at(self.before, path), input_at(self.after, path)


Judge = Callable[[Case], Iterable[Effect]]


def get(data: Any, path: str) -> Any:
    """The value at a dotted path of mappings, None where there is none."""
    for key in path.split("."):
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def input_at(resource: Resource | None, path: str) -> Any:
    """The value at a dotted path of a resource's inputs, None where there is none, or no resource."""
    return get(resource.inputs, path) if resource else None


def join(effects: Iterable[Effect]) -> Effect:
    """One effect out of several: the worst level, and the sentences with the worst first."""
    ordered = sorted(dict.fromkeys(effects), key=lambda e: e.level.rank)
    return Effect("; ".join(e.text for e in ordered), ordered[0].level) if ordered else Effect("")


def name_of(resource: Resource | None) -> str:
    """The object's name in the cluster."""
    return str(input_at(resource, "metadata.name"))


def drift(case: Case, pools: Iterable[Resource]) -> Iterator[Effect]:
    """What becomes of the nodes of some NodePools that are no longer as they should be."""
    for name in sorted(name_of(p) for p in pools):
        becomes = case.rolling.get(name, f"nodes of {name} drift and are replaced")
        yield Effect(f"{becomes}; GPU nodes may not be had again", Level.WARNING)
