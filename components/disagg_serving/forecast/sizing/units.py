"""Forms of engine with all that their speed and room depend on, and what a number of them keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from ...catalog.entries import Instance, Model
from ...catalog.step_times import Form, StepError, step_data, step_tables
from ...document.capacity import Bars
from ...errors import SpecError
from ..balance.rates import Workload
from ..balance.transfer import Endpoint, head_copies, kv_bytes, kv_transfer, mla_copies
from ..fit import Capacity, EngineShape, capacity
from ..speed import roles
from ..speed.roles import Load, Point, Room
from ..speed.steps import Engine, Request
from ..speed.times import Axis, Times, axes_of

Role = Literal["server", "prefill", "decode"]
Bar = Literal["low", "mid", "high"]
REFUSED = "step times that a gate refused"
UNKNOWN = StepError(0.8, 1.0, 1.3, 0)
"""Where no run was measured, of the model or of its class: our choice, around the tenth and ninetieth percentile of all measured runs."""


@dataclass(frozen=True)
class Unit:
    """One form of engine on one instance type in one role."""

    role: Role
    instance: Instance
    form: Form
    facts: Model
    times: Times = field(repr=False)
    room: Capacity = field(repr=False)
    budget: int
    slots: int
    error: StepError
    correction: float = 1.0

    @property
    def per_node(self) -> int:
        """Engines that fill a node."""
        return self.instance.gpu.count // self.form.gpus

    @property
    def bars(self) -> Bars:
        """Factors on the table's times: fast, as it says, and slow."""
        low, high = min(1.0, self.error.low), max(1.0, self.error.high)
        return Bars(self.correction * low, self.correction, self.correction * high)

    def factor(self, bar: Bar) -> float:
        """Factor at a bar."""
        found: float = getattr(self.bars, bar)
        return found

    def engine(self, factor: float) -> Engine:
        """The engine with so much slower steps."""
        return Engine(self.times, self.form.data_parallel, self.budget, factor)

    def held(self, request: Request) -> Room:
        """Requests that it surely holds at once."""
        enough = self.room.kv_gib.low > 0
        return Room(self.room.concurrency_at(round(request.prompt + request.answer)).low if enough else 0.0, self.slots)


@dataclass(frozen=True)
class Demand:
    """What a whole layout is asked for: requests a second, and the percentile of its answers."""

    request: Request
    rate: float
    percentile: int


@dataclass(frozen=True)
class RoleSize:
    """So many engines of a unit."""

    unit: Unit
    engines: int

    @property
    def nodes(self) -> int:
        """Whole nodes that they take."""
        return -(-self.engines // max(1, self.unit.per_node))

    def load(self, demand: Demand) -> Load:
        """What comes to one of the engines."""
        return Load(demand.request, demand.rate / 1000 / self.engines, self.engines, demand.percentile)


@dataclass(frozen=True)
class Kept:
    """What a layout does at a load: its roles' points as one, and the ms that KV is on its way."""

    point: Point
    transfer: float = 0.0


def unit_of(role: Role, table: str, instance: Instance, shape: EngineShape, correction: float = 1.0) -> Unit | str:
    """The unit of an engine; a text says why there is none. Raises SpecError for a model whose memory is not known."""
    if shape.pipeline_parallel > 1 or shape.nodes > 1:
        return "an engine over several nodes or with pipeline stages has no step times"
    form = Form(shape.tensor_parallel, shape.data_parallel, shape.expert_parallel)
    times = times_of(table, instance.gpu.name, form)
    if isinstance(times, str):
        return times
    room = capacity(shape)
    return Unit(
        role, instance, form, shape.facts, times, room, shape.batched_tokens, shape.sequence_slots,
        error_of(table, instance.gpu.name, experts=shape.facts.moe is not None), correction,
    )  # fmt: skip


@cache
def times_of(table: str, gpu: str, form: Form) -> Times | str:
    """The step times of a form; a text says why there are none."""
    found = step_tables(table).get((gpu, form))
    if found is not None:
        return Times(found, _axes())
    known, key = step_data(), f"{gpu}/{form.key}"
    if key in known.refused.get(table, {}):
        return f"{REFUSED}: {key}: {known.refused[table][key]}"
    return f"no step data for {form} on {gpu}"


@cache
def _axes() -> Mapping[str, Axis]:
    return axes_of(step_data().axes)


def error_of(table: str, gpu: str, *, experts: bool) -> StepError:
    """The stored error of a model on a GPU; without rows of its own that of its class, and then 0 rows."""
    errors = step_data().errors
    if own := errors.get(table, {}).get(gpu):
        return own
    group = errors.get("experts" if experts else "dense", {}).get("all", UNKNOWN)
    return StepError(group.low, group.mid, group.high, 0)


def transfer_ms(prefill: RoleSize, decode: RoleSize, request: Request) -> float:
    """How long the KV of a prompt is on its way, at the typical share of EFA."""
    facts, tp = decode.unit.facts, decode.unit.form.tensor_parallel
    latent = facts.mla is not None
    shards = 1 if latent else min(prefill.unit.form.tensor_parallel, facts.kv_heads)
    kv = kv_bytes(
        Workload(request.prompt, request.answer),
        prefill.unit.room.kv_bytes_per_token_per_gpu * shards,
        mla_copies(tp) if latent else head_copies(facts.kv_heads, tp),
    )
    ends = [Endpoint(s.unit.instance, s.engines * s.unit.form.data_parallel, s.unit.form.tensor_parallel) for s in (prefill, decode)]
    return 1000 * sum(kv_transfer(kv, ends[0], ends[1]).expected.seconds) / 2


def keeps(sizes: Sequence[RoleSize], demand: Demand, bar: Bar) -> Kept | None:
    """What a layout does with steps as slow as a bar says; None where it does not carry the demand."""
    if len(sizes) == 1:
        (only,) = sizes
        point = server_point(only, demand, only.unit.factor(bar))
        return Kept(point) if point else None
    first, second = sizes
    wrote = decode_point(second, demand, second.unit.factor(bar))
    if wrote is None:
        return None
    moved = transfer_ms(first, second, demand.request)
    read = prefill_point(first, demand, first.unit.factor(bar))
    return Kept(joined(read, wrote, moved), moved) if read else None


def joined(read: Point, wrote: Point, moved: float) -> Point:
    """Prefill and decode as one: the first token comes with the first step of decode, after the KV."""
    later = moved + wrote.tpot
    return Point(read.ttft + later, read.ttft_at + later, wrote.tpot, wrote.tpot_at, wrote.batch, wrote.held, read.busy)


def server_point(size: RoleSize, demand: Demand, factor: float) -> Point | None:
    """A role that does both."""
    return roles.server(size.unit.engine(factor), size.unit.held(demand.request), size.load(demand))


def prefill_point(size: RoleSize, demand: Demand, factor: float) -> Point | None:
    """A role that reads prompts, up to the last of a prompt."""
    return roles.prefill(size.unit.engine(factor), size.load(demand))


def decode_point(size: RoleSize, demand: Demand, factor: float) -> Point | None:
    """A role that writes answers."""
    return roles.decode(size.unit.engine(factor), size.unit.held(demand.request), size.load(demand))


def as_error(problem: SpecError) -> str:
    """Why a shape has no memory forecast."""
    return problem.findings[0].reason() if problem.findings else "its memory is not known"
