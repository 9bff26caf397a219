"""Settings of AWS resources that nobody sees at work until the day they are needed."""

from __future__ import annotations

from functools import cache

from disagg_serving.recording.graph import Graph
from factories import aggregated, environment
from recording import environment_graph, kinds, one

ROUTE, NAT = "aws:ec2/route:Route", "aws:ec2/natGateway:NatGateway"
GATEWAY = {"host": "llm.example.com", "certificateArn": "arn:aws:acm:us-east-1:123456789012:certificate/11111111-2222-3333-4444-555555555555"}
WEIGHTS = {"revision": "0123456789abcdef0123456789abcdef01234567", "s3": {"bucket": "weights-of-prod", "create": True}}


@cache
def graph() -> Graph:
    """A whole environment with a bucket of its own."""
    return environment_graph(environment(aggregated(weights=WEIGHTS)))


def test_nobody_outside_reads_the_weights() -> None:
    """All four of S3's blocks of public access are on: the policy's too, which alone refuses a policy that opens the bucket."""
    block = one(graph(), "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock")
    flags = {k: v for k, v in block.inputs.items() if k != "bucket"}
    assert flags == dict.fromkeys(("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"), True)


def test_a_nat_gateway_waits_for_the_way_out() -> None:
    """AWS makes a NAT gateway only where a route to the internet gateway is: without the order, the first update may fail."""
    public = {r.urn for r in kinds(graph(), ROUTE) if "gatewayId" in r.inputs and "natGatewayId" not in r.inputs}
    assert public
    assert all(public & graph().requires(nat.urn) for nat in kinds(graph(), NAT))


def test_the_node_role_can_be_deleted() -> None:
    """Policies that somebody attached to the role of nodes do not keep `pulumi destroy` from deleting it."""
    roles = [r for r in kinds(graph(), "aws:iam/role:Role") if "ec2.amazonaws.com" in str(r.inputs.get("assumeRolePolicy"))]
    assert roles
    assert all(r.inputs.get("forceDetachPolicies") is True for r in roles)
