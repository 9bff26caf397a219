"""What a change does to what runs, told from two layouts."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from disagg_serving.errors import Level
from disagg_serving.manifests.rollout import Effect, Kind, effects
from disagg_serving.planning.shapes import Layout
from factories import aggregated, environment, layout, model, role

OTHER = {"generation": "b", "engine": "vllm-0.27.1-dlc"}
FULL = {"prefill": role(tensorParallel=4, replicas=2), "decode": role(tensorParallel=2, replicas=4)}
LONE = {"prefill": role(tensorParallel=8), "decode": role(tensorParallel=8)}


def change(before: dict[str, Any], after: dict[str, Any]) -> list[Effect]:
    """Effects of the change of one model."""
    return effects(layout(environment(before)), layout(environment(after)))


def told(found: list[Effect]) -> list[tuple[str, str, str]]:
    """Path, kind and severity of each effect."""
    return [(e.path, str(e.kind), str(e.severity)) for e in found]


def test_nothing_is_told_of_what_stays() -> None:
    """The same layout, another stack's additions, and settings that reach no pod have no effects."""
    assert change(model(**FULL), model(**FULL)) == []
    assert change(model(**FULL), model(**FULL, workload={"inputTokens": 1, "outputTokens": 1, "requestsPerSecond": 1})) == []
    one = layout(environment(model()))
    assert effects(one, layout(environment(model(), aggregated(name="new")))) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("engine", "vllm-0.27.1-dlc"),
        ("imageDigest", "sha256:" + "1" * 64),
        ("model", "qwen3-32b"),
        ("kvCacheDtype", "fp8"),
        ("blockSize", 64),
        ("servedModelName", "other"),
    ],
)
def test_a_change_of_what_both_roles_share(key: str, value: Any) -> None:
    """Made in place it would mix revisions; it says what was changed, what it costs, and the way in two steps."""
    (found,) = change(model(**FULL), model(**FULL, **{key: value}))
    assert (found.path, found.kind, found.severity) == ("models[0]", Kind.MIXED, Level.WARNING)
    assert key in found.message
    assert "no answers until one of each role has loaded, up to " in found.message
    assert "candidate" in found.fix


def test_batching_rolls_in_place() -> None:
    """A change of one role replaces its engines one after the other, and says how many go on answering."""
    (found,) = change(model(**FULL), model(**{**FULL, "decode": role(tensorParallel=2, replicas=4, maxNumSeqs=64)}))
    assert told([found]) == [("models[0].decode", "in place", "info")]
    assert "3 of 4 answer" in found.message


def test_a_lone_engine_is_an_outage_without_room_for_another() -> None:
    """With idle GPUs the new engine comes first; without, nothing answers while it loads."""
    (outage,) = change(model(**LONE), model(**{**LONE, "decode": role(tensorParallel=8, maxNumSeqs=64)}))
    assert told([outage]) == [("models[0].decode", "outage", "warning")]
    (gentle,) = change(model(), model(decode=role(maxNumSeqs=64)))
    assert told([gentle]) == [("models[0].decode", "in place", "info")]
    assert "ready before it ends" in gentle.message


def test_replicas() -> None:
    """More engines load beside, fewer end after their requests; no pod is replaced."""
    (more,) = change(model(**FULL), model(**{**FULL, "decode": role(tensorParallel=2, replicas=6)}))
    assert (more.path, more.kind, more.severity) == ("models[0].decode.replicas", Kind.IN_PLACE, Level.INFO)
    assert "from 4 to 6" in more.message
    (fewer,) = change(model(**FULL), model(**{**FULL, "decode": role(tensorParallel=2, replicas=2)}))
    assert "after their requests in flight" in fewer.message


