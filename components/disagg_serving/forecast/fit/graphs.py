"""CUDA graphs: how many an engine captures, and what they take."""

from __future__ import annotations

from ...document.capacity import Bars
from .constants import NOTHING, constant, follows
from .engine_shape import EngineShape

MOST_TOKENS, SMALL, SMALL_STEP, LARGE_STEP = 512, 256, 8, 16
FIRST_SIZES = (1, 2, 4)


def capture_sizes(shape: EngineShape) -> tuple[int, ...]:
    """Tokens of each captured step (vllm: VllmConfig._set_cudagraph_sizes), multiples of a sequence's tokens with draft tokens."""
    each = 1 + shape.draft_tokens
    most = min(shape.sequence_slots * each * 2, MOST_TOKENS, shape.batched_tokens)
    steps = [*FIRST_SIZES, *range(SMALL_STEP, SMALL, SMALL_STEP), *range(SMALL, most + 1, LARGE_STEP)]
    return tuple(sorted({-(-size // each) * each for size in steps if size <= most}))


def captures(shape: EngineShape) -> int:
    """Graphs of an engine: pieces between attention for every size, and whole steps up to one token (with drafts) of each sequence."""
    sizes = capture_sizes(shape)
    return len(sizes) + sum(size <= shape.sequence_slots * (1 + shape.draft_tokens) for size in sizes)


def graphs(shape: EngineShape) -> Bars:
    """GiB that the budget gives to CUDA graphs: a first capture, and for each layer of each graph what its kernels take.

    vLLM estimates them so itself (GPUModelRunner.profile_cudagraph_memory): the first capture of a mode, and one more times the others.
    """
    if shape.eager or not follows("graphsInBudget", shape.engine_version):
        return NOTHING
    layers = shape.facts.layers / shape.pipeline_parallel
    return constant("graphFirstGiB", shape.engine_version) + constant("graphLayerMiB", shape.engine_version).times(layers * captures(shape) / 1024)
