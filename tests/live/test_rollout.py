"""A new revision on the real engine, API server and LWS controller: at no moment are pods of two revisions selected together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from disagg_serving import labels
from factories import aggregated, environment, layout, role
from live.watching import Watch, changes, identity_in
from live.workloads import deploy, is_ready, pods, settle, uids

from bench.cluster import Cluster
from bench.control_plane import ControlPlane
from bench.engine import Engine, PulumiError, Step, for_stack

NAME = "qwen3-32b"
SIDES = ("prefill", "decode")
CANDIDATE: dict[str, Any] = {"generation": "b", "engine": "vllm-0.27.1-dlc", "maxModelLen": 16384}
LWS = "kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet"
WAITING = {f'metadata.annotations["{key}"]' for key in (labels.WAIT_FOR, labels.TIMEOUT_SECONDS)}


@pytest.fixture
def engine(plane: ControlPlane, tmp_path: Path) -> Iterator[Engine]:
    """The local stack, deployed and ready; everything is gone afterwards."""
    deployed = for_stack("local", plane.kubeconfig, tmp_path, {"install": "existing"})
    deployed.up()
    ready(plane.cluster, 6)
    yield deployed
    plane.faults([])
    deployed.destroy()


def ready(cluster: Cluster, count: int) -> None:
    """Wait until that many pods are there, all of them ready."""
    cluster.until(lambda: len(found := pods(cluster)) == count and all(map(is_ready, found)), f"{count} pods ready", 120)


def model(change: Any) -> Any:
    """An edit of the stack's one model."""
    return lambda e: change(e["models"][0])


def changed(steps: list[Step]) -> dict[str, set[str]]:
    """Names of Kubernetes objects by what was done to them, what stayed left out."""
    found: dict[str, set[str]] = {}
    for step in steps:
        if step.type.startswith("kubernetes:") and step.op != "same":
            found.setdefault(step.op, set()).add(step.urn.rsplit("::", 1)[1].rsplit("/", 1)[-1])
    return found


def generations(cluster: Cluster) -> dict[str, int]:
    """How often the spec of each group set of the model was changed."""
    return {found["metadata"]["name"]: found["metadata"]["generation"] for found in cluster.items("leaderworkersets", NAME)}


def selects(cluster: Cluster) -> dict[str, str]:
    """The identity that each Service of the model and its router select now."""
    services = {s["metadata"]["name"]: s["spec"]["selector"] for s in cluster.items("services", NAME) if s["spec"].get("selector")}
    found = {name: selector[labels.IDENTITY] for name, selector in services.items() if labels.IDENTITY in selector}
    return {**found, "router": identity_in(cluster.get("deployment", f"{NAME}-epp", NAME)["spec"]["template"]["spec"])}


def assert_never_mixed(watch: Watch, before: str, after: str) -> None:
    """Services and router selected the one identity, then the other, and nothing else between."""
    for side in SIDES:
        states = [found for found, _ in watch.selections(f"{NAME}-{side}-api")]
        assert states
        assert changes(states) == [{before}, {after}]
    assert changes(watch.routed()) == [{before}, {after}]
    assert list(dict.fromkeys(watch.deployed())) == [before, after]


def test_candidate_activation_and_tidying_up(plane: ControlPlane, engine: Engine) -> None:
    """The candidate touches nothing that serves, the activation switches first and deletes then, and tidying up changes nothing.

    All the while each Service has ready endpoints.
    """
    cluster, old = plane.cluster, uids(plane.cluster)
    before = selects(cluster)["router"]
    with Watch(plane.kubeconfig, NAME) as watch:
        engine.edit(model(lambda m: m.update(candidate=dict(CANDIDATE))))
        made = changed(engine.up())
        assert set(made) == {"create", "update"}
        assert made["create"] == {f"{NAME}-b-{side}{end}" for side in SIDES for end in ("", "-api")}
        assert made["update"] == {f"{side}-p5-48xlarge" for side in SIDES}
        ready(cluster, 12)
        assert {n: u for n, u in uids(cluster).items() if n in old} == old
        after = selects(cluster)[f"{NAME}-b-decode-api"]
        assert selects(cluster)["router"] == before

        engine.edit(model(lambda m: m["candidate"].update(activate=True)))
        steps = engine.up()
        position = {(s.op, s.urn.rsplit("::", 1)[1].rsplit("/", 1)[-1], s.type): i for i, s in enumerate(steps)}
        deleted = [i for (op, _, kind), i in position.items() if op == "delete" and kind == LWS]
        switched = [i for (op, name, _), i in position.items() if op == "update" and name.endswith(("-api", f"{NAME}-epp"))]
        assert len(deleted) == 2
        assert len(switched) >= 3
        assert max(switched) < min(deleted)
        waiting = [set(s.diff) for s in steps if s.op == "update" and s.type == LWS]
        assert waiting == [WAITING, WAITING]
        ready(cluster, 6)
        assert set(uids(cluster)) == {n.replace(NAME, f"{NAME}-b") for n in old}
    assert_never_mixed(watch, before, after)
    for side in SIDES:
        assert min(count for _, count in watch.selections(f"{NAME}-{side}-api")) > 0

    engine.edit(model(lambda m: (m.pop("candidate"), m.update(CANDIDATE))))
    found = generations(cluster)
    # the component's own inputs say what the stack file says; nothing that exists in the cluster changes
    touched = [s for s in engine.up() if s.op != "same" and s.type not in {"disagg-serving:index:Environment", "pulumi:pulumi:Stack"}]
    # after a change of annotations alone the provider may keep an object from before it, as the generation is the same, and writes them again
    assert all(step.type == LWS and set(step.diff) == WAITING for step in touched)
    assert generations(cluster) == found


