"""Corrections are tried before they are shown: done to the spec, they end their fault and break no rule that held before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from ..corrections import Correction, correct
from ..errors import Level, SpecError
from ..place import TOP, Place
from ..planning.layout import build_layout
from ..planning.pairs import belonging, pairs_of, with_candidate
from ..planning.shapes import Served
from ..spec import EnvironmentSpec, RoleSpec
from ..spec.places import role_of
from .registry import Fault, Rule, Stage, Subject, of_stage, with_layouts

MOST = 3
"""Corrections that a finding names at most."""
NEIGHBOURS = 8
"""Models up to which a correction of one is also tried beside the others; each trial takes time for every model."""

Complaint = tuple[str, Place, bool]
"""A rule, where it speaks, and whether only to inform; entries of one list are one place, because taking one out moves the others."""
_EACH = ""
"""The step that stands for all entries of a list."""


class _Verdict(IntEnum):
    """What a correction that ends its fault leaves, the best first."""

    CLEAN = 0
    REVEALS = 1
    """Errors of a layout that could not be seen before."""
    NO_LAYOUT = 2
    """Other errors that were there before and still leave the model without a layout."""
    WRONG = 3
    """The fault itself, or a new error."""


class _Outcome(NamedTuple):
    """What the rules say, as places counted: all of it, and the errors that the stack file does not accept, those of layouts apart.

    `laid_out` are the models of which all pairs have a layout.
    """

    complaints: Counter[Complaint]
    errors: Counter[Complaint]
    of_layouts: Counter[Complaint]
    laid_out: frozenset[int]


class Trials:
    """Runs the rules on corrected copies of a subject."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._alone: dict[int, _Trial] = {}

    def working(self, about: Rule, fault: Fault) -> list[Correction]:
        """Of each way the correction that works best, up to MOST; those that leave more are not named beside better ones."""
        found: list[tuple[_Verdict, Correction]] = []
        for way in fault.ways:
            best = self._best(about, fault, way, [c for _, c in found])
            found += [best] if best else []
            if sum(verdict is _Verdict.CLEAN for verdict, _ in found) == MOST:
                break
        least = min((verdict for verdict, _ in found), default=_Verdict.CLEAN)
        return [c for verdict, c in found if verdict is least][:MOST]

    def _best(self, about: Rule, fault: Fault, way: Iterable[Correction], known: list[Correction]) -> tuple[_Verdict, Correction] | None:
        best: tuple[tuple[_Verdict, int], Correction] | None = None
        for correction in (_as_written(self._subject.spec, c) for c in way):
            judged = (_Verdict.WRONG, 0) if correction in known else self._judge(about, fault, correction)
            if judged[0] is not _Verdict.WRONG and (best is None or judged < best[0]):
                best = judged, correction
            if judged[0] is _Verdict.CLEAN:
                break
        return (best[0][0], best[1]) if best else None

    def _judge(self, about: Rule, fault: Fault, correction: Correction) -> tuple[_Verdict, int]:
        """The verdict, and how many errors are revealed."""
        here = _complaint(about, fault)
        index = _model_of(map(Place.parse, (fault.path, *correction)))
        if index is None or len({v.index for v in self._subject.served}) == 1:
            return self._whole.judge(here, correction)
        alone, first = self._only(index), (here[0], _at_first(here[1]), here[2])
        if not alone.before.complaints[first]:  # a fault between models
            return self._whole.judge(here, correction)
        judged = alone.judge(first, {str(_at_first(Place.parse(path))): value for path, value in correction.items()})
        if judged[0] is _Verdict.WRONG or len(self._subject.served) > NEIGHBOURS:
            return judged
        return max(judged, self._whole.judge(here, correction))

    @cached_property
    def _whole(self) -> _Trial:
        return _Trial(self._subject)

    def _only(self, index: int) -> _Trial:
        if index not in self._alone:
            served = [replace(v, index=0) for v in self._subject.served if v.index == index]
            spec = self._subject.spec.model_copy(update={"models": [self._subject.spec.models[index]]})
            self._alone[index] = _Trial(replace(self._subject, spec=spec, served=served))
        return self._alone[index]


class _Trial:
    """One subject, as it is and corrected."""

    def __init__(self, subject: Subject) -> None:
        self._subject = replace(subject, layout=None)
        self._tried: dict[str, _Outcome | None] = {}

    @cached_property
    def before(self) -> _Outcome:
        """What the rules say about the subject as it is."""
        return _outcome(self._subject)

    def judge(self, here: Complaint, correction: Correction) -> tuple[_Verdict, int]:
        """Whether the correction takes the fault away and makes no error, and how many it reveals."""
        after, before = self._after(correction), self.before
        if after is None:
            return _Verdict.WRONG, 0
        of_entries = here[1].steps[-1:] == (_EACH,) and any(Place.parse(path).is_entry for path in correction)
        left = before.complaints[here] - 1 if of_entries else 0
        if after.complaints[here] > left or not after.errors <= before.errors:
            return _Verdict.WRONG, 0
        new = (after.of_layouts - before.of_layouts).total()
        if new:
            return (_Verdict.REVEALS, new) if after.laid_out > before.laid_out else (_Verdict.WRONG, 0)
        index = here[1].index_in("models")
        known = {v.index for v in self._subject.served}
        return (_Verdict.NO_LAYOUT if index in known and index not in after.laid_out else _Verdict.CLEAN), 0

    def _after(self, correction: Correction) -> _Outcome | None:
        """What the rules say after a correction; findings that share a cause ask for the same ones."""
        key = repr(sorted(correction.items()))
        if key not in self._tried:
            changed = _changed(self._subject, correction)
            self._tried[key] = None if changed is None else _outcome(changed)
        return self._tried[key]


