"""A first layout for a model, its traffic and the nodes there are: what `disagg init` writes.

Layouts are tried in the order of preference and judged by the checks of every other command, so what is proposed passes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..catalog import Catalog, Instance, load_catalog
from ..errors import Finding, Level, SpecError, sort_findings
from ..forecast.capacities import capacities
from . import StackContext
from .evaluation import Evaluation, evaluate

TENSOR_PARALLEL = (1, 2, 4, 8)
PIPELINE_PARALLEL = (1, 2, 4)
ROOM = 4
"""Requests of the longest length, in the low estimate, below which a larger engine is preferred: with fewer one long prompt stops the others."""
MOST_NODES = 8
"""Nodes up to which a smallest layout is looked for when their number is not given."""
HEAD_ROOM = 2
"""The proposed context is so many times the mean prompt and answer, rounded up to a power of two: our judgement, since only the mean is asked."""


@dataclass(frozen=True)
class Wish:
    """What a new environment is for. `nodes` None means the fewest that work; tokens are means of one request."""

    name: str
    model: str
    region: str
    zones: tuple[str, ...]
    instance_type: str = ""
    nodes: int | None = None
    gpu_zone: str | None = None
    disaggregated: bool = True
    reservation_ids: tuple[str, ...] = ()
    input_tokens: int = 8000
    output_tokens: int = 1000
    requests_per_second: float = 1.0
    prefix_hit: float = 0.0
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    percentile: int = 90
    kv_cache_dtype: str = "auto"
    repository: str | None = None
    max_model_len: int | None = None
    admin_role_arns: tuple[str, ...] = ()
    public_access_cidrs: tuple[str, ...] = ()
    catalog_dirs: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Proposal:
    """An environment in the stack file's own keys, its checks, and why it is not what was asked for (or an empty text)."""

    environment: dict[str, Any]
    evaluation: Evaluation
    reason: str = ""


def propose(wish: Wish, base: Path) -> Proposal:
    """The first layout without errors, roomy and quiet ones first. Raises SpecError when no layout passes, with what stops the nearest one."""
    catalog = load_catalog(wish.catalog_dirs, base)
    unknown = _unknown(wish, catalog)
    if unknown:
        raise SpecError(unknown)
    instance = catalog.instances[wish.instance_type]
    stack = StackContext(wish.region)
    good: list[tuple[tuple[bool, int], Proposal]] = []
    stopped: dict[bool, list[Evaluation]] = {True: [], False: []}
    for split in (True, False) if wish.disaggregated else (False,):
        reason = _why_not_split(stopped[True]) if wish.disaggregated and not split else ""
        for nodes in range(1, MOST_NODES + 1) if wish.nodes is None else (wish.nodes,):
            for roles in _layouts(nodes, instance, wish, split=split):
                environment = environment_of(wish, catalog, roles)
                found = evaluate(environment, base, stack)
                if found.ok:
                    good.append((_rank(found), Proposal(environment, found, reason)))
                else:
                    stopped[split].append(found)
            if any(not cramped for (cramped, _), _ in good):
                break
        if good:
            return min(good, key=lambda pair: pair[0])[1]
    raise SpecError(_errors(_nearest([*stopped[True], *stopped[False]])))


def _unknown(wish: Wish, catalog: Catalog) -> list[Finding]:
    found = []
    if wish.model not in catalog.models:
        found.append(catalog.unknown_model("model", wish.model))
    if wish.instance_type not in catalog.instances:
        found.append(catalog.instances.missing("instanceType", wish.instance_type))
    return sort_findings(found)


