"""Rules about how an engine is cut into pieces: tensor, pipeline and expert parallelism, within a role and between the two."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...catalog import Instance, Model
from ...errors import Level
from ...spec import RoleSpec
from ...spec.serving import RoleName
from ..shapes import Served, group_size
from .engine import names
from .engines import in_roles, near
from .registry import Fault, Stage, Subject, remove, rule, use

SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Tensor-parallel sizes that are proposed."""
SLOW_BACKENDS = ("deepep", "pplx", "flashinfer", "moonep")
"""All-to-all backends that need InfiniBand or NVLink between nodes, by how their names begin."""
BACKEND_FLAG, BACKEND_VARIABLE, IBGDA_VARIABLE = "--all2all-backend", "VLLM_ALL2ALL_BACKEND", "NVSHMEM_IB_ENABLE_IBGDA"
ANY_NETWORK = "allgather_reducescatter"
"""The backend that needs neither."""
OFF = frozenset({"0", "false", "no", "off"})


@rule("pd-tensor-parallel", Level.ERROR, Stage.FORM, "vLLM 0.33: nixl/base_worker.py, heterogeneous tensor parallelism; llm-d PR#2187")
def pd_tensor_parallel(s: Subject) -> Iterator[Fault]:
    """One role's tensorParallel divides the other's; prefill may have more than decode only while each of its GPUs has a KV head of its own."""
    for served in s.served:
        prefill, decode = served.spec.prefill, served.spec.decode
        if prefill is None or decode is None:
            continue
        p, d, path = prefill.tensor_parallel, decode.tensor_parallel, f"{served.path}.decode.tensorParallel"
        sizes = [n for n in engine_sizes(served, "prefill") if n in engine_sizes(served, "decode")]
        ordered = [n for n in (p, *near(sizes, p)) if n in sizes]
        together = in_roles(served, "decode", "tensorParallel", ordered, together=True)
        if max(p, d) % min(p, d):
            message = f"neither divides prefill's {p} nor is a multiple of it"
            allowed = _list(_fitting(served, sizes, p)) if p in sizes else f"{_list(sizes)} in both roles"
            yield Fault(path, message, d, allowed, ways=[[*use(path, *(ordered if p in sizes else [])), *together]])
        elif p > d and served.facts.mla is None:
            heads = served.facts.kv_heads
            if p > heads:
                message = f"is less than prefill's {p}, whose GPUs hold copies of the {heads} KV heads: a decode GPU cannot read parts of copies"
                lower = use(f"{served.path}.prefill.tensorParallel", *near([n for n in sizes if n <= heads], p))
                yield Fault(path, message, d, f"{p} or more", ways=[use(path, p), [*lower, *(c for c in together if p not in c.values())]])
            else:
                message = f"is less than prefill's {p}: possible with {heads} KV heads, but the reverse of what llm-d and Dynamo run"
                yield Fault(path, message, d, f"{p} or more", "give decode more GPUs an engine and prefill more engines", Level.WARNING)


@rule("expert-blocks", Level.ERROR, Stage.FORM, "vLLM 0.33: validate_fp8_block_shape and _moe: block-quantized FP8 is cut at multiples of 128")
def fp8_blocks(s: Subject) -> Iterator[Fault]:
    """Block-quantised FP8 is cut at whole blocks of 128: dense layers and shared experts by tensorParallel, routed ones unless they stay whole."""
    for served, name, role, path in s.roles():
        tp, facts, all_cut = role.tensor_parallel, served.facts, all(map(partial(_is_cut, served.facts), served.spec.roles.values()))
        cut = cut_blocks(facts, tp, whole=role.expert_parallel)
        if not cut:
            continue
        fitting = [n for n in SIZES if not cut_blocks(facts, n, whole=role.expert_parallel)]
        message = f"cuts {' and '.join(cut)} inside a block of {facts.weight_block}"
        whole = [] if role.expert_parallel else in_roles(served, name, "expertParallel", [True], together=all_cut)
        lower = in_roles(served, name, "tensorParallel", near(fitting, tp), together=all_cut)
        yield Fault(f"{path}.tensorParallel", message, tp, _list(fitting), ways=[whole, lower])


@rule("experts", Level.ERROR, Stage.FORM, "vLLM: expert parallelism gives each GPU whole experts")
def experts(s: Subject) -> Iterator[Fault]:
    """With expert parallelism the GPUs of an engine divide the experts."""
    for served, name, role, path in s.roles():
        moe, tp = served.facts.moe, role.tensor_parallel
        if moe and role.expert_parallel and moe.experts % tp:
            fitting = [n for n in range(1, 65) if moe.experts % n == 0]
            ways = [in_roles(served, name, "tensorParallel", near([n for n in SIZES if n in fitting], tp)), remove(f"{path}.expertParallel")]
            yield Fault(f"{path}.tensorParallel", f"does not divide the {moe.experts} experts", tp, _list(fitting), ways=ways)


@rule("pipeline-stages", Level.INFO, Stage.FORM, "vLLM: the slowest stage sets the pace")
def pipeline_stages(s: Subject) -> Iterator[Fault]:
    """Pipeline stages are of equal size, or some GPUs wait for others."""
    for served, _name, role, path in s.roles():
        stages, layers = role.pipeline_parallel, served.facts.layers
        if 1 < stages <= layers and layers % stages:
            fitting = [n for n in range(1, 17) if layers % n == 0]
            yield Fault(f"{path}.pipelineParallel", f"cuts {layers} layers into unequal stages", stages, _list(fitting))


