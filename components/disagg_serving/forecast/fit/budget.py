"""The memory that an engine may use, and what it keeps of it besides weights and KV cache. GiB a GPU."""

from __future__ import annotations

from ...document.capacity import Bars
from .constants import NOTHING, constant, exactly
from .engine_shape import GIB, EngineShape
from .weights import Stage

BF16 = 2
FEW_GPUS = 4
HIDDEN_BUFFERS = 3
"""Hidden states of a step that live at the same time: residual, input and output of a layer."""


def budget_gib(shape: EngineShape) -> float:
    """What torch sees times the share that the engine may use (vllm: request_memory)."""
    return shape.gpu_memory_gib * shape.gpu_memory_utilization


def overhead_parts(shape: EngineShape, stage: Stage) -> dict[str, Bars]:
    """The parts of the overhead of one GPU of a stage, by name."""
    version = shape.engine_version
    parts: dict[str, Bars] = {}
    if shape.deep_ep:
        parts["wide expert parallelism"] = constant("wideExpertsGiB", version)
    else:
        parts["activation"] = activation(shape, stage)
        parts["outside of torch"] = constant(_non_torch(shape), version)
        parts["CUDA graphs"] = constant("cudaGraphsGiB", version)
        if shape.facts.moe and shape.tensor_parallel * shape.pipeline_parallel * shape.data_parallel > 1:
            parts["experts over several GPUs"] = constant("moeGiB", version)
    if shape.nixl:
        parts["NIXL"] = constant("nixlGiB", version)
    return parts


def overhead(shape: EngineShape, stage: Stage) -> Bars:
    """All overhead of one GPU of a stage; low and high are at least as far from mid as its error bar."""
    total = sum(overhead_parts(shape, stage).values(), NOTHING)
    bar = constant(_bar(shape), shape.engine_version)
    return Bars(max(0.0, min(total.low, total.mid + bar.low)), total.mid, max(total.high, total.mid + bar.high))


def activation(shape: EngineShape, stage: Stage) -> Bars:
    """Peak of the dummy run at `max_num_batched_tokens`: the widest layer, or on the last stage the sampler over the whole vocabulary.

    The vocabulary's logits of all sequence slots are the larger for most models, which is why the peak hardly depends on the layers.
    """
    forward = constant("forwardGiB", shape.engine_version) + exactly(_layer_bytes(shape) / GIB)
    if not stage.is_last:
        return forward
    hidden = shape.batched_tokens * shape.facts.hidden_size * BF16 / GIB
    slots = constant("samplerBytes", shape.engine_version).times(shape.sequence_slots * shape.facts.vocab_size / GIB)
    sampler = slots + exactly(hidden)
    return Bars(max(forward.low, sampler.low), max(forward.mid, sampler.mid), max(forward.high, sampler.high))


def _layer_bytes(shape: EngineShape) -> float:
    """Bytes of the tensors of the widest layer for one step: gate and up with their product, or what experts get and give."""
    facts, h, tp = shape.facts, shape.facts.hidden_size, shape.tensor_parallel
    wide = 3 * facts.intermediate_size / tp if facts.moe is None or facts.moe.dense_layers else 0.0
    tokens = shape.batched_tokens
    if facts.moe is not None:
        inner = facts.moe.intermediate_size / (1 if shape.expert_parallel else shape.expert_ranks)
        routed = facts.moe.experts_per_token * (max(2 * inner, h) + inner)
        # each data-parallel rank computes its experts for the tokens of all
        wide = max(wide, routed * shape.data_parallel)
    attention = 2.0 * (facts.attention_heads + facts.kv_heads) * facts.head_dim / tp * tokens
    if facts.mla is not None:
        context = constant("mlaWorkspaceTokens", shape.engine_version).mid
        attention += context * facts.attention_heads / tp * (facts.mla.qk_nope_head_dim + facts.mla.v_head_dim)
    return (max(wide * tokens, attention) + HIDDEN_BUFFERS * h * tokens) * BF16


def _non_torch(shape: EngineShape) -> str:
    if shape.tensor_parallel > 1 or (shape.facts.moe and shape.data_parallel > 1):
        return "nonTorchTensorParallel"
    return "nonTorchPipeline" if shape.pipeline_parallel > 1 else "nonTorchOneGpu"


def _bar(shape: EngineShape) -> str:
    if shape.wide_experts:
        return "barWideExperts"
    if shape.nodes > 1 or shape.nixl:
        return "barManyNodes"
    if shape.facts.moe:
        return "barExperts"
    return "barDense" if shape.tensor_parallel <= FEW_GPUS else "barDenseManyGpus"
