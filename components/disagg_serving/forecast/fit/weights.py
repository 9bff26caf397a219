"""Weights of one GPU in bytes, by pipeline stage."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...catalog.entries import Model
from ...catalog.families import family_of
from ...document.capacity import Bars
from .constants import constant, follows
from .engine_shape import GIB, EngineShape
from .experts import expert_kernel
from .gpus import native_on
from .sparse import index_table, kept_at_load
from .vision import tower_weights

BF16, FP32 = 2.0, 4.0
FP8 = 1 + 4 / 128**2
"""One byte and an fp32 scale a block of 128 x 128."""
FOUR_BITS = {"int4": 0.5 + 2 / 32, "nvfp4": 0.5 + 1 / 16, "mxfp4": 0.5 + 1 / 32}
"""Half a byte and its scales: bf16 over 32 weights, fp8 over 16, one byte over 32."""
MXFP4_SCALE = 1 / 32
VOCABULARY_PADDING = 64


class Precision(NamedTuple):
    """Bytes a weight of the parts that a quantisation may leave out; embeddings, output head and router are always bf16."""

    attention: float
    mlp: float
    experts: float


class Stage(NamedTuple):
    """The layers of one pipeline stage: hidden layers from `first` (counted from 0) to below `end`, then `mtp` draft layers."""

    first: int
    end: int
    mtp: int
    is_first: bool
    is_last: bool

    @property
    def layers(self) -> int:
        """Hidden layers of the stage."""
        return self.end - self.first


def stages(shape: EngineShape) -> tuple[Stage, ...]:
    """The pipeline stages as vLLM cuts them: the rest goes to the stages before the last (vllm: distributed.utils.get_pp_indices)."""
    count, total = shape.pipeline_parallel, shape.facts.layers
    sizes = [total // count] * count
    for i in range(2, total % count + 2):
        sizes[-i] += 1
    found, first = [], 0
    for i, size in enumerate(sizes):
        last = i == count - 1
        found.append(Stage(first, first + size, shape.facts.mtp_layers if last and shape.speculative else 0, i == 0, last))
        first += size
    return tuple(found)


def indexer_layers(facts: Model, stage: Stage) -> int:
    """Layers of a stage that have an indexer, draft layers included, since those always have one.

    Where only some layers have one, the first dense layers do and then each n-th (vllm: index_skip_topk_offset, index_topk_freq).
    """
    if facts.indexer is None:
        return 0
    if facts.linear_attention is not None:
        return share(facts.indexer.layers, facts, stage) + stage.mtp
    leading, count = facts.moe.dense_layers if facts.moe else 0, min(facts.indexer.layers, facts.layers)
    if count <= leading or count == facts.layers:
        return min(count, stage.end) - min(count, stage.first) + stage.mtp
    step = max(1, (facts.layers - leading) // (count - leading))
    full = [*range(leading), *range(leading + step - 1, facts.layers, step)][:count]
    return len([layer for layer in full if stage.first <= layer < stage.end]) + stage.mtp


def expert_layers(facts: Model, stage: Stage) -> int:
    """Layers of a stage with experts, draft layers included: each n-th after the first dense ones."""
    moe = facts.moe
    if moe is None:
        return 0
    return stage.mtp + sum(layer >= moe.dense_layers and (layer + 1) % moe.every_nth == 0 for layer in range(stage.first, stage.end))


def share(layers: int, facts: Model, stage: Stage) -> int:
    """Layers of a kind on a stage, the kinds being spread evenly over the model."""
    return math.ceil(layers * stage.layers / facts.layers)


def weights(shape: EngineShape, stage: Stage) -> Bars:
    """Weights of one GPU of a stage in bytes; bars of catalog/overheads.yaml, wider where the quantised parts are not known."""
    bars = constant("weights", shape.engine_version)
    likely = [_as_loaded(shape, p) for p in precisions(shape.facts)]
    guesses = [_bytes(shape, stage, p) for p in likely]
    padded = _bytes(shape, stage, likely[0], widest=True)
    return Bars(min(guesses) * bars.low, guesses[0] * bars.mid, max(*guesses, padded) * bars.high)


def precisions(facts: Model) -> list[Precision]:
    """The likeliest precision first. More than one where a four-bit checkpoint's size does not tell what it quantises."""
    if facts.weight_dtype == "bf16":
        return [Precision(BF16, BF16, BF16)]
    family = family_of(facts.architecture)
    if facts.weight_dtype == "fp8":
        return [Precision(BF16 if family and family.bf16_attention else FP8, FP8, FP8)]
    four = FOUR_BITS[facts.weight_dtype]
    everything, no_attention, experts_only = Precision(four, four, four), Precision(BF16, four, four), Precision(BF16, BF16, four)
    if facts.moe is None:
        return [everything]
    if facts.weight_dtype == "mxfp4":
        return [experts_only]
    found = [everything, no_attention, experts_only] if facts.mla is None else [experts_only, no_attention, everything]
    on_disk = facts.checkpoint_gb * 1e9
    if math.isclose(on_disk, facts.parameters_b.total * 1e9 * FOUR_BITS["int4"], rel_tol=1e-4):
        return found  # the size was itself calculated from the parameters, so it tells nothing
    return [min(found, key=lambda p: abs(_checkpoint(facts, p) - on_disk))]