def test_sizes_that_cannot_read_each_other() -> None:
    """Both roles may be right before and after, and yet an old prefill pod be of no use to a new decode pod."""

    def sized(gpus: int) -> dict[str, Any]:
        side = role(tensorParallel=gpus, instanceType="p5en.48xlarge", expertParallel=True)
        return model(model="qwen3-235b-a22b-instruct-fp8", maxModelLen=4096, prefill=side, decode=side)

    found = change(sized(8), sized(4))
    assert [e.message for e in found if e.kind is Kind.MIXED] == [
        "with tensorParallel changed in both roles, pods of the old and the new size meet that cannot read each other's KV"
    ]


def test_candidate_activation_and_tidying_up() -> None:
    """Each of the steps is one effect without a warning, and moving the fields into the model is none."""
    base = model(**FULL)
    both, activated = {**base, "candidate": OTHER}, {**base, "candidate": {**OTHER, "activate": True}}
    tidy = {**base, **deepcopy(OTHER)}
    assert told(change(base, both)) == [("models[0].candidate", "candidate", "info")]
    assert told(change(both, activated)) == [("models[0].candidate", "activation", "info")]
    assert change(activated, tidy) == []
    (given_up,) = change(both, base)
    assert (given_up.kind, given_up.severity) == (Kind.REMOVAL, Level.INFO)
    assert "m-b-prefill, m-b-decode end" in given_up.message


def test_a_changed_candidate() -> None:
    """Its pods are replaced and nobody notices; changed and activated in one step it is warned of."""
    base = model(**FULL)
    (quiet,) = change({**base, "candidate": OTHER}, {**base, "candidate": {**OTHER, "maxModelLen": 4096}})
    assert told([quiet]) == [("models[0].candidate", "in place", "info")]
    (loud,) = change({**base, "candidate": OTHER}, {**base, "candidate": {**OTHER, "maxModelLen": 4096, "activate": True}})
    assert told([loud]) == [("models[0].candidate", "activation", "warning")]


def test_steps_that_are_left_out() -> None:
    """A generation that was no candidate has no checked room; going back without one sends requests to pods that have yet to load."""
    base = model(**FULL)
    (unchecked,) = change(base, {**base, **OTHER})
    assert (unchecked.kind, unchecked.severity) == (Kind.ACTIVATION, Level.WARNING)
    assert "were no candidate" in unchecked.message
    (back,) = [e for e in change({**base, **OTHER}, base) if e.severity is Level.WARNING]
    assert back.kind is Kind.OUTAGE
    assert "have yet to load" in back.message


def test_roles_that_change_in_place() -> None:
    """Prefill and decode that become one server are an outage; so is another namespace."""
    (found,) = change(model(), aggregated())
    assert told([found]) == [("models[0]", "outage", "warning")]
    (moved,) = change(model(), model(namespace="elsewhere"))
    assert told([moved]) == [("models[0].namespace", "outage", "warning")]


def test_a_removed_model() -> None:
    """It is said that its endpoint goes."""
    found = effects(layout(environment(model(), aggregated(name="old"))), layout(environment(model())))
    assert [(e.subject, e.kind, e.severity) for e in found] == [("old", Kind.REMOVAL, Level.WARNING)]


def test_a_new_configuration_of_the_router() -> None:
    """The router's pod reads it once, so it restarts."""
    plugins = {"routing": {"decode": [{"type": "queue-scorer", "weight": 1}]}}
    (found,) = change(model(**FULL), model(**FULL, gateway=plugins))
    assert told([found]) == [("models[0].gateway", "in place", "info")]


def environments(**of_environment: Any) -> Layout:
    """Prefill on one node, decode on another, with settings of the environment."""
    return layout(environment(model(**FULL), **of_environment))


