"""What is known of a model's traffic before it is judged: measured rates, room, the way of KV, and bounds where nothing was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from ..planning.shapes import Group, Layout, Served, world_size
from ..spec.measured import MeasuredOnSpec, RateSpec
from ..spec.serving import WorkloadSpec
from .balance import (
    Bound,
    Endpoint,
    Headroom,
    KvTransfer,
    MeasuredRate,
    RateCurve,
    Rates,
    Side,
    Situation,
    Split,
    Step,
    Workload,
    batch_limit,
    cap_by_batch,
    decode_tokens,
    head_copies,
    headroom,
    kv_bytes,
    kv_transfer,
    mla_copies,
    prefill_tokens,
    rates_at,
)
from .balance.rates import figure
from .balance.roofline import BAND
from .capacities import capacity_of, shape_of
from .fit import Capacity
from .fit.engine_shape import GIB

Phase = Literal["prefill", "decode"]
PHASES: tuple[Phase, ...] = ("prefill", "decode")


def situation_of(layout: Layout, served: Served) -> Situation | None:
    """What is known of a model with prefill and decode and a workload; None for others. Raises BalanceError for rates that do not reach."""
    groups = {g.role: g for g in layout.groups_of(served)}
    prefill, decode, work = groups.get("prefill"), groups.get("decode"), served.spec.workload
    if prefill is None or decode is None or work is None:
        return None
    workload = Workload(work.input_tokens, work.output_tokens, work.prefix_hit)
    split = Split(_side(prefill), _side(decode))
    rates = _rates(prefill, decode, work, workload)
    queues = prefill.replicas * prefill.spec.data_parallel
    room: Headroom | None = headroom(split, rates, workload, work.requests_per_second, queues) if rates else None
    return Situation(
        workload,
        _nodes((prefill, decode)),
        work.requests_per_second,
        None if served.facts.moe else served.facts.parameters_b.total,
        split,
        rates,
        room,
        _transfer(prefill, decode, workload, work.requests_per_second),
    )


def bound_of(group: Group, side: Phase, workload: Workload) -> Bound | None:
    """What arithmetic and memory bandwidth leave to prompts (prefill) or answers (decode) on the GPUs of a group.

    Answers are those of the requests that the KV cache of each of its ranks holds; None where it holds none. Drafts that are all accepted multiply
    the high end of decode.
    """
    if side == "prefill":
        return prefill_tokens(group.served.facts, group.instance.gpu)
    room = capacity_of(group)
    if room is None or room.weights_gib.mid <= 0 or room.kv_tokens.mid < workload.input_tokens + workload.output_tokens:
        return None
    batch = batch_limit(shape_of(group).sequence_slots, room.kv_tokens.mid, workload)
    return decode_tokens(group.instance.gpu, step_of(group, room, workload, batch), batch, room.ranks).with_drafts(tokens_a_step(group))


def step_of(group: Group, room: Capacity, workload: Workload, batch: float) -> Step:
    """A decode step of one rank of a group that writes so many answers at once."""
    held = batch * (workload.input_tokens + workload.output_tokens / 2) * room.kv_bytes_per_token_per_gpu
    return Step(group.served.facts.layers, group.spec.tensor_parallel, room.weights_gib.mid * GIB, held)


def tokens_a_step(group: Group) -> int:
    """Most tokens of an answer that one step writes: one, and all drafts where they are accepted."""
    drafts = group.served.spec.speculative
    return 1 + drafts.num_speculative_tokens if drafts else 1


def _side(group: Group) -> Side:
    return Side(group.replicas, world_size(group.spec))


def rate_curve(group: Group) -> RateCurve:
    """Measured rates of a role, those of another form of engine as ranges. Raises BalanceError without any."""
    return RateCurve(_measured(group, rate) for rate in group.spec.measured_rates)


def other_form(group: Group, rate: RateSpec) -> str:
    """In what the engine that a rate was measured on differs from the role's; empty for the role's own form."""
    on, role = rate.measured_on or MeasuredOnSpec(), group.spec
    pairs = {
        "instanceType": (on.instance_type, role.instance_type),
        "tensorParallel": (on.tensor_parallel, role.tensor_parallel),
        "pipelineParallel": (on.pipeline_parallel, role.pipeline_parallel),
        "dataParallel": (on.data_parallel, role.data_parallel),
        "expertParallel": (on.expert_parallel, role.expert_parallel),
        "engine": (on.engine, group.served.spec.engine),
    }
    return ", ".join(f"{key} {_plain(was)}, here {_plain(now)}" for key, (was, now) in pairs.items() if was is not None and was != now)


def rates_of_other_forms(group: Group) -> Iterator[tuple[str, str]]:
    """Rates of a role that are ranges: their key, and a sentence that begins with it."""
    for i, rate in enumerate(group.spec.measured_rates):
        if differs := other_form(group, rate):
            key, span = f"measuredRates[{i}]", _measured(group, rate).span
            between = f"{figure(span.low)} to {figure(span.high)} tokens/s/GPU"
            yield key, f"{key} was measured on another form of engine ({differs}): here it stands for {between}"


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _measured(group: Group, rate: RateSpec) -> MeasuredRate:
    found = MeasuredRate(rate.input_tokens, rate.tokens_per_second_per_gpu)
    if not other_form(group, rate):
        return found
    on = rate.measured_on and rate.measured_on.instance_type
    here, there = group.instance.gpu, (group.served.rated_on[on] if on else group.instance).gpu
    return found.carried(here.hbm_tbps / there.hbm_tbps if group.role == "decode" else here.bf16_dense_tflops / there.bf16_dense_tflops)


def _rates(prefill: Group, decode: Group, work: WorkloadSpec, workload: Workload) -> Rates | None:
    if not (prefill.spec.measured_rates and decode.spec.measured_rates):
        return None
    rates = rates_at(rate_curve(prefill), rate_curve(decode), workload)
    return rates._replace(decode=_within_kv(rates.decode, decode, work, workload))


def _within_kv(rate: MeasuredRate, decode: Group, work: WorkloadSpec, workload: Workload) -> MeasuredRate:
    """A rate of decode, at most what a full KV cache gives in the best case: at the wanted pace, and for a rate of another form at the fastest."""
    room = capacity_of(decode)
    if room is None or room.weights_gib.mid <= 0 or (rate.own and not work.tpot_ms):
        return rate
    batch = batch_limit(shape_of(decode).sequence_slots, room.kv_tokens.high, workload)
    fastest = step_of(decode, room, workload, batch).seconds(decode.instance.gpu) / BAND / tokens_a_step(decode)
    return cap_by_batch(rate, batch, max((work.tpot_ms or 0) / 1000, fastest), world_size(decode.spec) // decode.spec.data_parallel)


def _transfer(prefill: Group, decode: Group, workload: Workload, wanted: float) -> KvTransfer | None:
    found = capacity_of(prefill)
    if found is None:
        return None
    facts, tp = decode.served.facts, decode.spec.tensor_parallel
    shards = 1 if facts.mla is not None else min(prefill.spec.tensor_parallel, facts.kv_heads)
    copies = mla_copies(tp) if facts.mla is not None else head_copies(facts.kv_heads, tp)
    kv = kv_bytes(workload, found.kv_bytes_per_token_per_gpu * shards, copies)
    # one request's KV is on one data-parallel rank
    ends = [Endpoint(g.instance, g.replicas * g.spec.data_parallel, world_size(g.spec) // g.spec.data_parallel) for g in (prefill, decode)]
    return kv_transfer(kv, ends[0], ends[1], wanted, efa_in_pods=prefill.uses_efa and decode.uses_efa)


def _nodes(groups: Sequence[Group]) -> int:
    """Nodes that both roles together need, each by itself."""
    return sum(-(-world_size(g.spec) * g.replicas // g.instance.gpu.count) for g in groups)
