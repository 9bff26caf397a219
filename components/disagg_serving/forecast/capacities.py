"""What each role of a layout can hold, as rules, plan, command line and stack output show it."""

from __future__ import annotations

from dataclasses import replace

from ..document.capacity import EngineCapacity, PerGpu
from ..errors import Finding, SpecError
from ..planning.connector import connector_of
from ..planning.drafts import draft_of
from ..planning.extras import arguments_of
from ..planning.shapes import Group, Layout, block_size_of
from .fit import Calibration, Capacity, EngineShape, capacity

KIND = {"server": "aggregated"}
KERNELS = ("deep_gemm", "flashinfer_cutlass", "flashinfer_trtllm", "marlin", "triton")
"""Kernels of experts that may be asked for by name (vllm: KernelConfig.moe_backend) and whose memory is known."""


def shape_of(group: Group) -> EngineShape:
    """What the memory of one engine of a group depends on. Raises SpecError for numbers that no engine has."""
    served, role, model = group.served, group.spec, group.served.spec
    draft = draft_of(served)
    offload = connector_of(model, group.role).offload
    measured, flags = role.calibration, _flags([extra.value for extra in arguments_of(model, group.role)])
    return EngineShape(
        facts=served.facts,
        engine_version=served.engine.version,
        gpu_memory_gib=group.instance.gpu.memory_gib_torch,
        tensor_parallel=role.tensor_parallel,
        pipeline_parallel=role.pipeline_parallel,
        data_parallel=role.data_parallel,
        expert_parallel=role.expert_parallel,
        nodes=group.size,
        max_model_len=served.max_model_len,
        gpu_memory_utilization=role.gpu_memory_utilization or model.gpu_memory_utilization,
        kv_cache_dtype=model.kv_cache_dtype,
        block_size=block_size_of(group.served),
        max_num_batched_tokens=role.max_num_batched_tokens,
        max_num_seqs=role.max_num_seqs,
        gpu=group.instance.gpu.name,
        eager="--enforce-eager" in flags,
        kv_offload_gib=offload.host_gib if offload else _amount(flags.get("--kv-offloading-size", "")),
        text_only="--language-model-only" in flags,
        whole_encoder=flags.get("--mm-encoder-tp-mode") == "data",
        moe_backend=flags["--moe-backend"] if flags.get("--moe-backend") in KERNELS else "",
        speculative=model.speculative is not None and draft is None,
        draft_gb=(draft.checkpoint_gb or 0) if draft else 0,
        draft_facts=draft.facts if draft else None,
        draft_tokens=model.speculative.num_speculative_tokens if model.speculative else 0,
        nixl=model.disaggregated,
        all2all_backend=role.all2all_backend,
        calibration=Calibration(
            measured.weights_gib,
            measured.kv_cache_gib,
            measured.kv_cache_tokens,
            gpu_memory_utilization=measured.gpu_memory_utilization,
        )
        if measured
        else None,
    )


def _flags(arguments: list[str]) -> dict[str, str]:
    """Flags of the command line with their values."""
    return {name: value for name, _, value in (argument.partition("=") for argument in arguments)}


def _amount(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0


def capacity_of(group: Group) -> Capacity | None:
    """What one engine of a group can hold; None where `unknown_memory` says why not."""
    return _calculated(group)[0]


def unknown_memory(group: Group) -> list[Finding]:
    """Why `capacity_of` gives nothing for a group; their paths are fields of the model or the role."""
    return _calculated(group)[1]


def _calculated(group: Group) -> tuple[Capacity | None, list[Finding]]:
    if "capacity" not in group.calculated:
        try:
            group.calculated["capacity"] = capacity(shape_of(group)), []
        except SpecError as problem:
            group.calculated["capacity"] = None, list(problem.findings)
    known: tuple[Capacity | None, list[Finding]] = group.calculated["capacity"]
    return known


def capacities(layout: Layout) -> list[EngineCapacity]:
    """What one engine of each role holds; roles whose memory is not known are left out."""
    found = ((g, capacity_of(g)) for g in layout.groups)
    return [_of_group(g, c) for g, c in found if c is not None]


def _of_group(group: Group, result: Capacity) -> EngineCapacity:
    model = group.served.spec
    mean = result.concurrency_at(model.workload.input_tokens + model.workload.output_tokens) if model.workload else None
    found = engine_capacity(model.name, KIND.get(group.role, group.role), result)
    return replace(found, generation=model.generation or "", workload_concurrency=mean)


def engine_capacity(model: str, role: str, result: Capacity) -> EngineCapacity:
    """The figures of one engine with all its ranks."""
    return EngineCapacity(
        model=model,
        role=role,
        per_gpu=PerGpu(round(result.budget_gib, 2), result.weights_gib, result.overhead_gib, result.kv_gib),
        kv_bytes_per_token_per_gpu=result.kv_bytes_per_token_per_gpu,
        kv_tokens=result.engine_tokens,
        max_concurrency=result.engine_concurrency,
        fits=result.fits,
        longest_request=result.longest_fitting,
    )
