"""All forms of engine that keep a traffic's limits, each with the fewest whole nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...catalog.entries import Instance
from ...catalog.step_times import Form, form_of, step_data, step_tables
from ...errors import SpecError
from ...planning.shapes import GQA_BLOCK_SIZE
from ..fit import EngineShape
from ..fit.constants import newest_engine
from ..speed.roles import Point
from .ask import Ask
from .units import (
    Bar,
    Demand,
    Kept,
    Role,
    RoleSize,
    Unit,
    as_error,
    decode_point,
    joined,
    keeps,
    prefill_point,
    server_point,
    transfer_ms,
    unit_of,
)

ALONE = 1e-6
"""Requests a second that never meet."""


@dataclass(frozen=True)
class Candidate:
    """A layout that keeps the limits at the bar it is sized for."""

    sizes: Sequence[RoleSize]
    usd: float
    kept: Kept
    forecast_usd: float | None = None
    """What it costs with the nodes that steps as in the tables take."""

    @property
    def split(self) -> bool:
        """Whether prefill and decode are apart."""
        return len(self.sizes) > 1

    @property
    def nodes(self) -> int:
        """GPU nodes."""
        return sum(size.nodes for size in self.sizes)


@dataclass
class Search:
    """What was found. `left_out` counts what was not by its reason; `alone` is what one request takes at the least, by limit."""

    ask: Ask
    found: list[Candidate] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    alone: dict[str, float] = field(default_factory=dict)
    tried: int = 0
    missing_gib: float | None = None

    def lone(self, name: str, value: float) -> None:
        """Note what a request alone takes."""
        self.alone[name] = min(value, self.alone.get(name, value))


def search(ask: Ask, bar: Bar | None = None) -> Search:
    """All candidates, the cheapest first, sized with slow steps or as the tables say."""
    chosen: Bar = bar or ("high" if ask.plan == "slow" else "mid")
    result = Search(ask)
    if ask.mode != "disaggregated":
        for unit in _units(ask, "server", result):
            result.tried += 1
            _server(ask, unit, chosen, result)
    if ask.mode != "aggregated":
        _split(ask, chosen, result)
    result.found.sort(key=lambda c: (round(c.usd, 2), len(c.sizes), c.kept.point.tpot_at))
    return result


def resized(ask: Ask, sizes: Sequence[RoleSize], bar: Bar) -> Candidate | None:
    """The same forms with the fewest nodes at another bar."""
    if len(sizes) == 1:
        return _server(ask, sizes[0].unit, bar, Search(ask))
    wrote = _fewest_decode(ask, sizes[1].unit, bar, Search(ask))
    return _pair(ask, sizes[0].unit, wrote, bar, Search(ask), {}) if wrote else None


def price(ask: Ask, sizes: Sequence[RoleSize]) -> float:
    """USD an hour of the nodes."""
    return sum((ask.usd(s.unit.instance) or 0) * s.nodes for s in sizes)


def most_rate(ask: Ask, bar: Bar | None = None) -> float:
    """Most requests a second that some layout keeps within the nodes there are; 0 where none keeps any."""
    low, high = 0.0, ask.requests_per_second
    for _ in range(9):
        middle = (low + high) / 2
        low, high = (middle, high) if search(replace(ask, requests_per_second=middle), bar).found else (low, middle)
    return low


def _lone(ask: Ask) -> Demand:
    """One request that meets no other."""
    return Demand(ask.request, ALONE, 50)


def _units(ask: Ask, role: Role, result: Search) -> Iterator[Unit]:
    """The forms of a role that fit."""
    forms = sorted({form for _, form in step_tables(ask.table)} | _refused_forms(ask.table))
    for instance in ask.instances:
        if ask.usd(instance) is None:
            result.left_out[f"no {ask.pricing} price of {instance.id} is listed"] += 1
            continue
        if role != "server" and not instance.gpu_direct_rdma:
            result.left_out[f"{instance.id} has no GPUDirect RDMA, so it moves no KV"] += 1
            continue
        for form in forms:
            if form.gpus <= instance.gpu.count and (unit := _unit(ask, role, instance, form, result)):
                yield unit


def _refused_forms(table: str) -> set[Form]:
    return {form_of(key.partition("/")[2]) for key in step_data().refused.get(table, {})}


def shape_of_form(ask: Ask, role: Role, instance: Instance, form: Form) -> EngineShape:
    """The engine of a form, with the defaults of a stack file."""
    by_default = GQA_BLOCK_SIZE if role != "server" and ask.facts.mla is None else None
    return EngineShape(
        ask.facts, ask.engine_version or newest_engine(), instance.gpu.memory_gib_torch, form.tensor_parallel,
        data_parallel=form.data_parallel, expert_parallel=form.expert_parallel, max_model_len=ask.max_model_len or None,
        kv_cache_dtype=ask.kv_cache_dtype, gpu=instance.gpu.name, nixl=role != "server",
        block_size=ask.facts.block_size or by_default,
    )  # fmt: skip


def _unit(ask: Ask, role: Role, instance: Instance, form: Form, result: Search) -> Unit | None:
    correction = ask.corrections.get((role, instance.id), 1.0)
    try:
        unit = unit_of(role, ask.table, instance, shape_of_form(ask, role, instance, form), correction)
    except SpecError as problem:
        unit = as_error(problem)
    if isinstance(unit, str):
        result.left_out[unit] += 1
        return None
    if unit.held(ask.request).held < 1:
        result.left_out["does not fit: KV cache for less than one request in the low estimate"] += 1
        short = unit.room.missing_gib(ask.input_tokens + ask.output_tokens).high
        result.missing_gib = min(short, result.missing_gib) if result.missing_gib is not None else short
        return None
    return unit


def _fewest(check: Callable[[int], object], most: int) -> int | None:
    """The least number from 1 to `most` that passes; None where `most` does not."""
    if not check(most):
        return None
    low, high = 0, 1
    while high < most and not check(high):
        low, high = high, high * 2
    high = min(high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if check(middle) else (middle, high)
    return high


def _server(ask: Ask, unit: Unit, bar: Bar, result: Search) -> Candidate | None:
    limits, factor = ask.limits, unit.factor(bar)

    def kept(nodes: int) -> Kept | None:
        point = server_point(RoleSize(unit, nodes * unit.per_node), ask.demand, factor)
        inside = point and point.ttft_at <= (limits.ttft_ms or point.ttft_at) and point.tpot_at <= (limits.tpot_ms or point.tpot_at)
        return Kept(point) if point and inside else None

    nodes = _fewest(kept, ask.most_nodes)
    found = kept(nodes) if nodes else None
    if nodes is None or found is None:
        alone = server_point(RoleSize(unit, unit.per_node), _lone(ask), factor)
        if alone is not None:
            result.lone("ttft", alone.ttft)
            result.lone("tpot", alone.tpot)
        result.left_out[_why(ask, alone.ttft if alone else 0, alone.tpot if alone else 0)] += 1
        return None
    sizes = [RoleSize(unit, nodes * unit.per_node)]
    candidate = Candidate(sizes, price(ask, sizes), found)
    result.found.append(candidate)
    return candidate


def _why(ask: Ask, ttft: float, tpot: float) -> str:
    if ask.limits.tpot_ms and tpot > ask.limits.tpot_ms:
        return "one request alone takes longer than the limit of a token"
    if ask.limits.ttft_ms and ttft > ask.limits.ttft_ms:
        return "one request alone takes longer than the limit to the first token"
    return f"takes more than {ask.most_nodes} nodes"


@dataclass(frozen=True)
class _Wrote:
    """A decode role with its fewest nodes."""

    size: RoleSize
    kept: Kept


def _fewest_decode(ask: Ask, unit: Unit, bar: Bar, result: Search) -> _Wrote | None:
    factor = unit.factor(bar)

    def kept(nodes: int) -> Kept | None:
        point = decode_point(RoleSize(unit, nodes * unit.per_node), ask.demand, factor)
        return Kept(point) if point and point.tpot_at <= (ask.limits.tpot_ms or point.tpot_at) else None

    nodes = _fewest(kept, ask.most_nodes)
    found = kept(nodes) if nodes else None
    if nodes is None or found is None:
        alone = decode_point(RoleSize(unit, unit.per_node), _lone(ask), factor)
        if alone:
            result.lone("tpot", alone.tpot)
        result.left_out[_why(ask, 0, alone.tpot if alone else 0)] += 1
        return None
    return _Wrote(RoleSize(unit, nodes * unit.per_node), found)


def _split(ask: Ask, bar: Bar, result: Search) -> None:
    writers = [w for unit in _units(ask, "decode", result) if (w := _fewest_decode(ask, unit, bar, result))]
    readers = list(_units(ask, "prefill", Search(ask)))
    result.tried += len(readers) * len(writers)
    for reader in readers:
        points: dict[int, Point | None] = {}
        for wrote in writers:
            _pair(ask, reader, wrote, bar, result, points)


def _pair(ask: Ask, reader: Unit, wrote: _Wrote, bar: Bar, result: Search, points: dict[int, Point | None]) -> Candidate | None:  # noqa: PLR0913, PLR0917
    limits, factor = ask.limits, reader.factor(bar)
    moved = transfer_ms(RoleSize(reader, reader.per_node), wrote.size, ask.request)

    def point(nodes: int) -> Kept | None:
        if nodes not in points:
            points[nodes] = prefill_point(RoleSize(reader, nodes * reader.per_node), ask.demand, factor)
        read = points[nodes]
        both = joined(read, wrote.kept.point, moved) if read else None
        return Kept(both, moved) if both and both.ttft_at <= (limits.ttft_ms or both.ttft_at) else None

    most = ask.nodes - wrote.size.nodes if ask.nodes else ask.most_nodes
    nodes = _fewest(point, most) if most > 0 else None
    found = point(nodes) if nodes else None
    if nodes is None or found is None:
        alone = prefill_point(RoleSize(reader, reader.per_node), _lone(ask), factor)
        first = joined(alone, wrote.kept.point, moved).ttft if alone else 0
        if first:
            result.lone("ttft", first)
        result.left_out[_why(ask, first, 0)] += 1
        return None
    sizes = [RoleSize(reader, nodes * reader.per_node), wrote.size]
    candidate = Candidate(sizes, price(ask, sizes), found)
    result.found.append(candidate)
    return candidate


def at_bars(ask: Ask, sizes: Sequence[RoleSize]) -> dict[Bar, Kept | None]:
    """What the same layout does with fast, forecast and slow steps."""
    bars: tuple[Bar, ...] = ("low", "mid", "high")
    return {bar: keeps(sizes, ask.demand, bar) for bar in bars}
