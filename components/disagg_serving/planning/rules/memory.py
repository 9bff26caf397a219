"""Rules about GPU memory: do weights, overhead and KV cache fit, and how long may a request be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...errors import Level, SpecError
from ...spec.serving import RoleName
from ..fit import Bars, Capacity, EngineShape, Fit, capacity
from ..layout import build_layout
from ..report import capacity_of, shape_of, unknown_memory
from ..shapes import Group, Served, build_group
from .registry import Fault, Stage, Subject, rule, rules, run_stage

MOST_UTILIZATION, LEAST_FREE_GIB = 0.93, 4
BLOCK = 128
ASKING = {"memory-fit", "context-fit"}
WHOLE_NODE = 8
"""GPUs of a node from which on engines may span several of them: smaller ones are cut out of such nodes, or lack the network."""
BATCHES, SHARES = (8192, 4096, 2048), (0.9, 0.92)
"""What a step and a share of memory may be set to where the given one is why a model does not fit."""
MODEL_FIELDS = {"kvCacheDtype", "maxModelLen", "blockSize"}
ENTRIES = {"engineVersion": "engine", "architecture": "model", "mla": "model", "indexer": "model", "slidingWindow": "model"}
"""Where the stack file names what a finding about an engine's shape is about."""
PLANNING = "disagg-serving: planning/fit, checked on public start-up logs (make accuracy)"


@rule("memory-unknown", Level.ERROR, Stage.LAYOUT, PLANNING, firm=True)
def memory_unknown(s: Subject) -> Iterator[Fault]:
    """The memory of every role can be calculated, so that no forecast is left out of the plan in silence."""
    said: set[tuple[str, str]] = set()
    for group in s.layout.groups if s.layout else ():
        for found in unknown_memory(group):
            key = ENTRIES.get(found.path, found.path)
            of_model = key in MODEL_FIELDS or found.path in ENTRIES
            path = f"{group.served.path if of_model else group.path}.{key}"
            if (path, found.message) not in said:
                said.add((path, found.message))
                yield Fault(path, found.message, found.value, found.allowed, found.fix or "use one of these, or nothing can say what fits")


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
            ways = [*_settings(s, group), *([f"use {allowed[0]}"] if allowed else [])]
            fix = ", or ".join(ways) or "use more GPUs an engine or a smaller model"
            yield Fault(path, f"does not fit {group.spec.instance_type}: {numbers}", group.spec.tensor_parallel, listed, fix)
        else:
            fix = ", or ".join([*_settings(s, group), "set calibration from the log of a start", "use more GPUs an engine"])
            yield Fault(path, f"may not fit {group.spec.instance_type}: {numbers}", group.spec.tensor_parallel, listed, fix, Level.WARNING)


