"""What the measured rates of a model's roles say about its traffic, and whether splitting them is worth it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from ..document.traffic import Forecast, Rate, Ratio, Scenario, Transfer, Utilisation
from ..planning.shapes import Group, Layout, Served, world_size
from .balance import (
    Balance,
    BalanceError,
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
    advice,
    balance,
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
    return Situation(workload, _nodes((prefill, decode)), split, rates, room, _transfer(prefill, decode, workload, work.requests_per_second))


def forecast_of(layout: Layout, served: Served) -> Forecast | None:
    """Load, balance, KV transfer and advice of one model; None where there is no workload or no split."""
    try:
        known = situation_of(layout, served)
    except BalanceError as problem:
        return Forecast(served.spec.name, problem=str(problem))
    if known is None:
        return None
    judged = advice(known)
    found = Forecast(served.spec.name, advice=str(judged), better=judged.better, kv_transfer=_kv_transfer(known.transfer))
    groups = layout.groups_of(served)
    if known.rates and known.split and known.room:
        return _measured(found, known.workload, balance(known.split, known.rates, known.workload), known.room, _hourly(groups))
    pair: dict[Phase, Group] = {side: g for side in PHASES for g in groups if g.role == side}
    bounds = [str(bound) for side, group in pair.items() if (bound := bound_of(group, side, known.workload))]
    return replace(found, bounds=bounds, unmeasured=[side for side, group in pair.items() if not group.spec.measured_rates])


def _measured(found: Forecast, workload: Workload, now: Balance, room: Headroom, hourly: float | None) -> Forecast:
    """With what measured rates of both roles say."""
    per_million = None
    if hourly is not None and now.requests_per_second:
        tokens = workload.input_tokens + workload.output_tokens
        per_million = round(hourly / (now.requests_per_second * 3600 * tokens) * 1e6, 4)
    best = now.optimum
    return replace(
        found,
        requests_per_second=Rate(room.wanted, round(now.requests_per_second, 3), now.kind),
        bound_by=now.bound_by,
        utilisation=Utilisation(round(room.prefill_utilisation, 3), round(room.decode_utilisation, 3)),
        usd_per_million_tokens=per_million,
        prefill_wait_seconds=room.prefill_wait_seconds,
        ratio=Ratio(round(now.ratio, 3), round(best.low, 3), round(best.mid, 3), round(best.high, 3)),
    )


def _kv_transfer(found: KvTransfer | None) -> Transfer | None:
    if found is None:
        return None
    return Transfer(round(found.kv.total), [Scenario(s.name, s.seconds, s.load or None) for s in found.scenarios])


def _side(group: Group) -> Side:
    return Side(group.replicas, world_size(group.spec))


def _rates(prefill: Group, decode: Group, workload: Workload) -> Rates | None:
    if not (prefill.spec.measured_rates and decode.spec.measured_rates):
        return None
    curves = [RateCurve(MeasuredRate(r.input_tokens, r.tokens_per_second_per_gpu) for r in g.spec.measured_rates) for g in (prefill, decode)]
    return rates_at(curves[0], curves[1], workload)


def bound_of(group: Group, side: Phase, workload: Workload) -> Bound | None:
    """What arithmetic and memory bandwidth leave to prompts (prefill) or answers (decode) on the GPUs of a group.

    Answers are those of the requests that the KV cache of each of its ranks holds; None where it holds none.
    """
    facts, gpu = group.served.facts, group.instance.gpu
    if side == "prefill":
        return prefill_tokens(facts, gpu)
    room = capacity_of(group)
    if room is None or room.weights_gib.mid <= 0 or room.kv_tokens.mid < workload.input_tokens + workload.output_tokens:
        return None
    batch = batch_limit(shape_of(group).sequence_slots, room.kv_tokens.mid, workload)
    held = batch * (workload.input_tokens + workload.output_tokens / 2) * room.kv_bytes_per_token_per_gpu
    step = Step(facts.layers, group.spec.tensor_parallel, room.weights_gib.mid * GIB, held)
    return decode_tokens(gpu, step, batch, room.ranks)


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


def _hourly(groups: Sequence[Group]) -> float | None:
    """USD an hour of the GPUs that a model's roles use, at on-demand prices; None where one is not listed."""
    prices = [(g, g.instance.on_demand) for g in groups]
    if any(price is None for _, price in prices):
        return None
    return sum(p.usd_per_hour * world_size(g.spec) * g.replicas / g.instance.gpu.count for g, p in prices if p is not None)


def _nodes(groups: Sequence[Group]) -> int:
    """Nodes that both roles together need, each by itself."""
    return sum(-(-world_size(g.spec) * g.replicas // g.instance.gpu.count) for g in groups)
