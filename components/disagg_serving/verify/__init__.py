"""Does the running cluster match what the stack file means: pure comparison of a snapshot with the generated objects.

`reader` and `connection` talk to the cluster; everything else here takes and gives plain data.
"""

from __future__ import annotations

from ..planning.shapes import Layout
from . import engine_answers, nodes, objects, pods, router, scaling, versions
from . import leader_worker_sets as sets
from .points import Point, Status, sort_points
from .snapshot import Snapshot
from .view import View

__all__ = ["Point", "Snapshot", "Status", "sort_points", "verify"]

CHECKS = (versions.check, objects.check, sets.check, scaling.check, pods.check, nodes.check, router.check, engine_answers.check)


def verify(layout: Layout, snapshot: Snapshot) -> list[Point]:
    """All points of an environment: failed ones first, then what could not be seen. Nothing fails twice for one cause."""
    view = View(layout, snapshot)
    return sort_points(point for check in CHECKS for point in check(view))
