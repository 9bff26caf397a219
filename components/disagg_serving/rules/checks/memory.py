"""Rules about GPU memory: do weights, overhead and KV cache fit, and how long may a request be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...corrections import Correction
from ...errors import Level
from ...forecast.capacities import capacity_of, unknown_memory
from ...forecast.fit import Bars, Capacity, Fit
from ...phrases import join, say, say_key
from ...planning.shapes import Group, Served
from ..alternatives import field_of, in_roles, in_sides, other_engines
from ..documents import AWS_SAMPLES, VLLM
from ..registry import Fault, Stage, Subject, remove, rule, use

MOST_UTILIZATION, LEAST_FREE_GIB = 0.93, 4
BLOCK = 128
SHORTEST = 8192
"""Tokens below which a shorter context is no answer to somebody who asked for more."""
MARGINS = (0.92, 0.9, 0.85)
UNKNOWN = "use what can be calculated, or nothing can say what fits"
NOTHING = "no setting and no engine of the catalogue was found that holds it and passes all checks, so use a smaller model"
BATCHES, SHARES = (8192, 4096, 2048), (0.9, 0.92)
"""What a step and a share of memory may be set to where the given one is why a model does not fit."""
MODEL_FIELDS = {"kvCacheDtype", "maxModelLen", "blockSize"}
ENTRIES = {"engineVersion": "engine"} | dict.fromkeys(("architecture", "mla", "indexer", "slidingWindow", "linearAttention"), "model")
"""Where the stack file names what a finding about an engine's shape is about."""
PLANNING = "docs/forecast.md: `make accuracy` holds it against public start-up logs"


@rule("memory-unknown", Level.ERROR, Stage.LAYOUT, PLANNING, judges="memory")
def memory_unknown(s: Subject) -> Iterator[Fault]:
    """The memory of every role can be calculated, so that no forecast is left out of the plan in silence."""
    reported: set[tuple[str, str]] = set()
    for group in s.layout.groups if s.layout else ():
        for found in unknown_memory(group):
            key = ENTRIES.get(found.path, found.path)
            of_model = key in MODEL_FIELDS or found.path in ENTRIES
            path = f"{group.served.path if of_model else group.path}.{key}"
            if (path, found.message) not in reported:
                reported.add((path, found.message))
                given = of_model and key in MODEL_FIELDS
                # who wrote a catalogue entry by hand answers for its model
                own = found.path == "architecture" and s.catalog.models.is_added(group.served.facts.id)
                level = Level.WARNING if own else None
                ways = [remove(path)] if given else []
                yield Fault(path, found.message, found.value, found.allowed, level=level, ways=ways, otherwise=found.fix or UNKNOWN)


@rule("memory-fit", Level.ERROR, Stage.LAYOUT, PLANNING, reads=("maxNumBatchedTokens",), judges="memory")
def memory_fit(s: Subject) -> Iterator[Fault]:
    """Weights and overhead leave room for KV cache: an error when even the optimistic estimate leaves none, a warning when the pessimistic does."""
    for group, found in _calculated(s):
        if found.kv_gib.low > 0:
            continue
        path, kind, asked = f"{group.path}.tensorParallel", group.spec.instance_type, group.spec.tensor_parallel
        numbers = f"{_bars(found.weights_gib)} of weights and {_bars(found.overhead_gib)} of overhead in a budget of {found.budget_gib:.1f} GiB a GPU"
        allowed = f"an engine that keeps less than {found.budget_gib:.1f} GiB a GPU besides its KV cache"
        ways = [*_settings(group), *other_engines(s, group.served, group.role)]
        if found.kv_gib.high <= 0:
            yield Fault(path, f"does not fit {kind}: {numbers}", asked, allowed, ways=ways, otherwise=NOTHING)
        else:
            advice = "set calibration from the log of a start"
            yield Fault(path, f"may not fit {kind}: {numbers}", asked, allowed, advice, Level.WARNING, ways)


