"""What the kernels of experts reserve: buffers that stay, and what one step takes beside them. Bytes of one GPU."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from ...catalog.entries import Moe
from ...catalog.loader import PACKAGE_DIR
from ...yaml_io import read_yaml
from .constants import follows, release
from .engine_shape import EngineShape

BF16, FP8 = 2, 1 + 4 / 128
CHUNK = 16_384
"""Tokens that experts took at once while vLLM cut steps for them (vllm v0.17.0: envs.VLLM_FUSED_MOE_CHUNK_SIZE)."""
GEMM_ROWS = 128
"""Rows to which DeepGEMM pads the tokens of each expert (vllm v0.33.0: deep_gemm_utils.compute_aligned_M)."""


class Reserved(NamedTuple):
    """Bytes that experts take: `kept` in the workspace that the engine shares and keeps, `step` for one step beside it."""

    kept: float = 0
    step: float = 0


def expert_kernel(shape: EngineShape) -> str:
    """The name of the kernel that an engine takes for its experts (catalog/expert-kernels.yaml)."""
    if shape.moe_backend:
        return shape.moe_backend
    at, facts = release(shape.engine_version), shape.facts
    asked = {
        "weights": facts.weight_dtype,
        "blocks": facts.weight_block is not None,
        "whole": shape.expert_parallel and shape.expert_ranks > 1,
        "oneRank": shape.data_parallel == 1,
    }
    for entry in _kernels():
        least, most = entry.get("capability", (0, 99))
        fits = all(entry[name] == value for name, value in asked.items() if name in entry)
        fits = fits and least <= shape.on.capability[0] <= most and shape.expert_ranks < entry.get("fewerGpus", 10**6)
        if fits and release(entry.get("from", "0.0")) <= at < release(entry.get("before", "9999.0")):
            return str(entry["kernel"])
    raise KeyError(f"no kernel for {facts.weight_dtype} experts")


def expert_buffers(shape: EngineShape) -> Reserved:
    """What the experts of one layer reserve; nothing for a model without.

    A data-parallel rank computes its experts for the tokens of all. Up to v0.17 larger steps came in chunks, whose whole output is kept beside;
    the modular kernel cuts them, so Marlin by itself takes all tokens at once.
    """
    moe = shape.facts.moe
    if moe is None:
        return Reserved()
    hidden, tokens = moe.hidden_size or shape.facts.hidden_size, shape.batched_tokens * shape.data_parallel
    inner = moe.intermediate_size / (1 if shape.expert_parallel else shape.expert_ranks)
    cuts = not follows("expertsTakeWholeSteps", shape.engine_version) and expert_kernel(shape) != "marlin_by_itself"
    chunk = min(tokens, CHUNK) if cuts else tokens
    kept, step = _of_kernel(shape, moe, inner, chunk)
    whole = tokens * hidden * BF16 if tokens > chunk else 0
    return Reserved(max(kept, chunk * hidden * BF16) + whole, step)


def _of_kernel(shape: EngineShape, moe: Moe, inner: float, tokens: int) -> tuple[float, float]:
    """Bytes kept and bytes of a step, by the `workspace_shapes` of vLLM's classes in fused_moe (v0.14.0 to v0.33.0).

    TritonExperts, DeepGemmExperts and MarlinExperts keep a buffer for gate and up or the output, and one for their product, which is large enough
    for the output, too. Marlin called by itself keeps neither, and its second buffer holds the product alone. FlashInfer's
    kernels keep the output alone and take the rest from torch while they run (flashinfer 0.6.8: cutlass_fused_moe_kernels.cuh,
    getWorkspaceDeviceBufferSizes, and trtllm_fused_moe_kernel_launcher.cu).
    """
    hidden, kernel, rows = moe.hidden_size or shape.facts.hidden_size, expert_kernel(shape), tokens * moe.experts_per_token
    fp8 = shape.facts.weight_dtype == "fp8"
    quantised = (rows * inner + tokens * hidden) * FP8 if fp8 else 0
    buffers = rows * (max(inner, hidden) + max(2 * inner, hidden)) * BF16
    match kernel:
        case "flashinfer_cutlass" if fp8:
            return tokens * hidden * BF16, rows * (max(inner, hidden) * (BF16 + FP8) + 2 * inner * BF16)
        case "flashinfer_cutlass":
            return tokens * hidden * BF16, buffers
        case "flashinfer_trtllm":
            return tokens * hidden * BF16, rows * (hidden * BF16 + 3 * inner * FP8) + tokens * hidden * FP8
        case "triton_mxfp4":
            return rows * inner * BF16, rows * (hidden + 2 * inner) * BF16
        case "deep_gemm":
            held = moe.experts / (shape.expert_ranks if shape.expert_parallel else 1)
            padded = rows + held * (GEMM_ROWS - 1)
            return buffers / rows * padded, padded * (hidden + inner) * FP8
        case "marlin":
            return buffers, 0
        case "marlin_by_itself":
            return 0, rows * (inner + max(2 * inner, hidden)) * BF16
        case _:
            return buffers, quantised


@cache
def _kernels() -> list[Mapping[str, Any]]:
    data: Mapping[str, Any] = read_yaml(PACKAGE_DIR / "expert-kernels.yaml")
    return list(data["kernels"])
