"""Which runs measure what: the expected traffic, prefill alone at its limit, decode at its limit within a pace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from ..corrections import written
from ..errors import Finding, Level, SpecError
from ..forecast.balance import BalanceError, Workload, batch_limit
from ..forecast.capacities import capacity_of, shape_of
from ..manifests.load import Run
from ..phrases import say
from ..planning.scaling import scaled
from ..planning.shapes import Group, Layout, Served
from ..spec import WorkloadSpec

TRAFFIC_SECONDS, FEWEST = 300, 20
PREFILL_DEPTH, PREFILL_STEPS, STEP_TOKENS = 8, 4, 8192
"""Requests that wait at each data-parallel rank of prefill: at least so many, and enough for so many steps of vLLM's default size on an H100."""
PREFILL_ROUNDS, DECODE_ROUNDS = 16, 4
"""Requests of a run, as a multiple of its concurrency: the more, the less the beginning and the end of the run weigh."""


class RunKind(StrEnum):
    """What a run is for."""

    TRAFFIC = "traffic"
    PREFILL = "prefill"
    DECODE = "decode"


def first_runs(layout: Layout, served: Served, kinds: Sequence[RunKind], seed: int) -> list[Run]:
    """The runs of a model, in order. Raises SpecError where the stack file does not say what they would need."""
    work, path = served.spec.workload, served.path
    if work is None:
        example = written({"inputTokens": 8000, "outputTokens": 1000, "requestsPerSecond": 2})
        raise SpecError([Finding("load", Level.ERROR, f"{path}.workload", "is missing: a load run sends what it says", None, example, "add it")])
    groups = {g.role: g for g in layout.groups_of(served)}
    runs = []
    for i, kind in enumerate(kinds):
        if kind is RunKind.TRAFFIC:
            runs.append(traffic(work, seed + i))
            continue
        group = groups.get("prefill" if kind is RunKind.PREFILL else "decode")
        if group is None:
            message = f"a {kind} run needs prefill and decode: the planner defines no rate for a server"
            raise SpecError([Finding("load", Level.ERROR, path, message, None, "", "use the traffic run")])
        runs.append(prefill(work, group, seed + i) if kind is RunKind.PREFILL else decode(work, group, seed + i))
    return runs


def refuse_scaled(layout: Layout, chosen: Sequence[Served], kinds: Sequence[RunKind]) -> None:
    """Raise SpecError where a run measures a role whose number of engines could change meanwhile: a rate is divided by their GPUs."""
    found = []
    for group in scaled(g for served in chosen for g in layout.groups_of(served)):
        least, most = group.spec.least_replicas, group.spec.most_replicas
        if group.role in {kind.value for kind in kinds} and least != most:
            message = f"lets the autoscaler add engines while a {group.role} run fills the queue, so a rate of one GPU could not be told"
            fix = say("set {minReplicaCount} and {maxReplicaCount} to the same number for the time of the run")
            found.append(Finding("load", Level.ERROR, f"{group.path}.autoscaling", message, f"{least} to {most}", "a fixed number", fix))
    if found:
        raise SpecError(found)


def traffic(work: WorkloadSpec, seed: int) -> Run:
    """Requests as the stack file expects them, arriving at random for five minutes."""
    requests = max(FEWEST, math.ceil(work.requests_per_second * TRAFFIC_SECONDS))
    return Run(RunKind.TRAFFIC.value, work.input_tokens, work.output_tokens, requests, seed, rate=work.requests_per_second)


def prefill(work: WorkloadSpec, group: Group, seed: int) -> Run:
    """Prompts with an answer of one token, more at a time than prefill can take: the queue of no rank is ever empty, and decode idles."""
    step = group.spec.max_num_batched_tokens or STEP_TOKENS
    depth = max(PREFILL_DEPTH, math.ceil(PREFILL_STEPS * step / work.input_tokens))
    concurrency = depth * group.spec.data_parallel * group.replicas
    return Run(RunKind.PREFILL.value, work.input_tokens, 1, concurrency * PREFILL_ROUNDS, seed, concurrency=concurrency)


def decode(work: WorkloadSpec, group: Group, seed: int) -> Run:
    """As many requests at a time as the KV caches of all decode ranks hold, each request whole in one of them.

    Raises SpecError where they hold none or that is not known.
    """
    known, expected = capacity_of(group), Workload(work.input_tokens, work.output_tokens)
    try:
        batch = batch_limit(shape_of(group).sequence_slots, known.kv_tokens.mid if known else 0, expected)
    except BalanceError as problem:
        raise SpecError([Finding("load", Level.ERROR, group.path, f"cannot be loaded: {problem}")]) from None
    concurrency = batch * group.spec.data_parallel * group.replicas
    return Run(RunKind.DECODE.value, work.input_tokens, work.output_tokens, concurrency * DECODE_ROUNDS, seed, concurrency=concurrency)


def slower(run: Run, factor: float) -> Run | None:
    """The same with fewer requests at a time; None when there is nothing left to take away."""
    concurrency = math.floor((run.concurrency or 0) * factor)
    if not 1 <= concurrency < (run.concurrency or 0):
        return None
    return replace(run, concurrency=concurrency, requests=concurrency * DECODE_ROUNDS, seed=run.seed + 1000)


def longer(run: Run, most: int) -> Run | None:
    """The same with answers twice as long, so that each prompt keeps decode busy longer; None beyond the longest sequence."""
    output = run.output_tokens * 2
    return replace(run, output_tokens=output, seed=run.seed + 1000) if run.input_tokens + output <= most else None
