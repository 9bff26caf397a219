"""Rules about measured memory: a calibration has to be of the engine that it stands at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...errors import Level, SpecError
from ..fit.capacity import calibration_faults, capacity
from ..report import shape_of
from ..shapes import Group
from .registry import Fault, Stage, Subject, rule

MANY_TIMES = 3
"""How many times the most that is expected an overhead has to be before a record is doubted."""


@rule("calibration", Level.ERROR, Stage.LAYOUT, "vLLM: weights and KV cache share the budget, and tokens are the KV cache by the bytes of a token")
def calibration(s: Subject) -> Iterator[Fault]:
    """A role's calibration agrees with itself and with the engine: from another engine's log, every check of memory would be wrong."""
    for group in s.layout.groups if s.layout else ():
        measured = group.spec.calibration
        if measured is None:
            continue
        values = {"weightsGiB": measured.weights_gib, "kvCacheGiB": measured.kv_cache_gib, "kvCacheTokens": measured.kv_cache_tokens}
        for name, message in _faults(group):
            fix = "take the figures from a log of this very engine: `disagg fit --log` prints them"
            yield Fault(f"{group.path}.calibration.{name}", message, values[name], "figures of one start of this engine", fix)
        if message := _unlikely(group):
            fix, place = "see that the log is of this engine on a GPU of its own", f"{group.path}.calibration.kvCacheGiB"
            yield Fault(place, message, measured.kv_cache_gib, "figures of one start of this engine", fix, Level.WARNING)


def _unlikely(group: Group) -> str:
    """What is wrong with the overhead that a record leaves, or nothing."""
    try:
        shape = shape_of(group)
        usual = capacity(replace(shape, calibration=None)).overhead_gib
    except SpecError:
        return ""
    record = shape.calibration
    if record is None:
        return ""
    left = shape.gpu_memory_gib * (record.gpu_memory_utilization or shape.gpu_memory_utilization) - record.weights_gib - record.kv_gib
    if left <= MANY_TIMES * usual.high:
        return ""
    return f"leaves {left:.1f} GiB of a GPU's budget for overhead, far more than the {usual.low:.1f} to {usual.high:.1f} GiB of this engine"


def _faults(group: Group) -> list[tuple[str, str]]:
    try:
        return calibration_faults(shape_of(group))
    except SpecError:  # what cannot be calculated is said by others
        return []
