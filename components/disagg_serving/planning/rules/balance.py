"""Rules about traffic: is there enough of each role, and is a split the better choice."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...errors import Level
from ...spec.serving import RoleName
from ..autoscaling import at_most
from ..balance import BalanceError, advice
from ..forecast import situation_of
from ..shapes import Served
from .registry import Fault, Stage, Subject, rule

BUSY = 0.7
"""Utilisation of prefill above which waiting grows fast: 1.2 service times at 0.7, 4.5 at 0.9 (M/D/1)."""


@rule("load", Level.WARNING, Stage.LAYOUT, "disagg-serving: planning/balance, from measured rates; M/D/1 for the waiting time")
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
            allowed, otherwise = f"at most {most:.3g} requests/s here", "run more engines, with nodes for them"
            yield Fault(path, message, wanted.requests_per_second, allowed, ways=[[enough]], otherwise=otherwise)
        for note in advice(known).notes:
            yield Fault(path, note.text, None, "", "", Level.INFO)


@rule("rates-unused", Level.INFO, Stage.FORM, "disagg-serving: planning/balance compares prefill with decode")
def rates_unused(s: Subject) -> Iterator[Fault]:
    """Measured rates of one role that does both change nothing, unless it is scaled by them; the plan says so."""
    for served in s.served:
        server = served.spec.server
        if server is not None and server.measured_rates and server.autoscaling is None:
            message = "has no effect on server: rates of prefill and decode are compared"
            yield Fault(f"{served.path}.server.measuredRates", message, None, "rates of prefill and decode")


@rule("aggregated-better", Level.INFO, Stage.LAYOUT, "public runs of llm-d, AWS and Dynamo (planning/balance/advice.py)")
def aggregated_better(s: Subject) -> Iterator[Fault]:
    """Where public runs speak for one role that does both, the plan says so: a split buys steady answers, not throughput."""
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
