"""Rules about a model's roles: which there are, how they are parallel, and on what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ...catalog import Model
from ...corrections import Correction
from ...errors import Level, SpecError
from ...forecast.capacities import capacity_of, shape_of
from ...forecast.fit import EngineShape, Fit
from ...forecast.fit.constants import release
from ...forecast.fit.gpus import gpu_of, native_on
from ...forecast.fit.kv import block_size, layer_bytes
from ...phrases import say
from ...place import Place
from ...planning.arguments import Arguments
from ...planning.extras import arguments_of
from ...planning.shapes import Group, Served, fills, group_size, world_size
from ...spec.serving import RoleName
from ..alternatives import SIZES, by_price, in_roles, near, other_engines, that_hold
from ..documents import LIBFABRIC, NIXL_CONNECTOR, PREFILL_AND_DECODE, VLLM, VLLM_ISSUE
from ..registry import Fault, Stage, Subject, remove, rule, use

RANKS = range(1, 65)
"""Numbers of data-parallel ranks that are proposed."""
PROPOSED_SIZES = (16, 32, 64)
"""Tensor-parallel sizes over several nodes that are proposed."""
PUSHED_WINDOWS = (0, 33)
"""The release from which the push connector cuts KV of several groups (nixl/base_worker.py: _supports_pp_hma)."""
ADD_ROLE = {"prefill": "add decode, or rename prefill to server", "decode": "add prefill, or rename decode to server"}


@rule("roles", Level.ERROR, Stage.FORM, "our choice: docs/concepts.md", firm=True, blocks_layout=True)
def roles_complete(s: Subject) -> Iterator[Fault]:
    """A model has prefill and decode, or server alone."""
    for i, model in enumerate(s.spec.models):
        path, given = f"models[{i}]", set(model.roles)
        if not given:
            ways = [[{f"{path}.server": {"instanceType": kind.id, "tensorParallel": n}} for kind in by_price(s) for n in SIZES]]
            yield Fault(path, f"{model.name} has no role", None, "prefill and decode, or server", "add one of them", ways=ways)
        elif "server" in given and len(given) > 1:
            yield Fault(f"{path}.server", "stands beside prefill or decode", None, "prefill and decode, or server", "remove one mode")
        elif len(given) == 1 and "server" not in given:
            there = next(iter(given))
            lacking = "decode" if there == "prefill" else "prefill"
            yield Fault(f"{path}.{lacking}", f"is missing beside {there}", None, "prefill and decode, or server", ADD_ROLE[there])


@rule(
    "tensor-parallel",
    Level.ERROR,
    Stage.FORM,
    f"{VLLM}docs/serving/parallelism_scaling.md",
    firm=True,
    blocks_layout=True,
    judges="engine",
)
def tensor_parallel(s: Subject) -> Iterator[Fault]:
    """An engine's GPUs divide the node evenly, or are whole nodes."""
    for served, name, role, path in s.roles():
        gpus = served.instances[name].gpu.count
        sizes = [n for n in range(1, gpus + 1) if gpus % n == 0]
        tp, pp, rank = role.tensor_parallel, role.pipeline_parallel, role.tensor_parallel * role.pipeline_parallel
        if tp <= gpus and tp not in sizes:
            message = f"does not divide the {gpus} GPUs of {role.instance_type}"
            allowed = f"{_list(sizes)}, or a multiple of {gpus}"
            yield Fault(f"{path}.tensorParallel", message, tp, allowed, ways=_sizes(served, name))
        elif tp > gpus and tp % gpus:
            allowed = f"{_list(sizes)}, or a multiple of {gpus}"
            yield Fault(f"{path}.tensorParallel", f"fills no whole number of {role.instance_type} nodes", tp, allowed, ways=_sizes(served, name))
        elif rank <= gpus and rank not in sizes:
            message = say("with {tensorParallel} {} makes {} GPUs, which do not divide the node's {}", tp, rank, gpus)
            allowed = _list([n // tp for n in sizes if n % tp == 0])
            yield Fault(f"{path}.pipelineParallel", message, pp, allowed, ways=_stages(served, name))
        elif rank > gpus and rank % gpus:
            message = say("with {tensorParallel} {} makes {} GPUs, which fill no whole number of nodes", tp, rank)
            yield Fault(f"{path}.pipelineParallel", message, pp, f"a number that makes a multiple of {gpus} GPUs", ways=_stages(served, name))
        elif not fills(gpus, rank, role.data_parallel):
            fitting = [n for n in RANKS if fills(gpus, rank, n)]
            what = f"with ranks of {rank} GPUs makes {world_size(role)}, which neither divide a node's {gpus} GPUs nor fill whole nodes"
            ways = [in_roles(served, name, "dataParallel", near(fitting, role.data_parallel))]
            yield Fault(f"{path}.dataParallel", what, role.data_parallel, _list(fitting), ways=ways)


@rule(
    "heads",
    Level.ERROR,
    Stage.FORM,
    f"{VLLM}vllm/config/model.py and {VLLM}vllm/model_executor/layers/vocab_parallel_embedding.py",
    blocks_layout=True,
    judges="engine",
)
def heads(s: Subject) -> Iterator[Fault]:
    """Tensor parallelism divides the attention heads, the KV heads (or is divided by them) and the padded vocabulary."""
    for served, name, role, path in s.roles():
        tp, facts, gpus = role.tensor_parallel, served.facts, served.instances[name].gpu.count
        for what, uneven in _uneven(facts, tp):
            if uneven:
                fitting = [n for n in range(1, 65) if not any(u for _, u in _uneven(facts, n)) and (gpus % n == 0 or n % gpus == 0)]
                ways = [in_roles(served, name, "tensorParallel", near(fitting, tp))]
                yield Fault(f"{path}.tensorParallel", f"does not divide the {what} of {served.spec.model}", tp, _list(fitting), ways=ways)
        if role.pipeline_parallel > facts.layers:
            place, stages = f"{path}.pipelineParallel", near((1, 2, 4, 8), role.pipeline_parallel)
            yield Fault(
                place, f"is more than the {facts.layers} layers", role.pipeline_parallel, f"at most {facts.layers}", ways=[use(place, *stages)]
            )
        if role.expert_parallel and facts.moe is None:
            place = f"{path}.expertParallel"
            yield Fault(place, f"has no effect: {served.spec.model} has no experts", True, "false", ways=[remove(place)])


@rule("nixl-pipeline-parallel", Level.ERROR, Stage.FORM, f"{NIXL_CONNECTOR}base_worker.py and {VLLM_ISSUE}52913", judges="engine")
def nixl_pipeline_parallel(s: Subject) -> Iterator[Fault]:
    """Decode has no pipeline stages, which vLLM refuses there, and prefill has some only with the push connector and KV that it can cut."""
    for served, name, role, path in s.roles():
        why = _no_stages(served, name) if role.pipeline_parallel > 1 else ""
        if why:
            both = all(other.pipeline_parallel > 1 for other in served.spec.roles.values())
            ways = [in_roles(served, name, "pipelineParallel", [1], together=both), *other_engines(s, served, name, rdma=True, together=both)]
            pushed = name == "prefill" and served.spec.connector.mode == "pull"
            advice = say("set {connector.mode} to push, or use server mode") if pushed else "use server mode for pipeline parallelism"
            yield Fault(f"{path}.pipelineParallel", why, role.pipeline_parallel, "1", advice, ways=ways)


def _no_stages(served: Served, name: RoleName) -> str:
    """Why a role cannot have pipeline stages; an empty text where it can."""
    facts, old = served.facts, release(served.engine.version) < PUSHED_WINDOWS
    if name == "server":
        return ""
    if name == "decode":
        return "is not possible with the nixl connector"
    if served.spec.connector.mode == "pull":
        return "is not possible with the nixl connector"
    if facts.linear_attention is not None:
        return "is not possible for a model with linear attention, whose states the push connector does not cut"
    if facts.sliding_window is None:
        return ""
    if old:
        return f"is not possible for a model with sliding windows on vLLM {served.engine.version}"
    decode = served.spec.decode
    if decode and facts.mla is None and decode.tensor_parallel > served.spec.roles["prefill"].tensor_parallel:
        return say("is not possible for a model with sliding windows while decode has more {tensorParallel} than prefill")
    return ""


@rule("pd-kv-layout", Level.ERROR, Stage.LAYOUT, f"{PREFILL_AND_DECODE} and {VLLM}vllm/platforms/cuda.py")
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
        alike = [i for i in s.catalog.instances if _same_generation(s, i, theirs)]
        move: list[Iterable[Correction]] = [use(path, theirs, *alike), *other_engines(s, served, here.role, rdma=True)]
        otherwise = "use one GPU generation in both roles"
        if _layout(mine) != _layout(other):
            message = f"keeps KV as {_describe(mine)}, {there.role}'s {theirs} as {_describe(other)}: decode cannot read it"
            yield Fault(path, message, kind, allowed, ways=move, otherwise=otherwise)
        elif not _chooses_attention(here):
            message = f"is of another GPU generation than {there.role}'s {theirs}: vLLM may choose another attention backend, which NIXL refuses"
            yield Fault(path, message, kind, allowed, "", Level.WARNING, move, otherwise)


@rule("gpu-direct-rdma", Level.ERROR, Stage.FORM, f"{LIBFABRIC} and https://aws.amazon.com/ec2/instance-types/p5/", judges="engine")
def gpu_direct_rdma(s: Subject) -> Iterator[Fault]:
    """KV moves between GPUs only on instance types with GPUDirect RDMA; between the nodes of one engine its lack costs time."""
    for served, name, role, path in s.roles():
        if name == "server" and not served.instances[name].gpu_direct_rdma and group_size(role, served.instances[name]) > 1:
            message = "has no GPUDirect RDMA: what the engine's GPUs exchange between its nodes passes through the memory of both"
            better = other_engines(s, served, name, rdma=True)
            allowed = ", ".join(i for i in s.catalog.instances if s.catalog.instances[i].gpu_direct_rdma)
            yield Fault(f"{path}.instanceType", message, role.instance_type, allowed, "measure it", Level.WARNING, better)
        if name != "server" and not served.instances[name].gpu_direct_rdma:
            able = [kind for kind in by_price(s) if kind.gpu_direct_rdma]
            place, message, advice = f"{path}.instanceType", "has no GPUDirect RDMA, so it cannot move KV over EFA", "use server mode on it"
            ways = [use(place, *that_hold(served, name, able)), *other_engines(s, served, name, rdma=True)]
            yield Fault(place, message, role.instance_type, ", ".join(kind.id for kind in able), advice, ways=ways)


@rule(
    "hardware-dtype",
    Level.WARNING,
    Stage.FORM,
    "https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/model_executor/layers/quantization/utils/marlin_utils_fp4.py",
    judges="engine",
)
def hardware_dtype(s: Subject) -> Iterator[Fault]:
    """Weights of fewer bits than the GPU can multiply are unpacked to 16 bits in every step."""
    for served, name, role, path in s.roles():
        dtype, gpu = served.facts.weight_dtype, served.instances[name].gpu
        if native_on(dtype, gpu_of(gpu.name, gpu.memory_gib_torch)):
            continue
        able = [i for i, kind in s.catalog.instances.items() if native_on(dtype, gpu_of(kind.gpu.name, kind.gpu.memory_gib_torch))]
        message = f"has GPUs without {dtype} arithmetic: vLLM's Marlin kernels unpack the weights to 16 bits in every step"
        roomy = that_hold(served, name, map(s.catalog.instances.__getitem__, able))
        # where no other type holds this engine, another engine may
        ways = [use(f"{path}.instanceType", *roomy), *other_engines(s, served, name)]
        yield Fault(f"{path}.instanceType", message, role.instance_type, ", ".join(able) or "another precision", ways=ways)


@rule("node-selector", Level.ERROR, Stage.FORM, "our choice: docs/how-to/existing-cluster.md", firm=True)
def node_selector(s: Subject) -> Iterator[Fault]:
    """Selectors and tolerations are given by hand exactly where no NodePools are made, and a selector stands for one instance type."""
    types: dict[tuple[tuple[str, str], ...], tuple[str, str]] = {}
    for _, name, role, path in s.roles():
        if s.spec.makes_pools:
            for key, value in (("nodeSelector", role.node_selector), ("tolerations", role.tolerations)):
                if value:
                    ways = [remove(f"{path}.{key}"), use("existingCluster.autoMode", False) if s.spec.existing_cluster else []]
                    yield Fault(f"{path}.{key}", "is calculated where NodePools are made", None, "without it", ways=ways)
        elif not role.node_selector:
            yield Fault(
                f"{path}.nodeSelector",
                "is required where no NodePools are made",
                None,
                f"labels of {role.instance_type} nodes for {name}",
                "add it",
            )
        if not s.spec.makes_pools and role.capacity.model_fields_set:
            yield Fault(f"{path}.capacity", "has no effect where no NodePools are made", None, "without it", ways=[remove(f"{path}.capacity")])
        other, instance_type = types.setdefault(tuple(sorted(role.node_selector.items())), (path, role.instance_type))
        if role.node_selector and instance_type != role.instance_type:
            message = say("is that of {}, whose nodes are {}", Place.parse(other), instance_type)
            yield Fault(f"{path}.nodeSelector", message, None, f"labels that only {role.instance_type} nodes have", "add a label")


def _sizes(served: Served, name: RoleName) -> list[list[Correction]]:
    gpus, asked = served.instances[name].gpu.count, served.spec.roles[name].tensor_parallel
    fitting = [n for n in (*range(1, gpus + 1), *PROPOSED_SIZES) if gpus % n == 0 or n % gpus == 0]
    return [in_roles(served, name, "tensorParallel", near(fitting, asked))]


def _stages(served: Served, name: RoleName) -> list[list[Correction]]:
    gpus, role = served.instances[name].gpu.count, served.spec.roles[name]
    worlds = {n: n * role.tensor_parallel for n in range(1, role.pipeline_parallel + gpus)}
    fitting = [n for n, world in worlds.items() if gpus % world == 0 or world % gpus == 0]
    return [in_roles(served, name, "pipelineParallel", near(fitting, role.pipeline_parallel))]


def _chooses_attention(group: Group) -> bool:
    """Whether a flag names the attention backend."""
    said = Arguments(group.served.engine.version, (extra.value for extra in arguments_of(group.served.spec, group.role)))
    return bool(said.of("--attention-backend")) or "backend" in said.data("--attention-config")


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


def _describe(shape: EngineShape) -> str:
    size, block = _layout(shape)
    return f"{size} bytes a token and layer in blocks of {block}"


def _same_generation(s: Subject, one: str, other: str) -> bool:
    first, second = s.catalog.instances[one], s.catalog.instances[other]
    return first.gpu_direct_rdma and first.gpu.name[:1] == second.gpu.name[:1]


def _uneven(facts: Model, tp: int) -> list[tuple[str, int]]:
    """What vLLM splits over `tp` GPUs, with what is left over."""
    vocabulary = -(-facts.vocab_size // 64) * 64
    kv_left = 0 if facts.mla is not None or tp % facts.kv_heads == 0 else facts.kv_heads % tp
    return [
        (f"{facts.attention_heads} attention heads", facts.attention_heads % tp),
        (f"{facts.kv_heads} KV heads", kv_left),
        (f"padded vocabulary of {vocabulary}", vocabulary % tp),
    ]


def _list(values: list[int]) -> str:
    return ", ".join(map(str, values))
