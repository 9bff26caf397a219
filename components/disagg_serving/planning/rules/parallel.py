"""Rules about how an engine is cut into pieces: tensor, pipeline and expert parallelism, within a role and between the two."""

from __future__ import annotations

from collections.abc import Iterator

from ...catalog import Model
from ...errors import Level
from ..shapes import Served, group_size
from .registry import Fault, Stage, Subject, rule

FP8_BLOCK = 128
SLOW_BACKENDS = ("deepep", "pplx", "flashinfer")
"""All-to-all backends that need InfiniBand or NVLink between nodes, by how their names begin."""


@rule("pd-tensor-parallel", Level.ERROR, Stage.FORM, "vLLM 0.33: nixl/base_worker.py, heterogeneous tensor parallelism; llm-d PR#2187")
def pd_tensor_parallel(s: Subject) -> Iterator[Fault]:
    """One role's tensorParallel divides the other's; prefill may have more than decode only while each of its GPUs has a KV head of its own."""
    for served in s.served:
        prefill, decode = served.spec.prefill, served.spec.decode
        if prefill is None or decode is None:
            continue
        p, d, path = prefill.tensor_parallel, decode.tensor_parallel, f"{served.path}.decode.tensorParallel"
        if max(p, d) % min(p, d):
            yield Fault(path, f"neither divides prefill's {p} nor is a multiple of it", d, _fitting(served, p), f"use {p}")
        elif p > d and served.facts.mla is None:
            heads = served.facts.kv_heads
            if p > heads:
                message = f"is less than prefill's {p}, whose GPUs hold copies of the {heads} KV heads: a decode GPU cannot read parts of copies"
                yield Fault(path, message, d, f"{p} or more", f"use {p}, or lower prefill's to {heads}")
            else:
                message = f"is less than prefill's {p}: possible with {heads} KV heads, but the reverse of what llm-d and Dynamo run"
                yield Fault(path, message, d, f"{p} or more", "give decode more GPUs an engine and prefill more engines", Level.WARNING)


@rule("expert-blocks", Level.ERROR, Stage.FORM, "vLLM: block-quantized FP8 experts are cut at multiples of 128")
def fp8_blocks(s: Subject) -> Iterator[Fault]:
    """Without expert parallelism, tensorParallel cuts FP8 experts at whole blocks of 128."""
    for served, _name, role, path in s.roles():
        moe = served.facts.moe
        if moe is None or served.facts.weight_dtype != "fp8" or role.expert_parallel or role.tensor_parallel == 1:
            continue
        if moe.intermediate_size % (FP8_BLOCK * role.tensor_parallel):
            fitting = [n for n in (1, 2, 4, 8, 16, 32, 64) if moe.intermediate_size % (FP8_BLOCK * n) == 0]
            message = f"cuts the experts' {moe.intermediate_size} columns inside a block of {FP8_BLOCK}"
            yield Fault(f"{path}.tensorParallel", message, role.tensor_parallel, _list(fitting), "set expertParallel: true, or lower it")


@rule("experts", Level.ERROR, Stage.FORM, "vLLM: expert parallelism gives each GPU whole experts")
def experts(s: Subject) -> Iterator[Fault]:
    """With expert parallelism the GPUs of an engine divide the experts."""
    for served, _name, role, path in s.roles():
        moe = served.facts.moe
        if moe and role.expert_parallel and moe.experts % role.tensor_parallel:
            fitting = [n for n in range(1, 65) if moe.experts % n == 0]
            yield Fault(f"{path}.tensorParallel", f"does not divide the {moe.experts} experts", role.tensor_parallel, _list(fitting))


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
            yield Fault(f"{path}.pipelineParallel", message, role.pipeline_parallel, "1", "try it before you rely on it, or remove speculative")


@rule("all-to-all", Level.ERROR, Stage.FORM, "vLLM: --all2all-backend; DeepEP and pplx need InfiniBand, EFA images carry a fork of DeepEP")
def all_to_all(s: Subject) -> Iterator[Fault]:
    """Over nodes, experts exchange tokens by a backend that works on EFA with this image."""
    for served in s.served:
        for j, arg in enumerate(served.spec.extra_args):
            flag, _, value = arg.partition("=")
            needs = flag == "--all2all-backend" and value.lower().startswith(SLOW_BACKENDS)
            spans = any(group_size(r, served.instances[n]) > 1 for n, r in served.spec.roles.items())
            if needs and spans and not (served.engine.deep_ep and value.lower().startswith("deepep")):
                message = "needs InfiniBand or an image with DeepEP for EFA"
                yield Fault(f"{served.path}.extraArgs[{j}]", message, value, "allgather_reducescatter", "use it, or leave the flag out")


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


def _fitting(served: Served, prefill: int) -> str:
    facts: Model = served.facts
    least = 1 if facts.mla is not None or prefill <= facts.kv_heads else prefill
    return _list([n for n in (1, 2, 4, 8, 16) if max(n, prefill) % min(n, prefill) == 0 and n >= least])


def _list(values: list[int]) -> str:
    return ", ".join(map(str, values))