def test_change_in_place(plane: ControlPlane, engine: Engine) -> None:
    """What both roles share is changed without a candidate: Services and router leave the old pods at once, so that no two revisions meet."""
    cluster = plane.cluster
    before = selects(cluster)["router"]
    with Watch(plane.kubeconfig, NAME) as watch:
        engine.edit(model(lambda m: m.update(engine="vllm-0.27.1-dlc")))
        engine.up()
        after = selects(cluster)["router"]
        assert set(selects(cluster).values()) == {after}
        cluster.until(lambda: {p["metadata"]["labels"][labels.IDENTITY] for p in pods(cluster)} == {after}, "all pods new", 120)
        ready(cluster, 6)
    assert after != before
    assert_never_mixed(watch, before, after)


def test_candidate_without_a_node(plane: ControlPlane, engine: Engine) -> None:
    """A candidate whose pods find no node changes nothing for requests, also when it is activated: `up` waits for it and fails.

    With the activation taken back and nodes to be had it comes up, and the next activation goes through.
    """
    cluster, old = plane.cluster, uids(plane.cluster)
    before = selects(cluster)["router"]
    with Watch(plane.kubeconfig, NAME) as watch:
        plane.faults([{"match": {}, "allow": 0}])
        engine.edit(model(lambda m: m.update(candidate=dict(CANDIDATE))))
        engine.up()
        engine.edit(model(lambda m: (m["candidate"].update(activate=True), m.update(waitForReadySeconds=10))))
        with pytest.raises(PulumiError, match="timed out"):
            engine.up()
        serving = selects(cluster)
        assert {serving[f"{NAME}-{side}-api"] for side in SIDES} | {serving["router"]} == {before}
        assert {n: u for n, u in uids(cluster).items() if n in old} == old
        assert len(uids(cluster)) == 12

        plane.faults([])
        engine.edit(model(lambda m: (m["candidate"].pop("activate"), m.pop("waitForReadySeconds"))))
        engine.up()
        ready(cluster, 12)
        assert {n: u for n, u in uids(cluster).items() if n in old} == old
        engine.edit(model(lambda m: m["candidate"].update(activate=True)))
        engine.up()
        after = selects(cluster)["router"]
        ready(cluster, 6)
    assert after != before
    assert_never_mixed(watch, before, after)


def test_giving_a_candidate_up(plane: ControlPlane, engine: Engine) -> None:
    """Without the candidate the next `up` removes it, and nothing else happens."""
    cluster, old = plane.cluster, uids(plane.cluster)
    engine.edit(model(lambda m: m.update(candidate=dict(CANDIDATE))))
    engine.up()
    ready(cluster, 12)
    engine.edit(model(lambda m: m.pop("candidate")))
    gone = changed(engine.up())
    assert gone["delete"] == {f"{NAME}-b-{side}{end}" for side in SIDES for end in ("", "-api")}
    assert set(gone) == {"delete", "update"}
    ready(cluster, 6)
    assert uids(cluster) == old


@pytest.mark.parametrize(("gpus", "gap"), [(4, False), (8, True)])
def test_lone_engine_rolls(plane: ControlPlane, cluster: Cluster, gpus: int, gap: bool) -> None:  # noqa: FBT001
    """With GPUs idle beside it a lone engine is followed by one that is ready before it ends; on a full node its Service is empty meanwhile."""
    before, after = (
        layout(environment(aggregated(name="lone", server=role(tensorParallel=gpus, maxNumSeqs=n, capacity={"nodes": 1})))) for n in (64, 128)
    )
    deploy(cluster, before)
    settle(cluster, before)
    old = uids(cluster)
    with Watch(plane.kubeconfig, "lone") as watch:
        deploy(cluster, after)
        cluster.until(lambda: (now := uids(cluster)).keys() == old.keys() and now != old, "the engine new", 90)
        settle(cluster, after)
        cluster.until(lambda: watch.selections("lone-api")[-1][1] == 1, "one endpoint")
    assert any(count == 0 for _, count in watch.selections("lone-api")) is gap
