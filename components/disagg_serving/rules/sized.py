"""From a question about sizing to a checked answer: the layouts that keep the limits by forecast, and of these the ones that pass all rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..catalog import Catalog
from ..catalog.step_times import step_data
from ..document.sizing import (
    Latency,
    LeftOut,
    RefusedLayout,
    SizedLayout,
    SizedRole,
    SizedTraffic,
    SizingDocument,
    Span,
)
from ..errors import Finding, Level
from ..forecast.sizing import Ask, RoleSize, Search, search
from ..forecast.sizing.search import Candidate, at_bars, resized
from ..forecast.speed.roles import BUSY, FULL
from . import StackContext
from .evaluation import evaluate
from .proposal import Wish, environment_of

EQUAL = 1.15
"""Factor between costs that count as equal: two measured layouts of the same model were told apart from there on. Our choice."""
MOST_FRONT, MOST_TRIED = 8, 40
GIB_LESS = 0.05


@dataclass(frozen=True)
class Sized:
    """A checked answer; `document` is None where no layout keeps the limits and passes the rules, and `findings` say why."""

    search: Search
    document: SizingDocument | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    findings: Sequence[Finding] = ()


@dataclass
class _Judge:
    """Tells which candidates pass the rules; each is evaluated once."""

    ask: Ask
    wish: Wish
    catalog: Catalog
    base: Path
    refused: list[RefusedLayout] = field(default_factory=list)
    known: dict[int, bool] = field(default_factory=dict)

    def environment(self, candidate: Candidate) -> dict[str, Any]:
        """The environment of a candidate, in the stack file's own keys."""
        return environment_of(self.wish, self.catalog, {size.unit.role: _role(size) for size in candidate.sizes})

    def passes(self, candidate: Candidate) -> bool:
        """Whether no rule refuses it."""
        if id(candidate) not in self.known:
            found = evaluate(self.environment(candidate), self.base, StackContext(self.wish.region), mend=False)
            errors = [f for f in found.findings if f.level is Level.ERROR]
            self.known[id(candidate)] = not errors
            if errors:
                self.refused.append(RefusedLayout(name_of(candidate.sizes), round(candidate.usd, 4), errors[0].id, errors[0].reason()))
        return self.known[id(candidate)]

    def first(self, candidates: Iterator[Candidate]) -> Candidate | None:
        """The first that passes, of the first few."""
        return next((c for c, _ in zip(candidates, range(MOST_TRIED), strict=False) if self.passes(c)), None)


def answer(ask: Ask, wish: Wish, catalog: Catalog, base: Path, top: int) -> Sized:
    """The cheapest layout that keeps the limits and passes the rules, the next best ones, and the front of cost against time per token."""
    found = search(ask)
    judge = _Judge(ask, wish, catalog, base)
    one = judge.first(c for c in found.found if not c.split)
    two = judge.first(c for c in found.found if c.split)
    passing = [c for c in (one, two) if c]
    if not passing:
        return Sized(found, findings=[_refused(r) for r in judge.refused])
    cheapest = min(passing, key=lambda c: c.usd)
    chosen = one if one and one.usd <= EQUAL * cheapest.usd else cheapest
    best = _top(found.found, judge, top, chosen)
    document = SizingDocument(
        traffic=_traffic(ask),
        answer="",
        chosen=_layout(ask, chosen),
        cheapest=_layout(ask, cheapest),
        top=[_layout(ask, c) for c in best],
        front=[_layout(ask, c) for c in _front(found.found, judge)],
        candidates=len(found.found),
        left_out=[LeftOut(reason, count) for reason, count in found.left_out.most_common()],
        refused=judge.refused,
        step_data=f"{step_data().library}, {step_data().engine}, {step_data().made}",
        notice=step_data().notice,
    )
    return Sized(found, replace(document, answer=_sentence(document, one, two)), judge.environment(chosen))


def name_of(sizes: Sequence[RoleSize]) -> str:
    """A layout in words."""
    words = []
    for size in sizes:
        role = f" {size.unit.role}" if len(sizes) > 1 else ""
        words.append(f"{size.engines} x {size.unit.form}{role} on {size.nodes} x {size.unit.instance.id}")
    return " + ".join(words)


def _top(found: Sequence[Candidate], judge: _Judge, top: int, chosen: Candidate) -> list[Candidate]:
    """The chosen one, and the cheapest others that pass."""
    others: list[Candidate] = []
    for candidate in found[:MOST_TRIED]:
        if len(others) >= top - 1:
            break
        if candidate is not chosen and judge.passes(candidate):
            others.append(candidate)
    return [chosen, *others]


