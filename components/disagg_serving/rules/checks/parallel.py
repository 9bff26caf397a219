"""Rules about how an engine is cut into pieces: tensor, pipeline and expert parallelism, within a role and between the two."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...catalog import Instance, Model
from ...corrections import Correction
from ...errors import Level
from ...phrases import say
from ...planning.shapes import Served, fills, world_size
from ...spec import RoleSpec
from ...spec.serving import RoleName
from ..alternatives import in_roles, in_sides, near
from ..documents import AWS_RUNS, EKS, PREFILL_AND_DECODE, VLLM
from ..registry import Fault, Stage, Subject, remove, rule, use

SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Tensor-parallel sizes that are proposed."""
RANKS = (1, 2, 4, 8)
"""Data-parallel sizes that are proposed."""


@rule(
    "pd-tensor-parallel",
    Level.ERROR,
    Stage.FORM,
    f"{PREFILL_AND_DECODE} and https://github.com/llm-d/llm-d/pull/2187",
    blocks_layout=True,
)
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
            both = f"{_list(sizes)} in both roles" if sizes else f"a divisor of prefill's {p}, or a multiple of it"
            allowed = _list(_fitting(served, sizes, p)) if p in sizes else both
            yield Fault(path, message, d, allowed, ways=[[*use(path, *(ordered if p in sizes else [])), *together]])
        elif p > d and served.facts.mla is None:
            heads = served.facts.kv_heads
            if p > heads:
                message = f"is less than prefill's {p}, whose GPUs hold copies of the {heads} KV heads: a decode GPU cannot read parts of copies"
                lower = use(f"{served.path}.prefill.tensorParallel", *near([n for n in sizes if n <= heads], p))
                yield Fault(path, message, d, f"{p} or more", ways=[use(path, p), [*lower, *(c for c in together if p not in c.values())]])
            else:
                message = f"is less than prefill's {p}: possible with {heads} KV heads, but the reverse of what llm-d and Dynamo run"
                yield Fault(path, message, d, f"{p} or more", "use larger decode engines, and more but smaller prefill engines", Level.WARNING)


@rule(
    "expert-blocks",
    Level.ERROR,
    Stage.FORM,
    f"{VLLM}vllm/model_executor/layers/quantization/utils/fp8_utils.py (validate_fp8_block_shape)",
    blocks_layout=True,
    judges="engine",
)
def fp8_blocks(s: Subject) -> Iterator[Fault]:
    """Block-quantised FP8 is cut at whole blocks of 128: dense layers and shared experts by tensorParallel, routed ones unless they stay whole."""
    for served, name, role, path in s.roles():
        tp, dp, facts = role.tensor_parallel, role.data_parallel, served.facts
        all_cut = all(map(partial(_is_cut, facts), served.spec.roles.values()))
        cut = cut_blocks(facts, tp, dp, whole=role.expert_parallel)
        if not cut:
            continue
        fitting = [n for n in SIZES if not cut_blocks(facts, n, dp, whole=role.expert_parallel)]
        ranked = say("with {dataParallel} {} ", dp) if dp > 1 else ""
        message = say("{}cuts {} inside a block of {}", ranked, " and ".join(cut), facts.weight_block)
        whole = [] if role.expert_parallel else in_roles(served, name, "expertParallel", [True], together=all_cut)
        lower = in_roles(served, name, "tensorParallel", near(fitting, tp), together=all_cut)
        ranks: list[Correction] = [
            {f"{path}.dataParallel": n, **({} if role.expert_parallel else {f"{path}.expertParallel": True})} for n in near(RANKS, dp) if dp > 1
        ]
        allowed = _list(fitting) or f"a size that cuts at whole blocks of {facts.weight_block}"
        yield Fault(f"{path}.tensorParallel", message, tp, allowed, ways=[whole, lower, ranks])


@rule(
    "tensor-parallel-nodes",
    Level.WARNING,
    Stage.LAYOUT,
    f"{VLLM}docs/serving/parallelism_scaling.md and {AWS_RUNS}micro-benchmarks/nccl-tests/README.md",
)
def tensor_parallel_nodes(s: Subject) -> Iterator[Fault]:
    """Tensor parallelism stays inside a node: over several, every layer waits for the network twice."""
    for group in s.layout.groups if s.layout else ():
        served, name, role, gpus, tp = group.served, group.role, group.spec, group.instance.gpu.count, group.spec.tensor_parallel
        if tp > gpus and tp % gpus == 0:
            times = tp // gpus
            ranks = {"tensorParallel": gpus, "dataParallel": role.data_parallel * times, "expertParallel": True}
            stages = {"tensorParallel": gpus, "pipelineParallel": role.pipeline_parallel * times}
            engines = {"tensorParallel": gpus, "replicas": role.replicas * times}
            ways = [
                in_sides(served, name, ranks) if served.facts.moe else [],
                in_sides(served, name, stages) if name == "server" else [],
                in_sides(served, name, engines) if role.autoscaling is None else [],
            ]
            message = f"cuts each layer over {times} nodes, so that every token waits for the network twice a layer"
            yield Fault(f"{group.path}.tensorParallel", message, tp, f"at most {gpus}", "measure it", ways=ways)


