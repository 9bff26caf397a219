"""What fits an engine's GPUs: weights, overhead and KV cache, and the tokens and requests that the cache holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from ...document.capacity import Bars, Fit
from ...errors import SpecError
from .budget import budget_gib, overhead
from .calibration import Calibration, Expected, contradictions, over_budget
from .constants import exactly
from .engine_shape import GIB, EngineShape, unknown_architecture
from .kv import BLOCK, KvPlan, kv_plan
from .steps import Figures, Step, explain, explain_record
from .weights import Stage, in_gib, stages, weights

MANY_TIMES = 3
"""How many times the most that is expected, or what part of the least, an overhead has to be before a record is doubted."""


@dataclass(frozen=True)
class Capacity:
    """The memory of one engine. GiB are of one GPU, the tightest rank; tokens and requests are of one data-parallel rank, as each prints them.

    An engine has `ranks` of them, each with a KV cache of its own: `engine_tokens`, `engine_concurrency` and `concurrency_at` count all.

    `kv_bytes_per_token_per_gpu` is what a token more costs on the fullest pipeline stage (bytes), `kv_tokens` whole tokens floored to
    blocks, `max_concurrency` requests of the longest length (blocks / blocks of one request), `longest_fitting` tokens of the longest single
    request in the mid case and `surely_fitting` in the low one, `offloaded_tokens` what one rank keeps in host memory beside, `stage` the
    tightest pipeline stage counted from 0. No figure is below 0.
    """

    budget_gib: float
    weights_gib: Bars
    overhead_gib: Bars
    kv_gib: Bars
    kv_bytes_per_token_per_gpu: int
    kv_tokens: Bars
    max_concurrency: Bars
    fits: Fit
    explained: Callable[[], tuple[Step, ...]] = field(repr=False)
    longest_fitting: int
    surely_fitting: int
    block_size: int
    blocks: Bars
    plan: KvPlan
    stage: int = 0
    ranks: int = 1
    offloaded_tokens: int = 0

    @property
    def engine_tokens(self) -> Bars:
        """Tokens that all ranks of the engine hold together."""
        return self.kv_tokens.times(self.ranks)

    @property
    def engine_concurrency(self) -> Bars:
        """Requests of the longest length that all ranks of the engine hold together."""
        return self.max_concurrency.times(self.ranks)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The calculation as text; made when it is asked for."""
        return self.explained()

    def concurrency_at(self, tokens: int) -> Bars:
        """Requests of so many tokens (prompt and answer, 1 and more) that the engine holds at once."""
        return self.blocks.times(self.ranks / self.plan.blocks_of(max(1, tokens)))

    def missing_gib(self, tokens: int) -> Bars:
        """GiB of one GPU that are missing for a request of so many tokens; 0 where it fits."""
        needed = (self.plan.blocks_of(max(1, tokens)) + 1) * self.plan.block_bytes[self.stage] / GIB - self.budget_gib
        held, kept = self.weights_gib, self.overhead_gib
        return Bars(*(max(0.0, needed + w + o) for w, o in ((held.low, kept.low), (held.mid, kept.mid), (held.high, kept.high))))


class _Rank(NamedTuple):
    """One GPU of a pipeline stage. GiB; what is left for KV may be below 0 here."""

    stage: Stage
    weights: Bars
    overhead: Bars
    left: Bars

    @property
    def kv(self) -> Bars:
        """What the KV cache gets."""
        return Bars(max(0.0, self.left.low), max(0.0, self.left.mid), max(0.0, self.left.high))


class _Pool(NamedTuple):
    """The blocks of one stage."""

    plan: KvPlan
    stage: int

    def blocks(self, kv_gib: float) -> int:
        """Whole blocks in so many GiB."""
        return math.floor(kv_gib * GIB / self.plan.block_bytes[self.stage])


def capacity(shape: EngineShape) -> Capacity:
    """What an engine holds.

    With a calibration record low, mid and high are one number, and Fit is never TIGHT; with its tokens it settles a model whose attention is
    not known. Raises SpecError for such a model without one, and for numbers that no engine has.
    """
    if finding := unknown_architecture(shape.facts):
        if shape.calibration is None or shape.calibration.tokens is None:
            raise SpecError([finding])
        return _of_record(shape, shape.calibration, shape.calibration.tokens)
    plan, budget = kv_plan(shape), budget_gib(shape)
    ranks = [_rank(shape, stage, budget) for stage in stages(shape)]
    tightest = min(range(len(ranks)), key=lambda i: ranks[i].left.mid / plan.block_bytes[i])
    if shape.calibration:
        ranks[tightest] = _calibrated(shape, shape.calibration, ranks[tightest].stage, budget)
        blocks = exactly(_calibrated_blocks(shape, shape.calibration, _Pool(plan, tightest), ranks[tightest].kv.mid))
    else:
        blocks = Bars(*(min(_Pool(plan, i).blocks(getattr(rank.kv, bar)) for i, rank in enumerate(ranks)) for bar in ("low", "mid", "high")))
    rank = ranks[tightest]
    needed, longest = plan.blocks_of(shape.model_len), max(shape.facts.context_length, shape.model_len)
    tokens = Bars(*(plan.tokens_of(int(b), shape.model_len) for b in (blocks.low, blocks.mid, blocks.high)))
    concurrency = blocks.times(1 / needed)
    figures = Figures(rank.stage, tightest, budget, rank.weights, rank.overhead, rank.kv, blocks, tokens, concurrency)
    return Capacity(
        budget_gib=budget,
        weights_gib=rank.weights,
        overhead_gib=rank.overhead,
        kv_gib=rank.kv,
        kv_bytes_per_token_per_gpu=max(plan.token_bytes),
        kv_tokens=tokens,
        max_concurrency=concurrency,
        fits=_fit(blocks, needed),
        explained=partial(explain, shape, plan, figures),
        longest_fitting=plan.longest(int(blocks.mid), longest),
        surely_fitting=plan.longest(int(blocks.low), longest),
        block_size=plan.block_size,
        blocks=blocks,
        plan=plan,
        stage=tightest,
        ranks=shape.data_parallel,
        offloaded_tokens=_offloaded(shape, plan),
    )


