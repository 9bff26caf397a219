"""The KV cache of one engine: bytes a token and a block, and how many blocks a request takes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .constants import follows
from .engine_shape import EngineShape
from .weights import Stage, indexer_layers, stages

FP8_DS_MLA = 656
"""Bytes of one token and layer in the packed sparse layout: 512 fp8 values, 16 of scales, 64 bf16 values with position."""
SCALE_BLOCK, SCALE_BYTES = 128, 4
"""The indexer keeps an fp32 scale for each 128 fp8 values."""
BLOCK, MLA_BLOCK, BLACKWELL_MLA_BLOCK = 16, 64, 32
SIMILAR = 1.5
"""Kinds of layers whose counts differ by less than this factor are padded to one size (vllm: _get_kv_cache_groups_uniform_page_size)."""


@dataclass(frozen=True)
class KvPlan:
    """How an engine lays out its KV cache. All sizes in bytes and on one GPU.

    `token_bytes` and `block_bytes` are by pipeline stage: what a token more costs, and what a block costs. Layers share block tables in
    `full_groups` groups that grow with the sequence and `window_groups` that hold `window` tokens and the `in_flight` ones. A block
    holds `block_size` x `shards` tokens, because decode context parallelism deals tokens out to `shards` GPUs.
    """

    block_size: int
    token_bytes: tuple[int, ...]
    block_bytes: tuple[int, ...]
    full_groups: int = 1
    window_groups: int = 0
    window: int = 0
    in_flight: int = 0
    shards: int = 1
    printed_by_concurrency: bool = False

    @property
    def hybrid(self) -> bool:
        """Whether some layers hold a window only."""
        return self.window_groups > 0

    def blocks_of(self, tokens: int) -> int:
        """Blocks that a request of so many tokens takes, as vLLM admits it."""
        blocks = self.full_groups * math.ceil(math.ceil(tokens / self.shards) / self.block_size)
        if self.hybrid:
            held = min(self.window - 1 + self.in_flight, tokens)
            blocks += self.window_groups * (math.ceil(held / self.block_size) + 1)
        return max(1, blocks)

    def tokens_of(self, blocks: int, model_len: int) -> int:
        """Tokens of a pool of so many blocks, as vLLM prints them.

        For models with windows that is no capacity but, by version, blocks shared out evenly or concurrency x the longest sequence.
        """
        if not self.hybrid:
            return blocks * self.block_size * self.shards
        if self.printed_by_concurrency:
            return blocks * model_len // self.blocks_of(model_len)
        return blocks // (self.full_groups + self.window_groups) * self.block_size

    def longest(self, blocks: int, limit: int) -> int:
        """Tokens of the longest request that a pool of so many blocks admits, at most `limit`; one block stays vLLM's own."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.blocks_of(middle) < blocks else (low, middle - 1)
        return low


def kv_plan(shape: EngineShape) -> KvPlan:
    """The layout of an engine's KV cache."""
    cut = stages(shape)
    size = block_size(shape)
    window = shape.facts.sliding_window
    per_layer = layer_bytes(shape)
    if window is None or window.layers == 0 or not _hybrid_manager(shape):
        sums = [(s.layers + s.mtp) * per_layer + indexer_layers(shape.facts, s) * indexer_bytes(shape) for s in cut]
        shards = shape.decode_context_parallel
        return KvPlan(size, tuple(math.ceil(b / shards) for b in sums), tuple(b * size for b in sums), shards=shards)
    full = shape.facts.layers - window.layers
    kinds = [n for n in (full, window.layers) if n]
    group = max(kinds) if max(kinds) < min(kinds) * SIMILAR else min(kinds)
    full_groups, window_groups = math.ceil(full / group), math.ceil(window.layers / group)
    batches = shape.pipeline_parallel + 1 if follows("inFlightOfAllBatches", shape.engine_version) else 1
    return KvPlan(
        size,
        tuple(_share(full, shape, s) * per_layer for s in cut),
        tuple(_share(group, shape, s) * per_layer * size for s in cut),
        full_groups,
        window_groups,
        window.size,
        batches * shape.batched_tokens,
        printed_by_concurrency=follows("printedTokensFromConcurrency", shape.engine_version),
    )


def layer_bytes(shape: EngineShape) -> int:
    """Bytes of one token in one layer on one GPU: heads are split over tensor-parallel GPUs down to one, MLA's latent is on each whole."""
    facts, width = shape.facts, 1 if _fp8(shape) else 2
    if facts.mla is None:
        return 2 * max(1, facts.kv_heads // shape.tensor_parallel) * facts.head_dim * width
    if _packed(shape):
        return FP8_DS_MLA
    return (facts.mla.kv_lora_rank + facts.mla.qk_rope_head_dim) * width


def indexer_bytes(shape: EngineShape) -> int:
    """Bytes of one token's index key in one layer: fp8 with scales, whatever the KV dtype."""
    if shape.facts.indexer is None:
        return 0
    size = shape.facts.indexer.head_dim
    return size + size // SCALE_BLOCK * SCALE_BYTES


def block_size(shape: EngineShape) -> int:
    """Tokens of a block: what was asked for, else what the kernel of this kind of attention wants."""
    if shape.block_size is not None:
        return shape.block_size
    if shape.facts.mla is None:
        return BLOCK
    if shape.facts.indexer is None and follows("denseMlaSmallBlocks", shape.engine_version):
        return BLACKWELL_MLA_BLOCK if shape.on_blackwell else MLA_BLOCK if _fp8(shape) else BLOCK
    return shape.facts.block_size or MLA_BLOCK


def _fp8(shape: EngineShape) -> bool:
    if shape.kv_cache_dtype != "auto":
        return shape.kv_cache_dtype.startswith("fp8")
    newer = follows("sparseMlaLayoutByBackend", shape.engine_version)
    return newer and shape.on_blackwell and shape.facts.architecture == "GlmMoeDsaForCausalLM"


def _packed(shape: EngineShape) -> bool:
    """Whether the latent is kept in the packed sparse layout."""
    if shape.facts.indexer is None or not _fp8(shape):
        return False
    plain = shape.on_blackwell and follows("sparseMlaLayoutByBackend", shape.engine_version)
    return shape.kv_cache_dtype == "fp8_ds_mla" or not plain


def _hybrid_manager(shape: EngineShape) -> bool:
    """Whether windows save memory: not where a KV connector turns the hybrid cache manager off, so all layers grow."""
    return not shape.nixl or follows("hybridWithNixl", shape.engine_version)


def _share(layers: int, shape: EngineShape, stage: Stage) -> int:
    """Layers of a kind on a stage, the kinds being spread evenly over the model."""
    return math.ceil(layers * stage.layers / shape.facts.layers)
