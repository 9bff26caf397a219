"""Rules about traffic: is there enough of each role, and is a split the better choice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ...errors import Level
from ...forecast.balance import BalanceError, Bound, Workload, advice
from ...forecast.balance.rates import figure
from ...forecast.situation import Phase, bound_of, situation_of
from ...planning.scaling import at_most
from ...planning.shapes import Group, Served, world_size
from ...spec.serving import RoleName, WorkloadSpec
from ..documents import LLM_D
from ..registry import Fault, Stage, Subject, rule

BUSY = 0.7
"""Utilisation of prefill above which waiting grows fast: 1.2 service times at 0.7, 4.5 at 0.9 (M/D/1)."""


@rule(
    "load",
    Level.WARNING,
    Stage.LAYOUT,
    "docs/forecast.md and, for M/D/1 queues, https://arxiv.org/abs/2401.09670",
    reads=("workload", "measuredRates"),
)
def load(s: Subject) -> Iterator[Fault]:
    """With measured rates, both roles carry the expected traffic with some head-room, and neither is far from the best ratio."""
    for served in s.served if s.layout else ():
        path, wanted = f"{served.path}.workload", served.spec.workload
        try:
            known = situation_of(at_most(s.layout), served) if s.layout else None
        except BalanceError as problem:
            yield Fault(
                f"{served.path}.prefill.measuredRates", f"cannot be used: {problem}", None, "a rate at about this prompt length", "measure one"
            )
            continue
        if known is None or known.room is None or wanted is None:
            continue
        shares: dict[RoleName, float] = {"prefill": known.room.prefill_utilisation, "decode": known.room.decode_utilisation}
        busy = {role: share for role, share in shares.items() if share > BUSY}
        engines = {g.role: g.replicas for g in at_most(s.layout).groups_of(served)} if s.layout else {}
        enough = {f"{served.path}.{_number(served, role)}": math.ceil(engines[role] * share / BUSY) for role, share in busy.items()}
        for role, share in busy.items():
            message = f"keeps {role} busy {share:.0%} of the time"
            most = wanted.requests_per_second * BUSY / share
            allowed, otherwise = f"at most {figure(most)} requests/s here", "run more engines, with nodes for them"
            yield Fault(path, message, wanted.requests_per_second, allowed, ways=[[enough]], otherwise=otherwise)
        for note in advice(known).notes:
            yield Fault(path, note.text, None, "", "", Level.INFO)


@rule(
    "rates-unused",
    Level.INFO,
    Stage.FORM,
    "docs/forecast.md",
    reads=("measuredRates",),
)
def rates_unused(s: Subject) -> Iterator[Fault]:
    """Measured rates that change nothing are named: those of one role alone, and those without a workload, unless the role is scaled by them."""
    for served, name, role, path in s.roles():
        if not role.measured_rates or (role.autoscaling is not None and name != "decode"):
            continue
        place = f"{path}.measuredRates"
        unmeasured = [side for side, other in served.spec.roles.items() if not other.measured_rates]
        if name == "server":
            yield Fault(place, "has no effect on server: rates of prefill and decode are compared", None, "rates of prefill and decode")
        elif unmeasured:
            message = f"has no effect while {unmeasured[0]} has none: the slower of both bounds the traffic"
            yield Fault(place, message, None, "rates of prefill and decode", "measure those of the other role")
        elif served.spec.workload is None:
            yield Fault(place, "has no effect without a workload: nothing says what they have to carry", None, "with workload", "set workload")


@rule(
    "traffic-bounds",
    Level.WARNING,
    Stage.LAYOUT,
    "docs/forecast.md",
    reads=("workload", "measuredRates"),
)
def traffic_bounds(s: Subject) -> Iterator[Fault]:
    """Neither expected traffic nor a measured rate is beyond the bounds of the GPUs; for one role that does both, these are said."""
    for served in s.served if s.layout else ():
        wanted = served.spec.workload
        if wanted is None or s.layout is None:
            continue
        workload = Workload(wanted.input_tokens, wanted.output_tokens, wanted.prefix_hit)
        groups = at_most(s.layout).groups_of(served)
        for group in groups:
            yield from _rates_beyond(group, workload)
        if len(groups) > 1 and all(g.spec.measured_rates for g in groups):
            continue  # of these rule load speaks
        bounds = {g.role: {phase: b for phase in _phases(g) if (b := bound_of(g, phase, workload))} for g in groups}
        shares = {g.role: _share(g, bounds[g.role], wanted) for g in groups}
        enough = {f"{served.path}.{_number(served, g.role)}": math.ceil(g.replicas * shares[g.role]) for g in groups if shares[g.role] > 1}
        for group in groups:
            share, text = shares[group.role], "; ".join(map(str, bounds[group.role].values()))
            if share > 1:
                message = f"asks {figure(share)} times what the bounds leave to the GPUs of {group.role}: {text}"
                allowed, otherwise = f"at most {figure(wanted.requests_per_second / share)} requests/s here", "run more engines, with nodes for them"
                yield Fault(f"{served.path}.workload", message, wanted.requests_per_second, allowed, ways=[[enough]], otherwise=otherwise)
            elif group.role == "server" and text:
                message = f"is set against bounds alone, since prompts and answers share the GPUs of server: {text}"
                yield Fault(f"{served.path}.workload", message, None, "", "measure it: `disagg bench`", Level.INFO)


def _share(group: Group, bounds: Mapping[Phase, Bound], wanted: WorkloadSpec) -> float:
    """What the traffic takes of a role's GPUs at the least: 1 is all of them."""
    asked = {"prefill": wanted.input_tokens * (1 - wanted.prefix_hit), "decode": wanted.output_tokens}
    gpus = group.replicas * world_size(group.spec)
    return sum(wanted.requests_per_second * asked[phase] / gpus / most for phase, b in bounds.items() if (most := _most(group, phase, b)))


