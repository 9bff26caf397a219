"""The real pulumi command over the project's program: local with the real Kubernetes provider, AWS stacks with provider doubles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from disagg_serving.document.resource import COMPUTED, SECRET, Resource
from disagg_serving.recording.graph import Graph
from disagg_serving.recording.plan import make_plan
from disagg_serving.spec.stack_file import find_project
from live.conftest import gpu_nodes
from live.workloads import is_ready, pods

from bench.cluster import Cluster
from bench.control_plane import ControlPlane
from bench.engine import Engine, PulumiError, Step, for_stack

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
SIGNATURE, SECRET_SIGNATURE = "4dabf18193072939515e22adb298388d", "1b47061264138c4ac30d75fd1eb44270"
AWS_STACKS = ("dev", "glm5", "glm5-pp", "prod", "staging")
CRD = "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition"
LWS = "kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet"

pytestmark = pytest.mark.usefixtures("wiped")


def ops(steps: list[Step]) -> dict[str, set[str]]:
    """URNs by operation, of resources (the stack and default providers left out)."""
    found: dict[str, set[str]] = {}
    for step in steps:
        if step.type != "pulumi:pulumi:Stack" and "::default_" not in step.urn:
            found.setdefault(step.op, set()).add(step.urn)
    return found


def test_local_life(plane: ControlPlane, tmp_path: Path) -> None:
    """Preview, up, no change, one change, refresh without drift, drift by hand, destroy, and up again over the kept CRDs."""
    engine, cluster = for_stack("local", plane.kubeconfig, tmp_path), plane.cluster
    assert set(ops(engine.preview())) == {"create"}
    assert set(ops(engine.up())) == {"create"}
    engine.run("up", "--yes", "--skip-preview", "--expect-no-changes", "--stack", "local")
    cluster.until(lambda: len(ready := [p for p in pods(cluster) if is_ready(p)]) == 6 and bool(ready), "all pods ready")
    engine.run("refresh", "--yes", "--skip-preview", "--expect-no-changes", "--stack", "local")

    engine.edit(lambda e: e["models"][0]["decode"].update(replicas=3))
    changed = ops(engine.up())
    assert {u.rsplit("::", 1)[1] for u in changed["update"]} == {"local", "local-qwen3-32b/qwen3-32b-decode"}
    assert set(changed) == {"same", "update"}

    cluster.patch("lws", "qwen3-32b-decode", {"spec": {"replicas": 2}}, "qwen3-32b")
    drifted = ops(engine.refresh())
    assert [u.rsplit("::", 1)[1] for u in drifted.get("update", set())] == ["local-qwen3-32b/qwen3-32b-decode"]

    gone_after_destroy(engine, cluster)
    assert "create" in ops(engine.up())
    gone_after_destroy(engine, cluster)


def gone_after_destroy(engine: Engine, cluster: Cluster) -> None:
    """A destroy leaves nothing of ours but the CRDs, and no GPU node."""
    engine.destroy()
    assert not cluster.items("lws")
    assert not cluster.items("nodepools")
    assert not cluster.items("nodeclasses")
    cluster.until(lambda: not gpu_nodes(cluster), "no GPU node")
    assert "qwen3-32b" not in {n["metadata"]["name"] for n in cluster.items("namespaces")}
    assert {"leaderworkersets.leaderworkerset.x-k8s.io"} <= {c["metadata"]["name"] for c in cluster.items("crd")}


@pytest.mark.parametrize("stack", [*AWS_STACKS, "local"])
def test_plan_equals_the_engine(plane: ControlPlane, tmp_path: Path, stack: str) -> None:
    """Every resource that the program registers has the URN and the inputs in `disagg plan` that the real engine previews."""
    engine = for_stack(stack, plane.kubeconfig, tmp_path)
    steps = {s.urn: s for s in engine.preview()}
    project = find_project(engine.project)
    graph = make_plan(project, project.stack_file(stack)).graph
    assert set(graph.resources) <= set(steps)
    assert expanded(graph, steps) <= {"eks:index:Cluster", "kubernetes:helm.sh/v4:Chart"}
    different = {
        urn.rsplit("::", 1)[1]: (resource.type, resource.inputs, plain(steps[urn].state.get("inputs") or {}))
        for urn, resource in graph.resources.items()
        if resource.custom and not same_inputs(resource, plain(steps[urn].state.get("inputs") or {}))
    }
    assert different == {}


def expanded(graph: Graph, steps: dict[str, Step]) -> set[str]:
    """The types of remote components below which the engine shows resources that the plan does not."""
    extra = [s for s in steps.values() if s.urn not in graph.resources and "::default_" not in s.urn]
    remote = {r.urn: r.type for r in graph.resources.values() if r.remote}
    return {remote.get(s.state.get("parent", ""), s.state.get("parent", "")) for s in extra}


def plain(value: Any) -> Any:
    """Engine values in the plan's words."""
    if isinstance(value, dict):
        if value.get(SIGNATURE) == SECRET_SIGNATURE:
            return SECRET
        return {k: plain(v) for k, v in value.items() if not k.startswith("__")}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if value == UNKNOWN or (isinstance(value, str) and value.startswith("output<")):
        return COMPUTED
    return SECRET if value == "[secret]" else value


