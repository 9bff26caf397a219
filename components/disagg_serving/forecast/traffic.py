"""What the measured rates of a model's roles say about its traffic, and whether splitting them is worth it, as the plan shows it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ..document.traffic import Forecast, InFlight, Need, Rate, Ratio, Scenario, Transfer, Utilisation
from ..planning.shapes import Group, Layout, Served, world_size
from . import needs
from .balance import Balance, BalanceError, Headroom, KvTransfer, Workload, advice, balance
from .situation import PHASES, Phase, rates_of_other_forms, situation_of


def forecast_of(layout: Layout, served: Served) -> Forecast | None:
    """Load, balance, KV transfer and advice of one model; None where there is no workload or no split."""
    try:
        known = situation_of(layout, served)
    except BalanceError as problem:
        return Forecast(served.spec.name, problem=str(problem))
    wanted = served.spec.workload
    if known is None or wanted is None:
        return None
    judged, groups = advice(known), layout.groups_of(served)
    pair: dict[Phase, Group] = {side: g for side in PHASES for g in groups if g.role == side}
    needed = [need for group in pair.values() for need in needs.needs_of(group, wanted)]
    found = Forecast(
        served.spec.name,
        advice=str(judged),
        better=judged.better,
        kv_transfer=_kv_transfer(known.transfer),
        needs=[_need(need) for need in needed],
        other_forms=[f"{side}.{sentence}" for side, group in pair.items() for _, sentence in rates_of_other_forms(group)],
        in_flight=_in_flight(needs.in_flight(pair["decode"], wanted)),
    )
    if known.rates and known.split and known.room:
        return _measured(found, known.workload, balance(known.split, known.rates, known.workload), known.room, _hourly(groups))
    return replace(found, bounds=[str(need) for need in needed], unmeasured=[side for side, group in pair.items() if not group.spec.measured_rates])


def _need(need: needs.Need) -> Need:
    low, high = need.bound.low, need.bound.high
    return Need(
        need.phase, round(need.tokens_per_second_per_gpu, 1), low and round(low, 1), high and round(high, 1), round(need.share, 3) if high else None
    )


def _in_flight(found: needs.InFlight | None) -> InFlight | None:
    if found is None:
        return None
    requests = [round(n, 1) if math.isfinite(n) else None for n in (found.requests.low, found.requests.high)]
    return InFlight(requests, [found.held.low, found.held.high], str(found))


def _measured(found: Forecast, workload: Workload, now: Balance, room: Headroom, hourly: float | None) -> Forecast:
    """With what measured rates of both roles say."""
    per_million = None
    if hourly is not None and now.requests_per_second and now.kind != "range":
        tokens = workload.input_tokens + workload.output_tokens
        per_million = round(hourly / (now.requests_per_second * 3600 * tokens) * 1e6, 4)
    best = now.optimum
    ends = (round(now.span.low, 3), round(now.span.high, 3)) if now.kind == "range" else ()
    return replace(
        found,
        requests_per_second=Rate(room.wanted, round(now.requests_per_second, 3), now.kind, *ends),
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


def _hourly(groups: Sequence[Group]) -> float | None:
    """USD an hour of the GPUs that a model's roles use, at on-demand prices; None where one is not listed."""
    prices = [(g, g.instance.on_demand) for g in groups]
    if any(price is None for _, price in prices):
        return None
    return sum(p.usd_per_hour * world_size(g.spec) * g.replicas / g.instance.gpu.count for g, p in prices if p is not None)