@rule(
    "context-fit",
    Level.ERROR,
    Stage.LAYOUT,
    f"{VLLM}vllm/v1/core/kv_cache_utils.py",
    reads=("maxNumBatchedTokens",),
    judges="memory",
)
def context_fit(s: Subject) -> Iterator[Fault]:
    """One request of the longest length fits the KV cache of each role."""
    for group, found in _calculated(s):
        if found.kv_gib.high <= 0 or found.fits is Fit.FITS:
            continue
        longest, path = group.served.max_model_len, f"{group.served.path}.maxModelLen"
        sure, likely = (n // BLOCK * BLOCK for n in (found.surely_fitting, found.longest_fitting))
        where = f"of {group.role} holds{' in a data-parallel rank' if found.ranks > 1 else ''}"
        low, high = (f"{n:,.0f}" for n in (found.kv_tokens.low, found.kv_tokens.high))
        tokens = f"{low if low == high else f'{low} to {high}'} tokens at {found.kv_bytes_per_token_per_gpu:,} bytes a GPU"
        allowed = f"surely at most {sure:,}, likely {likely:,}" if sure else f"likely at most {likely:,}" if likely else "another engine"
        allowed = f"at most {sure:,}" if sure == likely > 0 else allowed
        dtype = f"{group.served.path}.kvCacheDtype"
        ways = [
            _shorter(group.served, list(s.layout.groups) if s.layout else []),
            use(dtype, "fp8") if group.served.spec.kv_cache_dtype == "auto" else [],
            *_settings(group),
            *other_engines(s, group.served, group.role),
        ]
        if found.fits is Fit.NO:
            message = f"is more than the KV cache {where}: {tokens}"
            yield Fault(path, message, longest, allowed, ways=ways, otherwise=NOTHING)
        elif found.kv_gib.low > 0:
            message = f"may be more than the KV cache {where}: {tokens}"
            yield Fault(path, message, longest, allowed, "set calibration from the log of a start", Level.WARNING, ways)


@rule(
    "memory-margin",
    Level.WARNING,
    Stage.FORM,
    f"{AWS_SAMPLES}k8s-manifest/lws/lws-kimi-k3-tp8pp2-p5en.yaml (0.97 failed under load)",
    judges="engine",
)
def memory_margin(s: Subject) -> Iterator[Fault]:
    """Some memory stays free beside what vLLM counts on: its profile is one run without traffic."""
    for served, name, role, path in s.roles():
        share = role.gpu_memory_utilization or served.spec.gpu_memory_utilization
        free = (1 - share) * served.instances[name].gpu.memory_gib_torch
        large = served.facts.moe is not None or role.pipeline_parallel > 1
        if (share > MOST_UTILIZATION and large) or free < LEAST_FREE_GIB:
            place = f"{path}.gpuMemoryUtilization" if role.gpu_memory_utilization else f"{served.path}.gpuMemoryUtilization"
            message = f"leaves {free:.2f} GiB a GPU free, which traffic may need"
            yield Fault(place, message, share, f"at most {MOST_UTILIZATION} and {LEAST_FREE_GIB} GiB free", ways=[use(place, *MARGINS)])


@rule("latent-copies", Level.WARNING, Stage.LAYOUT, f"{VLLM}docs/serving/context_parallel_deployment.md")
def latent_copies(s: Subject) -> Iterator[Fault]:
    """With multi-head latent attention, tensor parallelism does not make KV cache: each GPU keeps a copy; ranks and stages share it out."""
    for group, found in _calculated(s):
        tp, path = group.spec.tensor_parallel, f"{group.path}.tensorParallel"
        if group.served.facts.mla is None or tp == 1 or found.kv_gib.mid <= 0:
            continue
        message = f"keeps {tp} copies of each token's latent: {found.engine_tokens.mid:,.0f} tokens an engine"
        better = max(_shared_out(group, found), key=lambda way: way[0], default=None)
        if better is None:
            yield Fault(path, message, tp, "", "", Level.INFO)
        else:
            tokens, cut = better
            ways = in_sides(group.served, group.role, cut)
            *first, last = (say_key(key) if value is True else say("{} {}", say_key(key), value) for key, value in cut.items())
            better_cut = say("with {} and {} the same GPUs hold {:,.0f}", join(", ", first), last, tokens)
            advice = "keep it where time per token matters more than room"
            yield Fault(path, say("{}; {}", message, better_cut), tp, "fewer copies", advice, ways=[ways])


def _shared_out(group: Group, now: Capacity) -> Iterator[tuple[float, dict[str, Any]]]:
    """The same GPUs with fewer copies, as data-parallel ranks or two stages, if that is sure to hold the longest request, with its tokens."""
    role = group.spec
    if role.pipeline_parallel > 1:
        return
    sizes = [n for n in (1, 2, 4, 8) if n < role.tensor_parallel and role.tensor_parallel % n == 0]
    cuts: list[dict[str, Any]] = [
        {"tensorParallel": n, "dataParallel": role.tensor_parallel // n * role.data_parallel, "expertParallel": True} for n in sizes
    ]
    if group.role == "server" and role.data_parallel == 1:
        cuts.append({"tensorParallel": role.tensor_parallel // 2, "pipelineParallel": 2})
    for cut in cuts:
        found = capacity_of(replace(group, spec=role.model_copy(update={field_of(k): v for k, v in cut.items()} | {"calibration": None})))
        if found is not None and found.fits is Fit.FITS and found.engine_tokens.mid > now.engine_tokens.mid:
            yield found.engine_tokens.mid, cut


def _calculated(s: Subject) -> Iterator[tuple[Group, Capacity]]:
    for group in s.layout.groups if s.layout else ():
        found = capacity_of(group)
        if found is not None:
            yield group, found


def _settings(group: Group) -> list[list[Correction]]:
    """Fields that alone may be why the model does not fit, with other values."""
    role, served = group.spec, group.served
    batches = [n for n in BATCHES if role.max_num_batched_tokens and n < role.max_num_batched_tokens]
    own = role.gpu_memory_utilization
    shares = [n for n in SHARES if n > (own or served.spec.gpu_memory_utilization)]
    by_share = in_roles(served, group.role, "gpuMemoryUtilization", shares) if own else use(f"{served.path}.gpuMemoryUtilization", *shares)
    return [in_roles(served, group.role, "maxNumBatchedTokens", batches), by_share]


def _shorter(served: Served, groups: list[Group]) -> list[Correction]:
    """The longest request that every role surely holds, where it is of use: longer than those of the workload, or than a short context."""
    found = [capacity_of(g) for g in groups if g.served.path == served.path]
    sure = min((c.surely_fitting if c else 0) for c in found) // BLOCK * BLOCK
    work = served.spec.workload
    least = work.input_tokens + work.output_tokens if work else min(SHORTEST, served.max_model_len // 2)
    return use(f"{served.path}.maxModelLen", sure) if sure >= max(BLOCK, least) else []


def _bars(bars: Bars) -> str:
    return f"{bars.low:.1f} to {bars.high:.1f} GiB"
