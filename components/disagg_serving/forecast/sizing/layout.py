"""Whether a layout keeps the limits of its workload, and which layouts would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...catalog import load_catalog
from ...planning.shapes import Group
from ...spec.serving import WorkloadSpec
from .ask import LONGEST, Ask, Limits
from .measured import corrections, table_of, unit_of_group
from .search import Candidate, at_bars, resized, search
from .units import Bar, Kept, RoleSize

ORDER = ("server", "prefill", "decode")


@dataclass(frozen=True)
class Judged:
    """What a layout does with its workload, by how slow steps are; `corrected` says that own measurements scale the tables."""

    ask: Ask
    sizes: Sequence[RoleSize]
    bars: dict[Bar, Kept | None]
    corrected: bool

    def keeps(self, bar: Bar) -> bool:
        """Whether it keeps the limits."""
        kept, limits = self.bars[bar], self.ask.limits
        if kept is None:
            return False
        return kept.point.ttft_at <= (limits.ttft_ms or kept.point.ttft_at) and kept.point.tpot_at <= (limits.tpot_ms or kept.point.tpot_at)

    @property
    def rows(self) -> int:
        """Measured runs behind the weakest role."""
        return min(size.unit.error.rows for size in self.sizes)

    def span(self, name: str, digits: int) -> str:
        """A figure with its ends."""
        low, mid, high = (_number(self.bars[bar], name, digits) for bar in ("low", "mid", "high"))
        return f"{mid} ({low} to {high})"

    def rate(self) -> float:
        """Most requests a second at which it keeps the limits with slow steps; 0 where it keeps them at none."""
        low, high = 0.0, self.ask.requests_per_second
        for _ in range(12):
            middle = (low + high) / 2
            there = replace(self, bars=at_bars(asked := replace(self.ask, requests_per_second=middle), self.sizes), ask=asked)
            low, high = (middle, high) if there.keeps("high") else (low, middle)
        return low

    def enough(self) -> Candidate | None:
        """The same forms with the fewest nodes that keep the limits with slow steps."""
        return resized(self.ask, self.sizes, "high")

    def better(self) -> list[Candidate]:
        """The cheapest layouts that keep the limits with slow steps, best first."""
        return search(self.ask).found[:20]


def judge(groups: Sequence[Group]) -> Judged | str | None:
    """What the roles of a model do with its workload; a text says why that is not known, None that no limit is set."""
    work = groups[0].served.spec.workload if groups else None
    if work is None or not (work.ttft_ms or work.tpot_ms):
        return None
    measured = corrections(groups)
    sizes = []
    for group in sorted(groups, key=lambda g: ORDER.index(g.role)):
        unit = unit_of_group(group, measured.get((group.role, group.instance.id), 1.0))
        if isinstance(unit, str):
            return unit
        sizes.append(RoleSize(unit, group.replicas))
    ask = _ask(groups, work, measured)
    if work.input_tokens + work.output_tokens > LONGEST:
        return f"requests of {work.input_tokens + work.output_tokens} tokens are beyond the tables of step times"
    return Judged(ask, sizes, at_bars(ask, sizes), corrected=any(size.unit.correction != 1 for size in sizes))


def _ask(groups: Sequence[Group], work: WorkloadSpec, measured: dict[tuple[str, str], float]) -> Ask:
    """The question that the layout answers."""
    served, catalog = groups[0].served, load_catalog()
    known = {g.instance.id: g.instance for g in groups} | {name: catalog.instances[name] for name in catalog.instances}
    mode: Any = "any" if served.spec.disaggregated else "aggregated"
    return Ask(
        served.spec.model, served.facts, table_of(groups[0]), work.input_tokens, work.output_tokens, work.requests_per_second,
        tuple(known.values()), Limits(work.ttft_ms, work.tpot_ms, work.percentile), work.prefix_hit, served.max_model_len or 0, mode,
        kv_cache_dtype=served.spec.kv_cache_dtype, engine_version=served.engine.version, corrections=measured,
    )  # fmt: skip


def _number(kept: Kept | None, name: str, digits: int) -> str:
    return f"{getattr(kept.point, name):,.{digits}f}" if kept else "no end"
