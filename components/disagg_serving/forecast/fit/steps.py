"""The calculation as text with the numbers in it, for --explain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...document.capacity import Bars
from ...records import Record
from .budget import overhead_parts
from .calibration import Calibration
from .constants import newest_engine, release
from .engine_shape import GIB, EngineShape
from .kv import KvPlan, indexer_bytes, layer_bytes, state_bytes
from .weights import Stage, indexer_layers, weight_parts


@dataclass(frozen=True)
class Step(Record):
    """One step of the calculation: its name, the formula with the numbers in it, the result with its unit."""

    name: str
    formula: str
    result: str


class Figures(NamedTuple):
    """What was calculated for the tightest rank: its stage and the stage's number, GiB of one GPU, then blocks, tokens and longest requests."""

    stage: Stage
    number: int
    budget: float
    weights: Bars
    overhead: Bars
    kv: Bars
    blocks: Bars
    tokens: Bars
    concurrency: Bars


def explain(shape: EngineShape, plan: KvPlan, f: Figures) -> tuple[Step, ...]:
    """The steps that lead to the figures."""
    stage, budget, held, kept, kv = f.stage, f.budget, f.weights, f.overhead, f.kv
    where = f"stage of layers {stage.first} to {stage.end - 1}" if shape.pipeline_parallel > 1 else f"{stage.layers} layers"
    length, needed = shape.model_len, plan.blocks_of(shape.model_len)
    record = shape.calibration
    steps = [
        Step("budget", f"{shape.gpu_memory_gib:g} GiB x {shape.gpu_memory_utilization:g}", f"{budget:.2f} GiB"),
        Step("weights", "start-up log" if record else f"{where}: {_sum(_weights(shape, stage))}", _range(held, "GiB")),
        Step("overhead", "budget - weights - KV cache of the start-up log" if record else _sum(_kept(shape, stage)), _range(kept, "GiB")),
        Step("KV cache", "start-up log" if record else _left(budget, held, kept), _range(kv, "GiB")),
        Step("KV bytes a token", _token(shape, stage), f"{plan.token_bytes[f.number]:,} B a GPU"),
        Step("blocks", f"{kv.mid:.2f} GiB / {plan.block_bytes[f.number]:,} B of {plan.block_size} tokens", _range(f.blocks, "blocks", 0)),
        Step("tokens", _tokens(plan, f.blocks, length), _range(f.tokens, "tokens", 0)),
        Step(
            "requests of the longest length",
            f"{f.blocks.mid:,.0f} blocks / {needed:,} blocks of {length:,} tokens",
            _range(f.concurrency, "requests"),
        ),
    ]
    if shape.data_parallel > 1:
        ranks = f"{shape.data_parallel} data-parallel ranks x {f.tokens.mid:,.0f}"
        steps.append(Step("tokens of the engine", ranks, _range(f.tokens.times(shape.data_parallel), "tokens", 0)))
    if record and record.tokens:
        calculated = plan.tokens_of(int(record.kv_gib * GIB / plan.block_bytes[f.number]), record.max_model_len or length)
        off = f"{calculated / record.tokens - 1:+.1%}"
        steps.append(Step("log against formula", f"{record.kv_gib:g} GiB hold {calculated:,} by formula, {record.tokens:,} by log", off))
    if release(shape.engine_version) > release(newest_engine()):
        steps.append(Step("engine", f"{shape.engine_version} is newer than the figures", f"calculated as for {newest_engine()}"))
    if shape.draft_gb:
        each = f"{shape.draft_gb * 1e9 / GIB / shape.tensor_parallel:.2f} GiB"
        steps.append(Step("draft model", f"{shape.draft_gb:g} GB over {shape.tensor_parallel} GPUs, in the weights of the last stage", each))
    elif shape.speculative and shape.facts.mtp_layers == 0:
        steps.append(Step("draft model", "the model has no MTP layers", "a draft model of its own is not counted"))
    return tuple(steps)


def explain_record(shape: EngineShape, record: Calibration, tokens: Bars) -> tuple[Step, ...]:
    """The steps for a model of which only a start-up log is known."""
    budget, logged = shape.gpu_memory_gib * shape.gpu_memory_utilization, record.tokens or 1
    return (
        Step("budget", f"{shape.gpu_memory_gib:g} GiB x {shape.gpu_memory_utilization:g}", f"{budget:.2f} GiB"),
        Step("weights", "start-up log", f"{record.weights_gib:.2f} GiB"),
        Step("KV cache", "start-up log", f"{record.kv_gib:.2f} GiB"),
        Step("KV bytes a token", f"{record.kv_gib:g} GiB / {logged:,} tokens of the start-up log", f"{record.kv_gib * GIB / logged:,.0f} B"),
        Step("tokens", "as the log prints them, for requests of its longest length", f"{tokens.mid:,.0f} tokens"),
    )


def _weights(shape: EngineShape, stage: Stage) -> dict[str, float]:
    return {name: size / GIB for name, size in weight_parts(shape, stage).items()}


def _kept(shape: EngineShape, stage: Stage) -> dict[str, float]:
    return {name: bars.mid for name, bars in overhead_parts(shape, stage).items()}


def _sum(parts: dict[str, float]) -> str:
    return " + ".join(f"{name} {value:.2f}" for name, value in parts.items()) + " GiB"


def _left(budget: float, held: Bars, kept: Bars) -> str:
    left = budget - held.mid - kept.mid
    return f"{budget:.2f} - {held.mid:.2f} - {kept.mid:.2f} GiB" + (f" = {left:.2f}, so nothing is left" if left <= 0 else "")


def _token(shape: EngineShape, stage: Stage) -> str:
    window, linear = shape.facts.sliding_window, shape.facts.linear_attention
    layers, indexers = stage.layers + stage.mtp, indexer_layers(shape.facts, stage)
    text = f"{layers} layers x {layer_bytes(shape):,} B"
    if indexers:
        text += f" + {indexers} indexers x {indexer_bytes(shape)} B"
    if window:
        text += f", less {window.layers} of {shape.facts.layers} layers that hold {window.size} tokens"
    if linear:
        text += f", less {linear.layers} of {shape.facts.layers} layers that hold a state of {state_bytes(shape):,} B a sequence"
    return text + (f", over {shape.decode_context_parallel} GPUs" if shape.decode_context_parallel > 1 else "")


def _tokens(plan: KvPlan, blocks: Bars, length: int) -> str:
    if not plan.hybrid:
        return f"{blocks.mid:,.0f} blocks x {plan.block_size * plan.shards}"
    if plan.printed_by_concurrency:
        return f"{blocks.mid:,.0f} blocks / {plan.blocks_of(length):,} blocks x {length:,} tokens, as vLLM prints it for layers of several kinds"
    groups = plan.full_groups + plan.window_groups + plan.state_groups
    return f"{blocks.mid:,.0f} blocks / {groups} groups x {plan.printed_block}, as vLLM prints it for layers of several kinds"


def _range(bars: Bars, unit: str, digits: int = 2) -> str:
    if bars.low == bars.high:
        return f"{bars.mid:,.{digits}f} {unit}"
    return f"{bars.mid:,.{digits}f} {unit} ({bars.low:,.{digits}f} to {bars.high:,.{digits}f})"
