"""Runs rules: their faults become findings, with the corrections that were tried."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..catalog import Catalog
from ..errors import Finding
from ..phrases import join
from ..place import Place
from ..planning.pairs import belonging
from ..spec import EnvironmentSpec
from .fixes import words
from .registry import Fault, Rule, Stage, Subject, of_stage
from .trials import Trials

if TYPE_CHECKING:
    from .declared import Declared


def run_stage(subject: Subject, stage: Stage) -> list[Finding]:
    """The findings of all rules of one stage."""
    return findings_of(subject, of_stage(stage))


def check_objects(objects: Sequence[Declared]) -> list[Finding]:
    """The findings about what a program declares, whoever wrote it."""
    nothing = EnvironmentSpec.model_construct(models=[])
    return run_stage(Subject(nothing, Catalog(), [], objects=objects), Stage.OBJECTS)


def findings_of(subject: Subject, chosen: Iterable[Rule]) -> list[Finding]:
    """The findings of some rules."""
    faults = [(r, f) for r in chosen for f in r.check(subject.seen_in(r.stage))]
    trials = Trials(subject)

    def finding(r: Rule, f: Fault) -> Finding:
        found = trials.working(r, f) if f.ways and subject.mend else []
        advice = f.advice or ("" if found else f.otherwise)
        at = belonging(Place.parse(f.path))
        texts = [*(words(c, at) for c in found), *([advice] if advice else [])]
        fix = join(", or ", sorted(texts, key=lambda text: not text.startswith("add ")))  # what is missing is added rather than done without
        return Finding(r.id, f.level or r.level, f.path, f.message, f.value, f.allowed, fix, r.reference, corrections=tuple(found))

    return [finding(r, f) for r, f in faults]
