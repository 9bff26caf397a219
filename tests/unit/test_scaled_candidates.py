"""A candidate whose roles are scaled: with how many engines it counts before and after its activation."""

from __future__ import annotations

from typing import Any

from disagg_serving.errors import Finding, Level
from disagg_serving.manifests.bundle import build_all
from disagg_serving.planning.placement import place
from disagg_serving.planning.scaling import at_most
from disagg_serving.planning.shapes import Layout
from disagg_serving.recording.plan import scaling_of
from factories import check, environment, layout, model, role

OTHER = {"generation": "b", "engine": "vllm-0.27.1-dlc"}
PROMETHEUS = {"prometheusAddress": "http://prometheus-operated.monitoring.svc:9090"}


def objects(of: Layout, kind: str) -> dict[str, dict[str, Any]]:
    """Rendered objects of a kind, by name."""
    return {o["metadata"]["name"]: o for o in build_all(of) if o["kind"] == kind}


def test_a_waiting_candidate_is_counted_with_its_least_engines() -> None:
    """Before it serves nothing scales it, so pools, quota and the table of scaled roles do not have its most engines; afterwards they have."""
    scaled = role(tensorParallel=4, autoscaling={"minReplicaCount": 2, "maxReplicaCount": 6})
    base = model(decode=scaled)

    def planned(*, activate: bool) -> Layout:
        return layout(environment({**base, "candidate": {**OTHER, "activate": activate}}, autoscaling=PROMETHEUS))

    waiting, serving = planned(activate=False), planned(activate=True)
    assert {p.role: p.max_nodes for p in waiting.pools}["decode"] == 4
    assert {p.role: p.max_nodes for p in serving.pools}["decode"] == 3
    assert objects(waiting, "LeaderWorkerSet")["m-b-decode"]["spec"]["replicas"] == 2
    assert "replicas" not in objects(serving, "LeaderWorkerSet")["m-b-decode"]["spec"]
    assert [set(objects(one, "ScaledObject")) for one in (waiting, serving)] == [{"m-decode"}, {"m-b-decode"}]
    listed = [scaling_of(one).roles for one in (waiting, serving)]
    assert [[r.engine for r in roles] for roles in listed] == [["m decode"], ["m b decode"]]
    assert {len(found) for pool, _, found in place(at_most(waiting)) if pool.startswith("decode")} == {4}


def test_an_activation_says_with_how_many_engines_scaled_roles_begin() -> None:
    """The autoscaler's number is not taken over; the step says so, and before what to raise."""
    base = model(decode=role(autoscaling={"minReplicaCount": 2, "maxReplicaCount": 4}))

    def step(given: dict[str, Any], *, activate: bool) -> Finding:
        found = check(environment({**given, "candidate": {**OTHER, "activate": activate}}, autoscaling=PROMETHEUS)).findings
        (one,) = [f for f in found if f.id == "rollout-step"]
        return one

    assert "raise its minReplicaCount to the engines that serve now, then turn" in step(base, activate=False).fix
    told = step(base, activate=True).message
    assert "m-b-decode with 2: the engines that they had as candidate, whatever number the autoscaler gave the pair that served" in told
    assert "autoscal" not in step(model(), activate=False).fix + step(model(), activate=True).message


def test_rules_about_the_most_engines_wait_for_the_activation() -> None:
    """Roles that grow apart are told of a candidate when it is scaled, and its downloads are those of the pods that it has."""
    grows = {"minReplicaCount": 1, "maxReplicaCount": 8}
    given = {**OTHER, "decode": role(autoscaling=grows)}

    def about(rule: str, **more: Any) -> set[str]:
        found = check(environment(model(candidate={**given, **more}), autoscaling=PROMETHEUS)).findings
        return {f.path for f in found if f.id == rule}

    assert about("autoscaling-balance") == about("autoscaling-pace") == set()
    assert about("autoscaling-balance", activate=True) == {"models[0].candidate.prefill"}
    assert about("autoscaling-pace", activate=True) == {"models[0].candidate.decode.autoscaling"}


def test_what_a_candidate_may_grow_to_is_said_before_its_activation() -> None:
    """More engines than reserved nodes hold are a warning beside the pair that serves and an error afterwards; the number that is named ends both."""
    reserved = {"type": "reserved", "reservationIds": ["cr-0123456789abcdef0"], "nodes": 2}
    base = role(tensorParallel=4, replicas=2, capacity=reserved)

    def about(most: int, *, activate: bool = False) -> list[Finding]:
        grows = {**base, "replicas": None, "autoscaling": {"minReplicaCount": 2, "maxReplicaCount": most}}
        candidate = {**OTHER, "activate": activate, "prefill": {k: v for k, v in grows.items() if v is not None}}
        found = check(environment(model(prefill=base, candidate=candidate), autoscaling=PROMETHEUS)).findings
        return [f for f in found if f.id in {"candidate-growth", "candidate-capacity", "group-capacity"}]

    (early,), (late,) = about(9), about(9, activate=True)
    assert (early.id, early.level, early.path) == ("candidate-growth", Level.WARNING, "models[0].candidate.prefill.autoscaling.maxReplicaCount")
    assert "then needs 5 nodes at most engines, and 2 are reserved" in early.message
    assert early.allowed == "at most 4"
    assert early.corrections == ({early.path: 4},)
    assert (late.id, late.level) == ("group-capacity", Level.ERROR)
    assert about(4) == about(4, activate=True) == []


def test_other_models_on_the_pool_leave_a_candidate_less_to_grow() -> None:
    """What serves beside it stays, at its most; the pair that it replaces does not count."""
    bounded = {"nodes": 6}
    shared = role(tensorParallel=8, replicas=2, capacity=bounded)
    grows = {"instanceType": "p5.48xlarge", "tensorParallel": 8, "capacity": bounded, "autoscaling": {"minReplicaCount": 1, "maxReplicaCount": 5}}
    both = (model(prefill=shared, candidate={**OTHER, "prefill": grows}), model(name="n", prefill=shared))
    (found,) = [f for f in check(environment(*both, autoscaling=PROMETHEUS)).findings if f.id == "candidate-growth"]
    assert (found.value, found.allowed) == (5, "at most 4")
    alone = [f for f in check(environment(both[0], autoscaling=PROMETHEUS)).findings if f.id == "candidate-growth"]
    assert alone == []


def test_a_fixed_number_is_not_to_be_raised() -> None:
    """A scaled role whose least is its most cannot follow the advice to raise its least."""
    fixed = role(autoscaling={"minReplicaCount": 2, "maxReplicaCount": 2})
    found = check(environment(model(decode=fixed, candidate=OTHER), autoscaling=PROMETHEUS)).findings
    (step,) = [f for f in found if f.id == "rollout-step"]
    assert "minReplicaCount" not in step.fix