def _layouts(nodes: int, instance: Instance, wish: Wish, *, split: bool) -> Iterator[dict[str, Any]]:
    """Roles that fill the nodes, small engines first."""
    gpus = instance.gpu.count
    sizes = [size for size in TENSOR_PARALLEL if size <= gpus]
    if split:
        prefill = nodes // 2
        for size in sizes if prefill else ():
            yield {
                "prefill": _role(wish, prefill * gpus // size, size, 1, prefill),
                "decode": _role(wish, (nodes - prefill) * gpus // size, size, 1, nodes - prefill),
            }
        return
    for stages in PIPELINE_PARALLEL:
        for size in sizes if stages == 1 else (gpus,):
            engines = nodes * gpus // (size * stages)
            if engines:
                yield {"server": _role(wish, engines, size, stages, nodes)}


def _role(wish: Wish, replicas: int, tensor_parallel: int, pipeline_parallel: int, nodes: int) -> dict[str, Any]:
    role: dict[str, Any] = {"instanceType": wish.instance_type, "replicas": replicas, "tensorParallel": tensor_parallel}
    if pipeline_parallel > 1:
        role["pipelineParallel"] = pipeline_parallel
    if wish.reservation_ids:
        role["capacity"] = {"type": "reserved", "reservationIds": list(wish.reservation_ids), "nodes": nodes}
    return role


def environment_of(wish: Wish, catalog: Catalog, roles: dict[str, Any]) -> dict[str, Any]:
    """An environment in the stack file's own keys, with these roles."""
    context = catalog.models[wish.model].context_length if wish.max_model_len is None else 0
    cluster: dict[str, Any] = {}
    if wish.admin_role_arns:
        cluster["adminRoleArns"] = list(wish.admin_role_arns)
    if wish.public_access_cidrs:
        cluster["endpoint"] = {"publicAccessCidrs": list(wish.public_access_cidrs)}
    return {
        **({"catalogDirs": list(wish.catalog_dirs)} if wish.catalog_dirs else {}),
        **({"cluster": cluster} if cluster else {}),
        "network": {"zones": list(wish.zones), **({"gpuZone": wish.gpu_zone} if wish.gpu_zone else {})},
        "models": [
            {
                "name": wish.name,
                "model": wish.model,
                **({"repository": wish.repository} if wish.repository else {}),
                "maxModelLen": wish.max_model_len or proposed_context(wish, context),
                **({"kvCacheDtype": wish.kv_cache_dtype} if wish.kv_cache_dtype != "auto" else {}),
                **roles,
                "workload": _workload(wish),
            }
        ],
    }


def _workload(wish: Wish) -> dict[str, Any]:
    limits = {"ttftMs": wish.ttft_ms, "tpotMs": wish.tpot_ms}
    return {
        "inputTokens": wish.input_tokens,
        "outputTokens": wish.output_tokens,
        "requestsPerSecond": _plain(wish.requests_per_second),
        **({"prefixHit": wish.prefix_hit} if wish.prefix_hit else {}),
        **{key: _plain(value) for key, value in limits.items() if value},
        **({"percentile": wish.percentile} if any(limits.values()) else {}),
    }


def _plain(number: float) -> float:
    """A whole number without its fraction."""
    return int(number) if number == int(number) else number


def model_name(model: str) -> str:
    """A name for a model's objects: its id in lower case, letters, digits and hyphens."""
    name = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")[:40].strip("-")
    return name if name[:1].isalpha() else f"m-{name}".rstrip("-")


def proposed_context(wish: Wish, most: int) -> int:
    """Tokens of the longest request, from the mean one; at most the model's context."""
    wanted = HEAD_ROOM * (wish.input_tokens + wish.output_tokens)
    return int(min(most, 1 << max(wanted - 1, 1).bit_length()))


def _rank(found: Evaluation) -> tuple[bool, int]:
    """Roomy before cramped, then few warnings; the order of the layouts decides the rest."""
    held = [engine.max_concurrency.low for engine in capacities(found.require_layout())]
    return (not held or min(held) < ROOM, sum(f.level is Level.WARNING for f in found.findings))


def _errors(found: Evaluation) -> list[Finding]:
    return [f for f in found.findings if f.level is Level.ERROR]


def _nearest(stopped: list[Evaluation]) -> Evaluation:
    """The layout with the fewest errors, the largest engines among equals: what stops it stops the others as well."""
    return min(reversed(stopped), key=lambda found: len(_errors(found)))


def _why_not_split(stopped: list[Evaluation]) -> str:
    if not stopped:
        return "one role, because separate prefill and decode need two nodes or more"
    first = _errors(_nearest(stopped))[0]
    return f"one role, because with separate ones {first.path}: {first.value} {first.message}"
