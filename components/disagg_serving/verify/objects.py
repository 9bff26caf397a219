"""The generated objects themselves: are they there, and has nobody changed them."""

from __future__ import annotations

from collections.abc import Iterator

from .. import labels
from .compare import mismatches
from .points import Point, failed, ok, unknown
from .snapshot import Object, Ref
from .view import UnreadError, View, is_true

APPLY = "`pulumi up` puts it back"
COMPARED = ("spec", "data", "value", "preemptionPolicy", "automountServiceAccountToken")
FOR_PULUMI = frozenset({labels.SKIP_AWAIT, labels.WAIT_FOR, labels.TIMEOUT_SECONDS})
"""Annotations that tell Pulumi how to wait and nothing to the cluster."""
MOST_SHOWN = 3


def check(view: View) -> Iterator[Point]:
    """One point an object, and one for each Job."""
    for made in view.compared:
        yield _object(view, made)
    for made in (o for o in view.made if o["kind"] == "Job"):
        yield _job(view, Ref.of(made))


def _object(view: View, made: Object) -> Point:
    ref = Ref.of(made)
    try:
        found = view.get(ref)
    except UnreadError as problem:
        return unknown("object", str(ref), "as generated", problem)
    if found is None:
        return failed("object", str(ref), "as generated", "it is not there", APPLY)
    fields = {key: made[key] for key in COMPARED if key in made}
    marks = {key: made["metadata"].get(key) or {} for key in ("labels", "annotations")}
    fields["metadata"] = {key: {k: v for k, v in has.items() if k not in FOR_PULUMI} for key, has in marks.items()}
    wrong = mismatches(fields, found)
    return failed("object", str(ref), "as generated", sentence(wrong), APPLY) if wrong else ok("object", str(ref), "as generated")


def _job(view: View, ref: Ref) -> Point:
    name, wanted = "weights-mirror", "complete"
    try:
        found = view.get(ref)
    except UnreadError as problem:
        return unknown(name, str(ref), wanted, problem)
    if found is None:
        return unknown(name, str(ref), wanted, "it is not there: nobody knows whether the bucket is full", "`pulumi up --refresh` runs it again")
    if is_true(found, "Complete"):
        return ok(name, str(ref), wanted)
    why = view.warnings(ref.namespace, "Job", [ref.name])
    if is_true(found, "Failed"):
        return failed(
            name, str(ref), wanted, f"failed{why}", f"read `kubectl logs -n {ref.namespace} job/{ref.name}`, then delete the Job and refresh"
        )
    return unknown(name, str(ref), wanted, f"still runs{why}", "wait until it is complete")


def sentence(wrong: list[str]) -> str:
    """The first differences, and how many more there are."""
    rest = len(wrong) - MOST_SHOWN
    return "; ".join(wrong[:MOST_SHOWN]) + (f"; and {rest} more" if rest > 0 else "")
