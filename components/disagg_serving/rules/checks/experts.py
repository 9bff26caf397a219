"""Rules about experts over data-parallel ranks: wide expert parallelism."""

from __future__ import annotations

from collections.abc import Iterator

from ...corrections import Correction
from ...errors import Level
from ...phrases import say
from ...planning.extras import variables_of
from ...planning.shapes import Served, group_size
from ..alternatives import in_roles, near
from ..documents import VLLM
from ..registry import Fault, Stage, Subject, remove, rule, use

SIZES, PROPOSED = range(1, 65), (1, 2, 4, 8, 16, 32, 64)
"""Sizes that are said to be possible, and those that are proposed."""
IBGDA_VARIABLE = "NVSHMEM_IB_ENABLE_IBGDA"
OFF = frozenset({"0", "false", "no", "off"})
ANYWHERE = "allgather_reducescatter"
EFA_DEEP_EP = "deepep_v2"
"""What the fork of DeepEP in images for EFA carries over EFA, by NCCL's device API (vLLM 0.33: docker/Dockerfile.efa)."""
REMOVED = frozenset({"pplx", "naive"})
NEEDS = {
    "deepep_high_throughput": "needs InfiniBand (NVSHMEM)",
    "deepep_low_latency": "needs InfiniBand (NVSHMEM with IBGDA)",
    "deepep_v2": "needs InfiniBand or an image with DeepEP for EFA",
    "nixl_ep": "needs UCX's device API over InfiniBand",
    "moonep": "needs NVLink between nodes",
    "flashinfer_nvlink_one_sided": "needs NVLink between nodes",
    "flashinfer_nvlink_two_sided": "needs NVLink between nodes",
}
"""Why a backend does not work over nodes that are joined by EFA."""


@rule(
    "data-parallel",
    Level.ERROR,
    Stage.FORM,
    f"{VLLM}docs/serving/data_parallel_deployment.md",
    blocks_layout=True,
    judges="engine",
)
def data_parallel(s: Subject) -> Iterator[Fault]:
    """Data parallelism inside an engine is for models with experts, kept whole; other models are served by more replicas."""
    for served, name, role, path in s.roles():
        ranks, place = role.data_parallel, f"{path}.dataParallel"
        if ranks == 1:
            continue
        if served.facts.moe is None:
            message = f"has no use: {served.spec.model} has no experts to share, and the router sees replicas but not ranks"
            instead: Correction = {place: None, f"{path}.replicas": role.replicas * ranks}
            yield Fault(place, message, ranks, "1", ways=[[*([] if role.autoscaling else [instead]), *remove(place)]])
            continue
        if not role.expert_parallel:
            gpus = role.tensor_parallel * ranks
            message = f"slices each expert over {gpus} GPUs, which all compute the tokens of all"
            ways = [in_roles(served, name, "expertParallel", [True])]
            yield Fault(place, message, ranks, say("with {expertParallel}: true"), level=Level.WARNING, ways=ways)
        if role.pipeline_parallel > 1:
            message = say("with {pipelineParallel} {} is in no published recipe, so it may not start", role.pipeline_parallel)
            yield Fault(place, message, ranks, "1", level=Level.WARNING, ways=[use(f"{path}.pipelineParallel", 1), remove(place)])


@rule(
    "experts",
    Level.ERROR,
    Stage.FORM,
    f"{VLLM}docs/serving/expert_parallel_deployment.md",
    blocks_layout=True,
    judges="engine",
)
def experts(s: Subject) -> Iterator[Fault]:
    """With expert parallelism the GPUs of an engine divide the experts."""
    for served, name, role, path in s.roles():
        moe, tp, dp = served.facts.moe, role.tensor_parallel, role.data_parallel
        if moe is None or not role.expert_parallel or moe.experts % (tp * dp) == 0:
            continue
        if moe.experts % tp:
            fitting = [n for n in SIZES if moe.experts % n == 0]
            ways = [in_roles(served, name, "tensorParallel", near([n for n in PROPOSED if n in fitting], tp)), remove(f"{path}.expertParallel")]
            yield Fault(f"{path}.tensorParallel", f"does not divide the {moe.experts} experts", tp, ", ".join(map(str, fitting)), ways=ways)
        else:
            fitting = [n for n in SIZES if moe.experts % (n * tp) == 0]
            message = say("with {tensorParallel} {} makes {} GPUs, which do not divide the {} experts", tp, tp * dp, moe.experts)
            ways = [in_roles(served, name, "dataParallel", near(fitting, dp))]
            yield Fault(f"{path}.dataParallel", message, dp, ", ".join(map(str, fitting)), ways=ways)


@rule(
    "all-to-all",
    Level.ERROR,
    Stage.FORM,
    f"{VLLM}docs/serving/expert_parallel_deployment.md and {VLLM}docker/Dockerfile.efa",
    judges="engine",
)
def all_to_all(s: Subject) -> Iterator[Fault]:
    """Over nodes, experts exchange tokens by a backend that works on EFA with this image; one that is set is used."""
    for served, name, role, path in s.roles():
        backend, place = role.all2all_backend, f"{path}.all2allBackend"
        if backend is None:
            continue
        if not (role.expert_parallel and role.data_parallel > 1):
            idle = say("has no effect without {dataParallel} and {expertParallel}")
            yield Fault(place, idle, backend, "without it", level=Level.WARNING, ways=[remove(place)])
        if backend in REMOVED:
            message = f"was removed from vLLM, which uses {ANYWHERE} instead"
            yield Fault(place, message, backend, ", ".join(_works(served)), ways=[remove(place)])
        elif group_size(role, served.instances[name]) > 1 and backend not in _works(served):
            message = f"{NEEDS[backend]}, but the nodes are joined by EFA"
            # who wrote an engine entry of their own with DeepEP may have one that runs over EFA, and only they know
            own = served.engine.deep_ep and backend.startswith("deepep_") and s.catalog.engines.is_added(served.spec.engine)
            advice = say("list it in {overEfa} of the engine's entry, if its DeepEP runs over EFA") if own else ""
            level = Level.WARNING if own else None
            yield Fault(place, message, backend, ", ".join(_works(served)), advice, level, [use(place, ANYWHERE), remove(place)])
    for served in s.served:
        wide = [name for name, role in served.spec.roles.items() if group_size(role, served.instances[name]) > 1]
        variables = {extra for name in wide for variable, extra in variables_of(served.spec, name).items() if variable == IBGDA_VARIABLE}
        for place, direct in sorted(variables):
            if direct.lower() not in OFF:
                path = f"{served.path}.{place}"
                yield Fault(path, "needs InfiniBand, which no EFA card is", direct, "0", ways=[remove(path)])


def _works(served: Served) -> list[str]:
    """Backends that work over nodes with a model's image."""
    return list(dict.fromkeys([ANYWHERE, *([EFA_DEEP_EP] if served.engine.deep_ep else []), *served.engine.over_efa]))
