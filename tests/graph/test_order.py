"""What exists before what: the order of up, and in reverse of destroy."""

from __future__ import annotations

import pytest
from disagg_serving.document.resource import Resource
from disagg_serving.recording.graph import Graph
from disagg_serving.resources.base import POOL_DELETE_TIMEOUT
from factories import aggregated, environment
from recording import environment_graph, kinds, one, stack_graph

AWS_STACKS = ("dev", "glm5", "glm5-pp", "prod", "staging")
CLUSTER = "eks:index:Cluster"
CHART = "kubernetes:helm.sh/v4:Chart"
LWS = "kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet"
NODE_CLASS = "kubernetes:eks.amazonaws.com/v1:NodeClass"
NODE_POOL = "kubernetes:karpenter.sh/v1:NodePool"
PROVIDER = "pulumi:providers:kubernetes"
ACCESS_ENTRY = "aws:eks/accessEntry:AccessEntry"
ACCESS_POLICY = "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"
POLICY = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
ROUTE = "aws:ec2/route:Route"
ASSOCIATION = "aws:ec2/routeTableAssociation:RouteTableAssociation"
NAT = "aws:ec2/natGateway:NatGateway"
SUBNET = "aws:ec2/subnet:Subnet"
ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"

BUCKET = "aws:s3/bucket:Bucket"
IDENTITY = "aws:eks/podIdentityAssociation:PodIdentityAssociation"
JOB = "kubernetes:batch/v1:Job"
SERVICE = "kubernetes:core/v1:Service"
NETWORK_POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
CONTROLLER_CHART, ROUTER_CHART = "-lws", "-router"

PAIRS = {
    "serving after its controller": ((LWS,), (f"{CHART}{CONTROLLER_CHART}",)),
    "serving after its network policies": ((LWS,), (NETWORK_POLICY,)),
    "routers after what they route to": ((f"{CHART}{ROUTER_CHART}",), (LWS, NETWORK_POLICY)),
    "routers after the subnets of their load balancers": ((f"{CHART}{ROUTER_CHART}",), (SUBNET, ROUTE, CLUSTER)),
    "serving after its pools": ((LWS,), (NODE_POOL,)),
    "pools after their node class": ((NODE_POOL,), (NODE_CLASS,)),
    "pools after the nodes' access": ((NODE_POOL, NODE_CLASS), (ACCESS_ENTRY, ACCESS_POLICY)),
    "pools after the nodes' role policies": ((NODE_POOL, NODE_CLASS), (POLICY,)),
    "pools after routes, NAT and S3 endpoint": ((NODE_POOL, NODE_CLASS), (ROUTE, ASSOCIATION, NAT, ENDPOINT)),
    "providers after the cluster with its access entries": ((PROVIDER,), (CLUSTER,)),
    "cluster after subnets and routes": ((CLUSTER,), (SUBNET, ROUTE, ASSOCIATION, NAT)),
    "charts after the cluster": ((f"{CHART}{CONTROLLER_CHART}", f"{CHART}{ROUTER_CHART}"), (CLUSTER,)),
}


@pytest.mark.parametrize("stack", AWS_STACKS)
@pytest.mark.parametrize("pair", PAIRS)
def test_order(stack: str, pair: str) -> None:
    """Each later resource requires every earlier one, so up makes them in order and destroy removes them in reverse."""
    graph = stack_graph(stack)
    later, earlier = PAIRS[pair]
    for resource in found(graph, *later):
        missing = {r.urn for r in found(graph, *earlier)} - graph.requires(resource.urn)
        assert not missing


def found(graph: Graph, *kinds_of: str) -> list[Resource]:
    """Resources of these types; of charts those whose name ends as the suffix says."""
    resources = []
    for kind in kinds_of:
        suffix = kind.removeprefix(CHART) if kind.startswith(CHART) else ""
        resources += [r for r in kinds(graph, CHART if suffix else kind) if r.name.endswith(suffix)]
    assert resources
    return resources