def same_inputs(resource: Resource, theirs: dict[str, Any]) -> bool:
    """Equal; to a provider's inputs the engine adds the version of its plugin."""
    added = {"version"} - set(resource.inputs) if resource.type.startswith("pulumi:providers:") else set()
    return bool(resource.inputs == {k: v for k, v in theirs.items() if k not in added})


@pytest.mark.parametrize("stack", AWS_STACKS)
def test_aws_life(plane: ControlPlane, tmp_path: Path, stack: str) -> None:
    """Preview with unknowns, up, a destroy that protection stops, then a destroy in the right order."""
    engine = for_stack(stack, plane.kubeconfig, tmp_path)
    assert set(ops(engine.preview())) == {"create"}
    assert set(ops(engine.up())) == {"create"}
    engine.run("up", "--yes", "--skip-preview", "--expect-no-changes", "--stack", stack)
    if stack != "dev":
        # the preview that destroy begins with meets the protection before anything is deleted
        with pytest.raises(PulumiError, match="protect"):
            engine.run("destroy", "--yes", "--stack", stack)
        assert plane.cluster.items("lws")
        engine.edit(lambda e: e["cluster"].update(protect=False))
        unprotected = ops(engine.up())
        assert not set(unprotected) - {"same", "update"}
    deletions = [s for s in engine.destroy() if s.op in ("delete", "discard", "discard-replaced")]
    assert_order(deletions)
    assert not plane.cluster.items("lws")
    plane.cluster.until(lambda: not gpu_nodes(plane.cluster), "no GPU node")


def assert_order(deletions: list[Step]) -> None:
    """Load balancers, routers, models, then controller and pools, then the cluster, then routes and subnets."""
    position = {s.urn: i for i, s in enumerate(deletions)}

    def of(*types: str) -> list[int]:
        found = [i for urn, i in position.items() if any(urn.split("::")[2].endswith(t) for t in types)]
        assert found, types
        return found

    serving, pools = of(f"${LWS}"), of("$kubernetes:karpenter.sh/v1:NodePool")
    chart = of("index:Lws$kubernetes:helm.sh/v4:Chart$kubernetes:apps/v1:Deployment")
    routers = of("index:Gateway$kubernetes:helm.sh/v4:Chart$kubernetes:apps/v1:Deployment")
    balancers = of("index:Gateway$kubernetes:core/v1:Service")
    cluster = of("$aws:eks/cluster:Cluster")
    roads = of("aws:ec2/route:Route", "aws:ec2/subnet:Subnet", "aws:ec2/natGateway:NatGateway", "aws:ec2/routeTableAssociation:RouteTableAssociation")
    assert max(balancers) < min(routers)
    assert max(routers) < min(serving)
    assert max(serving) < min(pools)
    assert max(serving) < min(chart)
    assert max(pools) < min(cluster)
    assert max(chart) < min(cluster)
    assert max(cluster) < min(roads)
