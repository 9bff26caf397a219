"""What the measured rates of a model's roles say about its traffic, and whether splitting them is worth it, as the plan shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..document.traffic import Forecast, Rate, Ratio, Scenario, Transfer, Utilisation
from ..planning.shapes import Group, Layout, Served, world_size
from .balance import Balance, BalanceError, Headroom, KvTransfer, Workload, advice, balance
from .situation import PHASES, Phase, bound_of, situation_of


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


def _hourly(groups: Sequence[Group]) -> float | None:
    """USD an hour of the GPUs that a model's roles use, at on-demand prices; None where one is not listed."""
    prices = [(g, g.instance.on_demand) for g in groups]
    if any(price is None for _, price in prices):
        return None
    return sum(p.usd_per_hour * world_size(g.spec) * g.replicas / g.instance.gpu.count for g, p in prices if p is not None)
