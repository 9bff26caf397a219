"""What sparse attention reserves beside its weights: buffers of its layers at load, and of its indexers in the dummy run. Bytes of one GPU."""

from __future__ import annotations

from .constants import follows
from .engine_shape import EngineShape
from .gpus import BLACKWELL
from .layout import is_packed

LATENT, BF16, INT32 = 576, 2, 4
"""Values of a token's latent with its position (vllm: flashmla_sparse.py)."""
ROWS, FEWER_ROWS, LONG = 5, 2, 256 * 1024
"""Times the longest sequence that prefill unpacks at once, fewer of them above LONG tokens (vllm v0.33.0: config/vllm.py)."""
INDEX_ROWS = LATENT * BF16 // 132
"""Times as many index keys of 128 values and a scale, so that they fill the same buffer (vllm: mla/indexer.py)."""
INDEX_LOGITS = 512 * 2**20
"""Bytes of logits that the dummy run of an indexer allocates (vllm: envs.VLLM_SPARSE_INDEXER_MAX_LOGITS_MB)."""


def kept_at_load(shape: EngineShape) -> float:
    """The part of the shared workspace that FlashMLASparseImpl takes while the model loads, so that vLLM prints it with the weights.

    An FP8 cache in the packed layout is unpacked for prefill; every FlashMLA sparse layer joins queries. From v0.25 Hopper reads bf16 caches
    with another kernel, and Blackwell reads FP8 with FlashInfer, which keep neither.
    """
    if shape.facts.indexer is None or shape.facts.mla is None:
        return 0
    hopper = shape.on.capability < BLACKWELL
    if not is_packed(shape) and hopper and follows("bf16SparseOnFlashAttention", shape.engine_version):
        return 0
    if not is_packed(shape) and not hopper:
        return 0
    joined = shape.batched_tokens * shape.facts.attention_heads / shape.tensor_parallel * LATENT * BF16
    joined = joined if follows("sparseJoinsQueries", shape.engine_version) else 0
    return joined + (_rows(shape) * LATENT * BF16 if is_packed(shape) else 0)


def index_table(shape: EngineShape) -> float:
    """The table of chosen tokens of a step, also allocated at load (vllm: deepseek_v2.py, topk_indices_buffer)."""
    indexer = shape.facts.indexer
    return shape.batched_tokens * indexer.top_k * INT32 if indexer and shape.facts.mla else 0


def kept_by_indexers(shape: EngineShape) -> float:
    """What the dummy run asks of the shared workspace for index keys of the longest prefill (vllm: sparse_attn_indexer.py)."""
    indexer = shape.facts.indexer
    return _rows(shape) * INDEX_ROWS * (indexer.head_dim + 4) if indexer and shape.facts.mla else 0


def _rows(shape: EngineShape) -> int:
    few = shape.model_len > LONG and follows("fewerSparseRows", shape.engine_version)
    return shape.model_len * (FEWER_ROWS if few else ROWS)