def _as_loaded(shape: EngineShape, precision: Precision) -> Precision:
    """What a precision takes on the GPU: Marlin spreads the scale of a block of FP8 weights to one in bf16 for each of its columns.

    vllm: quantization/utils/marlin_utils_fp8.py (prepare_fp8_layer_for_marlin and prepare_fp8_moe_layer_for_marlin, repeat_interleave).
    """
    if shape.facts.weight_dtype != "fp8" or shape.facts.weight_block is None or native_on("fp8", shape.on):
        return precision
    spread = 1 + BF16 / shape.facts.weight_block
    return Precision(BF16 if precision.attention == BF16 else spread, spread, spread)


def _checkpoint(facts: Model, precision: Precision) -> float:
    alone = EngineShape(facts, "0.0", 1, speculative=True)
    (stage,) = stages(alone)
    return _bytes(alone, stage, precision) - kept_at_load(alone) - index_table(alone)


def weight_parts(shape: EngineShape, stage: Stage, precision: Precision | None = None, *, widest: bool = False) -> dict[str, float]:
    """Bytes of one GPU of a stage by part, in the likeliest precision unless another is given; `widest` takes the largest padding."""
    facts, h, p = shape.facts, shape.facts.hidden_size, precision or _as_loaded(shape, precisions(shape.facts)[0])
    layers = stage.layers + stage.mtp
    with_experts = expert_layers(facts, stage) if facts.moe else 0
    dense = layers - with_experts
    table = math.ceil(facts.vocab_size / VOCABULARY_PADDING) * VOCABULARY_PADDING * h * BF16 / shape.tensor_parallel
    tables = stage.is_first + (stage.is_last and not (facts.tied_embeddings and stage.is_first))
    rotated = facts.mla.qk_rope_head_dim if facts.mla else facts.head_dim
    parts = {
        "attention": _attentions(shape, stage, p),
        "indexers": indexer_layers(facts, stage) * _indexer(shape, p),
        "dense layers": dense * 3 * h * facts.intermediate_size * p.mlp / shape.tensor_parallel,
        "experts": with_experts * _experts(shape, p, widest=widest),
        "embeddings and head": table * tables,
        # the projection of embedding and hidden state; the embedding is shared only while one stage has both
        "draft projection": stage.mtp * 2 * h * h * BF16 + (table if stage.mtp and not stage.is_first else 0),
        "draft model": shape.draft_gb * 1e9 / shape.tensor_parallel if stage.is_last else 0,
        "rotary table": facts.context_length * rotated * BF16,
        "residual streams": layers * _streams(facts),
        "vision tower": tower_weights(shape) if stage.is_first else 0,
        "sparse attention": kept_at_load(shape) + index_table(shape),
    }
    return {name: size for name, size in parts.items() if size}


def _bytes(shape: EngineShape, stage: Stage, precision: Precision, *, widest: bool = False) -> float:
    return sum(weight_parts(shape, stage, precision, widest=widest).values())


def _streams(facts: Model) -> float:
    """The fp32 matrices by which a layer mixes residual streams, before attention and before its MLP (vllm: glm5next/common/model.py)."""
    n = facts.residual_streams
    return 2 * (2 + n) * n * n * facts.hidden_size * FP32 if n > 1 else 0


def _attentions(shape: EngineShape, stage: Stage, p: Precision) -> float:
    """Attention of all layers of a stage: full layers, those with a window of other heads, and linear ones."""
    facts, window, linear = shape.facts, shape.facts.sliding_window, shape.facts.linear_attention
    others = share(linear.layers, facts, stage) if linear else 0
    total = others * _linear(shape, p)
    if window is not None and window.head_dim is not None:
        count = share(window.layers, facts, stage)
        total += count * _grouped(shape, window.kv_heads or facts.kv_heads, window.head_dim) * p.attention
        others += count
    return total + (stage.layers + stage.mtp - others) * _attention(shape, p)


def _attention(shape: EngineShape, p: Precision) -> float:
    """Projections of one layer; MLA keeps a bf16 copy of the absorbed ones where they are quantised."""
    facts, h, tp = shape.facts, shape.facts.hidden_size, shape.tensor_parallel
    if facts.mla is None:
        return _grouped(shape, facts.kv_heads, facts.head_dim) * p.attention
    m, heads = facts.mla, facts.attention_heads
    rank = m.q_lora_rank or 0  # without one the projection is in one piece, and cut by heads
    whole = h * rank + h * (m.kv_lora_rank + m.qk_rope_head_dim)
    gate = h * heads * m.v_head_dim / tp if facts.gated_attention else 0
    absorbed = m.kv_lora_rank * heads * (m.qk_nope_head_dim + m.v_head_dim) / tp
    split = ((rank or h) * heads * (m.qk_nope_head_dim + m.qk_rope_head_dim) + heads * m.v_head_dim * h) / tp
    return (whole + split + absorbed + gate) * p.attention + (absorbed * BF16 if p.attention < BF16 else 0)


