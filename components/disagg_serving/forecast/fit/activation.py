"""The peak of the dummy run of start-up, beside weights: what of torch's memory a step needs. GiB of one GPU."""

from __future__ import annotations

from ...document.capacity import Bars
from .constants import constant, exactly
from .engine_shape import GIB, EngineShape
from .experts import expert_buffers
from .sparse import INDEX_LOGITS, kept_at_load, kept_by_indexers
from .vision import encoder_cache, encoder_peak
from .weights import Stage

BF16 = 2
HIDDEN_STATES = 2
"""Hidden states of a step that live through a layer: residual and input. Experts write their output over the input, other parts beside it."""


def activation(shape: EngineShape, stage: Stage) -> Bars:
    """Peak of the dummy run at `max_num_batched_tokens`: of the vision encoder, of the widest layer, or on the last stage of the sampler.

    Kernels share one workspace of the largest size that any of them asked for, and keep it (vllm: v1/worker/workspace.py), so the sampler
    adds to it. The vocabulary's logits of all sequence slots are large for most models, which is why the peak hardly depends on the layers.
    """
    at_load = kept_at_load(shape)
    workspace = max(expert_buffers(shape).kept, kept_by_indexers(shape), at_load) - at_load
    kept = exactly((workspace + encoder_cache(shape)) / GIB)
    forward = kept + exactly(_layer_bytes(shape) / GIB) + constant("forwardGiB", shape.engine_version)
    encoder = exactly(encoder_peak(shape) / GIB)
    if not stage.is_last:
        return _most(forward, encoder)
    hidden = shape.batched_tokens * shape.facts.hidden_size * BF16 / GIB
    slots = constant("samplerBytes", shape.engine_version).times(shape.sequence_slots * shape.facts.vocab_size / GIB)
    return _most(forward, encoder, kept + slots + exactly(hidden))


def _most(*peaks: Bars) -> Bars:
    return Bars(max(p.low for p in peaks), max(p.mid for p in peaks), max(p.high for p in peaks))


def _layer_bytes(shape: EngineShape) -> float:
    """Bytes of the tensors of the widest layer for one step, beside the shared workspace: MLP, experts or attention, and hidden states."""
    facts, h, tp, tokens = shape.facts, shape.facts.hidden_size, shape.tensor_parallel, shape.batched_tokens
    state = h * tokens * BF16
    mlp = 3 * facts.intermediate_size / tp * tokens * BF16 if facts.moe is None or facts.moe.dense_layers else 0.0
    experts = expert_buffers(shape).step
    if facts.moe and facts.moe.shared_experts:
        experts += state  # their output waits for that of the routed ones
    # residual streams are mixed into copies (vllm: glm5next/common/model.py)
    streams = ((facts.residual_streams - 1) * 2 + facts.kept_residuals) * state
    return max(mlp + state, experts, _attention_bytes(shape) + state) + HIDDEN_STATES * state + streams


def _attention_bytes(shape: EngineShape) -> float:
    """Queries, keys and output of a step; a latent is expanded for a fixed context, and an indexer computes logits of a fixed size."""
    facts, tp = shape.facts, shape.tensor_parallel
    size = 2.0 * (facts.attention_heads + facts.kv_heads) * facts.head_dim / tp * shape.batched_tokens * BF16
    if facts.indexer is not None and facts.mla is not None:
        return size + INDEX_LOGITS
    if facts.mla is not None:
        context = constant("mlaWorkspaceTokens", shape.engine_version).mid
        size += context * facts.attention_heads / tp * (facts.mla.qk_nope_head_dim + facts.mla.v_head_dim) * BF16
    return size
