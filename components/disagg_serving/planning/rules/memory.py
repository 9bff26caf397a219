"""Rules about GPU memory: do weights, overhead and KV cache fit, and how long may a request be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...errors import Level, SpecError
from ..fit import Bars, Capacity, EngineShape, Fit, capacity
from ..report import capacity_of, shape_of
from ..shapes import Group
from .registry import Fault, Stage, Subject, rule

MOST_UTILIZATION, LEAST_FREE_GIB = 0.93, 4
BLOCK = 128
PLANNING = "disagg-serving: planning/fit, checked on public start-up logs (make accuracy)"


@rule("memory-fit", Level.ERROR, Stage.LAYOUT, PLANNING)
def memory_fit(s: Subject) -> Iterator[Fault]:
    """Weights and overhead leave room for KV cache: an error when even the optimistic estimate leaves none, a warning when the pessimistic does."""
    for group, found in _calculated(s):
        if found.kv_gib.low > 0:
            continue
        path, allowed = f"{group.path}.tensorParallel", _alternatives(s, group)
        numbers = f"{_bars(found.weights_gib)} of weights and {_bars(found.overhead_gib)} of overhead in a budget of {found.budget_gib:.1f} GiB a GPU"
        listed = "; ".join(allowed) or "nothing in the catalogue"
        if found.kv_gib.high <= 0:
            fix = f"use {allowed[0]}" if allowed else "use more GPUs an engine or a smaller model"
            yield Fault(path, f"does not fit {group.spec.instance_type}: {numbers}", group.spec.tensor_parallel, listed, fix)
        else:
            fix = "set calibration from the log of a start, or use more GPUs an engine"
            yield Fault(path, f"may not fit {group.spec.instance_type}: {numbers}", group.spec.tensor_parallel, listed, fix, Level.WARNING)


@rule("context-fit", Level.ERROR, Stage.LAYOUT, "vLLM: refuses to start when one request of maxModelLen does not fit the KV cache")
def context_fit(s: Subject) -> Iterator[Fault]:
    """One request of the longest length fits the KV cache of each role."""
    for group, found in _calculated(s):
        if found.kv_gib.high <= 0 or found.fits is Fit.FITS:
            continue
        longest, path = group.served.max_model_len, f"{group.served.path}.maxModelLen"
        sure, likely = (n // BLOCK * BLOCK for n in (found.surely_fitting, found.longest_fitting))
        tokens = f"{found.kv_tokens.low:,.0f} to {found.kv_tokens.high:,.0f} tokens at {found.kv_bytes_per_token_per_gpu:,} bytes a GPU"
        allowed = f"at most {likely:,}, surely {sure:,}" if sure else f"at most {likely:,}" if likely else "; ".join(_alternatives(s, group))
        if found.fits is Fit.NO:
            message = f"is more than the KV cache of {group.role} holds: {tokens}"
            yield Fault(path, message, longest, allowed, _shorter(s, group, sure or likely))
        elif found.kv_gib.low > 0:
            message = f"may be more than the KV cache of {group.role} holds: {tokens}"
            yield Fault(path, message, longest, allowed, _shorter(s, group, sure or likely), Level.WARNING)


@rule("memory-margin", Level.WARNING, Stage.FORM, "public runs: start-up passed at 0.97 and four requests ran out of memory")
def memory_margin(s: Subject) -> Iterator[Fault]:
    """Some memory stays free beside what vLLM counts on: its profile is one run without traffic."""
    for served, name, role, path in s.roles():
        share = role.gpu_memory_utilization or served.spec.gpu_memory_utilization
        free = (1 - share) * served.instances[name].gpu.memory_gib_torch
        large = served.facts.moe is not None or role.pipeline_parallel > 1
        if (share > MOST_UTILIZATION and large) or free < LEAST_FREE_GIB:
            place = f"{path}.gpuMemoryUtilization" if role.gpu_memory_utilization else f"{served.path}.gpuMemoryUtilization"
            message = f"leaves {free:.1f} GiB a GPU free, which traffic may need"
            yield Fault(place, message, share, f"at most {MOST_UTILIZATION} and {LEAST_FREE_GIB} GiB free", "lower it to 0.92")


@rule("latent-copies", Level.INFO, Stage.LAYOUT, "vLLM: tensor parallelism keeps the whole latent on each GPU")
def latent_copies(s: Subject) -> Iterator[Fault]:
    """With multi-head latent attention, tensor parallelism does not make KV cache: each GPU keeps a copy, pipeline stages share it."""
    for group, found in _calculated(s):
        tp = group.spec.tensor_parallel
        if group.served.facts.mla is not None and tp > 1 and found.kv_gib.mid > 0:
            message = f"keeps {tp} copies of each token's latent: {found.kv_tokens.mid:,.0f} tokens an engine"
            yield Fault(f"{group.path}.tensorParallel", message, tp, "", "pipeline stages (server) or data parallelism with experts hold more")


def _calculated(s: Subject) -> Iterator[tuple[Group, Capacity]]:
    for group in s.layout.groups if s.layout else ():
        found = capacity_of(group)
        if found is not None:
            yield group, found


def _alternatives(s: Subject, group: Group) -> list[str]:
    """Engines that hold the model even in the pessimistic case: on the same instance type first, then by price."""
    found: dict[str, tuple[bool, float, str]] = {}
    heads, kv = group.served.facts.attention_heads, group.served.facts.kv_heads
    sizes = [n for n in (1, 2, 4, 8, 16) if heads % n == 0 and (group.served.facts.mla is not None or kv % n == 0 or n % kv == 0)]
    for name in s.catalog.instances:
        instance = s.catalog.instances[name]
        gpus = instance.gpu.count
        if group.role != "server" and not instance.gpu_direct_rdma:
            continue
        price = instance.on_demand or instance.capacity_block
        for tp, pp in [(n, 1) for n in sizes if gpus % n == 0 or n % gpus == 0] + ([(gpus, 2)] if group.role == "server" and gpus in sizes else []):
            shape = replace(
                shape_of(group), calibration=None, gpu_memory_gib=instance.gpu.memory_gib_torch, tensor_parallel=tp, pipeline_parallel=pp,
                nodes=max(1, tp * pp // gpus),
            )  # fmt: skip
            if name not in found and _holds(shape):
                stages = f" with pipelineParallel {pp}" if pp > 1 else ""
                cost = (price.usd_per_hour if price else 1000.0) * tp * pp / gpus
                found[name] = (name != group.spec.instance_type, cost, f"tensorParallel {tp}{stages} on {name}")
    return [text for _, _, text in sorted(found.values())]


def _holds(shape: EngineShape) -> bool:
    try:
        return capacity(shape).fits is Fit.FITS
    except SpecError:
        return False


def _shorter(s: Subject, group: Group, tokens: int) -> str:
    ways = [f"set maxModelLen: {tokens}"] if tokens else []
    if group.served.spec.kv_cache_dtype == "auto" and _holds(replace(shape_of(group), kv_cache_dtype="fp8")):
        ways.append("set kvCacheDtype: fp8")
    larger = _alternatives(s, group)
    return ", or ".join([*ways, *([f"use {larger[0]}"] if larger else [])]) or "use more GPUs an engine or a smaller model"


def _bars(bars: Bars) -> str:
    return f"{bars.low:.1f} to {bars.high:.1f} GiB"
