from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from budgets import examples
from disagg_serving import labels
from disagg_serving.errors import Level
from disagg_serving.manifests.bundle import build_all
from disagg_serving.manifests.engine import grace_seconds
from disagg_serving.planning.placement import place
from disagg_serving.planning.shapes import Group, Layout, Requests, room_of
from disagg_serving.records import data_of
from disagg_serving.rules.evaluation import Evaluation
from engine_flags import assert_command_line_is_ours
from factories import check
from generator import Generator
from hypothesis import given, settings

DNS_LIMIT = 63
IAM_ROLE_LIMIT = 64
GENERATED = 200
environments = Generator(8).environment() | Generator(80).environment()


def key_of(manifest: dict[str, Any]) -> tuple[str, str, str]:
    """What Kubernetes tells objects apart by."""
    return manifest["kind"], manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]


def templates_of(manifest: dict[str, Any]) -> Iterator[tuple[dict[str, Any], bool]]:
    """Pod templates of a LeaderWorkerSet, and whether each is of a worker beside a leader."""
    template = manifest["spec"]["leaderWorkerTemplate"]
    if "leaderTemplate" in template:
        yield template["leaderTemplate"], False
    yield template["workerTemplate"], "leaderTemplate" in template


def assert_findings_are_whole(result: Evaluation) -> None:
    """Every finding has a level, an id, a place (or is about the whole file) and a message in one line."""
    for finding in result.findings:
        assert isinstance(finding.level, Level)
        assert isinstance(finding.path, str)
        assert finding.id
        assert finding.message
        assert "\n" not in finding.sentence()
    assert result.ok == (not any(f.level is Level.ERROR for f in result.findings))
    assert result.ok <= (result.layout is not None)


def assert_objects_have_names(objects: list[dict[str, Any]], layout: Layout) -> None:
    """Objects are told apart by kind, namespace and name; names are labels, also those that LWS derives for pods."""
    twice = [key for key, count in Counter(map(key_of, objects)).items() if count > 1]
    assert twice == []
    named = [name for kind, _, name in map(key_of, objects) if kind != "NodeClass"]
    pods = [(g.namespace, pod) for g in layout.groups for engine in g.pods() for pod in engine]
    assert [n for n in (*named, *(pod for _, pod in pods)) if not 0 < len(n) <= DNS_LIMIT] == []
    assert len(set(pods)) == len(pods)
    roles = [o["spec"]["role"] for o in objects if o["kind"] == "NodeClass"]
    assert [r for r in roles if not 0 < len(r) <= IAM_ROLE_LIMIT] == []
    values = [v for o in objects for v in o["metadata"].get("labels", {}).values()]
    assert [v for v in values if len(v) > DNS_LIMIT] == []


def assert_placement_is_real(layout: Layout) -> None:
    """Every pod is on exactly one node, no node holds more than it offers, and no pool has more nodes than its bound."""
    placed: Counter[str] = Counter()
    sizes: dict[str, list[Requests]] = {}
    for group in layout.groups:
        for pod in (pod for engine in group.pods() for pod in engine):
            sizes.setdefault(pod, []).append(group.pod_requests)
    for _, pool, nodes in place(layout):
        for node in nodes:
            placed.update(node.pods)
            if all(len(set(sizes[pod])) == 1 for pod in node.pods):
                assert node.used == sum((sizes[pod][0] for pod in node.pods), Requests())
            assert node.pods
            assert node.used.fits(node.room)
            assert node.idle_gpus >= 0
            assert node.idle_efa >= 0
        if pool:
            assert len(nodes) <= pool.max_nodes
            assert {n.room for n in nodes} == {room_of(pool.instance)}
    assert placed == Counter({pod: len(asked) for pod, asked in sizes.items()})


def assert_pods_reach_their_pool(group: Group, pod: dict[str, Any], objects: list[dict[str, Any]]) -> None:
    """The pod's selector is met by the nodes of exactly one NodePool, its own, whose taints it tolerates."""
    pools = [o for o in objects if o["kind"] == "NodePool"]
    if not pools:
        assert pod["nodeSelector"] == dict(group.spec.node_selector) != {}
        return
    matching = []
    for pool in pools:
        template = pool["spec"]["template"]
        offered = dict(template["metadata"]["labels"])
        for requirement in template["spec"]["requirements"]:
            assert len(requirement["values"]) == 1
            offered[requirement["key"]] = requirement["values"][0]
        if all(offered.get(key) == value for key, value in pod["nodeSelector"].items()):
            matching.append(pool)
    assert [p["metadata"]["name"] for p in matching] == [group.pool]
    template = matching[0]["spec"]["template"]["spec"]
    for taint in template["taints"]:
        tolerated = [t for t in pod["tolerations"] if t["key"] == taint["key"] and t["effect"] == taint["effect"]]
        assert [t for t in tolerated if t["operator"] == "Exists" or t["value"] == taint["value"]], taint
    offered_types = [r["values"] for r in template["requirements"] if r["key"] == labels.INSTANCE_TYPE]
    assert offered_types == [[group.spec.instance_type]]