def _outcome(subject: Subject) -> _Outcome:
    complaints: Counter[Complaint] = Counter()
    errors: Counter[Complaint] = Counter()
    of_layouts: Counter[Complaint] = Counter()

    raw: list[tuple[str, str]] = []

    def run(stage: Stage, about: Subject, errors: Counter[Complaint]) -> None:
        for r in of_stage(stage):
            for fault in r.check(about.seen_in(stage)):
                here = _complaint(r, fault)
                complaints[here] += 1
                if (fault.level or r.level) is Level.ERROR and (r.firm or r.id not in about.spec.accept):
                    errors[here] += 1
                    raw.append((r.id, fault.path))

    laid_out: list[Served] = []
    try:
        run(Stage.FORM, subject, errors)
        laid_out = with_layouts(subject.served, raw)
        if laid_out:
            run(Stage.LAYOUT, subject.with_layout(build_layout(subject.spec, laid_out)), of_layouts)
    except SpecError:  # a faulty entry of the user's catalogue, of which the evaluation speaks
        errors["catalog", TOP, False] += 1
    pairs = {(v.index, v.candidate) for v in laid_out}
    without = {v.index for v in subject.served if (v.index, v.candidate) not in pairs}
    return _Outcome(complaints, errors, of_layouts, frozenset(v.index for v in laid_out) - without)


def _changed(subject: Subject, correction: Correction) -> Subject | None:
    """The corrected subject; None where the stack file could not hold the values, or names are not known."""
    spec = subject.spec
    try:
        for path, value in correction.items():
            spec = _put(spec, Place.parse(path), value)
        served = [changed for v in subject.served for changed in _looked_up(subject, v, spec)]
    except (LookupError, ValidationError, SpecError):
        return None
    return replace(subject, spec=spec, served=served)


def _looked_up(subject: Subject, served: Served, spec: EnvironmentSpec) -> list[Served]:
    """The pair as it then is; nothing where the model has it no more."""
    if spec.models[served.index] is subject.spec.models[served.index]:
        return [served]
    pairs = [model for model, candidate in pairs_of(spec.models[served.index]) if candidate is served.candidate]
    known = subject.catalog
    return [
        replace(
            served,
            spec=model,
            instances={name: known.instances[role.instance_type] for name, role in model.roles.items()},
            engine=known.engines[model.engine],
        )
        for model in pairs
    ]


def _as_written(spec: EnvironmentSpec, correction: Correction) -> Correction:
    """A correction with places that the stack file has: a role that a candidate takes from its model is then given there, as a whole."""
    places = {Place.parse(path): value for path, value in correction.items()}
    if not any(place.steps[2:3] == ("candidate",) for place in places):
        return correction
    written: dict[str, Any] = {}
    for place, value in places.items():
        role = role_of(place)
        copied = _taken_over(spec, role) if role and role != place else None
        if role is None or copied is None:
            written[str(belonging(place))] = value
        else:
            correct(written.setdefault(str(role), copied), place.below(role), value)
    return written


def _taken_over(spec: EnvironmentSpec, role: Place) -> dict[str, Any] | None:
    """The fields of a candidate's role that it takes from its model; None for a role that stands in the stack file."""
    match role.steps:
        case "models", int(index), "candidate", str(name):
            model = spec.models[index]
            if model.candidate is None or getattr(model.candidate, name) is not None:
                return None
            copied: RoleSpec = getattr(with_candidate(model, model.candidate), name)
            return copied.model_dump(by_alias=True, exclude_unset=True, exclude={"calibration", "measured_rates"})
    return None


def _put(spec: Any, place: Place, value: Any) -> Any:
    """A copy of a spec with another value at `place`; only the mapping that holds the value is validated again."""
    key, *rest = place.steps
    name = next((name for name, field in type(spec).model_fields.items() if key in (field.alias, name)), None)
    here = getattr(spec, name) if name else None
    if name and rest and isinstance(here, BaseModel):
        return spec.model_copy(update={name: _put(here, Place(tuple(rest)), value)})
    if name and isinstance(here, list) and len(rest) > 1 and isinstance(index := rest[0], int) and isinstance(here[index], BaseModel):
        changed = [_put(one, Place(tuple(rest[1:])), value) if i == index else one for i, one in enumerate(here)]
        return spec.model_copy(update={name: changed})
    data = spec.model_dump(by_alias=True, exclude_unset=True)
    correct(data, place, value)
    return type(spec).model_validate(data)


def _complaint(about: Rule, fault: Fault) -> Complaint:
    place = belonging(Place.parse(fault.path))
    return about.id, Place((*place.parent.steps, _EACH)) if place.is_entry else place, (fault.level or about.level) is Level.INFO


def _at_first(place: Place) -> Place:
    return Place(("models", 0, *place.steps[2:])) if place.index_in("models") is not None else place


def _model_of(places: Iterable[Place]) -> int | None:
    """The model that all places are in."""
    found = {place.index_in("models") for place in places}
    return found.pop() if len(found) == 1 else None
