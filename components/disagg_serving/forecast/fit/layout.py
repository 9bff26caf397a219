"""In which form an engine keeps KV."""

from __future__ import annotations

from .constants import follows
from .engine_shape import EngineShape
from .gpus import BLACKWELL

GLM = "GlmMoeDsaForCausalLM"


def is_fp8(shape: EngineShape) -> bool:
    """Whether a KV value takes one byte; without a dtype that is vLLM's choice by model, GPU and version."""
    if shape.kv_cache_dtype != "auto":
        return shape.kv_cache_dtype.startswith("fp8")
    return shape.facts.architecture == GLM and _datacenter_blackwell(shape) and follows("glmFp8OnBlackwell", shape.engine_version)


def is_packed(shape: EngineShape) -> bool:
    """Whether a latent is kept in the packed layout of sparse attention, which only FlashMLA reads."""
    if shape.facts.indexer is None or not is_fp8(shape) or (shape.facts.mla is not None and not shape.facts.mla.qk_rope_head_dim):
        return False
    plain = _datacenter_blackwell(shape) and follows("sparseMlaLayoutByBackend", shape.engine_version)
    return shape.kv_cache_dtype == "fp8_ds_mla" or not plain


def _datacenter_blackwell(shape: EngineShape) -> bool:
    return shape.on.capability[0] == BLACKWELL[0]