def _front(found: Sequence[Candidate], judge: _Judge) -> list[Candidate]:
    """By cost those that are faster than all cheaper ones."""
    front: list[Candidate] = []
    for candidate in found:
        faster = not front or candidate.kept.point.tpot_at < front[-1].kept.point.tpot_at * (1 - GIB_LESS)
        if faster and judge.passes(candidate):
            front.append(candidate)
        if len(front) == MOST_FRONT:
            break
    return front


def _role(size: RoleSize) -> dict[str, Any]:
    form = size.unit.form
    return {
        "instanceType": size.unit.instance.id,
        "replicas": size.engines,
        "tensorParallel": form.tensor_parallel,
        **({"dataParallel": form.data_parallel} if form.data_parallel > 1 else {}),
        **({"expertParallel": True} if form.expert_parallel else {}),
    }


def _traffic(ask: Ask) -> SizedTraffic:
    return SizedTraffic(
        ask.model, ask.input_tokens, ask.output_tokens, ask.requests_per_second, ask.prefix_hit, ask.max_model_len, ask.limits.ttft_ms,
        ask.limits.tpot_ms, ask.limits.percentile, ask.pricing, ask.plan,
    )  # fmt: skip


def _layout(ask: Ask, candidate: Candidate) -> SizedLayout:
    bars = at_bars(ask, candidate.sizes)
    points = [kept.point if (kept := bars[bar]) else None for bar in ("low", "mid", "high")]

    def span(name: str) -> Span:
        return Span(*(round(getattr(p, name), 2) if p else None for p in points))

    sizes, gpus = candidate.sizes, [size.engines * size.unit.form.gpus for size in candidate.sizes]
    cheaper = resized(ask, sizes, "mid")
    seconds = ask.requests_per_second * 3600 / 1e6
    return SizedLayout(
        name=name_of(sizes),
        roles=[_sized_role(size) for size in sizes],
        nodes=candidate.nodes,
        prefill_to_decode=f"{gpus[0]}:{gpus[1]}" if candidate.split else "",
        usd_per_hour=round(candidate.usd, 4),
        usd_per_hour_forecast=round(cheaper.usd, 4) if cheaper else None,
        usd_per_million_answer_tokens=round(candidate.usd / (seconds * ask.output_tokens), 4),
        usd_per_million_tokens=round(candidate.usd / (seconds * (ask.input_tokens + ask.output_tokens)), 4),
        ttft_ms=Latency(span("ttft"), span("ttft_at")),
        tpot_ms=Latency(span("tpot"), span("tpot_at")),
        busy=round(candidate.kept.point.busy, 3),
        kv_use=round(candidate.kept.point.full, 3),
        transfer_ms=round(candidate.kept.transfer, 1),
        bound_by=_bound(ask, candidate),
        validated_rows=min(size.unit.error.rows for size in sizes),
    )


def _sized_role(size: RoleSize) -> SizedRole:
    unit = size.unit
    error = [round(unit.bars.low / unit.correction, 3), round(unit.bars.high / unit.correction, 3)]
    return SizedRole(
        unit.role, unit.instance.id, size.nodes, size.engines, unit.form.tensor_parallel, unit.form.data_parallel, unit.form.expert_parallel, error,
        unit.error.rows, round(unit.correction, 4),
    )  # fmt: skip


def _bound(ask: Ask, candidate: Candidate) -> str:
    point = candidate.kept.point
    near = {"busy": point.busy / BUSY, "kv": point.full / FULL}
    if ask.limits.ttft_ms:
        near["ttft"] = point.ttft_at / ask.limits.ttft_ms
    if ask.limits.tpot_ms:
        near["tpot"] = point.tpot_at / ask.limits.tpot_ms
    return max(near, key=lambda name: near[name])


def _sentence(document: SizingDocument, one: Candidate | None, two: Candidate | None) -> str:
    chosen = document.chosen
    first, token = chosen.ttft_ms.percentile, chosen.tpot_ms.percentile
    at, slow = f"{document.traffic.percentile} % of requests", document.traffic.plan == "slow"
    ttft, tpot = (first.high, token.high) if slow else (first.mid, token.mid)
    why = ""
    if one and two:
        other, apart = (two, "separate prefill and decode") if not chosen.prefill_to_decode else (one, "one role for both")
        cost = other.usd / chosen.usd_per_hour
        equal = ", equal within what the forecast can tell" if 1 / EQUAL <= cost <= EQUAL else ""
        why = f"; {apart} would cost {other.usd:,.2f}{equal}"
    steps = "even with slow steps" if slow else "with steps as in the tables"
    return (
        f"{chosen.name}: {chosen.usd_per_hour:,.2f} USD/h, {at} get their first token within {ttft or 0:,.0f} ms and each further one within "
        f"{tpot or 0:,.1f} ms {steps}{why}"
    )


def _refused(one: RefusedLayout) -> Finding:
    return Finding(one.rule, Level.ERROR, one.name, one.message)