def _grouped(shape: EngineShape, kv_heads: int, head_dim: int) -> float:
    """Parameters of one layer's projections: queries (with a gate, twice), keys, values and output."""
    facts, tp = shape.facts, shape.tensor_parallel
    queries = (3 if facts.gated_attention else 2) * facts.attention_heads / tp
    return facts.hidden_size * head_dim * (queries + 2 * kv_heads / min(tp, kv_heads))


def _linear(shape: EngineShape, p: Precision) -> float:
    """One gated delta net: queries, keys, values, gate and output, with the two scalars of each value head (vllm: qwen3_next.py)."""
    linear, h = shape.facts.linear_attention, shape.facts.hidden_size
    if linear is None:
        return 0
    keys, values = linear.key_heads * linear.key_head_dim, linear.value_heads * linear.value_head_dim
    family = family_of(shape.facts.architecture)
    if family is not None and family.linear == "kda":
        # two gates through a narrow layer, which is whole on every GPU (vllm: glm5next/common/kda.py)
        narrow = (1 if linear.full_gate else 2) * linear.value_head_dim
        split = h * (2 * keys + (3 if linear.full_gate else 2) * values + linear.value_heads) + narrow * values
        return (split * p.attention + (2 * keys + values) * linear.kernel * FP32) / shape.tensor_parallel + h * narrow * p.attention
    convolution = (2 * keys + values) * linear.kernel
    return (h * (2 * keys + 3 * values) * p.attention + (2 * h * linear.value_heads + convolution) * BF16) / shape.tensor_parallel


def _indexer(shape: EngineShape, p: Precision) -> float:
    """The indexer of one layer, whole on every GPU."""
    facts = shape.facts
    if facts.indexer is None:
        return 0
    i = facts.indexer
    if facts.mla is None:  # queries are cut like KV heads, the key is whole (vllm: minimax_m3/nvidia/model.py)
        return facts.hidden_size * i.head_dim * (i.heads / min(shape.tensor_parallel, i.heads) + 1) * p.attention
    keys = BF16 if follows("indexerKeysInBf16", shape.engine_version) else p.attention
    queries = (facts.mla.q_lora_rank or facts.hidden_size) * i.heads * i.head_dim * p.attention
    gate = facts.hidden_size * i.head_dim * BF16 if i.pool > 1 else 0
    return queries + facts.hidden_size * (i.head_dim * keys + i.heads * BF16) + gate


def _experts(shape: EngineShape, p: Precision, *, widest: bool) -> float:
    """Routed and shared experts and the router of one layer. Whole experts are counted for the rank with most of them."""
    facts = shape.facts
    if facts.moe is None:
        return 0
    moe, h, ranks = facts.moe, facts.hidden_size, shape.expert_ranks
    slices = 1 if shape.expert_parallel else ranks
    held = math.ceil(moe.experts / ranks) if shape.expert_parallel else moe.experts
    inner = moe.intermediate_size / slices
    routed = moe.hidden_size or h
    one = _mxfp4_expert(shape, routed, inner, widest=widest) if facts.weight_dtype == "mxfp4" else 3 * routed * inner * p.experts
    # the way into a narrower hidden state and back is whole on each GPU (vllm: kimi_k3/nvidia/model.py, KimiMoE)
    way = 2 * h * routed * BF16 if moe.hidden_size else 0
    # whole on each GPU where tokens are dealt out over them instead (vllm: use_sequence_parallel_moe); dense layers never are
    shared = moe.shared_experts * 3 * h * moe.intermediate_size * p.mlp / (1 if shape.shares_experts else shape.tensor_parallel)
    return held * one + shared + way + moe.experts * h * BF16


def _mxfp4_expert(shape: EngineShape, hidden: int, inner: float, *, widest: bool) -> float:
    """One MXFP4 expert with the padding of its kernel (vllm: fused_moe/oracle/mxfp4.py).

    Triton on Hopper pads the inner size to 64 and then each row of packed values to 128 bytes; Marlin and TRT-LLM pad both sizes.
    """
    wide = widest or expert_kernel(shape) != "triton_mxfp4"
    if wide:
        return 3 * _up(hidden, 256) * _up(inner, 128) * FOUR_BITS["mxfp4"]
    inner = _up(inner, 64)
    values = 2 * inner * _up(hidden, 256) + hidden * _up(inner, 256)
    return values * 0.5 + 3 * hidden * inner * MXFP4_SCALE


def _up(size: float, to: int) -> int:
    return math.ceil(size / to) * to


def in_gib(amount: Bars) -> Bars:
    """Bytes as GiB."""
    return amount.times(1 / GIB)