def _phases(group: Group) -> tuple[Phase, ...]:
    return ("prefill",) if group.role == "prefill" else ("decode",) if group.role == "decode" else ("prefill", "decode")


def _most(group: Group, phase: Phase, bound: Bound) -> float | None:
    """Tokens a second and GPU that cannot be passed; drafts that are all accepted multiply those of decode."""
    drafts = group.served.spec.speculative
    return bound.high * (1 + drafts.num_speculative_tokens if drafts and phase == "decode" else 1) if bound.high else None


def _rates_beyond(group: Group, workload: Workload) -> Iterator[Fault]:
    for i, rate in enumerate(group.spec.measured_rates if group.role != "server" else ()):
        phase = _phases(group)[0]
        bound = bound_of(group, phase, replace(workload, input_tokens=rate.input_tokens))
        most = _most(group, phase, bound) if bound else None
        if most and rate.tokens_per_second_per_gpu > most:
            place = f"{group.path}.measuredRates[{i}].tokensPerSecondPerGPU"
            fix = "divide the engine's rate by its GPUs, and count no prompt tokens that the prefix cache held"
            yield Fault(place, f"is beyond the bound of a GPU: {bound}", rate.tokens_per_second_per_gpu, f"at most {figure(most)}", fix)


@rule(
    "aggregated-better",
    Level.INFO,
    Stage.LAYOUT,
    "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-dpd.html "
    f"{LLM_D}027a0532/guides/pd-disaggregation/README.md "
    "https://docs.gpustack.ai/gpustack-operator/v0.11.2/docs/walkthroughs/model-deployment/prefill-decode/ "
    "https://docs.nvidia.com/dynamo/kubernetes-deployment/cloud-provider-guides/aws/efa-rdma-over-aws-fabric",
    reads=("workload", "measuredRates"),
)
def aggregated_better(s: Subject) -> Iterator[Fault]:
    """Where public advice speaks for one role that does both, the plan says so: a split buys steady answers, not throughput."""
    for served in s.served if s.layout else ():
        try:
            known = situation_of(at_most(s.layout), served) if s.layout else None
        except BalanceError:
            continue
        if known is not None and (found := advice(known)).better == "aggregated":
            yield Fault(served.path, str(found), None, "server, or prefill and decode", "")


def _number(served: Served, role: RoleName) -> str:
    bound = "maxReplicaCount" if served.live else "minReplicaCount"
    return f"{role}.autoscaling.{bound}" if served.spec.roles[role].autoscaling else f"{role}.replicas"
