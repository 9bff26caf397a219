"""Engines with data-parallel ranks over one node and over several: admission, placement, who serves, and what a lost rank takes along."""

from __future__ import annotations

from functools import partial

import pytest
from factories import example
from live.conftest import gpu_nodes
from live.test_admission import pod_owners, try_all, validations
from live.test_placement import shape
from live.workloads import actual, deploy, endpoints_of, is_ready, planned, pods, settle, uids

from bench.cluster import Cluster

EXAMPLES = [("glm5-wide-ep", "prod"), ("deepseek-wide-ep", "node"), ("deepseek-wide-ep", "split"), ("deepseek-wide-ep", "wide")]
PREFILL, DECODE = "glm-5-prefill", "glm-5-decode"


def test_examples_are_accepted(cluster: Cluster) -> None:
    """Every object passes strict field validation, each LeaderWorkerSet the LWS webhook, and each pod template the checks of pods."""
    layouts = [example(*which) for which in EXAMPLES]
    before = validations(cluster)
    kinds = try_all(cluster, layouts)
    assert validations(cluster) - before == kinds["LeaderWorkerSet"] == 7
    owners = pod_owners(layouts)
    assert len(cluster.apply(owners, dry_run=True)) == len(owners) >= 6


@pytest.mark.parametrize(("name", "stack"), EXAMPLES)
def test_ranks_land_as_planned(cluster: Cluster, name: str, stack: str) -> None:
    """Groups fill the nodes that the plan shows, no GPU is idle, and a role's Service reaches its leaders and nobody else."""
    wanted = example(name, stack)
    deploy(cluster, wanted)
    settle(cluster, wanted)
    assert shape(actual(cluster)) == shape(planned(wanted))
    assert len(gpu_nodes(cluster)) == sum(g.size * g.spec.replicas for g in wanted.groups)
    for group in wanted.groups:
        assert set(endpoints_of(cluster, group, {engine[0] for engine in group.pods()}))


def test_a_lost_rank_takes_its_group_along(cluster: Cluster) -> None:
    """A worker's container that restarts, as when one of its ranks dies, makes its whole group new; the other role keeps its pods."""
    wanted = example("glm5-wide-ep", "prod")
    deploy(cluster, wanted)
    settle(cluster, wanted)
    prefill, decode = uids(cluster, PREFILL), uids(cluster, DECODE)
    restarted = [{"op": "replace", "path": "/status/containerStatuses/0/restartCount", "value": 1}]
    cluster.patch("pods/status", f"{DECODE}-0-1", restarted, "glm-5")
    cluster.until(partial(all_new, cluster, decode), "both pods of the group new")
    assert uids(cluster, PREFILL) == prefill


def test_an_update_replaces_a_group_in_place(cluster: Cluster) -> None:
    """A changed pod template makes leader and worker new together on the nodes that they had: there are no others to surge to."""
    wanted = example("glm5-wide-ep", "prod")
    deploy(cluster, wanted)
    settle(cluster, wanted)
    before, nodes = uids(cluster, DECODE), {n["metadata"]["name"] for n in gpu_nodes(cluster)}
    place = "/spec/leaderWorkerTemplate/{}/metadata/annotations/changed"
    cluster.patch("lws", DECODE, [{"op": "add", "path": place.format(t), "value": "1"} for t in ("leaderTemplate", "workerTemplate")], "glm-5")
    cluster.until(partial(all_new, cluster, before), "both pods of the group new")
    assert {n["metadata"]["name"] for n in gpu_nodes(cluster)} == nodes


def all_new(cluster: Cluster, before: dict[str, str]) -> bool:
    """Whether the same pods are there and ready, each as a new one."""
    now = {p["metadata"]["name"]: p for p in pods(cluster) if p["metadata"]["name"] in before}
    return set(now) == set(before) and all(is_ready(p) and p["metadata"]["uid"] != before[n] for n, p in now.items())
