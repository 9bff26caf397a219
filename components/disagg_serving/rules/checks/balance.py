"""Rules about traffic: is there enough of each role, and is a split the better choice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...errors import Level
from ...forecast.balance import BalanceError, Workload, advice
from ...forecast.balance.rates import figure
from ...forecast.needs import InFlight, Need, in_flight, needs_of, phases_of
from ...forecast.situation import bound_of, rates_of_other_forms, situation_of
from ...planning.scaling import at_most
from ...planning.shapes import Group, Served
from ...spec.serving import RoleName, WorkloadSpec
from ..documents import LLM_D
from ..registry import Fault, Stage, Subject, rule

FULL = 0.6
"""Share of a bound above which traffic is worth a warning: our judgement, since no engine reaches a bound."""
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
        for group in at_most(s.layout).groups_of(served) if s.layout else ():
            for key, sentence in rates_of_other_forms(group):
                fix = "measure it on this form: `disagg bench`"
                yield Fault(f"{group.path}.{key}.measuredOn", sentence.removeprefix(f"{key} "), None, "the role's own form", fix, Level.INFO)
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
    """Traffic stays well below the bounds of the GPUs and of decode's KV cache, and no measured rate is beyond them; a server's are said."""
    for served in s.served if s.layout else ():
        wanted = served.spec.workload
        if wanted is None or s.layout is None:
            continue
        groups = at_most(s.layout).groups_of(served)
        measured = len(groups) > 1 and all(g.spec.measured_rates for g in groups)  # of their load rule load speaks
        demands = [_Demand(g, [] if measured else needs_of(g, wanted), in_flight(g, wanted)) for g in groups]
        enough = {f"{served.path}.{_number(served, t.group.role)}": math.ceil(t.group.replicas * t.factor) for t in demands if t.factor > 1}
        for demand in demands:
            yield from _rates_beyond(demand.group, wanted)
            for message, factor in demand.too_much():
                allowed = f"at most {figure(wanted.requests_per_second / factor)} requests/s here"
                otherwise = "run more engines, with nodes for them"
                yield Fault(f"{served.path}.workload", message, wanted.requests_per_second, allowed, ways=[[enough]], otherwise=otherwise)
            if demand.group.role == "server" and demand.factor <= 1 and demand.needs:
                message = f"is set against bounds alone, since prompts and answers share the GPUs of server: {demand}"
                yield Fault(f"{served.path}.workload", message, None, "", "measure it: `disagg bench`", Level.INFO)


class _Demand(NamedTuple):
    """What traffic takes of a role at the least."""

    group: Group
    needs: Sequence[Need]
    held: InFlight | None

    @property
    def share(self) -> float:
        """Of what the bounds leave to its GPUs; prompts and answers on the same GPUs add up."""
        return sum(need.share for need in self.needs)

    @property
    def factor(self) -> float:
        """How many times as many engines are enough."""
        return max((factor for _, factor in self.too_much()), default=1.0)

    def too_much(self) -> Iterator[tuple[str, float]]:
        """What is beyond or near a bound, and by which factor it is too much."""
        if self.share > FULL:
            what = f"asks {figure(self.share)} times what the bounds leave to" if self.share > 1 else "comes near what the bounds leave to"
            yield f"{what} the GPUs of {self.group.role}: {'; '.join(map(str, self.needs))}", self.share / FULL
        if self.held and self.held.too_many and self.held.held.low:
            yield (
                f"keeps more in decode at once than the KV cache of {self.group.role} surely holds: {self.held.beside}",
                self.held.requests.low / self.held.held.low,
            )

    def __str__(self) -> str:
        return "; ".join(map(str, [*self.needs, *([self.held] if self.held else [])]))


def _rates_beyond(group: Group, wanted: WorkloadSpec) -> Iterator[Fault]:
    for i, rate in enumerate(group.spec.measured_rates if group.role != "server" else ()):
        bound = bound_of(group, phases_of(group)[0], Workload(rate.input_tokens, wanted.output_tokens))
        most = bound.never_passed if bound else None
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