def calibration_faults(shape: EngineShape) -> list[tuple[str, str]]:
    """Where the shape's calibration contradicts the shape: field and message. None without a calibration."""
    record = shape.calibration
    if record is None:
        return []
    share = record.gpu_memory_utilization or shape.gpu_memory_utilization
    if unknown_architecture(shape.facts):
        return over_budget(record, shape.gpu_memory_gib * share)
    plan, cut = kv_plan(shape), stages(shape)
    held = [in_gib(weights(shape, stage)) for stage in cut]
    pools = [_Pool(plan, i).blocks(record.kv_gib) for i in range(len(cut))]
    expected = Expected(
        shape.gpu_memory_gib * share,
        max(held, key=lambda bars: bars.mid),
        tuple(plan.tokens_of(blocks, record.max_model_len or shape.model_len) for blocks in pools),
        plan.hybrid,
    )
    return contradictions(record, expected)


def calibration_doubts(shape: EngineShape) -> list[tuple[str, str]]:
    """Where the shape's calibration leaves an overhead that no such engine has: field and message."""
    record = shape.calibration
    if record is None or unknown_architecture(shape.facts):
        return []
    usual = capacity(replace(shape, calibration=None)).overhead_gib
    left = shape.gpu_memory_gib * (record.gpu_memory_utilization or shape.gpu_memory_utilization) - record.weights_gib - record.kv_gib
    far = "more" if left > MANY_TIMES * usual.high else "less" if 0 <= left < usual.low / MANY_TIMES else ""
    if not far:
        return []
    message = f"leaves {left:.1f} GiB of a GPU's budget for overhead, far {far} than the {usual.low:.1f} to {usual.high:.1f} GiB of this engine"
    return [("kvCacheGiB", message)]


def _offloaded(shape: EngineShape, plan: KvPlan) -> int:
    """Tokens in host memory, which all GPUs of a rank share (vllm: CacheConfig.kv_offloading_size); a latent is copied there as on the GPUs."""
    each = sum(plan.token_bytes) * shape.tensor_parallel
    return int(shape.kv_offload_gib * GIB / each) if each else 0


def _of_record(shape: EngineShape, record: Calibration, tokens: int) -> Capacity:
    """What a log says of a model that nothing here can calculate. Its tokens are taken as those of requests of the longest length."""
    budget, size = budget_gib(shape), shape.block_size or BLOCK
    rank = _calibrated(shape, record, stages(shape)[0], budget)
    each = math.ceil(record.kv_gib * GIB / tokens)
    plan = KvPlan(size, (each,), (each * size,))
    blocks = exactly(_Pool(plan, 0).blocks(rank.kv.mid))
    needed, longest = plan.blocks_of(shape.model_len), max(shape.facts.context_length, shape.model_len)
    held = exactly(blocks.mid * size)
    return Capacity(
        budget_gib=budget,
        weights_gib=rank.weights,
        overhead_gib=rank.overhead,
        kv_gib=rank.kv,
        kv_bytes_per_token_per_gpu=each,
        kv_tokens=held,
        max_concurrency=blocks.times(1 / needed),
        fits=_fit(blocks, needed),
        explained=partial(explain_record, shape, record, held),
        longest_fitting=plan.longest(int(blocks.mid), longest),
        surely_fitting=plan.longest(int(blocks.mid), longest),
        block_size=size,
        blocks=blocks,
        plan=plan,
        ranks=shape.data_parallel,
    )


def _rank(shape: EngineShape, stage: Stage, budget: float) -> _Rank:
    held, kept = in_gib(weights(shape, stage)), overhead(shape, stage)
    return _Rank(stage, held, kept, Bars(budget - held.high - kept.high, budget - held.mid - kept.mid, budget - held.low - kept.low))


def _calibrated(shape: EngineShape, record: Calibration, stage: Stage, budget: float) -> _Rank:
    """The rank as the log has it; another utilisation than the log's moves the KV cache alone."""
    share = record.gpu_memory_utilization or shape.gpu_memory_utilization
    kv = max(0.0, record.kv_gib + (shape.gpu_memory_utilization - share) * shape.gpu_memory_gib)
    return _Rank(stage, exactly(record.weights_gib), exactly(max(0.0, budget - record.weights_gib - kv)), exactly(kv))


def _calibrated_blocks(shape: EngineShape, record: Calibration, pool: _Pool, kv_gib: float) -> int:
    """Blocks of a cache, corrected by what the log's tokens say about the size of a block."""
    if record.tokens is None:
        return pool.blocks(kv_gib)
    calculated = pool.plan.tokens_of(pool.blocks(record.kv_gib), record.max_model_len or shape.model_len)
    return round(pool.blocks(kv_gib) * record.tokens / calculated) if calculated else pool.blocks(kv_gib)


def _fit(blocks: Bars, needed: int) -> Fit:
    """By whether more blocks are there than one request takes: vLLM keeps one for itself (vllm: check_enough_kv_cache_memory)."""
    enough: Sequence[bool] = [b > needed for b in (blocks.low, blocks.mid, blocks.high)]
    return Fit.FITS if enough[0] else Fit.TIGHT if any(enough) else Fit.NO
