"""The KV cache of one engine: bytes a token and a block, and how many blocks a request takes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from ...catalog.families import family_of
from .constants import follows
from .engine_shape import EngineShape
from .gpus import HOPPER
from .layout import is_fp8, is_packed
from .weights import Stage, indexer_layers, share, stages

FP8_DS_MLA = 656
"""Bytes of one token and layer in the packed sparse layout: 512 fp8 values, 16 of scales, 64 bf16 values with position."""
SCALE_BLOCK, SCALE_BYTES = 128, 4
"""The indexer keeps an fp32 scale for each 128 fp8 values."""
BF16, FP32 = 2, 4
BLOCK, MLA_BLOCK, BLACKWELL_MLA_BLOCK = 16, 64, 32
SIMILAR = 1.5
"""Kinds of layers whose counts differ by less than this factor are padded to one size (vllm: _get_kv_cache_groups_uniform_page_size)."""


class KvPlan(NamedTuple):
    """How an engine lays out its KV cache. All sizes in bytes and on one GPU.

    `token_bytes` and `block_bytes` are by pipeline stage: what a token more costs, and what a block costs. Layers share block tables in
    `full_groups` groups that grow with the sequence, `window_groups` that hold `window` tokens and the `in_flight` ones in blocks of
    `window_block` tokens, `state_groups` that hold `states` blocks of a sequence, and `rings` that hold one. A block holds `block_size` x
    `shards` tokens, because decode context parallelism deals tokens out to `shards` GPUs.
    """

    block_size: int
    token_bytes: tuple[int, ...]
    block_bytes: tuple[int, ...]
    full_groups: int = 1
    window_groups: int = 0
    window: int = 0
    window_block: int = 0
    in_flight: int = 0
    state_groups: int = 0
    states: int = 1
    rings: int = 0
    shards: int = 1
    printed_by_concurrency: bool = False

    @property
    def hybrid(self) -> bool:
        """Whether some layers hold a window or a state only."""
        return self.window_groups + self.state_groups > 0

    @property
    def printed_block(self) -> int:
        """The tokens of a block that vLLM counts with: the fewest of any kind."""
        return min(self.block_size, self.window_block or self.block_size)

    def blocks_of(self, tokens: int) -> int:
        """Blocks that a request of so many tokens takes, as vLLM admits it."""
        blocks = self.full_groups * math.ceil(math.ceil(tokens / self.shards) / self.block_size) + self.state_groups * self.states + self.rings
        if self.window_groups:
            held = min(self.window - 1 + self.in_flight, tokens)
            blocks += self.window_groups * (math.ceil(held / self.window_block) + 1)
        return max(1, blocks)

    def tokens_of(self, blocks: int, model_len: int) -> int:
        """Tokens of a pool of so many blocks, as vLLM prints them.

        For models with windows or states that is no capacity but, by version, blocks shared out evenly or concurrency x the longest sequence.
        """
        if not self.hybrid:
            return blocks * self.block_size * self.shards
        if self.printed_by_concurrency:
            return blocks * model_len // self.blocks_of(model_len)
        return blocks // (self.full_groups + self.window_groups + self.state_groups) * self.printed_block

    def longest(self, blocks: int, limit: int) -> int:
        """Tokens of the longest request that a pool of so many blocks admits, at most `limit`; one block stays vLLM's own."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.blocks_of(middle) < blocks else (low, middle - 1)
        return low


def kv_plan(shape: EngineShape) -> KvPlan:
    """The layout of an engine's KV cache."""
    cut, facts = stages(shape), shape.facts
    size, per_layer = block_size(shape), layer_bytes(shape)
    windows = facts.sliding_window.layers if facts.sliding_window and _hybrid_manager(shape) else 0
    states = facts.linear_attention.layers if facts.linear_attention else 0
    if not windows + states:
        sums = [_grown(shape, s) for s in cut]
        shards = shape.decode_context_parallel
        return KvPlan(size, tuple(math.ceil(b / shards) for b in sums), tuple(b * size for b in sums), shards=shards)
    drafts = facts.mtp_layers if shape.speculative and states else 0
    drafts += math.ceil(draft_token_bytes(shape) / per_layer)
    full = facts.layers - windows - states + drafts
    page, full_block, window_block = _pages(shape, size, per_layer, windowed=windows > 0)
    kinds = [n for n in (full, windows, states) if n]
    group = max(kinds) if max(kinds) < min(kinds) * SIMILAR else min(kinds)
    batches = shape.pipeline_parallel + 1 if follows("inFlightOfAllBatches", shape.engine_version) else 1
    return KvPlan(
        full_block,
        tuple(math.ceil(share(full, facts, s) * (per_layer + _pooled_index(shape))) for s in cut),
        tuple(share(group, facts, s) * page for s in cut),
        math.ceil(full / group),
        math.ceil(windows / group),
        facts.sliding_window.size if facts.sliding_window else 0,
        window_block,
        batches * shape.batched_tokens,
        math.ceil(states / group),
        _states(shape) + shape.draft_tokens,
        1 if facts.indexer and facts.indexer.pool > 1 else 0,
        printed_by_concurrency=follows("printedTokensFromConcurrency", shape.engine_version),
    )


