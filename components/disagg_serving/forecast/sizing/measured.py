"""What rates that were measured on engines say about the tables of step times: a factor for each role and instance type."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...catalog import load_catalog
from ...catalog.step_times import step_tables, table_for
from ...errors import SpecError
from ...planning.shapes import Group
from ...spec.measured import MeasuredOnSpec, RateSpec
from ..capacities import shape_of
from ..speed.steps import Request
from .units import Unit, unit_of


def table_of(group: Group) -> str:
    """The model of the catalogue whose step times a group's engines have; empty where there is none."""
    name = group.served.spec.model
    return name if step_tables(name) else table_for(group.served.facts, load_catalog().models)


def unit_of_group(group: Group, correction: float = 1.0) -> Unit | str:
    """A group's engine as a unit; a text says why there is none."""
    table = table_of(group)
    if not table:
        return f"no step data for {group.served.spec.model}"
    try:
        return unit_of(group.role, table, group.instance, shape_of(group), correction)
    except SpecError as problem:
        return problem.findings[0].reason()


def corrections(groups: Iterable[Group]) -> dict[tuple[str, str], float]:
    """Factors on step times, above 1 where engines are slower than the tables; of several rates of a role their mean.

    A server's steps are taken as slow as the slower of what prefill and decode say on its nodes, since no rate tells them apart.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for group in groups:
        for rate in group.spec.measured_rates:
            if (factor := _factor(group, rate)) is not None:
                found.setdefault((group.role, _instance(group, rate)), []).append(factor)
    mean = {key: sum(factors) / len(factors) for key, factors in found.items()}
    for instance in {instance for _, instance in mean}:
        slower = max(factor for (_, name), factor in mean.items() if name == instance)
        mean.setdefault(("server", instance), slower)
    return mean


def _instance(group: Group, rate: RateSpec) -> str:
    on = rate.measured_on
    return on.instance_type if on and on.instance_type else group.instance.id


def _factor(group: Group, rate: RateSpec) -> float | None:
    """Measured by forecast time."""
    unit, work = _measured_unit(group, rate), group.served.spec.workload
    if isinstance(unit, str):
        return None
    engine, gpus = unit.engine(1.0), unit.form.gpus
    if group.role == "prefill":
        each = engine.times.prefill(rate.input_tokens)
        together = engine.times.mixed(engine.budget, 1, rate.input_tokens, 1) * rate.input_tokens / engine.budget
        ms = min(each, together) if rate.input_tokens < engine.budget else each
        return 1000 * rate.input_tokens * engine.ranks / ms / gpus / rate.tokens_per_second_per_gpu
    answer = work.output_tokens if work else rate.input_tokens
    request, own = Request(rate.input_tokens, answer), rate.tokens_per_second_per_gpu * gpus / engine.ranks
    room = unit.held(request)
    full = min(room.held / engine.ranks, room.slots)
    if work and work.tpot_ms and own * work.tpot_ms / 1000 <= full:
        return work.tpot_ms / engine.decode(own * work.tpot_ms / 1000, request.context)
    return 1000 * full / engine.decode(full, request.context) / own if full >= 1 else None


def _measured_unit(group: Group, rate: RateSpec) -> Unit | str:
    """The engine that a rate was measured on."""
    on = rate.measured_on or MeasuredOnSpec()
    names = ("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel")
    cut = {name: value for name in names if (value := getattr(on, name)) is not None}
    instance = group.served.rated_on[on.instance_type] if on.instance_type and on.instance_type in group.served.rated_on else group.instance
    gpu = instance.gpu
    try:
        shape = replace(shape_of(group), **cut, gpu=gpu.name, gpu_memory_gib=gpu.memory_gib_torch)
        return unit_of(group.role, table_of(group), instance, shape)
    except SpecError as problem:
        return problem.findings[0].reason()
