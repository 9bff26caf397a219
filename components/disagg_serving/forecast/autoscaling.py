"""When the number of engines changes: signals with their thresholds, the pace, and what the most engines take."""

from __future__ import annotations

from typing import Literal, NamedTuple

from ..planning.shapes import Group, world_size
from ..planning.startup import BASE_SECONDS, load_seconds, startup_budget_seconds
from .balance import BalanceError
from .situation import rate_curve

SignalName = Literal["backlogSeconds", "waitingRequests", "kvCacheUsage"]
"""Signals by the key of their threshold."""

BACKLOG_SECONDS, KV_CACHE_USAGE = 1.5, 0.8
"""llm-d's guide of token-aware scaling: the share of a time to first token of about 2 s that may go into waiting, and the use of the KV
cache before vLLM admits no more (https://github.com/llm-d/llm-d/tree/56cb1218/guides/workload-autoscaling/keda-epp-token-aware)."""
WAITING_REQUESTS = 4.0
"""Requests that may queue in an engine: our choice, since no public run says; with measured rates seconds take its place."""
LONGEST_PERIOD, LONGEST_WINDOW = 1800, 3600
"""Limits of a HorizontalPodAutoscaler: seconds of a policy's period, and of a stabilization window (Kubernetes: autoscaling/v2)."""


class Signal(NamedTuple):
    """What one engine may carry before another is wanted. `rate`: prompt tokens a second of one engine, for backlogSeconds."""

    name: SignalName
    threshold: float
    rate: float | None = None


class Pace(NamedTuple):
    """Seconds between two engines that are added, and seconds for which fewer must have sufficed before one goes."""

    up_period: int
    down_window: int


def signals(group: Group) -> list[Signal]:
    """What a scaled role is scaled on; the one that wants most engines wins.

    Thresholds that the stack file gives choose their signals; without any, prompts are judged by the time that they wait where a rate was
    measured, else by the queue, and answers by the KV cache that they hold.
    """
    given = group.spec.autoscaling
    if given is None:
        return []
    rate = prompt_rate(group)
    wanted: dict[SignalName, float | None] = {
        "backlogSeconds": given.backlog_seconds,
        "waitingRequests": given.waiting_requests,
        "kvCacheUsage": given.kv_cache_usage,
    }
    if not any(wanted.values()):
        by_time = rate is not None and group.served.spec.gateway.enabled
        if group.role != "decode":
            wanted |= {"backlogSeconds": BACKLOG_SECONDS} if by_time else {"waitingRequests": WAITING_REQUESTS}
        if group.role != "prefill":
            wanted["kvCacheUsage"] = KV_CACHE_USAGE
    return [Signal(name, threshold, rate if name == "backlogSeconds" else None) for name, threshold in wanted.items() if threshold is not None]


def counts_tokens(group: Group) -> bool:
    """Whether a role's number follows the router's count of tokens in flight."""
    return any(s.name == "backlogSeconds" for s in signals(group))


def prompt_rate(group: Group) -> float | None:
    """Prompt tokens a second of one engine at the workload's mean prompt; without a workload the slowest measured rate; None without any.

    A rate of another form of engine counts with its low end, so that an engine is rather added early.
    """
    work = group.served.spec.workload
    if not group.spec.measured_rates or group.role == "decode":
        return None
    curve = rate_curve(group)
    try:
        points = curve.points if work is None else (curve.at(work.input_tokens),)
    except BalanceError:  # rule `load` says that the rates do not reach
        return None
    return min(point.span.low for point in points) * world_size(group.spec)


def ready_seconds(group: Group) -> int:
    """Seconds until an added engine serves, at the slow end and without the start of a node."""
    return round(BASE_SECONDS + load_seconds(group.served))


def pace(group: Group) -> Pace:
    """The pace of a scaled role.

    An engine is added when the last one could serve, since before that nothing is known of its effect; one is removed when it has not been
    missed for as long as it would take to get it back.
    """
    given = group.spec.autoscaling
    up, down = (given.scale_up_period_seconds, given.scale_down_window_seconds) if given else (None, None)
    return Pace(
        min(LONGEST_PERIOD, ready_seconds(group)) if up is None else up,
        min(LONGEST_WINDOW, startup_budget_seconds(group.served)) if down is None else down,
    )