def _grown(shape: EngineShape, stage: Stage) -> int:
    """Bytes of a token on a stage whose layers all grow; layers with a window may have heads of their own."""
    window, layers = shape.facts.sliding_window, stage.layers + stage.mtp
    others = share(window.layers, shape.facts, stage) if window else 0
    size = (layers - others) * layer_bytes(shape) + others * window_bytes(shape)
    return size + indexer_layers(shape.facts, stage) * indexer_bytes(shape) + (draft_token_bytes(shape) if stage.is_last else 0)


def draft_token_bytes(shape: EngineShape) -> int:
    """Bytes of a token in the layers of a draft model on one GPU; EAGLE has one layer."""
    if not shape.draft_gb:
        return 0
    if shape.draft_facts is None:
        return layer_bytes(shape)
    return shape.draft_facts.layers * layer_bytes(replace(shape, facts=shape.draft_facts, draft_gb=0, pipeline_parallel=1))


def _pages(shape: EngineShape, size: int, per_layer: int, *, windowed: bool) -> tuple[int, int, int]:
    """Bytes of one layer's block, and tokens of a block of full layers and of layers with a window.

    All blocks have one size: the kind of smaller tokens holds more of them (vllm: unify_kv_cache_spec_page_size), and where some layers keep a
    state, blocks are made large enough for it (vllm: update_block_size_for_backend).
    """
    if shape.facts.linear_attention is not None:
        tokens = math.ceil(state_bytes(shape) / (per_layer * size)) * size
        return math.ceil(tokens * (per_layer + _pooled_index(shape))), tokens, tokens
    if not windowed:
        return size * per_layer, size, size
    in_window = window_bytes(shape)
    page = size * max(per_layer, in_window)
    return page, page // per_layer, page // in_window


def _states(shape: EngineShape) -> int:
    """States of a sequence besides those of draft tokens.

    One; two where prefixes are cached (vllm: MambaSpec, mode align), by default from v0.26 on; one more for a checkpoint of prefill with FlashKDA
    (vllm: kda_checkpoint.py).
    """
    family = family_of(shape.facts.architecture)
    delta = family is not None and family.linear == "kda"
    kept = 2 if delta or follows("prefixesOfHybrids", shape.engine_version) else 1
    return kept + (delta and shape.on.capability >= HOPPER and follows("deltaAttentionCheckpoints", shape.engine_version))


def _pooled_index(shape: EngineShape) -> float:
    """Bytes of a token's share of an index key that lies beside the latent of its layer, in a model with states."""
    indexer = shape.facts.indexer
    return indexer_bytes(shape) / indexer.pool if indexer and shape.facts.linear_attention else 0


def window_bytes(shape: EngineShape) -> int:
    """Bytes of one token in one layer with a window on one GPU."""
    window = shape.facts.sliding_window
    if window is None or window.head_dim is None:
        return layer_bytes(shape)
    heads = window.kv_heads or shape.facts.kv_heads
    return 2 * max(1, heads // shape.tensor_parallel) * window.head_dim * (1 if is_fp8(shape) else BF16)


def state_bytes(shape: EngineShape) -> int:
    """Bytes of one sequence's state in one linear layer on one GPU (vllm: mamba_utils.gated_delta_net_state_shape).

    The convolution keeps bf16 inputs of its kernel and of draft tokens, the recurrence fp32 matrices.
    """
    linear = shape.facts.linear_attention
    if linear is None:
        return 0
    inputs = 2 * linear.key_heads * linear.key_head_dim + linear.value_heads * linear.value_head_dim
    convolution = inputs * (linear.kernel - 1 + shape.draft_tokens) * BF16
    return (convolution + linear.value_heads * linear.value_head_dim * linear.key_head_dim * FP32) // shape.tensor_parallel


def layer_bytes(shape: EngineShape) -> int:
    """Bytes of one token in one layer on one GPU: heads are split over tensor-parallel GPUs down to one, MLA's latent is on each whole."""
    facts, width = shape.facts, 1 if is_fp8(shape) else BF16
    if facts.mla is None:
        return 2 * max(1, facts.kv_heads // shape.tensor_parallel) * facts.head_dim * width
    if is_packed(shape):
        return FP8_DS_MLA
    return (facts.mla.kv_lora_rank + facts.mla.qk_rope_head_dim) * width


def indexer_bytes(shape: EngineShape) -> int:
    """Bytes of one token's index key in one layer: fp8 with scales beside a latent, bf16 beside KV heads, whatever the KV dtype."""
    if shape.facts.indexer is None:
        return 0
    size = shape.facts.indexer.head_dim
    if shape.facts.mla is None:
        return size * BF16
    return size + size // SCALE_BLOCK * SCALE_BYTES


def block_size(shape: EngineShape) -> int:
    """Tokens of a block: what was asked for, else what the kernel of this kind of attention wants."""
    if shape.block_size is not None:
        return shape.block_size
    if shape.facts.mla is None:
        return shape.facts.block_size or BLOCK
    if shape.facts.indexer is None and follows("denseMlaSmallBlocks", shape.engine_version):
        return BLACKWELL_MLA_BLOCK if shape.on_blackwell else MLA_BLOCK if is_fp8(shape) else BLOCK
    return shape.facts.block_size or MLA_BLOCK


def _hybrid_manager(shape: EngineShape) -> bool:
    """Whether windows save memory: not where a KV connector turns the hybrid cache manager off, so all layers grow."""
    return not shape.nixl or follows("hybridWithNixl", shape.engine_version)