@rule("pipeline-speculative", Level.WARNING, Stage.FORM, "vllm-project/recipes: no multi-node pipeline profile has speculation")
def pipeline_speculative(s: Subject) -> Iterator[Fault]:
    """Speculative decoding over pipeline stages is in no published recipe."""
    for served, _name, role, path in s.roles():
        if role.pipeline_parallel > 1 and served.spec.speculative is not None:
            message = "with speculative is in no published recipe, so it may not start"
            yield Fault(
                f"{path}.pipelineParallel",
                message,
                role.pipeline_parallel,
                "1",
                "try it before you rely on it",
                ways=[remove(f"{served.path}.speculative")],
            )


@rule("all-to-all", Level.ERROR, Stage.FORM, "vLLM: --all2all-backend; DeepEP and pplx need InfiniBand, EFA images carry a fork of DeepEP")
def all_to_all(s: Subject) -> Iterator[Fault]:
    """Over nodes, experts exchange tokens by a backend that works on EFA with this image."""
    for served in s.served:
        if not any(group_size(r, served.instances[n]) > 1 for n, r in served.spec.roles.items()):
            continue
        for place, backend in _backends(served):
            value = backend.lower()
            if value.startswith(SLOW_BACKENDS) and not (served.engine.deep_ep and value.startswith("deepep")):
                message = "needs InfiniBand or an image with DeepEP for EFA"
                path, right = f"{served.path}.{place}", f"{BACKEND_FLAG}={ANY_NETWORK}" if place.startswith("extraArgs") else ANY_NETWORK
                yield Fault(path, message, backend, ANY_NETWORK, ways=[use(path, right), remove(path)])
        direct = served.spec.extra_env.get(IBGDA_VARIABLE)
        if direct is not None and direct.lower() not in OFF:
            path = f"{served.path}.extraEnv.{IBGDA_VARIABLE}"
            yield Fault(path, "needs InfiniBand, which no EFA card is", direct, "0", ways=[remove(path)])


@rule("efa-alignment", Level.INFO, Stage.FORM, "AWS: EKS user guide, device management for EFA: no alignment on Bottlerocket, which Auto Mode runs")
def efa_alignment(s: Subject) -> Iterator[Fault]:
    """Pods smaller than a node may get EFA devices that are not next to their GPUs; KV then crosses the CPU's interconnect."""
    for served, name, role, path in s.roles():
        gpus = served.instances[name].gpu.count
        if name != "server" and s.spec.makes_pools and role.tensor_parallel < gpus:
            message = (
                f"makes pods smaller than a node, whose EFA devices Auto Mode does not choose by their GPUs: transfers may be slower on {gpus} GPUs"
            )
            yield Fault(f"{path}.tensorParallel", message, role.tensor_parallel, str(gpus), "measure, or use whole nodes")
            return


def cut_blocks(facts: Model, tp: int, *, whole: bool) -> list[str]:
    """What so many GPUs cut inside a block that shares a scale; `whole` experts are not cut."""
    moe, block = facts.moe, facts.weight_block
    if block is None or tp == 1:
        return []
    parts = {
        "routed experts": moe.intermediate_size if moe and not whole else 0,
        "shared experts": moe.shared_experts * moe.intermediate_size if moe else 0,
        "dense layers": facts.intermediate_size if moe is None or moe.dense_layers else 0,
    }
    return [f"the {columns} columns of the {what}" for what, columns in parts.items() if columns % (block * tp)]


def engine_sizes(served: Served, name: RoleName, instance: Instance | None = None) -> list[int]:
    """Tensor-parallel sizes by which the model can be cut, and which divide a node of the role or fill whole ones."""
    facts, whole = served.facts, served.spec.roles[name].expert_parallel
    gpus = (instance or served.instances[name]).gpu.count

    def fits(n: int) -> bool:
        heads = facts.attention_heads % n == 0 and (facts.mla is not None or facts.kv_heads % n == 0 or n % facts.kv_heads == 0)
        experts = not (whole and facts.moe is not None and facts.moe.experts % n)
        return heads and experts and (gpus % n == 0 or n % gpus == 0) and not cut_blocks(facts, n, whole=whole)

    return [n for n in SIZES if fits(n)]


def _backends(served: Served) -> Iterator[tuple[str, str]]:
    """Places and names of all-to-all backends that flags and variables ask for."""
    for j, arg in enumerate(served.spec.extra_args):
        if names(arg, BACKEND_FLAG):
            yield f"extraArgs[{j}]", arg.partition("=")[2]
    if BACKEND_VARIABLE in served.spec.extra_env:
        yield f"extraEnv.{BACKEND_VARIABLE}", served.spec.extra_env[BACKEND_VARIABLE]


def _is_cut(facts: Model, role: RoleSpec) -> bool:
    return bool(cut_blocks(facts, role.tensor_parallel, whole=role.expert_parallel))


def _fitting(served: Served, sizes: list[int], prefill: int) -> list[int]:
    """Sizes of decode that go with so many GPUs of prefill."""
    least = 1 if served.facts.mla is not None or prefill <= served.facts.kv_heads else prefill
    return [n for n in sizes if max(n, prefill) % min(n, prefill) == 0 and n >= least]


def _list(values: list[int]) -> str:
    return ", ".join(map(str, values))