CLUSTER = {"endpoint": {"publicAccessCidrs": ["203.0.113.0/24"]}}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"cluster": {**CLUSTER, "kubernetesVersion": "1.35"}}, "Kubernetes 1.36 to 1.35"),
        ({"nodePools": {"tags": {"team": "a"}}}, "NodeClass p5-48xlarge: tags"),
        ({"nodePools": {"placementGroup": "near"}}, "NodeClass p5-48xlarge: placementGroupSelector"),
        ({"nodePools": {"expireAfterHours": 240}}, "NodePool prefill-p5-48xlarge: expireAfter"),
        ({"nodePools": {"terminationGraceHours": 2}}, "NodePool prefill-p5-48xlarge: terminationGracePeriod"),
    ],
)
def test_nodes_roll(settings: dict[str, Any], reason: str) -> None:
    """What drifts a pool's nodes is told with the reason, with what a node takes along, and with the time."""
    found = [e for e in effects(environments(), environments(**settings)) if e.kind is Kind.NODES]
    assert {e.subject for e in found} == {"pool prefill-p5-48xlarge", "pool decode-p5-48xlarge"}
    message = next(e.message for e in found if "prefill" in e.subject)
    assert reason in message
    assert "1 x p5.48xlarge" in message
    assert "2 of 2 engines of m-prefill, which is an outage of up to " in message
    assert all(e.severity is Level.WARNING for e in found)


def test_when_nodes_roll() -> None:
    """With a spare node in the window, with its length and the time to drain; without one at the end of each node's life, at any hour."""
    window = {"maintenanceWindow": {"day": "SUN", "startUtc": "03:30", "hours": 4}, "terminationGraceHours": 3}
    newer = {"kubernetesVersion": "1.35"}

    def message(nodes: int) -> Effect:
        server = role(tensorParallel=8, replicas=2, capacity={"nodes": nodes})
        before, after = (layout(environment(aggregated(server=server), nodePools=window, cluster={**CLUSTER, **v})) for v in ({}, newer))
        (found,) = effects(before, after)
        return found

    spare, full = message(3), message(2)
    assert "from SUN 03:30 UTC within 4 h" in spare.message
    assert "up to 3 h longer" in spare.message
    assert "1 of 2 engines of m" in spare.message
    assert "outage" not in spare.message
    assert "not in the maintenance window" in full.message
    assert "336 h after it was made, at any hour" in full.message
    assert "capacity.nodes: 3" in full.fix


@pytest.mark.parametrize(
    "settings",
    [
        {"nodePools": {"consolidateAfterMinutes": 10}},
        {"nodePools": {"maintenanceWindow": {"day": "MON"}}},
    ],
)
def test_what_drifts_no_node(settings: dict[str, Any]) -> None:
    """Disruption settings are read from the pool and touch no node (Karpenter 1.14: hash of the pool's template)."""
    assert effects(environments(), environments(**settings)) == []


def test_reservations_and_bounds_drift_no_node() -> None:
    """A further reservation and a higher bound leave nodes alone; a reservation that is no longer named drifts them."""
    ids = ["cr-0123456789abcdef0", "cr-0123456789abcdef1"]

    def reserved(names: list[str], nodes: int) -> Layout:
        capacity = {"type": "reserved", "reservationIds": names, "nodes": nodes}
        return layout(environment(aggregated(server=role(tensorParallel=8, capacity=capacity))))

    assert effects(reserved(ids[:1], 1), reserved(ids, 2)) == []
    (found,) = effects(reserved(ids, 2), reserved(ids[1:], 2))
    assert (found.kind, "capacityReservationSelectorTerms" in found.message) == (Kind.NODES, True)


def test_order_and_data() -> None:
    """Warnings come first, and each effect is plain data."""
    before = layout(environment(model(**FULL), aggregated(name="a", server=role(tensorParallel=8))))
    after = layout(
        environment(
            model(**{**FULL, "decode": role(tensorParallel=2, replicas=3)}), aggregated(name="a", server=role(tensorParallel=8, maxNumSeqs=9))
        )
    )
    found = effects(before, after)
    assert [str(e.severity) for e in found] == ["warning", "info"]
    assert set(found[0].as_dict()) == {"path", "subject", "kind", "message", "severity", "fix"}
    assert found[0].sentence().startswith("models[1].server: a server: outage: its only engine is replaced")