def assert_engine_is_whole(group: Group, pod: dict[str, Any], *, worker: bool) -> None:
    """Devices are limited and requested alike, probes give the model time to load, and only workers are headless; flags stand there once."""
    (engine,) = [c for c in pod["containers"] if labels.GPU in c["resources"].get("limits", {})]
    requests, limits, args = engine["resources"]["requests"], engine["resources"]["limits"], engine["args"]
    devices = {key: value for key, value in requests.items() if key in {labels.GPU, labels.EFA}}
    assert devices == limits
    assert int(limits[labels.GPU]) * group.size == group.spec.tensor_parallel * group.spec.pipeline_parallel * group.spec.data_parallel
    assert (labels.EFA in limits) == (group.size > 1 or group.role != "server")
    assert all(int(count) > 0 for count in limits.values())

    startup = engine["startupProbe"]
    assert startup["failureThreshold"] * startup["periodSeconds"] > 0
    ready = next(int(e["value"]) for e in engine["env"] if e["name"] == "VLLM_ENGINE_READY_TIMEOUT_S")
    assert startup["failureThreshold"] * startup["periodSeconds"] == ready > 0
    drain = next(int(a.split("=")[1]) for a in args if a.startswith("--shutdown-timeout="))
    assert pod["terminationGracePeriodSeconds"] >= engine["lifecycle"]["preStop"]["sleep"]["seconds"] + drain + 15
    assert pod["terminationGracePeriodSeconds"] == grace_seconds(group)

    assert_command_line_is_ours(group, args)
    assert ("--headless" in args) == worker
    assert any(a.startswith("--port=") for a in args) == (not worker)
    spread = [a.split("=")[0] for a in args if a.startswith(("--nnodes", "--node-rank", "--master-addr"))]
    assert spread == (["--nnodes", "--node-rank", "--master-addr"] if group.size > 1 else [])
    ranks = [a.partition("=")[2] for a in args if a.startswith("--data-parallel-address=")]
    leader = "$(LWS_LEADER_ADDRESS)" if worker else "$(VLLM_HOST_IP)"
    assert ranks == ([leader] if group.size > 1 and group.spec.data_parallel > 1 else [])
    assert len({e["name"] for e in engine["env"]}) == len(engine["env"])
    mounted = {m["name"] for m in engine["volumeMounts"]}
    assert mounted == {v["name"] for v in pod["volumes"]}


def assert_manifests_hold(layout: Layout) -> None:
    """What every accepted environment promises about its objects."""
    objects = build_all(layout)
    assert_objects_have_names(objects, layout)
    assert_placement_is_real(layout)
    sets = {(o["metadata"]["namespace"], o["metadata"]["name"]): o for o in objects if o["kind"] == "LeaderWorkerSet"}
    assert len(sets) == len(layout.groups)
    for group in layout.groups:
        manifest = sets[group.namespace, group.name]
        templates = list(templates_of(manifest))
        assert manifest["spec"]["leaderWorkerTemplate"]["size"] == group.size
        assert len(templates) == (2 if group.size > 1 else 1)
        for template, worker in templates:
            assert_pods_reach_their_pool(group, template["spec"], objects)
            assert_engine_is_whole(group, template["spec"], worker=worker)


@pytest.mark.hypothesis
def test_no_environment_breaks_the_checks() -> None:
    """Any environment is either refused with findings or gives objects that hold together, and the same ones each time.

    Both halves are well covered: of the generated environments a twelfth or more passes, and as many are refused.
    """
    seen: Counter[bool] = Counter()
    modes: Counter[str] = Counter()

    @settings(max_examples=examples(GENERATED))
    @given(environments)
    def holds(data: dict[str, Any]) -> None:
        before = json.dumps(data)
        result = check(data)
        assert json.dumps(data) == before
        assert_findings_are_whole(result)
        seen[result.ok] += 1
        if not result.ok:
            return
        layout = result.require_layout()
        modes.update("many nodes" if g.size > 1 else g.role for g in layout.groups)
        modes.update(f"ranks {'over nodes' if g.size > 1 else 'on a node'}" for g in layout.groups if g.spec.data_parallel > 1)
        modes.update(["made" if layout.pools else "existing nodes", "one model" if len(layout.served) == 1 else "several models"])
        assert_manifests_hold(layout)
        again = check(data)
        assert data_of(again.findings) == data_of(result.findings)
        assert json.dumps(build_all(again.require_layout())) == json.dumps(build_all(layout))

    holds()
    assert min(seen[True], seen[False]) > sum(seen.values()) / 12, seen
    wanted = ("prefill", "decode", "server", "many nodes", "ranks over nodes", "ranks on a node", "made", "existing nodes", "several models")
    assert all(modes[m] for m in wanted), modes
