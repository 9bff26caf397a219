"""The memory that an engine may use, and what it keeps of it besides weights and KV cache. GiB a GPU."""

from __future__ import annotations

from ...document.capacity import Bars
from .activation import activation
from .constants import NOTHING, constant, follows
from .engine_shape import EngineShape
from .graphs import graphs
from .weights import Stage

FEW_GPUS = 4


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
        parts["CUDA graphs"] = graphs(shape)
    if shape.nixl:
        parts["NIXL"] = constant("nixlGiB", version)
    return parts


def overhead(shape: EngineShape, stage: Stage) -> Bars:
    """All overhead of one GPU of a stage; low and high are at least as far from mid as its error bar."""
    total = sum(overhead_parts(shape, stage).values(), NOTHING)
    bar = constant(_bar(shape), shape.engine_version)
    return Bars(max(0.0, min(total.low, total.mid + bar.low)), total.mid, max(total.high, total.mid + bar.high))


def _non_torch(shape: EngineShape) -> str:
    """The name of the constant. What captures of graphs leave behind counts, since vLLM measures after it has profiled them."""
    if shape.tensor_parallel > 1 or (shape.facts.moe and shape.data_parallel > 1):
        captured = follows("graphsProfiled", shape.engine_version) and not shape.eager
        return "nonTorchTensorParallel" if not captured else "nonTorchWithGraphs" if shape.on.multicast else "nonTorchWithoutMulticast"
    return "nonTorchPipeline" if shape.pipeline_parallel > 1 else "nonTorchOneGpu"


def _bar(shape: EngineShape) -> str:
    if shape.wide_experts:
        return "barWideExperts"
    if shape.nodes > 1 or shape.nixl:
        return "barManyNodes"
    if shape.facts.moe:
        return "barExperts"
    return "barDense" if shape.tensor_parallel <= FEW_GPUS else "barDenseManyGpus"
