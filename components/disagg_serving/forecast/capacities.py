"""What each role of a layout can hold, as rules, plan, command line and stack output show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import Finding, SpecError
from ..planning.shapes import Group, Layout, block_size_of
from .fit import Calibration, Capacity, EngineShape, capacity

KIND = {"server": "aggregated"}


def shape_of(group: Group) -> EngineShape:
    """What the memory of one engine of a group depends on. Raises SpecError for numbers that no engine has."""
    served, role, model = group.served, group.spec, group.served.spec
    measured = role.calibration
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
        block_size=block_size_of(group),
        max_num_batched_tokens=role.max_num_batched_tokens,
        max_num_seqs=role.max_num_seqs,
        speculative=model.speculative is not None,
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


def capacities(layout: Layout) -> list[dict[str, Any]]:
    """An entry a role with the keys of `plan --format json`; roles whose memory is not known are left out."""
    found = ((g, capacity_of(g)) for g in layout.groups)
    return [entry(g.served.spec.name, KIND.get(g.role, g.role), c) | g.owner | _at_workload(g, c) for g, c in found if c is not None]


def _at_workload(group: Group, result: Capacity) -> dict[str, Any]:
    """Requests of the workload's mean length, prompt and answer, that one engine holds; nothing without a workload."""
    work = group.served.spec.workload
    return {"workloadConcurrency": result.concurrency_at(work.input_tokens + work.output_tokens).as_dict()} if work else {}


def entry(model: str, role: str, result: Capacity) -> dict[str, Any]:
    """One capacity entry: GiB a GPU, bytes a token and GPU, tokens and requests of one engine with all its ranks, with error bars."""
    return {
        "model": model,
        "role": role,
        "perGpu": {
            "budgetGiB": round(result.budget_gib, 2),
            "weightsGiB": result.weights_gib.as_dict(),
            "overheadGiB": result.overhead_gib.as_dict(),
            "kvGiB": result.kv_gib.as_dict(),
        },
        "kvBytesPerTokenPerGpu": result.kv_bytes_per_token_per_gpu,
        "kvTokens": result.engine_tokens.as_dict(),
        "maxConcurrency": result.engine_concurrency.as_dict(),
        "fits": str(result.fits),
        "longestRequest": result.longest_fitting,
    }


def engine_of(entry: Mapping[str, Any]) -> str:
    """What an entry about a role is called: model, generation where there is one, and role."""
    return " ".join(entry[key] for key in ("model", "generation", "role") if key in entry)
