"""What `disagg verify` says about pictures of clusters; tests/live/test_verify.py does the same with real objects."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from disagg_serving import labels
from disagg_serving.planning.shapes import Layout
from disagg_serving.verify import Point, Status, verify
from disagg_serving.verify.connection import path_of
from disagg_serving.verify.metrics import read_metrics
from disagg_serving.verify.points import MEANING
from disagg_serving.verify.snapshot import Ref, Unread
from disagg_serving.verify.versions import version_of
from disagg_serving.verify.view import NODES, View, deployments_in, events_in, pods_in, slices_in
from factories import ROOT, STACKS, environment, existing_cluster, layout, model, role
from snapshots import Picture, as_planned, metrics, stack_layout, warning

Names = set[tuple[str, str]]


def points(picture: Picture) -> list[Point]:
    """All points about a picture."""
    return verify(picture.layout, picture.snapshot())


def named(found: list[Point], status: Status) -> Names:
    """Ids and subjects of the points with a status."""
    return {(p.id, p.subject) for p in found if p.status is status}


def node_cache() -> Layout:
    """A model whose weights stay on the node."""
    return layout(existing_cluster(model(weights={"cache": "node"})))


@pytest.mark.parametrize("stack", STACKS)
def test_as_planned_is_green(stack: str) -> None:
    """A cluster that is as every stack plans gives nothing but ok, and says in each point what that means."""
    found = points(as_planned(stack_layout(stack)))
    assert [p for p in found if p.status is not Status.OK] == []
    assert len({(p.id, p.subject) for p in found}) == len(found)
    assert {p.id for p in found} <= MEANING.keys()


def test_every_point_can_be_said() -> None:
    """Each id of the table is one that some cluster gets, so the documentation lists no point that is never made."""
    pictures = [*(as_planned(stack_layout(stack)) for stack in STACKS), as_planned(node_cache()), scaled_picture()]
    seen = {p.id for picture in pictures for p in points(picture)}
    assert set(MEANING) - seen == {"canary-answer", "canary-split"}
    text = (ROOT / "docs/verify.md").read_text(encoding="utf-8")
    assert [name for name in MEANING if f"`{name}`" not in text] == []


SPACE = "llama-70b"
D0, D1 = "llama-70b-decode-0", "llama-70b-decode-1"
DECODE_NODE = "decode-p5-48xlarge-0"
EPP = f"Deployment {SPACE}/llama-70b-epp"


def said(picture: Picture, name: str, **changes: Any) -> None:
    """What an engine says."""
    picture.answers[SPACE, name] = replace(picture.answers[SPACE, name], **changes)


def everywhere(picture: Picture, side: str, text: str) -> None:
    """The metrics of all engines of a role."""
    for name in (n for s, n in picture.answers if f"-{side}-" in n):
        said(picture, name, metrics=text)


def decode_only(p: Picture) -> None:
    """No prompt has seen prefill."""
    everywhere(p, "prefill", metrics(prompt=0))
    everywhere(p, "decode", metrics(local=2000))


def unset(thing: dict[str, Any], *path: str) -> None:
    """Take a key away."""
    for key in path[:-1]:
        thing = thing[key]
    del thing[path[-1]]


def pod_of(p: Picture, name: str) -> dict[str, Any]:
    """A pod, to be changed."""
    return p.named(pods_in(SPACE), name)


def lost_node(p: Picture) -> None:
    """The node of the decode pods has gone."""
    p.lists[NODES] = [n for n in p.lists[NODES] if n["metadata"]["name"] != DECODE_NODE]


def node_stops(p: Picture) -> None:
    """The kubelet of the decode pods' node says nothing any more."""
    p.named(NODES, DECODE_NODE)["status"]["conditions"] = []
    p.lists[events_in("default")].append(warning("Node", DECODE_NODE, "NodeNotReady", "kubelet stopped posting status"))


def spread(p: Picture) -> None:
    """One decode pod is on a node of its own."""
    node = deepcopy(p.named(NODES, DECODE_NODE))
    node["metadata"]["name"] = "another"
    p.lists[NODES].append(node)
    pod_of(p, D1)["spec"]["nodeName"] = "another"


