"""Ways to change an engine: its GPUs, its instance type, in one role or in both; the trial decides which of them pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..catalog import Instance
from ..corrections import Correction
from ..errors import SpecError
from ..forecast.capacities import shape_of
from ..forecast.fit import Fit, capacity
from ..planning.shapes import Served, build_group
from ..spec import RoleSpec
from ..spec.serving import RoleName
from .registry import Subject

SIZES = (1, 2, 4, 8, 16)
"""Tensor-parallel sizes that are proposed."""
WHOLE_NODE = 8
"""GPUs of a node from which on engines may span several of them: smaller ones are cut out of such nodes, or lack the network."""
UNPRICED = 1000.0


class _Cut(NamedTuple):
    """tensorParallel, pipelineParallel and dataParallel of an engine."""

    size: int
    stages: int = 1
    ranks: int = 1


def near(values: Iterable[int], asked: int) -> list[int]:
    """Values by how likely they are meant: those below what was asked from the largest on, then those above."""
    ordered = sorted(set(values) - {asked})
    return [*reversed([n for n in ordered if n < asked]), *(n for n in ordered if n > asked)]


def in_roles(served: Served, name: RoleName, key: str, values: Sequence[Any], *, together: bool | None = None) -> list[Correction]:
    """A field of a role with other values, in this role alone or else in both; `together`: in both only, by default where they are alike now."""
    roles = served.spec.roles
    alone: list[Correction] = [{f"{served.path}.{name}.{key}": value} for value in values]
    both: list[Correction] = [{f"{served.path}.{side}.{key}": value for side in roles} for value in values]
    if len(roles) == 1:
        return alone
    if together is None:
        together = len({getattr(role, field_of(key)) for role in roles.values()}) == 1
    return both if together else [*alone, *both]


def field_of(key: str) -> str:
    """A role's field by its key in the stack file."""
    return next(name for name, field in RoleSpec.model_fields.items() if key in (field.alias, name))


def in_sides(served: Served, name: RoleName, fields: dict[str, Any]) -> list[Correction]:
    """Fields of a role in this role alone, or else in every role that is cut as this one."""
    size = served.spec.roles[name].tensor_parallel
    alike = [side for side, role in served.spec.roles.items() if role.tensor_parallel == size]
    return [{f"{served.path}.{side}.{key}": value for side in sides for key, value in fields.items()} for sides in ([name], alike)]


def other_engines(s: Subject, served: Served, name: RoleName, *, rdma: bool = False, together: bool = False) -> list[Iterator[Correction]]:
    """Engines that hold the model even in the pessimistic case, a way for each instance type: the role's own first, then by price.

    They are of this role alone or else of both; `together`: of both only, where there are two.
    """
    mine = served.spec.roles[name].instance_type
    kinds = [kind for kind in by_price(s) if kind.gpu_direct_rdma or not rdma]
    return [_on(served, name, kind, together=together) for kind in sorted(kinds, key=lambda kind: kind.id != mine)]


def that_hold(served: Served, name: RoleName, kinds: Iterable[Instance]) -> list[str]:
    """Instance types on which an engine cut as it is now holds the model even in the pessimistic case."""
    role = served.spec.roles[name]
    return [kind.id for kind in kinds if _holds(served, name, role, kind, _cut_of(role))]


def by_price(s: Subject) -> list[Instance]:
    """The catalogue's instance types by what a GPU costs, those without a price on demand last."""
    return sorted((s.catalog.instances[kind] for kind in s.catalog.instances), key=lambda kind: (kind.on_demand is None, _gpu_hour(kind), kind.id))


def _on(served: Served, name: RoleName, instance: Instance, *, together: bool) -> Iterator[Correction]:
    roles = served.spec.roles
    choices: list[list[RoleName]] = [[name]] if len(roles) == 1 else [list(roles)] if together else [[name], list(roles)]
    for cut in _cuts(served, name, instance.gpu.count):
        for moved in choices:
            fields = {side: _fields(roles[side], instance, cut) for side in moved}
            same = all(r.instance_type == instance.id and _cut_of(r) == cut for r in map(roles.__getitem__, moved))
            if not same and all(_holds(served, side, roles[side], instance, cut) for side in moved):
                yield {f"{served.path}.{side}.{key}": value for side, one in fields.items() for key, value in one.items()}


def _cuts(served: Served, name: RoleName, gpus: int) -> list[_Cut]:
    """How an engine may be cut on nodes of so many GPUs, the best ways first."""
    wide = gpus >= WHOLE_NODE
    inside = [_Cut(n) for n in SIZES if n <= gpus and gpus % n == 0]
    across = [_Cut(n) for n in SIZES if n > gpus and n % gpus == 0 and wide]
    ranks = [_Cut(gpus, ranks=2)] if wide and served.facts.moe is not None else []
    stages = [_Cut(gpus, stages=2)] if wide and name == "server" else []
    # a layer that is cut over nodes waits for the network twice, so ranks come first
    return [*inside, *ranks, *across, *stages]


def _cut_of(role: RoleSpec) -> _Cut:
    return _Cut(role.tensor_parallel, role.pipeline_parallel, role.data_parallel)


def _fields(role: RoleSpec, instance: Instance, cut: _Cut) -> dict[str, Any]:
    fields: dict[str, Any] = {"tensorParallel": cut.size, "instanceType": instance.id}
    fields |= {"pipelineParallel": cut.stages} if cut.stages != role.pipeline_parallel else {}
    fields |= {"dataParallel": cut.ranks} if cut.ranks != role.data_parallel else {}
    fields |= {"expertParallel": True} if cut.ranks > 1 and not role.expert_parallel else {}
    fields |= {"all2allBackend": None} if cut.ranks == 1 and role.all2all_backend is not None else {}
    return fields | ({"calibration": None} if role.calibration is not None else {})


def _holds(served: Served, name: RoleName, role: RoleSpec, instance: Instance, cut: _Cut) -> bool:
    fields: dict[str, Any] = {"tensor_parallel": cut.size, "pipeline_parallel": cut.stages, "data_parallel": cut.ranks}
    fields |= {"instance_type": instance.id, "calibration": None, "expert_parallel": role.expert_parallel or cut.ranks > 1}
    changed = role.model_copy(update=fields)
    group = build_group(replace(served, instances={**served.instances, name: instance}), name, changed, None, pools_made=False)
    try:
        return capacity(shape_of(group)).fits is Fit.FITS
    except SpecError:
        return False


def _gpu_hour(instance: Instance) -> float:
    price = instance.on_demand or instance.capacity_block
    return (price.usd_per_hour if price else UNPRICED) / instance.gpu.count
