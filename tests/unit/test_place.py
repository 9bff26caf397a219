"""Places of a stack file: text and steps are the same thing, and what is done to data at a place is done there alone."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from disagg_serving.place import TOP, Place
from disagg_serving.spec.places import pair_of, pair_path, role_of
from hypothesis import given
from hypothesis import strategies as st

plain_keys = st.sampled_from(["models", "decode", "tensorParallel", "a", "a/b", "x-y", "0", "a[b]", "a[0]b", "ä"])
dotted_keys = st.sampled_from(["example.com/team", "a.b", "a..b", ".a", "b.", "a[0]", "a.b[1].c", "a"])
plain_places = st.lists(plain_keys | st.integers(0, 300), min_size=1, max_size=6).map(lambda steps: Place(tuple(steps)))
documents = st.recursive(
    st.integers(0, 9) | st.none() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain_keys | dotted_keys, inner, max_size=3),
    max_leaves=12,
)


def places_in(data: Any, above: Place = TOP) -> list[Place]:
    """Every place of a document below the top."""
    entries = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    found = [(Place((*above.steps, step)), value) for step, value in entries]
    return [here for place, value in found for here in (place, *places_in(value, place))]


def by_steps(data: Any, place: Place) -> Any:
    """What plain indexing finds at a place."""
    for step in place.steps:
        data = data[step]
    return data


@given(plain_places)
def test_a_place_is_read_back_from_what_it_prints(place: Place) -> None:
    """Findings carry places as text, and nothing is lost by it where keys hold no dots."""
    assert Place.parse(str(place)) == place


@given(st.text("ab.[]019 :/", max_size=12))
def test_every_text_is_a_place_that_prints_as_the_text(text: str) -> None:
    """A key may be whatever YAML takes, and findings repeat it as it is."""
    assert str(Place.parse(text)) == text


@given(documents)
def test_a_value_is_read_written_and_taken_out_where_it_stands(data: Any) -> None:
    """Every value of a document is reached by its steps, and nothing else changes with it."""
    for place in places_in(data):
        before = by_steps(data, place)
        assert place.read(data) == before
        changed = deepcopy(data)
        place.write(changed, "new")
        assert by_steps(changed, place) == "new"
        place.write(changed, before)
        assert changed == data
        place.pop(changed)
        held = by_steps(changed, place.parent)
        assert len(held) == len(by_steps(data, place.parent)) - 1
        if isinstance(held, dict):
            assert place.steps[-1] not in held
            place.write(changed, before)
        else:
            held.insert(place.steps[-1], before)
        assert changed == data


@given(st.dictionaries(dotted_keys, st.integers(0, 9), min_size=1))
def test_keys_with_dots_are_found_from_text(tags: dict[str, int]) -> None:
    """`nodePools.tags.example.com/team` names one tag, although its text looks like three steps."""
    data: Any = {"nodePools": {"tags": tags}, "accept": dict(tags)}
    for key, value in tags.items():
        for path, above in ((f"nodePools.tags.{key}", data["nodePools"]["tags"]), (f"accept.{key}", data["accept"])):
            place = Place.parse(path)
            assert place.read(data) == value
            changed = deepcopy(data)
            place.write(changed, 10)
            assert place.read(changed) == 10
            assert changed != data
            place.pop(changed)
            assert place.read(changed) is None
            assert above == tags


@given(plain_places, plain_places)
def test_a_place_contains_itself_and_what_is_below_it(one: Place, other: Place) -> None:
    """One place is part of another exactly where its steps begin with the other's."""
    joined = Place((*one.steps, *other.steps))
    assert one.contains(one)
    assert one.contains(joined)
    assert joined.is_in(one)
    assert joined.below(one) == other
    assert not one.is_in(one)
    assert not joined.contains(one)
    assert TOP.contains(one)
    assert one.contains(other) == (str(other) == str(one) or str(other).startswith((f"{one}.", f"{one}[")))


@pytest.mark.parametrize("path", ["models[3].name", "models[0][0]", "name.first", "name[0]", "models[0].name.first"])
def test_what_is_not_there_is_no_value(path: str) -> None:
    """Reading a place that leads nowhere gives the default: a text has no entries and no keys."""
    assert Place.parse(path).read({"name": "abc", "models": [{"name": "m"}]}, "none") == "none"


def test_mappings_are_added_and_entries_are_not() -> None:
    """A correction may set a key of a mapping that is not written yet, but no entry of a list that is shorter."""
    data: dict[str, Any] = {"models": [{}]}
    Place.parse("models[0].gateway.dns.name").write(data, "n")
    assert data == {"models": [{"gateway": {"dns": {"name": "n"}}}]}
    Place.parse("models[0].candidate.name").pop(data)
    assert data == {"models": [{"gateway": {"dns": {"name": "n"}}}]}
    for path in ("models[1]", "models[0].gateway.dns.name.first"):
        with pytest.raises(LookupError):
            Place.parse(path).write(data, 1)
        with pytest.raises(LookupError):
            Place.parse(path).pop(data)


def test_models_pairs_and_roles_are_told_from_places() -> None:
    """Which model, pair and role a finding is about follows from its place."""
    at = Place.parse
    assert [at(p).index_in("models") for p in ("models[2]", "models[12].name", "models", "lws.models[1]")] == [2, 12, None, None]
    assert [str(pair_of(at(p))) for p in ("models[1].decode.cpu", "models[1].candidate", "models[1].candidate.server", "name")] == [
        "models[1]", "models[1].candidate", "models[1].candidate", "None",
    ]  # fmt: skip
    assert [str(role_of(at(p))) for p in ("models[1].decode.cpu", "models[1].candidate.server", "models[1].decoder", "models[1]")] == [
        "models[1].decode", "models[1].candidate.server", "None", "None",
    ]  # fmt: skip
    assert [pair_path(1, candidate=c) for c in (False, True)] == ["models[1]", "models[1].candidate"]
