"""Waiting for an engine, as mean and percentile."""

from __future__ import annotations

import math

PERCENTILES = (50, 90, 95)
_NORMAL = {50: 0.0, 90: 1.2816, 95: 1.6449}


def waiting(busy: float, service: float, servers: int = 1, found: float | None = None) -> tuple[float, float]:
    """Mean wait in an M/D/c queue, and the mean of those that wait; in the unit of `service`.

    By Sakasegawa's approximation, https://doi.org/10.1007/BF02888260, with half of it for services that do not vary. `found` is how often an
    arrival finds a server at work, where that is more than what the work takes of its capacity: services that are shared by later arrivals.
    """
    queued = min(1.0, max(busy, found or 0)) ** (math.sqrt(2 * (servers + 1)) - 1)  # about the part of the requests that wait at all
    drained = service / (2 * servers * (1 - busy))
    return queued * drained, drained


def wait_at(percentile: int, busy: float, service: float, servers: int = 1, found: float | None = None) -> float:
    """The wait that so many percent of the requests stay below.

    Its tail is as if it were exponential, and no shorter than what is left, evenly spread, of the service that an arrival finds.
    """
    mean, drained = waiting(busy, service, servers, found)
    if mean <= 0:
        return 0.0
    longer = 1 - percentile / 100
    return max(0.0, drained * math.log(mean / drained / longer), service / servers * (1 - longer * drained / mean))


def crowd(percentile: int, mean: float) -> float:
    """Requests that a request finds beside itself over its whole life, at a percentile of all lives.

    Arrivals by chance make the number in service Poisson; over a life that is as long as its own memory, two thirds of its variance remain.
    """
    return mean + _NORMAL[percentile] * math.sqrt(2 * mean / 3)
