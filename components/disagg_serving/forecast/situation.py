"""What is known of a model's traffic before it is judged: measured rates, room, the way of KV, and bounds where nothing was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..planning.shapes import Group, Layout, Served, world_size
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
    decode_tokens,
    head_copies,
    headroom,
    kv_bytes,
    kv_transfer,
    mla_copies,
    prefill_tokens,
    rates_at,
)
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
    rates = _rates(prefill, decode, workload)
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


def _rates(prefill: Group, decode: Group, workload: Workload) -> Rates | None:
    if not (prefill.spec.measured_rates and decode.spec.measured_rates):
        return None
    curves = [RateCurve(MeasuredRate(r.input_tokens, r.tokens_per_second_per_gpu) for r in g.spec.measured_rates) for g in (prefill, decode)]
    return rates_at(curves[0], curves[1], workload)


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
