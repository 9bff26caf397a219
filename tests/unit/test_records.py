"""How records become JSON and are read back: keys, what is left out, and what another release wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import pytest
from disagg_serving.records import LEFT_OUT, WRITTEN_AS, WRITTEN_WITH, Record, data_of, record_of


class Kind(StrEnum):
    """Two words."""

    FIRST = "first"
    OTHER = "other"


@dataclass(frozen=True)
class Inner(Record):
    """Numbers in another record."""

    kv_gib: float
    so_many: int


@dataclass(frozen=True)
class Outer(Record):
    """One of everything."""

    name: str
    kind: Kind
    inner: Inner
    more: Sequence[Inner]
    by_name: Mapping[str, Sequence[str]]
    version: Literal[1]
    maybe: float | None
    whatever: Any = field(default=None, metadata={WRITTEN_AS: repr})
    always: str = ""
    reason: str = field(default="", metadata=LEFT_OUT)
    parts: Sequence[str] = field(default=(), metadata=LEFT_OUT)
    left: int = field(default=0, metadata=LEFT_OUT)
    seconds: float | None = field(default=None, metadata={WRITTEN_WITH: "reason"})


WHOLE = Outer("a", Kind.OTHER, Inner(1, 2), (Inner(1.5, 3),), {"x": ("y",)}, 1, 0.5, "'z'", "b", "c", ("d",), 3, 2.0)
BARE = Outer("", Kind.FIRST, Inner(0.0, 0), (), {}, 1, None)


def test_keys_are_camel_case_and_values_stay_as_they_are() -> None:
    """A unit keeps its spelling, a whole number stays one, a word of an enumeration is a text, and a form may be given."""
    data = data_of(WHOLE)
    assert list(data) == ["name", "kind", "inner", "more", "byName", "version", "maybe", "whatever", "always", "reason", "parts", "left", "seconds"]
    assert data["inner"] == {"kvGiB": 1, "soMany": 2}
    assert isinstance(data["inner"]["kvGiB"], int)
    assert (data["kind"], type(data["kind"])) == ("other", str)
    assert (data["more"], data["byName"], data["whatever"]) == ([{"kvGiB": 1.5, "soMany": 3}], {"x": ["y"]}, repr("'z'"))


def test_what_is_empty_may_be_left_out() -> None:
    """Only keys that say so go; one that is written with another is null beside it, and gone without it."""
    assert list(data_of(BARE)) == ["name", "kind", "inner", "more", "byName", "version", "maybe", "whatever", "always"]
    beside = data_of(Outer("", Kind.FIRST, Inner(0, 0), (), {}, 1, None, reason="r"))
    assert (beside["reason"], beside["seconds"]) == ("r", None)


def test_a_record_may_publish_a_base_alone() -> None:
    """What a record knows beyond its published form is not written."""

    @dataclass(frozen=True)
    class More(Inner):
        secret: str

    assert data_of(More(1.0, 2, "x"), Inner) == {"kvGiB": 1.0, "soMany": 2}


def test_what_was_written_is_read() -> None:
    """Reading gives the record back, at any depth and without a change of a number's kind."""
    read = record_of(Outer, data_of(WHOLE) | {"whatever": "'z'"})
    assert read == WHOLE
    assert isinstance(read.inner.kv_gib, int)


def test_another_release_may_know_more_or_less() -> None:
    """A missing key is the field's default or empty, null counts as missing where a value belongs, and an unknown key is nobody's matter."""
    assert record_of(Outer, {}) == BARE
    assert record_of(Outer, {"inner": None, "more": None, "byName": None, "other": 1}) == BARE
    assert record_of(Outer, {"more": [{"soMany": 3, "new": True}]}).more == (Inner(0.0, 3),)
    with pytest.raises(ValueError, match="third"):
        record_of(Outer, {"kind": "third"})
