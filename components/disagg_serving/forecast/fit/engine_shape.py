"""What the memory of one engine depends on, and which models can be calculated at all."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...catalog.entries import Model
from ...catalog.families import calculated, family_of
from ...errors import Finding, Level, SpecError
from ...phrases import say
from .calibration import Calibration
from .constants import batch_defaults, release
from .gpus import BLACKWELL, Gpu, gpu_of

GIB = 2**30
KV_DTYPES = ("auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla")
WIDE_RANKS = 8
"""From so many ranks on, experts over data-parallel engines count as wide EP, whose error bars and DeepEP buffers are a class of their own."""


@dataclass(frozen=True)
class EngineShape:
    """Everything that the memory of one engine depends on.

    `gpu_memory_gib` is what torch sees of one GPU (catalogue: memoryGiBTorch), `gpu` its name (of catalog/gpus.yaml; another one means that
    the memory tells), `max_model_len` the longest sequence in tokens (None: the model's context), `nodes` the nodes that one engine spans,
    `speculative` whether the model's own MTP layers draft and `draft_tokens` how many tokens ahead, `eager` whether no CUDA graphs are
    captured, `text_only` whether a vision tower is left out (--language-model-only), `whole_encoder` whether each GPU keeps all of it
    (--mm-encoder-tp-mode data), `nixl` whether the engine moves KV over NIXL,
    `all2all_backend` how whole experts exchange tokens (DeepEP keeps buffers for it), `moe_backend` the kernel of experts by its name in
    catalog/expert-kernels.yaml (empty: vLLM's choice), `kv_offload_gib` host memory of
    one data-parallel rank that KV cache overflows to, `draft_gb` the size of a draft model's files in decimal GB and `draft_facts` what the
    catalogue knows of it (None: one layer like the model's). None of `block_size`, `max_num_batched_tokens` and
    `max_num_seqs` means vLLM's default. Raises SpecError for numbers that no engine has.
    """

    facts: Model
    engine_version: str
    gpu_memory_gib: float
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    expert_parallel: bool = False
    decode_context_parallel: int = 1
    nodes: int = 1
    max_model_len: int | None = None
    gpu_memory_utilization: float = 0.9
    kv_cache_dtype: str = "auto"
    block_size: int | None = None
    max_num_batched_tokens: int | None = None
    speculative: bool = False
    nixl: bool = False
    all2all_backend: str | None = None
    calibration: Calibration | None = None
    max_num_seqs: int | None = None
    gpu: str = ""
    eager: bool = False
    draft_tokens: int = 0
    text_only: bool = False
    whole_encoder: bool = False
    moe_backend: str = ""
    kv_offload_gib: float = 0
    draft_gb: float = 0
    draft_facts: Model | None = None

    def __post_init__(self) -> None:
        """Refuse what no engine has."""
        release(self.engine_version)
        counts = {
            "tensorParallel": self.tensor_parallel,
            "pipelineParallel": self.pipeline_parallel,
            "dataParallel": self.data_parallel,
            "decodeContextParallel": self.decode_context_parallel,
            "nodes": self.nodes,
            "maxModelLen": self.max_model_len,
            "blockSize": self.block_size,
            "maxNumBatchedTokens": self.max_num_batched_tokens,
            "maxNumSeqs": self.max_num_seqs,
        }
        wrong = [_refused(name, "is too small", value, "1 and more") for name, value in counts.items() if value is not None and value < 1]
        if not (math.isfinite(self.gpu_memory_gib) and self.gpu_memory_gib > 0):
            wrong.append(_refused("gpuMemoryGiB", "is no amount of memory", self.gpu_memory_gib, "above 0"))
        if not 0 < self.gpu_memory_utilization <= 1:
            wrong.append(_refused("gpuMemoryUtilization", "is no share", self.gpu_memory_utilization, "above 0, at most 1"))
        if self.pipeline_parallel > self.facts.layers:
            wrong.append(_refused("pipelineParallel", "has stages without layers", self.pipeline_parallel, f"at most {self.facts.layers}"))
        if self.kv_cache_dtype not in KV_DTYPES or (self.kv_cache_dtype == "fp8_ds_mla" and self.facts.indexer is None):
            allowed = [d for d in KV_DTYPES if d != "fp8_ds_mla" or self.facts.indexer is not None]
            wrong.append(_refused("kvCacheDtype", "is not a KV dtype whose size is known for this model", self.kv_cache_dtype, ", ".join(allowed)))
        wrong += self._shards()
        if wrong:
            raise SpecError(wrong)

    def _shards(self) -> list[Finding]:
        """Decode context parallelism deals out what tensor parallelism would copy (vllm: ParallelConfig, get_total_num_kv_heads)."""
        tp, shards = self.tensor_parallel, self.decode_context_parallel
        copies = tp if self.facts.mla is not None else tp // self.facts.kv_heads
        if shards <= 1 or tp < 1 or (tp % shards == 0 and shards <= copies):
            return []
        message = say("is no part of the {} copies that {tensorParallel} {} makes of each KV head", max(1, copies), tp)
        fitting = [n for n in range(1, max(1, copies) + 1) if tp % n == 0]
        return [_refused("decodeContextParallel", message, shards, ", ".join(map(str, fitting)))]

    @property
    def model_len(self) -> int:
        """Longest sequence in tokens."""
        return self.max_model_len or self.facts.context_length

    @property
    def on(self) -> Gpu:
        """The GPU."""
        return gpu_of(self.gpu, self.gpu_memory_gib)

    @property
    def on_blackwell(self) -> bool:
        """Whether the GPU is of the Blackwell generation, where vLLM chooses other kernels."""
        return self.on.capability >= BLACKWELL

    @property
    def batched_tokens(self) -> int:
        """Tokens of one engine step."""
        return self.max_num_batched_tokens or batch_defaults(self.gpu_memory_gib, self.engine_version, small=self.on.small_steps)[0]

    @property
    def sequence_slots(self) -> int:
        """Sequences of one engine step."""
        return min(self.max_num_seqs or batch_defaults(self.gpu_memory_gib, self.engine_version, small=self.on.small_steps)[1], self.batched_tokens)

    @property
    def expert_ranks(self) -> int:
        """GPUs over which the routed experts are spread, whole or sliced: vLLM flattens tensor and data parallelism for them."""
        return self.tensor_parallel * self.data_parallel

    @property
    def wide_experts(self) -> bool:
        """Whether it is wide EP: whole experts over many data-parallel ranks."""
        return self.shares_experts and self.expert_ranks >= WIDE_RANKS

    @property
    def deep_ep(self) -> bool:
        """Whether wide EP keeps the buffers of DeepEP."""
        return self.wide_experts and (self.all2all_backend or "").startswith("deepep")

    @property
    def shares_experts(self) -> bool:
        """Whether data-parallel ranks share whole experts; where tensor parallelism splits them too, tokens are dealt out to its GPUs."""
        return self.facts.moe is not None and self.expert_parallel and self.data_parallel > 1


def unknown_architecture(facts: Model) -> Finding | None:
    """The finding for a model whose attention is not known, or None: its memory is then refused and never guessed.

    Known are the classes of catalog/families.yaml, each with the facts that its kind of attention needs.
    """
    name, family = facts.architecture, family_of(facts.architecture)
    if family is None or family.unknown:
        message = "is an architecture whose memory is not known here" + (f": {family.unknown}" if family else "")
        fix = "start it once, and take the role's calibration from its log with `disagg fit --log`"
        return _refused("architecture", message, name, ", ".join(calculated()), fix)
    if (family.attention == "latent") != (facts.mla is not None):
        kind = "latent attention (mla)" if family.attention == "latent" else "grouped-query attention, without mla"
        return _refused("mla", f"does not go with {name}, which has {kind}", None, "the facts of the model's config.json")
    if facts.mla is None and facts.indexer is not None and not family.block_index:
        return _refused("indexer", f"does not go with {name}, which has no sparse attention", None, "no indexer")
    if facts.sliding_window is not None and (facts.mla or facts.sliding_window.layers > facts.layers):
        return _refused("slidingWindow", f"does not go with {name} of {facts.layers} layers", facts.sliding_window.layers, "fewer layers, and no mla")
    linear = facts.linear_attention
    if linear is not None and (not family.linear or linear.layers >= facts.layers):
        return _refused("linearAttention", f"does not go with {name} of {facts.layers} layers", linear.layers, "fewer layers, of another class")
    return None


def _refused(path: str, message: str, value: object, allowed: str, fix: str = "") -> Finding:
    return Finding("engine-shape" if path != "architecture" else "unknown-architecture", Level.ERROR, path, message, value, allowed, fix)
