"""Every example in Python: planned from its own folder as a user plans it, and its point is there."""

from __future__ import annotations

import json
import runpy
from copy import deepcopy
from functools import cache
from typing import Any

import pulumi
import pytest
from disagg_serving.document.resource import COMPUTED
from disagg_serving.recording.graph import Graph
from disagg_serving.recording.plan import Plan, make_plan
from disagg_serving.spec.stack_file import find_project
from factories import ROOT
from recording import kinds, one, program_graph

FOLDER = ROOT / "examples"
PROGRAMS = sorted(p.parent.relative_to(FOLDER).as_posix() for p in FOLDER.rglob("__main__.py") if (p.parent / "Pulumi.yaml").exists())
LWS, NODE_POOL = "kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet", "kubernetes:karpenter.sh/v1:NodePool"
WITHOUT_MODELS, WITHOUT_POOLS = {"node-pools-only", "two-stacks/cluster"}, {"serving-only", "two-stacks/cluster"}


@cache
def plan(folder: str, stack: str) -> Plan:
    """The plan of a stack of an example."""
    project = find_project(FOLDER / folder)
    return make_plan(project, project.stack_file(stack))


def graph(folder: str, stack: str = "dev") -> Graph:
    """What an example declares."""
    return plan(folder, stack).graph


@pytest.mark.parametrize("folder", PROGRAMS)
def test_examples_plan_cleanly(folder: str) -> None:
    """Every example is recorded with each of its stacks, passes its checks and makes what it is about."""
    stacks = find_project(FOLDER / folder).stacks()
    assert stacks
    for stack in stacks:
        made = plan(folder, stack)
        assert [f.sentence() for f in made.checks if f.level == "error"] == []
        assert bool(made.graph.of_type(LWS)) == (folder not in WITHOUT_MODELS)
        assert bool(made.graph.of_type(NODE_POOL)) == (folder not in WITHOUT_POOLS)
        assert (made.layout is not None) == (folder != "two-stacks/cluster")


@pytest.mark.parametrize("folder", [*PROGRAMS, "two-stacks", "typescript", "go"])
def test_examples_say_what_they_are_for(folder: str) -> None:
    """Each example, or the folder of a pair, has a README with a command to try."""
    home = FOLDER / folder
    readme = home / "README.md" if (home / "README.md").exists() else home.parent / "README.md"
    assert readme != FOLDER / "README.md"
    assert "```console" in readme.read_text(encoding="utf-8")


def test_node_pools_take_a_subnet_that_is_being_made() -> None:
    """Ids from resources of the same program are inputs of the pools."""
    spec = kinds(graph("node-pools-only"), "kubernetes:eks.amazonaws.com/v1:NodeClass")[0].inputs["spec"]
    assert spec["subnetSelectorTerms"] == [{"id": COMPUTED}]


def test_two_models_share_pools() -> None:
    """One pool a role serves both models; its limit holds the engines of both."""
    pools = {p.name: p.inputs["spec"]["limits"]["nvidia.com/gpu"] for p in graph("two-models").of_type(NODE_POOL)}
    assert pools == {"gpu/prefill-p5-48xlarge": "8", "gpu/decode-p5-48xlarge": "8"}


def test_the_serving_stack_reads_what_the_cluster_stack_exports() -> None:
    """Every output that the reference asks for is exported by the other stack, under the name that its reference gives."""
    reference = one(graph("two-stacks/serving", "prod"), "pulumi:pulumi:StackReference").inputs["id"]
    cluster = graph("two-stacks/cluster", "prod")
    assert reference == f"acme/{find_project(FOLDER / 'two-stacks/cluster').name}/prod"
    assert set(cluster.outputs) == {"clusterName", "kubeconfig", "nodeRoleName", "gpuSubnetIds"}
    assert not [r for r in graph("two-stacks/serving", "prod").resources.values() if r.type.startswith(("aws:", "eks:"))]


def test_own_entries_reach_plan_and_pods() -> None:
    """The model's repository stands in the pods, and the negotiated price in the cost."""
    (served,) = graph("custom-entries").of_type(LWS)
    assert "acme/chat-14b" in json.dumps(served.inputs)
    assert 50.64 in [line.unit_per_hour for line in plan("custom-entries", "dev").cost.lines]


def test_nothing_of_the_air_gap_comes_from_outside() -> None:
    """No image and no chart of the air-gapped example is read from a public registry."""
    text = json.dumps([r.inputs for r in graph("air-gap", "prod").resources.values()])
    mirror = "123456789012.dkr.ecr.us-east-1.amazonaws.com/"
    for registry in ("docker.io/", "ghcr.io/", "registry.k8s.io/", "https://kedacore"):
        assert text.count(registry) == text.count(mirror + registry)
    assert text.count(mirror) > 5


def test_the_air_gap_lets_its_deployer_in() -> None:
    """The API server has no public endpoint, the deployer's security group may reach the private one, and the plan does not warn of that."""
    (opened,) = graph("air-gap", "prod").of_type("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule")
    assert opened.inputs["referencedSecurityGroupId"] == "sg-0123456789abcdef0"
    assert "api-endpoint" not in {finding.id for finding in plan("air-gap", "prod").checks}


def test_the_transform_changes_objects_and_their_pods() -> None:
    """The example's transform, run on what the program declares as the engine does, puts the cost center on objects, pods and parts of the VPC."""
    names: dict[str, Any] = {}
    made = program_graph(lambda: names.update(runpy.run_path(str(FOLDER / "transforms/__main__.py"))))
    assert one(made, "disagg-serving:index:Environment").options["transforms"] == 1
    changed: dict[str, list[dict[str, Any]]] = {}
    for resource in made.resources.values():
        args = pulumi.ResourceTransformArgs(True, resource.type, resource.name, deepcopy(resource.inputs), pulumi.ResourceOptions())
        if (result := names["owned"](args)) is not None:
            changed.setdefault(resource.type, []).append(dict(result.props))
    objects = [props for kind, found in changed.items() if kind.startswith("kubernetes:") for props in found]
    assert len(objects) > 10
    assert all(props["metadata"]["labels"]["example.com/cost-center"] == "ml" for props in objects)
    (served,) = changed[LWS]
    assert served["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]["labels"]["example.com/cost-center"] == "ml"
    assert all(props["tags"]["cost-center"] == "ml" for props in changed["aws:ec2/subnet:Subnet"])
    assert "disagg-serving:index:Environment" not in changed
