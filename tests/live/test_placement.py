"""Where scheduler, LWS controller and Karpenter put the pods, against the plan."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from disagg_serving import labels
from disagg_serving.planning.shapes import Layout
from disagg_serving.rules import rules
from disagg_serving.rules.evaluation import evaluate_file
from disagg_serving.spec.stack_file import find_project
from factories import SHIPPED, STACKS, aggregated, environment, layout, model, role
from live.conftest import clear, gpu_nodes
from live.workloads import actual, deploy, planned, pods, settle

from bench.cluster import Cluster

PROJECT = find_project(SHIPPED)
RANDOM_SPECS = 50
BATCH = 10
ANY_MEMORY = dict.fromkeys((r.id for r in rules() if r.judges == "memory"), "these tests are about nodes, not about memory")


def stack_layout(stack: str) -> Layout:
    """The layout of a stack file."""
    return evaluate_file(PROJECT.stack_file(stack), SHIPPED).require_layout()


@pytest.mark.parametrize("stack", STACKS)
def test_stack_lands_as_planned(cluster: Cluster, stack: str) -> None:
    """Every stack's pods become ready on exactly the nodes that the plan shows, pod by pod as far as pods differ."""
    wanted = stack_layout(stack)
    deploy(cluster, wanted)
    settle(cluster, wanted)
    assert shape(actual(cluster)) == shape(planned(wanted))
    assert len(gpu_nodes(cluster)) == sum(len(nodes) for nodes in planned(wanted).values())
    if stack == "prod":
        prod_is_packed_and_scales(cluster, wanted)
    if stack == "glm5-pp":
        groups_share_a_zone(cluster)


def prod_is_packed_and_scales(cluster: Cluster, wanted: Layout) -> None:
    """No GPU and no EFA device of prod is idle; four prefill pods need a second node where the pool allows it."""
    for node in gpu_nodes(cluster):
        used: dict[str, int] = {"nvidia.com/gpu": 0, "vpc.amazonaws.com/efa": 0}
        for pod in pods(cluster):
            if pod["spec"]["nodeName"] == node["metadata"]["name"]:
                for container in pod["spec"]["containers"]:
                    for resource in used:
                        used[resource] += int(container["resources"]["limits"][resource])
        assert {r: int(node["status"]["allocatable"][r]) for r in used} == used
    prefill = next(g for g in wanted.groups if g.role == "prefill")
    cluster.patch("nodepool", prefill.pool, {"spec": {"limits": {"nvidia.com/gpu": "16"}}})
    cluster.scale("lws", prefill.name, prefill.namespace, 4)
    cluster.until(lambda: len(gpu_nodes(cluster, prefill.pool)) == 2, "second prefill node")
    cluster.until(lambda: all(p["spec"].get("nodeName") for p in pods(cluster, prefill.name)), "four prefill pods placed")


def groups_share_a_zone(cluster: Cluster) -> None:
    """Both pods of a group are in one zone, each alone on its node."""
    zones = {n["metadata"]["labels"]["topology.kubernetes.io/zone"] for n in gpu_nodes(cluster)}
    assert zones == {"us-east-1a"}
    assert len({p["spec"]["nodeName"] for p in pods(cluster)}) == 2


def test_two_groups_take_four_nodes(cluster: Cluster) -> None:
    """Two engines over two nodes each need four nodes, a group never shares one."""
    wide = role(tensorParallel=8, pipelineParallel=2, replicas=2)
    wanted = layout(environment(aggregated(model="glm-5-fp8", maxModelLen=65536, server=wide)))
    deploy(cluster, wanted)
    settle(cluster, wanted)
    assert shape(actual(cluster)) == shape(planned(wanted))
    assert len(gpu_nodes(cluster)) == 4


def test_random_environments_land_as_planned(cluster: Cluster) -> None:
    """For 50 random environments, in batches with pools of their own, as many nodes are made as the plan says."""
    generator = random.Random(2026)  # noqa: S311 (a repeatable choice, no secret)
    for start in range(0, RANDOM_SPECS, BATCH):
        batch = [random_layout(generator, i) for i in range(start, start + BATCH)]
        for wanted in batch:
            deploy(cluster, wanted)
        expected = {p for wanted in batch for g in wanted.groups for names in g.pods() for p in names}
        cluster.until(partial(all_placed, cluster, expected), "all pods placed", 120)
        want = {pool: counted(nodes) for wanted in batch for pool, nodes in planned(wanted).items()}
        assert {pool: counted(nodes) for pool, nodes in actual(cluster).items()} == want
        clear(cluster)


def all_placed(cluster: Cluster, expected: set[str]) -> bool:
    """Whether exactly these pods are there and have nodes."""
    return {p["metadata"]["name"] for p in pods(cluster) if p["spec"].get("nodeName")} == expected


def random_layout(generator: random.Random, index: int) -> Layout:
    """A layout whose pools no other of the same run has: each environment gets a capacity source of its own."""
    kinds = ["p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge"]
    own: dict[str, Any] = {"name": f"r{index}", "model": "llama-3.3-70b-instruct-fp8"}

    def size() -> int:
        return generator.choice([1, 2, 4, 8])

    if generator.random() < 0.5:
        one = role(instanceType=generator.choice(kinds), tensorParallel=size(), replicas=generator.randint(1, 5))
        wanted = layout(environment(aggregated(**own, server=one), accept=ANY_MEMORY))
    else:
        kind = generator.choice(kinds)
        prefill = role(instanceType=kind, tensorParallel=size(), replicas=generator.randint(1, 4))
        decode = role(instanceType=kind, tensorParallel=prefill["tensorParallel"], replicas=generator.randint(1, 4))
        wanted = layout(environment(model(**own, prefill=prefill, decode=decode), accept=ANY_MEMORY))
    return with_own_pools(wanted, f"r{index}")


def with_own_pools(wanted: Layout, suffix: str) -> Layout:
    """The same layout with pools of another name, so that environments of a batch do not share them."""

    def renamed(pool: str) -> str:
        return f"{pool}-{suffix}"

    groups = [replace(g, pool=renamed(g.pool), node_selector={**g.node_selector, labels.POOL: renamed(g.pool)}) for g in wanted.groups]
    pools = [replace(p, name=renamed(p.name), labels={**p.labels, labels.POOL: renamed(p.name)}) for p in wanted.pools]
    return replace(wanted, groups=groups, pools=pools)


def counted(nodes: list[list[str]]) -> tuple[int, list[str]]:
    """Nodes and pods of a pool; which pods share a node that is not full is the scheduler's choice, which spreads them."""
    return len(nodes), sorted(pod for node in nodes for pod in node)


def shape(placed: dict[str, list[list[str]]]) -> dict[str, list[list[str]]]:
    """Placement up to the exchange of like pods: pods of one set are alike, which of them is where does not matter."""
    return {pool: sorted(sorted(name.rstrip("0123456789-") for name in node) for node in nodes) for pool, nodes in placed.items()}