@rule("context-fit", Level.ERROR, Stage.LAYOUT, "vLLM: refuses to start when one request of maxModelLen does not fit the KV cache")
def context_fit(s: Subject) -> Iterator[Fault]:
    """One request of the longest length fits the KV cache of each role."""
    for group, found in _calculated(s):
        if found.kv_gib.high <= 0 or found.fits is Fit.FITS:
            continue
        longest, path = group.served.max_model_len, f"{group.served.path}.maxModelLen"
        sure, likely = (n // BLOCK * BLOCK for n in (found.surely_fitting, found.longest_fitting))
        where = f"of {group.role} holds{' in a data-parallel rank' if found.ranks > 1 else ''}"
        tokens = f"{found.kv_tokens.low:,.0f} to {found.kv_tokens.high:,.0f} tokens at {found.kv_bytes_per_token_per_gpu:,} bytes a GPU"
        allowed = f"at most {likely:,}, surely {sure:,}" if sure else f"at most {likely:,}" if likely else "; ".join(_alternatives(s, group))
        if found.fits is Fit.NO:
            message = f"is more than the KV cache {where}: {tokens}"
            yield Fault(path, message, longest, allowed, _shorter(s, group, sure or likely))
        elif found.kv_gib.low > 0:
            message = f"may be more than the KV cache {where}: {tokens}"
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
    """With multi-head latent attention, tensor parallelism does not make KV cache: each GPU keeps a copy; ranks and stages share it out."""
    for group, found in _calculated(s):
        tp = group.spec.tensor_parallel
        if group.served.facts.mla is not None and tp > 1 and found.kv_gib.mid > 0:
            message = f"keeps {tp} copies of each token's latent: {found.engine_tokens.mid:,.0f} tokens an engine"
            yield Fault(f"{group.path}.tensorParallel", message, tp, "", _more_ranks(group, found))


def _more_ranks(group: Group, now: Capacity) -> str:
    """The same GPUs with fewer copies, as data-parallel ranks, if that is sure to hold the longest request and holds more tokens."""
    role = group.spec
    for tp in (n for n in (1, 2, 4, 8) if n < role.tensor_parallel and role.pipeline_parallel == 1 and role.tensor_parallel % n == 0):
        ranks = role.tensor_parallel // tp * role.data_parallel
        changed = {"tensor_parallel": tp, "data_parallel": ranks, "expert_parallel": True, "calibration": None}
        found = capacity_of(replace(group, spec=role.model_copy(update=changed)))
        if found is not None and found.fits is Fit.FITS and found.engine_tokens.mid > now.engine_tokens.mid:
            return f"tensorParallel {tp}, dataParallel {ranks} and expertParallel: true hold {found.engine_tokens.mid:,.0f} on the same GPUs"
    return "pipeline stages share them out" if group.role == "server" and role.pipeline_parallel == 1 else ""


def _calculated(s: Subject) -> Iterator[tuple[Group, Capacity]]:
    for group in s.layout.groups if s.layout else ():
        found = capacity_of(group)
        if found is not None:
            yield group, found


def _alternatives(s: Subject, group: Group) -> list[str]:
    """Engines that hold the model even in the pessimistic case and pass the other rules: on the same type first, then by price."""
    found: dict[str, tuple[bool, float, str]] = {}
    kept = _errors(s, group.served)
    for name in s.catalog.instances:
        instance = s.catalog.instances[name]
        gpus, price = instance.gpu.count, instance.on_demand or instance.capacity_block
        sizes = [n for n in (1, 2, 4, 8, 16) if (n <= gpus and gpus % n == 0) or (n % gpus == 0 and gpus >= WHOLE_NODE)]
        wide = gpus >= WHOLE_NODE
        stages = [(gpus, 2, 1)] if group.role == "server" and wide else []
        ranks = [(gpus, 1, 2)] if group.served.facts.moe is not None and wide else []
        inside, across = ([(n, 1, 1) for n in sizes if (n <= gpus) is whole] for whole in (True, False))
        # a layer that is cut over nodes waits for the network twice, so ranks come first
        for tp, pp, dp in [*inside, *ranks, *across, *stages]:
            changed: dict[str, object] = {"tensor_parallel": tp, "pipeline_parallel": pp, "data_parallel": dp, "instance_type": name}
            if name in found or all(getattr(group.spec, field) == value for field, value in changed.items()):
                continue
            changed |= {"calibration": None, "all2all_backend": group.spec.all2all_backend if dp > 1 else None}
            changed |= {"expert_parallel": True} if dp > 1 else {}
            moved = next((m for m in ([group.role], list(group.served.spec.roles)) if _passes(s, group, changed, m, kept)), None)
            if moved:
                cost = (price.usd_per_hour if price else 1000.0) * tp * pp * dp / gpus
                more = f" with pipelineParallel {pp}" if pp > 1 else f" with dataParallel {dp} and expertParallel" if dp > 1 else ""
                text = f"tensorParallel {tp}{more} on {name}{' in both roles' if len(moved) > 1 else ''}"
                found[name] = (name != group.spec.instance_type, cost, text)
    return [text for _, _, text in sorted(found.values())]


def _settings(s: Subject, group: Group) -> list[str]:
    """Fields of the role that alone are why the model does not fit, with a value that fits."""
    role, ways, kept = group.spec, [], _errors(s, group.served)
    batches = [n for n in BATCHES if role.max_num_batched_tokens and n < role.max_num_batched_tokens]
    share = role.gpu_memory_utilization or group.served.spec.gpu_memory_utilization
    for key, field, values in (
        ("maxNumBatchedTokens", "max_num_batched_tokens", batches),
        ("gpuMemoryUtilization", "gpu_memory_utilization", [n for n in SHARES if n > share]),
    ):
        fitting = next((n for n in values if _passes(s, group, {field: n}, [group.role], kept)), None)
        if fitting is not None:
            ways.append(f"set {group.role}.{key}: {fitting}")
    return ways


def _passes(s: Subject, group: Group, changed: dict[str, object], names: list[RoleName], known: set[tuple[str, str]]) -> bool:
    """Whether roles with other values hold the model in the pessimistic case, and break no rule beside those known to be broken."""
    spec, instances = group.served.spec, dict(group.served.instances)
    roles = {name: role.model_copy(update=changed) for name, role in spec.roles.items() if name in names}
    instances |= {name: s.catalog.instances[role.instance_type] for name, role in roles.items()}
    served = replace(group.served, spec=spec.model_copy(update={str(name): role for name, role in roles.items()}), instances=instances)
    built = [build_group(served, name, role, s.spec.network.zone, pools_made=s.spec.makes_pools) for name, role in roles.items()]
    return all(_holds(g) for g in built) and _errors(s, served) <= known


def _errors(s: Subject, served: Served) -> set[tuple[str, str]]:
    """Rules that are broken, with the places, by this model alone; rules about memory, which ask here, are left out."""
    alone = [replace(served, index=0)]
    changed = replace(s, spec=s.spec.model_copy(update={"models": [served.spec]}), served=alone, layout=None)
    broken = {(f.id, f.path) for f in run_stage(changed, Stage.FORM) if f.level is Level.ERROR}
    if any(rule_id not in s.spec.accept for rule_id, _ in broken):  # then there is nothing to lay out
        return broken
    placed = changed.with_layout(build_layout(changed.spec, alone))
    found = (f for r in rules() if r.stage is Stage.LAYOUT and r.id not in ASKING for f in r.run(placed))
    return broken | {(f.id, f.path) for f in found if f.level is Level.ERROR}


def _holds(group: Group) -> bool:
    try:
        return _fits(shape_of(group))
    except SpecError:
        return False


def _fits(shape: EngineShape) -> bool:
    return capacity(shape).fits is Fit.FITS


def _shorter(s: Subject, group: Group, tokens: int) -> str:
    ways = [f"set maxModelLen: {tokens}"] if tokens else []
    if group.served.spec.kv_cache_dtype == "auto" and _fits(replace(shape_of(group), kv_cache_dtype="fp8")):
        ways.append("set kvCacheDtype: fp8")
    larger = _alternatives(s, group)
    return ", or ".join([*ways, *_settings(s, group), *([f"use {larger[0]}"] if larger else [])]) or "use more GPUs an engine or a smaller model"


def _bars(bars: Bars) -> str:
    return f"{bars.low:.1f} to {bars.high:.1f} GiB"
