"""Reserved capacity: how many instances there are, when they end, and what happens then."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from bad_input.reservations import FIRST, SECOND, reservation, reserving
from disagg_serving.errors import Finding, Level
from disagg_serving.forecast.cost import cost_of, now
from disagg_serving.planning.scaling import at_most
from disagg_serving.recording.plan import placement_of
from disagg_serving.records import data_of
from disagg_serving.report.html import render_html
from disagg_serving.report.markdown import render_markdown
from disagg_serving.report.text import render_text
from disagg_serving.spec.capacity import ReservationSpec
from disagg_serving.spec.validation import parse
from factories import check, environment, layout, model, role
from pages import plan_of

DAY = now().date().isoformat()


def said(data: dict[str, Any], rule: str) -> list[Finding]:
    """What a rule says."""
    return [f for f in check(data).findings if f.id == rule]


def levels(data: dict[str, Any], rule: str) -> list[str]:
    """Levels of what a rule says."""
    return [str(f.level) for f in said(data, rule)]


def test_reservations_are_named_in_the_node_class_like_ids() -> None:
    """Both ways to name a reservation reach the NodeClass, and what they hold bounds the pool where nodes is not given."""
    (named,) = layout(environment(model(decode=role(capacity=reserving(reservation())["models"][0]["decode"]["capacity"])))).node_classes[1:]
    assert named.reservation_ids == (FIRST,)
    pool = next(p for p in layout(reserving(reservation())).pools if p.capacity_type == "reserved")
    assert pool.max_nodes == 2
    both = reserving(reservation(), reservationIds=[SECOND], nodes=3)
    assert next(c for c in layout(both).node_classes if c.reservation_ids).reservation_ids == (FIRST, SECOND)


def test_nodes_are_needed_where_a_reservation_does_not_say_how_many() -> None:
    """A pool without a bound on reserved capacity would let half-placed groups deadlock."""
    unknown = {"id": FIRST}
    assert any("is required with reserved" in f.message for f in said(reserving(unknown), "reservations"))
    assert not said(reserving(unknown, nodes=1), "reservations")
    assert not said(reserving(reservation()), "reservations")


@pytest.mark.parametrize(
    ("kind", "ends", "level", "words"),
    [
        ("capacity-block", "2026-11-29T00:30:00Z", "error", "drained already"),
        ("on-demand", "2026-11-29T00:30:00Z", "warning", "at the price on demand"),
        ("capacity-block", "2026-12-05T11:30:00Z", "warning", "no pod starts on its nodes from 2026-12-05 10:50 UTC on"),
        ("on-demand", "2026-11-28T23:00:00Z", "error", "is over"),
        ("capacity-block", "2026-12-14T00:00:00Z", None, ""),
        ("on-demand", "2027-11-29", None, ""),
    ],
)
def test_ends(kind: str, ends: str, level: str | None, words: str) -> None:
    """Over is an error, within 14 days a warning that says what happens to the nodes: those of a block are drained 40 minutes before."""
    assert DAY == "2026-11-29"
    found = said(reserving(reservation(type=kind, endsAt=ends)), "reservation-end")
    assert [str(f.level) for f in found] == ([level] if level else [])
    assert all(words in f.message for f in found)


def test_a_block_without_an_end_is_asked_for_it() -> None:
    """A Capacity Block always ends; a reservation need not."""
    assert levels(reserving(reservation(type="capacity-block")), "reservation-end") == ["warning"]
    assert not said(reserving(reservation()), "reservation-end")


def test_several_blocks_of_a_type_and_zone() -> None:
    """They share a NodeClass, whose launches choose among them: also over the roles of a model, not over instance types or zones."""
    first, second = (reservation(type="capacity-block", endsAt="2027-03-01", id=given) for given in (FIRST, SECOND))
    (found,) = said(reserving(first, second), "capacity-blocks")
    assert found.path.endswith("reservations[1]")
    assert FIRST in found.message
    assert SECOND in found.message
    sides = [role(capacity={"type": "reserved", "reservations": [one]}) for one in (first, second)]
    assert levels(environment(model(prefill=sides[0], decode=sides[1])), "capacity-blocks") == ["warning"]
    assert not said(environment(model(prefill=sides[0], decode=sides[0])), "capacity-blocks")
    assert not said(reserving(first, {**second, "type": "on-demand"}), "capacity-blocks")


def test_a_shared_reservation_that_says_what_it_holds() -> None:
    """Two pools on one reservation are a question only while nobody knows its size."""
    taken = {"type": "reserved", "nodes": 1, "reservations": [reservation()]}
    both = environment(model(prefill=role(capacity=taken), decode=role(capacity=taken)))
    assert not said(both, "reservation-shared")
    small = {**taken, "reservations": [reservation(instances=1)]}
    assert levels(environment(model(prefill=role(capacity=small), decode=role(capacity=small))), "reservation-shared") == ["error"]
    unknown = {**taken, "reservations": [{"id": FIRST}]}
    assert levels(environment(model(prefill=role(capacity=unknown), decode=role(capacity=unknown))), "reservation-shared") == ["warning"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2026-12-01", "2026-12-01T00:00:00Z"),
        (date(2026, 12, 1), "2026-12-01T00:00:00Z"),
        (datetime(2026, 12, 1, 11, 30, tzinfo=UTC), "2026-12-01T11:30:00Z"),
        ("2026-12-01 00:00:00 +0000 UTC", "2026-12-01T00:00:00Z"),
        ("2026-12-01 09:00:00.5 +0900 JST", "2026-12-01T00:00:00Z"),
        ("2026-12-01T11:30:00", "2026-12-01T11:30:00Z"),
        ("2026-12-01T09:00:00+09:00", "2026-12-01T00:00:00Z"),
    ],
)
def test_times_are_read_as_yaml_and_people_write_them(written: object, meant: str) -> None:
    """YAML makes dates of some texts, and Pulumi texts of those; without an offset a time is UTC, as AWS prints it."""
    read = parse(ReservationSpec, {"id": FIRST, "endsAt": written})
    assert read.ends_at == meant
    assert read.end == datetime.fromisoformat(meant)


def test_a_reservation_that_is_named_twice_is_counted_once() -> None:
    """Two entries of one reservation, or an id and an entry, hold no more instances than it: more pods are refused, not left pending."""
    big = {"tensorParallel": 8, "replicas": 4}
    for twice in (reserving(reservation(), reservation()), reserving(reservation(), reservationIds=[FIRST])):
        twice["models"][0]["decode"] |= big
        assert said(twice, "group-capacity"), check(twice).findings
        assert "2 are reserved" in said(twice, "group-capacity")[0].message


def test_facts_about_one_reservation_do_not_contradict_each_other() -> None:
    """Two roles that state different instances, types or ends of one reservation cannot both be right."""
    data = reserving(reservation())
    other = reserving(reservation(instances=5))["models"][0]["decode"]["capacity"]
    data["models"][0]["prefill"]["capacity"] = other
    found = [f for f in said(data, "reservations") if "contradicts" in f.message]
    assert [(f.value, str(f.level)) for f in found] in ([(2, "error")], [(5, "error")])
    assert found[0].corrections or found[0].allowed


@pytest.mark.parametrize("ends", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00", "0001-01-01", "9999-12-31T23:59:59Z"])
def test_ends_of_the_calendar_are_refused(ends: str) -> None:
    """A time that cannot be reckoned with is a finding, not a traceback."""
    (found,) = [f for f in check(reserving(reservation(endsAt=ends))).findings if f.path.endswith("endsAt")]
    assert "a year from 2000" in found.allowed


def test_a_block_that_is_being_drained_is_not_called_over() -> None:
    """Half an hour before its end a Capacity Block takes no pods any more, though it is not over."""
    near = (now() + timedelta(minutes=30)).isoformat()
    (found,) = said(reserving(reservation(type="capacity-block", endsAt=near)), "reservation-end")
    assert "is over" not in found.message
    assert "drained already" in found.message


def test_a_capacity_block_costs_what_a_capacity_block_costs() -> None:
    """The total counts a pool of Capacity Blocks at their price where one is known, with its day."""
    made = layout(reserving(reservation(type="capacity-block", endsAt="2027-11-29")))
    (line,) = [one for one in cost_of(made).lines if "reserved" in one.name]
    price = next(g for g in made.groups if g.role == "decode").instance.capacity_block
    assert price is not None
    assert (line.unit_per_hour, line.as_of) == (price.usd_per_hour, price.as_of.isoformat())
    (other,) = [one for one in cost_of(layout(reserving(reservation()))).lines if "reserved" in one.name]
    assert (other.unit_per_hour or 0) > price.usd_per_hour


P5EN = {"instanceType": "p5en.48xlarge", "tensorParallel": 8}
THREE = {"id": FIRST, "instanceType": "p5en.48xlarge", "zone": "us-east-1a", "instances": 3}


def decode_on(**capacity: Any) -> dict[str, Any]:
    """An environment whose one decode engine takes a whole node of reserved p5en."""
    return environment(model(decode=role(**P5EN, capacity={"type": "reserved", **capacity})))


@pytest.mark.parametrize(
    ("capacity", "hour"),
    [
        ({"reservations": [THREE]}, 189.89),
        ({"reservations": [THREE], "nodes": 1}, 189.89),
        ({"reservationIds": [FIRST], "nodes": 3}, 189.89),
        ({"reservations": [{**THREE, "type": "capacity-block", "endsAt": "2027-11-29"}]}, 3 * 41.61),
        ({"reservations": [{**THREE, "instances": 1}]}, 63.30),
    ],
)
def test_what_is_reserved_is_paid_whole(capacity: dict[str, Any], hour: float) -> None:
    """Three reserved nodes of which pods use one cost three, by the hour or in advance, however the stack file says that there are three."""
    made = layout(decode_on(**capacity))
    (line,) = [one for one in cost_of(made).lines if "reserved" in one.name]
    (pool,) = [one for one in placement_of(made) if "reserved" in one.pool]
    number = 1 if hour == 63.30 else 3
    assert line.per_hour == pytest.approx(hour, abs=0.01)
    assert (line.quantity, line.idle, pool.idle_nodes, len(pool.nodes)) == (number, number - 1, number - 1, 1)
    assert (f"{number - 1} of {number} stand idle" in line.note) is (number > 1)
    assert bool(said(decode_on(**capacity), "reservation-idle")) is (number > 1)


def test_a_reservation_of_two_pools_is_paid_once() -> None:
    """Prefill and decode on one reservation of three use two of it: one stands idle, not one a pool."""
    shared = {"type": "reserved", "reservations": [THREE]}
    bounded = {**shared, "nodes": 1}
    made = layout(environment(model(prefill=role(**P5EN, capacity=bounded), decode=role(**P5EN, capacity=bounded))))
    assert sorted((line.quantity, line.idle) for line in cost_of(made).lines if "reserved" in line.name) == [(1, 0), (2, 1)]


def test_what_autoscaling_may_use_is_not_called_idle() -> None:
    """The plan at the least engines counts idle nodes and their price; only what no engine ever uses is a finding."""
    scaled = role(**P5EN, autoscaling={"minReplicaCount": 1, "maxReplicaCount": 3}, capacity={"type": "reserved", "reservations": [THREE]})
    data = environment(model(prefill=scaled, decode=role()), autoscaling={"prometheusAddress": "http://prometheus.monitoring.svc:9090"})
    made = layout(data)
    assert [line.idle for at in (made, at_most(made)) for line in cost_of(at).lines if "reserved" in line.name] == [2, 0]
    assert cost_of(made).per_hour == cost_of(at_most(made)).per_hour
    assert not said(data, "reservation-idle")


def test_every_format_says_how_many_reserved_nodes_stand_idle() -> None:
    """Terminal, comment and page count them beside the nodes that are used."""
    plan = plan_of(decode_on(reservations=[THREE]))
    for text in (render_text([plan], color=False), render_markdown([plan]), render_html([plan])):
        assert "2 more nodes reserved and paid for, without a pod" in text
        assert "2 of 3 stand idle" in " ".join(text.split())
    pool = data_of(plan)["placement"][0]
    assert (pool["pool"], pool["idleNodes"]) == ("decode-p5en-48xlarge-reserved", 2)


BLOCK = {"type": "capacity-block", "endsAt": "2027-11-29"}


@pytest.mark.parametrize(
    ("capacity", "words"),
    [
        ({"reservations": [THREE]}, "may start P instances with 192 vCPUs and reserves P instances with 576 vCPUs, which"),
        ({"reservations": [{**THREE, **BLOCK}]}, "may start P instances with 192 vCPUs, which"),
        ({"reservations": [THREE, {**THREE, **BLOCK, "id": SECOND}]}, "reserves P instances with 576 vCPUs, which"),
        (
            {"reservationIds": [FIRST], "nodes": 2},
            "reserves P instances with 384 vCPUs, which the account's quota L-417A185B has to allow; Capacity Blocks",
        ),
    ],
)
def test_reservations_on_demand_count_against_the_quota(capacity: dict[str, Any], words: str) -> None:
    """All that a reservation holds counts, used or not, as AWS has it; a Capacity Block does not, and what may be one is said."""
    (found,) = said(decode_on(**capacity), "quota")
    assert words in found.message
    assert (found.level, found.path) == (Level.INFO, "models")