def endpoints_of(p: Picture, service: str) -> list[dict[str, Any]]:
    """Where a Service leads."""
    found = next(s for s in p.lists[slices_in(SPACE)] if s["metadata"]["labels"][labels.SERVICE_NAME] == service)
    endpoints: list[dict[str, Any]] = found["endpoints"]
    return endpoints


def crash(p: Picture) -> None:
    """An engine crashes."""
    waiting = {"name": "vllm", "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    pod_of(p, D0)["status"] = {"phase": "Running", "containerStatuses": [waiting]}
    p.lists[events_in(SPACE)].append(warning("Pod", D0, "BackOff", "back-off restarting failed container"))
    endpoints_of(p, "llama-70b-decode-api")[0]["conditions"]["ready"] = False


def gone(kind: str, name: str) -> Callable[[Picture], None]:
    """A generated object is not there."""
    return lambda p: p.objects.update({p.made(kind, name): None})


def router_gone(p: Picture) -> None:
    """The chart is not installed."""
    p.lists[deployments_in(SPACE)] = []
    p.objects[Ref("v1", "Service", SPACE, "llama-70b-epp")] = None
    p.lists[pods_in(SPACE)] = [x for x in p.lists[pods_in(SPACE)] if labels.ROUTER_RELEASE not in x["metadata"]["labels"]]


def deployed(p: Picture, namespace: str) -> dict[str, Any]:
    """The only Deployment of a namespace."""
    (found,) = p.lists[deployments_in(namespace)]
    return dict(found)


FAULTS: dict[str, tuple[Callable[[Picture], Any], Names, str]] = {
    "extended resource gone": (
        lambda p: unset(p.named(NODES, DECODE_NODE), "status", "allocatable", labels.EFA), {("node-efa", DECODE_NODE)}, f"no {labels.EFA}"),
    "node not ready": (node_stops, {("node-ready", DECODE_NODE)}, "not ready (NodeNotReady: kubelet stopped posting status)"),
    "node gone": (lost_node, {("pod-pool", f"{SPACE}/llama-70b-decode-{i}") for i in range(4)}, "is gone"),
    "pod of another pool's node": (
        lambda p: p.named(NODES, DECODE_NODE)["metadata"]["labels"].update({labels.POOL: "other"}),
        {("pod-pool", f"{SPACE}/llama-70b-decode-{i}") for i in range(4)}, "other"),
    "spread over nodes": (spread, {("pool-nodes", "decode-p5-48xlarge")}, "2 nodes"),
    "crashing engine": (crash, {("group-ready", f"{SPACE}/{D0}")}, "CrashLoopBackOff, 4 restarts (BackOff: back-off restarting failed container)"),
    "set gone": (gone("LeaderWorkerSet", "llama-70b-decode"), {("object", f"LeaderWorkerSet {SPACE}/llama-70b-decode")}, "not there"),
    "policy gone": (gone("NetworkPolicy", "engines"), {("object", f"NetworkPolicy {SPACE}/engines")}, "not there"),
    "stuck rollout": (
        lambda p: p.objects[p.made("LeaderWorkerSet", "llama-70b-decode")]["status"].update(updatedReplicas=1),
        {("set-rollout", f"LeaderWorkerSet {SPACE}/llama-70b-decode")}, "1 of 4"),
    "other size": (
        lambda p: p.objects[p.made("LeaderWorkerSet", "llama-70b-decode")]["spec"]["leaderWorkerTemplate"].update(size=2),
        {("set-size", f"LeaderWorkerSet {SPACE}/llama-70b-decode")}, "2"),
    "other argument": (
        lambda p: pod_of(p, D0)["spec"]["containers"][0]["args"].append("--enforce-eager"), {("pod-args", f"{SPACE}/{D0}")}, "has --enforce-eager"),
    "EFA not asked for": (
        lambda p: pod_of(p, D0)["spec"]["containers"][0]["resources"]["limits"].pop(labels.EFA), {("pod-spec", f"{SPACE}/{D0}")}, "efa is missing"),
    "no controller": (lambda p: p.lists[deployments_in("lws-system")].clear(), {("lws-ready", "Deployment in lws-system")}, "no controller"),
    "router gone": (router_gone, {("router-ready", EPP), ("service-endpoints", f"Service {SPACE}/llama-70b-epp")}, "not there"),
    "other router image": (
        lambda p: deployed(p, SPACE)["spec"]["template"]["spec"]["containers"][1].update(image="epp:v0.9.0"), {("router-image", EPP)}, "epp:v0.9.0"),
    "no load balancer": (
        lambda p: p.objects[p.made("Service", "llama-70b-gateway")].update(status={}),
        {("router-address", f"Service {SPACE}/llama-70b-gateway")}, "none"),
    "a worker behind the Service": (
        lambda p: endpoints_of(p, "llama-70b-decode-api").append({"addresses": ["10.0.0.9"], "targetRef": {"name": "stranger"}}),
        {("service-endpoints", f"Service {SPACE}/llama-70b-decode-api")}, "leads to stranger"),
    "both backends": (lambda p: said(p, D0, log="Backend UCX was instantiated\nBackend LIBFABRIC was instantiated\n"),
                      {("nixl-backend", f"{SPACE}/{D0}")}, "UCX, LIBFABRIC"),
    "decode-only traffic": (decode_only, {("prefill-used", SPACE)}, "0, while decode"),
    "failed transfers": (lambda p: said(p, D0, metrics=metrics(transfers=5, failed=1)), {("kv-failures", f"{SPACE}/{D0}")}, "1"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_fails_its_own_points(name: str) -> None:
    """Each fault fails the points about itself, with what was found and what to do, and what follows from it is at most unknown."""
    inject, expected, words = FAULTS[name]
    picture = as_planned(stack_layout("prod"))
    inject(picture)
    found = [p for p in points(picture) if p.status is Status.FAILED]
    assert {(p.id, p.subject) for p in found} == expected
    assert [p for p in found if words not in p.found and words not in " ".join(x.found for x in found)] == []
    assert [p for p in found if not p.fix] == []


def test_half_a_group_quotes_the_scheduler() -> None:
    """A group whose worker has no node is half a group, with the scheduler's words; whether it is ready is then open."""
    picture = as_planned(stack_layout("glm5-pp"))
    worker = picture.named(pods_in("glm-5"), "glm-5-0-1")
    unset(worker, "spec", "nodeName")
    worker["status"] = {"phase": "Pending"}
    picture.lists[events_in("glm-5")].append(warning("Pod", "glm-5-0-1", "FailedScheduling", "0/3 nodes are available"))
    found = points(picture)
    (failed,) = [p for p in found if p.status is Status.FAILED]
    assert (failed.id, failed.subject) == ("group-whole", "glm-5/glm-5-0")
    assert failed.found == "half a group: 1 of 2 on nodes; glm-5-0-1 is Pending (FailedScheduling: 0/3 nodes are available)"
    assert ("group-ready", "glm-5/glm-5-0") in named(found, Status.UNKNOWN)


@pytest.mark.parametrize("key", ["objects", "lists", "answers"])
@pytest.mark.parametrize("stack", ["prod", "glm5-pp"])
def test_what_was_not_read_is_never_ok(stack: str, key: str) -> None:
    """Each thing that could not be read makes points unknown with its reason, and none ok that was not ok without it, and none failed."""
    whole = as_planned(stack_layout(stack))
    for item in getattr(whole, key):
        picture = as_planned(whole.layout)
        nothing = Unread("no right to look")
        value: Any = nothing if key != "answers" else replace(picture.answers[item], log=nothing, metrics=nothing, version=nothing)
        getattr(picture, key)[item] = value
        found = points(picture)
        assert named(found, Status.FAILED) == set()
        # events are read where something is wrong, and workers of an aggregated engine say nothing that counts
        quiet = item == ("glm-5", "glm-5-0-1") if key == "answers" else item.kind == "Event"
        assert any("no right to look" in p.found for p in found if p.status is Status.UNKNOWN) or quiet, item


def test_no_traffic_is_unknown() -> None:
    """Counters that stand at 0 because nobody has asked say nothing, and the point says how to change that."""
    picture = as_planned(stack_layout("prod"))
    for side in ("prefill", "decode"):
        everywhere(picture, side, metrics(prompt=0, answered=0))
    found = points(picture)
    assert named(found, Status.FAILED) == set()
    open_ = [p for p in found if p.status is Status.UNKNOWN]
    assert {p.id for p in open_} == {"prefill-used", "kv-transfers", "decode-local"}
    assert all("--canary" in p.fix for p in open_ if p.id != "decode-local")


def test_a_rotated_log_is_unknown() -> None:
    """A log without NIXL's line proves neither backend."""
    picture = as_planned(stack_layout("prod"))
    said(picture, D0, log="INFO something else\n")
    assert named(points(picture), Status.UNKNOWN) == {("nixl-backend", f"{SPACE}/{D0}")}
    assert named(points(picture), Status.FAILED) == set()


@pytest.mark.parametrize(
    ("log", "status"),
    [
        ("PermissionError: [Errno 13] Permission denied: '/node-cache/huggingface'", Status.FAILED),
        ("OSError: [Errno 30] Read-only file system: '/node-cache/huggingface'", Status.FAILED),
        ("PermissionError: [Errno 13] Permission denied: '/somewhere/else'", Status.UNKNOWN),
        (Unread("not allowed"), Status.UNKNOWN),
    ],
)
def test_the_nodes_folder(log: str | Unread, status: Status) -> None:
    """Whether SELinux lets pods write the node's folder shows in the log of an engine that does not become ready, and in one that does."""
    picture = as_planned(node_cache())
    ((space, name), *_) = picture.answers
    picture.named(pods_in(space), name)["status"]["conditions"] = []
    picture.answers[space, name] = replace(picture.answers[space, name], log=log)
    (point,) = [p for p in points(picture) if (p.id, p.subject) == ("weights-cache", f"{space}/{name}")]
    assert point.status is status
    assert "weights.cache: pod" in point.fix or status is Status.UNKNOWN


def scaled_picture(engines: int | None = None) -> Picture:
    """An environment whose decode is scaled from 2 to 9, with so many engines now; by default the least."""
    bounds = {"minReplicaCount": 2, "maxReplicaCount": 9}
    data = environment(model(decode=role(autoscaling=bounds)), autoscaling={"prometheusAddress": "http://prometheus.monitoring.svc:9090"})
    planned = layout(data)
    groups = [replace(g, replicas=engines or g.replicas) if g.role == "decode" else g for g in planned.groups]
    picture = as_planned(replace(planned, groups=groups))
    picture.layout = planned
    return picture


SCALED_SET, SCALED_OBJECT = ("set-replicas", "LeaderWorkerSet m/m-decode"), ("scaled-object", "ScaledObject m/m-decode")


@pytest.mark.parametrize("engines", [2, 3, 5, 9])
def test_a_scaled_stack_is_green_at_every_number_between_its_bounds(engines: int) -> None:
    """Whatever number KEDA has chosen between the bounds, with one node or as many as they may be, nothing is unknown or failed."""
    found = points(scaled_picture(engines))
    assert [p for p in found if p.status is not Status.OK] == []
    said_of = {(p.id, p.subject): (p.expected, p.found) for p in found}
    assert said_of[SCALED_SET] == ("2 to 9", str(engines))
    assert SCALED_OBJECT in said_of
    (nodes,) = [p for p in found if p.id == "pool-nodes" and "decode" in p.subject]
    assert (nodes.expected, nodes.found) == ("1 to 3 nodes", f"{-(-engines // 4)} nodes")


@pytest.mark.parametrize("engines", [1, 10])
def test_a_number_beyond_the_bounds_fails_once(engines: int) -> None:
    """Fewer engines than the least or more than the most is a fault of its set, and what follows from it is at most unknown."""
    found = points(scaled_picture(engines))
    assert named(found, Status.FAILED) == {SCALED_SET}
    (point,) = [p for p in found if p.status is Status.FAILED]
    assert (point.expected, point.found) == ("2 to 9", str(engines))
    assert "scaled-object" in point.fix


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ({"type": "Ready", "status": "False", "reason": "ScaledObjectCheckFailed", "message": "no prometheus"}, "ScaledObjectCheckFailed: no prom"),
        ({"type": "Ready", "status": "Unknown"}, "Ready is Unknown"),
        ({"type": "Paused", "status": "True"}, "paused"),
        (None, "KEDA has not looked at it"),
    ],
)
def test_an_autoscaler_that_does_nothing_is_seen(condition: dict[str, str] | None, words: str) -> None:
    """A ScaledObject that KEDA cannot serve, has not seen, or that somebody has paused, fails although the number is still right."""
    picture = scaled_picture()
    picture.objects[picture.made("ScaledObject", "m-decode")]["status"] = {"conditions": [condition]} if condition else {}
    found = points(picture)
    assert named(found, Status.FAILED) == {SCALED_OBJECT}
    assert words in next(p.found for p in found if p.status is Status.FAILED)


def test_a_scaled_set_that_nobody_scales() -> None:
    """Engines below the least and a ScaledObject that is not ready are two points."""
    picture = scaled_picture(1)
    not_ready = {"type": "Ready", "status": "False", "reason": "Failed", "message": "x"}
    picture.objects[picture.made("ScaledObject", "m-decode")]["status"] = {"conditions": [not_ready]}
    assert named(points(picture), Status.FAILED) == {SCALED_SET, SCALED_OBJECT}


def test_a_scaled_object_that_was_not_read_is_unknown() -> None:
    """Without the right to read it, and where it is gone, nobody knows whether the role is scaled."""
    for what in (Unread("no right to look"), None):
        picture = scaled_picture()
        picture.objects[picture.made("ScaledObject", "m-decode")] = what
        assert SCALED_OBJECT in named(points(picture), Status.UNKNOWN)


def test_a_controller_of_a_local_chart_has_no_version_to_compare() -> None:
    """A chart in a folder says its version itself, so any version of its controller is right."""
    picture = as_planned(layout(environment(lws={"chart": "./charts/lws"})))
    found = points(picture)
    assert "lws-version" not in {p.id for p in found}


@pytest.mark.parametrize(
    ("image", "version"),
    [("registry.k8s.io/lws/lws:v0.11.1", "0.11.1"), ("host:5000/lws:0.9.0@sha256:ab", "0.9.0"), ("host:5000/lws", "untagged"), ("lws", "untagged")],
)
def test_version_of_an_image(image: str, version: str) -> None:
    """A registry's port is no tag, and a digest does not hide one."""
    assert version_of(image) == version


def test_metrics_of_several_ranks_are_summed() -> None:
    """An engine with data-parallel ranks has a sample a rank; other pages are no metrics."""
    text = 'vllm:prompt_tokens_total{engine="0"} 5\nvllm:prompt_tokens_total{engine="1"} 7\n'
    assert read_metrics(text).prompt_tokens == 12
    for other in ("", "up 1\n", "<html>"):
        with pytest.raises(ValueError, match=r"."):
            read_metrics(other)


@pytest.mark.parametrize(
    ("ref", "path"),
    [
        (Ref("v1", "Pod", "m"), "/api/v1/namespaces/m/pods"),
        (Ref("networking.k8s.io/v1", "NetworkPolicy", "m", "dns"), "/apis/networking.k8s.io/v1/namespaces/m/networkpolicies/dns"),
        (Ref("eks.amazonaws.com/v1", "NodeClass", "", "p5"), "/apis/eks.amazonaws.com/v1/nodeclasses/p5"),
        (Ref("scheduling.k8s.io/v1", "PriorityClass", "", "p"), "/apis/scheduling.k8s.io/v1/priorityclasses/p"),
    ],
)
def test_paths_of_the_api(ref: Ref, path: str) -> None:
    """Plurals as the API server spells them."""
    assert path_of(ref) == path


def test_newest_warning_counts() -> None:
    """Of several warnings the newest is quoted, cut to a readable length."""
    picture = as_planned(stack_layout("prod"))
    events = picture.lists[events_in(SPACE)]
    for hour, text in (("02", "new" * 200), ("01", "old")):
        events.append({**warning("Pod", D0, "Failed", text), "lastTimestamp": f"2026-11-30T{hour}:00:00Z"})
    quoted = View(picture.layout, picture.snapshot()).warnings(SPACE, "Pod", [D0])
    assert quoted.startswith(" (Failed: newnew")
    assert len(quoted) < 240
