"""Rules about a model's roles: which there are, how they are parallel, and on what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...catalog import Model
from ...errors import Level, SpecError
from ...spec import RoleSpec
from ...spec.serving import RoleName
from ..fit import EngineShape, Fit
from ..fit.kv import block_size, layer_bytes
from ..report import capacity_of, shape_of
from ..shapes import Group, Served, build_group, fills, world_size
from .engine import names
from .parallel import engine_sizes
from .registry import Fault, Stage, Subject, rule

PROPOSED = 3
"""Alternatives that a message names at most."""
RANKS = range(1, 65)
"""Numbers of data-parallel ranks that are proposed."""


@rule("roles", Level.ERROR, Stage.FORM, "disagg-serving: prefill and decode, or server", firm=True)
def roles_complete(s: Subject) -> Iterator[Fault]:
    """A model has prefill and decode, or server alone."""
    for i, model in enumerate(s.spec.models):
        path, given = f"models[{i}]", set(model.roles)
        if not given:
            yield Fault(path, f"{model.name} has no role", None, "prefill and decode, or server", "add `server: {instanceType: p5.48xlarge}`")
        elif "server" in given and len(given) > 1:
            yield Fault(f"{path}.server", "stands beside prefill or decode", None, "prefill and decode, or server", "remove one mode")
        elif len(given) == 1 and "server" not in given:
            there = next(iter(given))
            lacking = "decode" if there == "prefill" else "prefill"
            yield Fault(
                f"{path}.{lacking}",
                f"is missing beside {there}",
                None,
                "prefill and decode, or server",
                f"add {lacking}, or rename {there} to server",
            )


@rule("tensor-parallel", Level.ERROR, Stage.FORM, "vLLM: ParallelConfig; NCCL stays inside a node where it can", firm=True)
def tensor_parallel(s: Subject) -> Iterator[Fault]:
    """An engine's GPUs divide the node evenly, or are whole nodes."""
    for served, name, role, path in s.roles():
        gpus = served.instances[name].gpu.count
        sizes = [n for n in range(1, gpus + 1) if gpus % n == 0]
        rank = role.tensor_parallel * role.pipeline_parallel
        if role.tensor_parallel <= gpus and role.tensor_parallel not in sizes:
            yield Fault(
                f"{path}.tensorParallel", f"does not divide the {gpus} GPUs of {role.instance_type}", role.tensor_parallel, _list(sizes),
                f"use {max(n for n in sizes if n <= role.tensor_parallel)}",
            )  # fmt: skip
        elif role.tensor_parallel > gpus and role.tensor_parallel % gpus:
            allowed = f"{_list(sizes)}, or a multiple of {gpus}"
            yield Fault(f"{path}.tensorParallel", f"fills no whole number of {role.instance_type} nodes", role.tensor_parallel, allowed)
        elif rank <= gpus and rank not in sizes:
            yield Fault(
                f"{path}.pipelineParallel", f"with tensorParallel {role.tensor_parallel} makes {rank} GPUs, which do not divide the node's {gpus}",
                role.pipeline_parallel, _list([n // role.tensor_parallel for n in sizes if n % role.tensor_parallel == 0]),
            )  # fmt: skip
        elif rank > gpus and rank % gpus:
            yield Fault(
                f"{path}.pipelineParallel", f"with tensorParallel {role.tensor_parallel} makes {rank} GPUs, which fill no whole number of nodes",
                role.pipeline_parallel, f"a number that makes a multiple of {gpus} GPUs",
            )  # fmt: skip
        elif not fills(gpus, rank, role.data_parallel):
            fitting = [n for n in RANKS if fills(gpus, rank, n)]
            what = f"with ranks of {rank} GPUs makes {world_size(role)}, which neither divide a node's {gpus} GPUs nor fill whole nodes"
            yield Fault(f"{path}.dataParallel", what, role.data_parallel, _list(fitting), _use(fitting, role.data_parallel))


@rule("heads", Level.ERROR, Stage.FORM, "vLLM: attention heads are split over tensorParallel; vocabulary is padded to 64")
def heads(s: Subject) -> Iterator[Fault]:
    """Tensor parallelism divides the attention heads, the KV heads (or is divided by them) and the padded vocabulary."""
    for served, name, role, path in s.roles():
        tp, facts, gpus = role.tensor_parallel, served.facts, served.instances[name].gpu.count
        for what, uneven in _uneven(facts, tp):
            if uneven:
                fitting = [n for n in range(1, 65) if not any(u for _, u in _uneven(facts, n)) and (gpus % n == 0 or n % gpus == 0)]
                yield Fault(f"{path}.tensorParallel", f"does not divide the {what} of {served.spec.model}", tp, _list(fitting), _use(fitting, tp))
        if role.pipeline_parallel > facts.layers:
            yield Fault(f"{path}.pipelineParallel", f"is more than the {facts.layers} layers", role.pipeline_parallel, f"at most {facts.layers}")
        if role.expert_parallel and facts.moe is None:
            yield Fault(f"{path}.expertParallel", f"has no effect: {served.spec.model} has no experts", True, "false", "remove it")


@rule("nixl-pipeline-parallel", Level.ERROR, Stage.FORM, "vLLM 0.23 to 0.33: NixlConnector refuses pipeline parallelism (vllm#52913)")
def nixl_pipeline_parallel(s: Subject) -> Iterator[Fault]:
    """Prefill and decode have no pipeline stages: vLLM refuses them on a NIXL decoder and does not support them on a pull producer."""
    for served, name, role, path in s.roles():
        if name != "server" and role.pipeline_parallel > 1:
            others = _without_stages(s, served, name, role)[:PROPOSED]
            ways = f"use {', or '.join(others)} in both roles, or use" if others else "use"
            fix = f"{ways} server mode for pipeline parallelism"
            yield Fault(f"{path}.pipelineParallel", "is not possible with the nixl connector", role.pipeline_parallel, "1", fix)


@rule("pd-kv-layout", Level.ERROR, Stage.LAYOUT, "vLLM 0.33: NIXL compatibility hash and handshake; attention backends by GPU (platforms/cuda.py)")
def pd_kv_layout(s: Subject) -> Iterator[Fault]:
    """Both roles keep KV in one layout: the dtype, packing and block size that vLLM chooses by GPU generation; else decode cannot read it."""
    for served in s.served:
        groups = {g.role: g for g in (s.layout.groups_of(served) if s.layout else ())}
        if not {"prefill", "decode"} <= set(groups):
            continue
        here, there = _mover(groups["prefill"], groups["decode"])
        mine, other = _whole(here), _whole(there)
        if mine is None or other is None or mine.on_blackwell == other.on_blackwell:
            continue
        path, kind, theirs = f"{here.path}.instanceType", here.spec.instance_type, there.spec.instance_type
        allowed = ", ".join(i for i in s.catalog.instances if _same_generation(s, i, theirs))
        fix = f"use one GPU generation in both roles, for example {theirs}"
        if _layout(mine) != _layout(other):
            message = f"keeps KV as {_told(mine)}, {there.role}'s {theirs} as {_told(other)}: decode cannot read it"
            yield Fault(path, message, kind, allowed, fix)
        elif not any(names(arg, "--attention-backend") for arg in served.spec.extra_args):
            message = f"is of another GPU generation than {there.role}'s {theirs}: vLLM may choose another attention backend, which NIXL refuses"
            yield Fault(path, message, kind, allowed, fix, Level.WARNING)


@rule("gpu-direct-rdma", Level.ERROR, Stage.FORM, "NIXL: the LIBFABRIC plugin requires GPUDirect RDMA; AWS product table")
def gpu_direct_rdma(s: Subject) -> Iterator[Fault]:
    """KV moves between GPUs only on instance types with GPUDirect RDMA."""
    for served, name, role, path in s.roles():
        if name != "server" and not served.instances[name].gpu_direct_rdma:
            able = [i for i in s.catalog.instances if s.catalog.instances[i].gpu_direct_rdma]
            yield Fault(
                f"{path}.instanceType", "has no GPUDirect RDMA, so it cannot move KV over EFA", role.instance_type, ", ".join(able),
                "use server mode on it, or another type",
            )  # fmt: skip


@rule("hardware-dtype", Level.ERROR, Stage.FORM, "NVIDIA: NVFP4 needs Blackwell")
def hardware_dtype(s: Subject) -> Iterator[Fault]:
    """NVFP4 checkpoints run on Blackwell GPUs only."""
    for served, name, role, path in s.roles():
        if served.facts.weight_dtype == "nvfp4" and served.instances[name].gpu.name.startswith("h"):
            yield Fault(f"{path}.instanceType", "cannot run nvfp4 weights", role.instance_type, "p6-b200.48xlarge, p6-b300.48xlarge")


@rule("node-selector", Level.ERROR, Stage.FORM, "disagg-serving: pods select the pools that are made for them", firm=True)
def node_selector(s: Subject) -> Iterator[Fault]:
    """Selectors and tolerations are given by hand exactly where no NodePools are made, and a selector stands for one instance type."""
    types: dict[tuple[tuple[str, str], ...], tuple[str, str]] = {}
    for _, name, role, path in s.roles():
        if s.spec.makes_pools:
            for key, value in (("nodeSelector", role.node_selector), ("tolerations", role.tolerations)):
                if value:
                    fix = "remove it, or set existingCluster.autoMode: false"
                    yield Fault(f"{path}.{key}", "is calculated where NodePools are made", None, "without it", fix)
        elif not role.node_selector:
            yield Fault(
                f"{path}.nodeSelector",
                "is required where no NodePools are made",
                None,
                f"labels of {role.instance_type} nodes for {name}",
                "add it",
            )
        if not s.spec.makes_pools and role.capacity.model_fields_set:
            yield Fault(f"{path}.capacity", "has no effect where no NodePools are made", None, "without it", "remove it")
        other, instance_type = types.setdefault(tuple(sorted(role.node_selector.items())), (path, role.instance_type))
        if role.node_selector and instance_type != role.instance_type:
            message = f"is that of {other}, whose nodes are {instance_type}"
            yield Fault(f"{path}.nodeSelector", message, None, f"labels that only {role.instance_type} nodes have", "add a label")


def _mover(prefill: Group, decode: Group) -> tuple[Group, Group]:
    """The role whose instance type has to change, and the other: the one that is not sure to fit its GPUs, else decode."""
    unsure = [g for g in (prefill, decode) if (found := capacity_of(g)) is not None and found.fits is not Fit.FITS]
    return (prefill, decode) if unsure == [prefill] else (decode, prefill)


def _whole(group: Group) -> EngineShape | None:
    """The shape of a group's engine on one GPU, so that what is left are differences of layout; None for figures that no engine has."""
    try:
        return replace(shape_of(group), tensor_parallel=1, pipeline_parallel=1, data_parallel=1, calibration=None)
    except SpecError:
        return None


def _layout(shape: EngineShape) -> tuple[int, int]:
    return layer_bytes(shape), block_size(shape)


def _told(shape: EngineShape) -> str:
    size, block = _layout(shape)
    return f"{size} bytes a token and layer in blocks of {block}"


def _same_generation(s: Subject, one: str, other: str) -> bool:
    first, second = s.catalog.instances[one], s.catalog.instances[other]
    return first.gpu_direct_rdma and first.gpu.name[:1] == second.gpu.name[:1]


def _without_stages(s: Subject, served: Served, name: RoleName, role: RoleSpec) -> list[str]:
    """Engines of one pipeline stage that hold the model, for both roles alike: on this role's instance type first, then by price."""
    found: list[tuple[bool, float, str]] = []
    for kind in s.catalog.instances:
        instance = s.catalog.instances[kind]
        price = instance.on_demand or instance.capacity_block
        for tp in engine_sizes(served, name, instance) if instance.gpu_direct_rdma else ():
            spec = role.model_copy(update={"instance_type": kind, "tensor_parallel": tp, "pipeline_parallel": 1, "calibration": None})
            group = build_group(replace(served, instances={**served.instances, name: instance}), name, spec, None, pools_made=False)
            capacity = capacity_of(group)
            if capacity is not None and capacity.fits is Fit.FITS:
                cost = (price.usd_per_hour if price else 1000.0) * tp / instance.gpu.count
                found.append((kind != role.instance_type, cost, f"tensorParallel {tp} on {kind}"))
                break
    return [text for _, _, text in sorted(found)]


def _uneven(facts: Model, tp: int) -> list[tuple[str, int]]:
    """What vLLM splits over `tp` GPUs, with what is left over."""
    vocabulary = -(-facts.vocab_size // 64) * 64
    kv_left = 0 if facts.mla is not None or tp % facts.kv_heads == 0 else facts.kv_heads % tp
    return [
        (f"{facts.attention_heads} attention heads", facts.attention_heads % tp),
        (f"{facts.kv_heads} KV heads", kv_left),
        (f"padded vocabulary of {vocabulary}", vocabulary % tp),
    ]


def _use(fitting: list[int], asked: int) -> str:
    below = [n for n in fitting if n <= asked]
    return f"use {max(below)}" if below else ""


def _list(values: list[int]) -> str:
    return ", ".join(map(str, values))
