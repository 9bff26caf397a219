"""Rules about measured memory: a calibration has to be of the engine that it stands at."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import Level, SpecError
from ...forecast.capacities import shape_of
from ...forecast.fit.capacity import calibration_doubts, calibration_faults
from ...phrases import say
from ...planning.shapes import Group
from ..documents import VLLM
from ..registry import Fault, Stage, Subject, rule


@rule("calibration", Level.ERROR, Stage.LAYOUT, f"{VLLM}vllm/v1/core/kv_cache_utils.py (get_kv_cache_capacity)")
def calibration(s: Subject) -> Iterator[Fault]:
    """A role's calibration agrees with itself and with the engine: from another engine's log, every check of memory would be wrong."""
    for group in s.layout.groups if s.layout else ():
        measured = group.spec.calibration
        if measured is None:
            continue
        values = {"weightsGiB": measured.weights_gib, "kvCacheGiB": measured.kv_cache_gib, "kvCacheTokens": measured.kv_cache_tokens}
        for name, message in _faults(group):
            fix = "take the figures from a log of this very engine: `disagg fit --log` prints them"
            # of a model whose entry a person wrote, the log knows more than the entry
            level = Level.WARNING if name == "weightsGiB" and s.catalog.models.is_added(group.served.spec.model) else None
            yield Fault(f"{group.path}.calibration.{name}", message, values[name], "figures of one start of this engine", fix, level)
        for name, message in _doubts(group):
            fix = say("see that the log is of this engine on a GPU of its own, and give the {gpuMemoryUtilization} that it was taken at")
            place = f"{group.path}.calibration.{name}"
            yield Fault(place, message, values[name], "figures of one start of this engine", fix, Level.WARNING)


def _doubts(group: Group) -> list[tuple[str, str]]:
    try:
        return calibration_doubts(shape_of(group))
    except SpecError:
        return []


def _faults(group: Group) -> list[tuple[str, str]]:
    try:
        return calibration_faults(shape_of(group))
    except SpecError:  # what cannot be calculated is said by others
        return []