@rule("pipeline-stages", Level.INFO, Stage.FORM, f"{VLLM}vllm/distributed/utils.py (get_pp_indices)", judges="engine")
def pipeline_stages(s: Subject) -> Iterator[Fault]:
    """Pipeline stages are of equal size, or some GPUs wait for others."""
    for served, _name, role, path in s.roles():
        stages, layers = role.pipeline_parallel, served.facts.layers
        if 1 < stages <= layers and layers % stages:
            fitting = [n for n in range(1, 17) if layers % n == 0]
            yield Fault(f"{path}.pipelineParallel", f"cuts {layers} layers into unequal stages", stages, _list(fitting))


@rule("pipeline-speculative", Level.WARNING, Stage.FORM, "https://github.com/vllm-project/recipes/blob/8959cf64/strategies/multi_node_tp_pp.yaml")
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


@rule("efa-alignment", Level.INFO, Stage.FORM, f"{EKS}device-management.html and {EKS}device-management-efa.html")
def efa_alignment(s: Subject) -> Iterator[Fault]:
    """Pods smaller than a node may get EFA devices that are not next to their GPUs; KV then crosses the CPU's interconnect."""
    for served, name, role, path in s.roles():
        gpus = served.instances[name].gpu.count
        if name != "server" and s.spec.makes_pools and world_size(role) < gpus:
            message = (
                "makes pods smaller than a node, to which the device plugin gives any of its EFA devices: those far from a pod's GPUs are slower"
            )
            yield Fault(f"{path}.tensorParallel", message, role.tensor_parallel, str(gpus), "measure, or use whole nodes")
            return


def cut_blocks(facts: Model, tp: int, dp: int = 1, *, whole: bool) -> list[str]:
    """What so many GPUs cut inside a block that shares a scale.

    `whole` experts are not cut, nor are shared ones that data-parallel ranks then keep whole; sliced experts are cut over all `dp` ranks.
    """
    moe, block = facts.moe, facts.weight_block
    if block is None:
        return []
    parts = {
        "routed experts": (moe.intermediate_size if moe and not whole else 0, tp * dp),
        "shared experts": (moe.shared_experts * moe.intermediate_size if moe and not (whole and dp > 1) else 0, tp),
        "dense layers": (facts.intermediate_size if moe is None or moe.dense_layers else 0, tp),
    }
    return [f"the {columns} columns of the {what}" for what, (columns, slices) in parts.items() if slices > 1 and columns % (block * slices)]


def engine_sizes(served: Served, name: RoleName, instance: Instance | None = None) -> list[int]:
    """Tensor-parallel sizes by which the model can be cut, and which with the role's dataParallel divide a node or fill whole ones."""
    facts, role = served.facts, served.spec.roles[name]
    whole, dp = role.expert_parallel, role.data_parallel
    gpus = (instance or served.instances[name]).gpu.count

    def fits(n: int) -> bool:
        heads = facts.attention_heads % n == 0 and (facts.mla is not None or facts.kv_heads % n == 0 or n % facts.kv_heads == 0)
        experts = not (whole and facts.moe is not None and facts.moe.experts % (n * dp))
        return heads and experts and fills(gpus, n, dp) and not cut_blocks(facts, n, dp, whole=whole)

    return [n for n in SIZES if fits(n)]


def _is_cut(facts: Model, role: RoleSpec) -> bool:
    return bool(cut_blocks(facts, role.tensor_parallel, role.data_parallel, whole=role.expert_parallel))


def _fitting(served: Served, sizes: list[int], prefill: int) -> list[int]:
    """Sizes of decode that go with so many GPUs of prefill."""
    least = 1 if served.facts.mla is not None or prefill <= served.facts.kv_heads else prefill
    return [n for n in sizes if max(n, prefill) % min(n, prefill) == 0 and n >= least]


def _list(values: list[int]) -> str:
    return ", ".join(map(str, values))