def test_weights_are_in_place_before_gpu_nodes_are_asked_for() -> None:
    """The mirror's Job runs with its role and bucket, and no LeaderWorkerSet exists before it has ended."""
    graph = stack_graph("glm5")
    job = one(graph, JOB)
    assert {r.urn for r in kinds(graph, BUCKET, IDENTITY)} <= graph.requires(job.urn)
    assert all(job.urn in graph.requires(r.urn) for r in graph.of_type(LWS))
    assert job.inputs["metadata"]["annotations"]["pulumi.com/timeoutSeconds"]
    assert one(graph, BUCKET).options["retainOnDelete"] is True


def test_load_balancer_comes_last_and_goes_first() -> None:
    """A load balancer stands behind the router that it points to, so that destroy removes it before nodes, routes and subnets."""
    graph = stack_graph("prod")
    (balancer,) = [r for r in graph.of_type(SERVICE) if r.inputs["spec"]["type"] == "LoadBalancer"]
    before = graph.requires(balancer.urn)
    assert {r.urn for r in found(graph, f"{CHART}{ROUTER_CHART}", LWS, SUBNET, ROUTE, CLUSTER)} <= before


@pytest.mark.parametrize("stack", AWS_STACKS)
def test_cluster_waits_for_its_role_policies(stack: str) -> None:
    """The cluster is made after its own role's five policies, and deleted before them."""
    graph = stack_graph(stack)
    policies = {r.urn for r in graph.of_type(POLICY) if "-cluster-" in r.name}
    assert len(policies) == 5
    assert policies <= graph.requires(one(graph, CLUSTER).urn)


@pytest.mark.parametrize("stack", [*AWS_STACKS, "local"])
def test_no_cycles(stack: str) -> None:
    """Nothing requires itself."""
    graph = stack_graph(stack)
    assert not [urn for urn in graph.resources if urn in graph.requires(urn)]


def test_admin_access_is_part_of_the_cluster() -> None:
    """Administrators' access entries are arguments of the cluster component, so the provider that needs them comes after them."""
    entries = one(stack_graph("prod"), CLUSTER).inputs["accessEntries"]
    assert entries["123456789012-role-platform"]["principalArn"] == "arn:aws:iam::123456789012:role/platform"
    assert entries["123456789012-role-platform"]["accessPolicies"]["admin"]["accessScope"] == {"type": "cluster"}


def test_pools_get_time_to_drain() -> None:
    """A NodePool's deletion waits for its nodes longer than the engine's default would."""
    assert int(POOL_DELETE_TIMEOUT.removesuffix("m")) >= 30
    for pool in stack_graph("prod").of_type(NODE_POOL):
        assert pool.options["customTimeouts"] == {"delete": POOL_DELETE_TIMEOUT}


def _protected(graph: Graph) -> list[str]:
    return sorted(r.type for r in graph.resources.values() if r.options.get("protect"))


def test_cluster_and_key_are_protected() -> None:
    """A destroy of an ordinary environment stops at the cluster and at the key of its secrets."""
    graph = stack_graph("prod")
    assert _protected(graph) == ["aws:kms/key:Key", CLUSTER]
    assert one(graph, CLUSTER).inputs["deletionProtection"] is True


def test_documented_way_to_destroy() -> None:
    """With `protect: false` nothing is protected any more, in Pulumi or in EKS, and no resource changes its URN on the way."""
    guarded = environment_graph(environment(cluster={"protect": True}))
    free = environment_graph(environment(cluster={"protect": False}))
    assert _protected(free) == []
    assert one(free, CLUSTER).inputs["deletionProtection"] is False
    assert list(guarded.resources) == list(free.resources)


def test_namespaces_come_before_what_is_in_them() -> None:
    """Every object in a namespace that we make requires that namespace."""
    graph = environment_graph(environment(aggregated(name="a"), aggregated(name="b")))
    for name in ("a", "b"):
        (namespace,) = [r for r in graph.of_type("kubernetes:core/v1:Namespace") if r.name == f"test-{name}/{name}"]
        inside = [r for r in graph.resources.values() if r.inputs.get("metadata", {}).get("namespace") == name]
        assert len(inside) == 10
        assert all(namespace.urn in graph.requires(r.urn) for r in inside)
