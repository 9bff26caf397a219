"""ScaledObjects: whether KEDA does what they say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .points import Point, failed, ok, unknown
from .snapshot import Object, Ref
from .view import SHOWN_EVENT, UnreadError, View

WANTED = "ready and not paused"
NAME = "scaled-object"


def check(view: View) -> Iterator[Point]:
    """One point a ScaledObject. Source of the conditions: kedacore/keda, apis/keda/v1alpha1/condition_types.go."""
    for ref in (Ref.of(o) for o in view.made if o["kind"] == "ScaledObject"):
        try:
            found = view.get(ref)
        except UnreadError as problem:
            yield unknown(NAME, str(ref), WANTED, problem)
            continue
        yield _state(view, ref, found) if found else unknown(NAME, str(ref), WANTED, "it is not there", "see object")


def _state(view: View, ref: Ref, found: Object) -> Point:
    has = {c["type"]: c for c in found.get("status", {}).get("conditions") or []}
    ready, paused = has.get("Ready"), has.get("Paused", {})
    if paused.get("status") == "True":
        return failed(NAME, str(ref), WANTED, f"paused{_why(paused)}", "remove KEDA's annotation that pauses it")
    if ready is None:
        return failed(NAME, str(ref), WANTED, "KEDA has not looked at it", "see whether KEDA's operator runs")
    if ready["status"] == "True":
        return ok(NAME, str(ref), WANTED)
    why = f"Ready is {ready['status']}{_why(ready)}{view.warnings(ref.namespace, 'ScaledObject', [ref.name])}"
    return failed(NAME, str(ref), WANTED, why, "the number of engines stays as it is until KEDA reads its signals: see the reason")


def _why(condition: Mapping[str, Any]) -> str:
    words = " ".join(f"{condition.get('reason') or ''}: {condition.get('message') or ''}".split()).strip(": ")
    return f" ({words[:SHOWN_EVENT]})" if words else ""
