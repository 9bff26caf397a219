"""The printed IAM policies of deployer and previewer: complete for what programs declare, small enough, and no wider than they say."""

from __future__ import annotations

import importlib
import re
from functools import cache
from typing import Any

import botocore.session
import pytest
from disagg_serving.recording.graph import Graph
from disagg_serving.recording.plan import make_plan
from disagg_serving.spec.stack_file import find_project
from factories import ROOT, STACKS, environment, model
from iam_documents import CASES, graph_of, permits
from recording import environment_graph

rights = importlib.import_module("scripts.rights")
TABLE: dict[str, Any] = rights.rights()
TYPES: dict[str, dict[str, list[str]]] = TABLE["types"]
EXAMPLES = sorted(file.parent for file in (ROOT / "examples").rglob("__main__.py") if (file.parent / "Pulumi.yaml").exists())
PRIVATE = {"endpoint": {"publicAccess": False, "privateAccess": True, "privateAccessCidrs": ["10.8.0.0/16"]}}
DNS = {"certificateArn": "arn:aws:acm:us-east-1:123456789012:certificate/1", "dns": {"zoneId": "Z1", "name": "m.example.com"}}


@cache
def graphs() -> tuple[Graph, ...]:
    """What stacks, examples and the environments of the tests of IAM declare, and one that has a DNS record and a private endpoint."""
    projects = [find_project(folder) for folder in EXAMPLES]
    planned = [make_plan(project, project.stack_file(stack)).graph for project in projects for stack in project.stacks()]
    return (*(graph_of(case) for case in CASES), *planned, environment_graph(environment(model(gateway=DNS), cluster=PRIVATE)))


def test_every_aws_resource_has_its_actions() -> None:
    """No program declares an AWS resource that the table does not know, and the table knows none that no program declares."""
    assert len(EXAMPLES) > 5
    found = {kind for graph in graphs() for kind in rights.made(graph)}
    assert found - TYPES.keys() == set()
    assert TYPES.keys() - found == set()


def test_a_network_that_exists_needs_what_the_page_says() -> None:
    """The page names every action on networks that an environment on a network of others takes, with a private endpoint, and none else."""
    page = (ROOT / "docs/deployer-rights.md").read_text(encoding="utf-8")
    (said,) = (part for part in page.split("\n\n") if part.startswith("With `network.existing`"))
    existing = {"gpuZone": "us-east-1a", "existing": {"vpcId": "vpc-1", "subnetIds": ["subnet-1", "subnet-2"], "gpuSubnetIds": ["subnet-1"]}}
    made = rights.made(environment_graph(environment(model(), cluster=PRIVATE, network=existing)))
    needed = {a for kind in made for column in TYPES[kind].values() for a in column if a.startswith("ec2:")}
    assert set(re.findall("`(ec2:[A-Za-z]+)`", said)) == needed


def test_components_of_others_are_known() -> None:
    """What a component of another package makes inside is listed for each that is used, with its administrators' access entries."""
    remote = {r.type for graph in graphs() for r in graph.resources.values() if r.type.startswith("eks:")}
    assert remote == TABLE["inside"].keys()
    counted = rights.made(graph_of("prod"))
    assert counted["aws:eks/cluster:Cluster"] == 1
    assert counted["aws:eks/accessEntry:AccessEntry"] == 2
    assert counted["aws:iam/role:Role"] == 3


# IAM's names of S3 actions are often not those of the API
OF_S3 = {
    "GetAccelerateConfiguration": "GetBucketAccelerateConfiguration", "GetBucketCORS": "GetBucketCors", "ListBucket": "ListObjectsV2",
    "GetBucketObjectLockConfiguration": "GetObjectLockConfiguration", "GetBucketPublicAccessBlock": "GetPublicAccessBlock",
    "GetEncryptionConfiguration": "GetBucketEncryption", "GetLifecycleConfiguration": "GetBucketLifecycleConfiguration",
    "GetReplicationConfiguration": "GetBucketReplication", "PutBucketPublicAccessBlock": "PutPublicAccessBlock",
    "PutEncryptionConfiguration": "PutBucketEncryption", "PutLifecycleConfiguration": "PutBucketLifecycleConfiguration",
}  # fmt: skip


def test_actions_exist() -> None:
    """Every action is one of the service's API, by the client that the look-ups use; only PassRole is IAM's own."""
    session = botocore.session.get_session()
    names = {service: set(session.get_service_model(service).operation_names) for service in ("ec2", "eks", "iam", "kms", "s3", "route53")}
    names["s3"] |= set(session.get_service_model("s3control").operation_names)
    actions = {a for verbs in TYPES.values() for row in verbs.values() for a in row}
    actions |= {a for part in TABLE["state"].values() for column in ("read", "write") for a in part[column]}
    for action in actions - {"iam:PassRole"}:
        assert re.fullmatch("[a-z0-9]+:[A-Z][A-Za-z0-9]+", action)
        service, name = action.split(":")
        assert (OF_S3.get(name, name) if service == "s3" else name) in names[service], action


@pytest.mark.parametrize("kind", TYPES)
def test_an_entry_says_all_four(kind: str) -> None:
    """A type says what reads, makes, changes and deletes it, sorted and once each; what may only read changes nothing."""
    assert list(TYPES[kind]) == ["read", "create", "update", "delete"]
    assert TYPES[kind]["read"]
    assert TYPES[kind]["create"]
    for row in TYPES[kind].values():
        assert row == sorted(set(row))
    assert all(re.match("[a-z0-9]+:(Describe|Get|List)", action) for action in TYPES[kind]["read"])


@pytest.mark.parametrize("policy", [rights.deployer(), rights.previewer()], ids=["deployer", "previewer"])
def test_policies_fit(policy: dict[str, Any]) -> None:
    """A document is one managed policy: below IAM's size, ids that differ, no action by a wildcard, nothing on everything without a condition."""
    assert rights.length(policy) < rights.LIMIT
    sids = [s["Sid"] for s in policy["Statement"]]
    assert len(set(sids)) == len(sids)
    for statement in policy["Statement"]:
        assert not [a for a in statement["Action"] if "*" in a]
        assert statement["Resource"] != ["*"] or statement["Condition"]
        assert "{" not in str(statement["Resource"])


def test_every_statement_is_used() -> None:
    """No part of the table is left over, and an action that no statement takes is an error."""
    used = {s["Sid"] for s in rights.deployer()["Statement"]}
    assert used == {*TABLE["statements"], *TABLE["state"]}
    with pytest.raises(KeyError, match="sqs:SendMessage"):
        rights.document(["sqs:SendMessage"], ())


ROLE = "arn:aws:iam::123456789012:role"
KEY = "arn:aws:kms:us-east-1:123456789012:key/1"
HERE = {"region": "us-east-1"}
ADMIN, MINIMAL = "arn:aws:iam::aws:policy/AdministratorAccess", "arn:aws:iam::aws:policy/AmazonEKSWorkerNodeMinimalPolicy"


@pytest.mark.parametrize(
    ("action", "resource", "context", "deploys", "previews"),
    [
        ("ec2:CreateVpc", "arn:aws:ec2:us-east-1:123456789012:vpc/vpc-1", HERE, True, False),
        ("ec2:CreateVpc", "arn:aws:ec2:eu-west-1:123456789012:vpc/vpc-1", {"region": "eu-west-1"}, False, False),
        ("ec2:DescribeVpcs", "*", HERE, True, True),
        ("ec2:RunInstances", "arn:aws:ec2:us-east-1:123456789012:instance/i-1", HERE, False, False),
        ("eks:CreateCluster", "arn:aws:eks:us-east-1:123456789012:cluster/dev", HERE, True, False),
        ("eks:DeleteCluster", "arn:aws:eks:us-east-1:123456789012:cluster/dev", {}, True, False),
        ("eks:DeleteCluster", "arn:aws:eks:us-east-1:123456789012:cluster/theirs", {}, False, False),
        ("eks:AssociateAccessPolicy", "arn:aws:eks:us-east-1:123456789012:access-entry/dev/role/1/x/1", {}, True, False),
        ("eks:DescribeCluster", "arn:aws:eks:us-east-1:123456789012:cluster/dev", {}, True, True),
        ("iam:CreateRole", f"{ROLE}/dev-cluster-1a2b3c4", {}, True, False),
        ("iam:CreateRole", f"{ROLE}/theirs", {}, False, False),
        ("iam:PutRolePolicy", f"{ROLE}/theirs", {}, False, False),
        ("iam:DeleteRole", f"{ROLE}/prod-cluster-1a2b3c4", {}, False, False),
        ("iam:GetRole", f"{ROLE}/dev-cluster-1a2b3c4", {}, True, True),
        ("iam:AttachRolePolicy", f"{ROLE}/dev-gpu-node", {"policy": MINIMAL}, True, False),
        ("iam:AttachRolePolicy", f"{ROLE}/dev-gpu-node", {"policy": ADMIN}, False, False),
        ("iam:PassRole", f"{ROLE}/dev-cluster-1a2b3c4", {"passed_to": "eks.amazonaws.com"}, True, False),
        ("iam:PassRole", f"{ROLE}/dev-cluster-1a2b3c4", {"passed_to": "lambda.amazonaws.com"}, False, False),
        ("iam:PassRole", f"{ROLE}/theirs", {"passed_to": "eks.amazonaws.com"}, False, False),
        ("iam:CreateUser", "arn:aws:iam::123456789012:user/dev-x", {}, False, False),
        ("iam:CreateServiceLinkedRole", f"{ROLE}/aws-service-role/eks.amazonaws.com/AWSServiceRoleForAmazonEKS",
         {"service": "eks.amazonaws.com"}, True, False),
        ("kms:CreateKey", "*", HERE, True, False),
        ("kms:Decrypt", KEY, {"alias": "alias/disagg-serving"}, True, True),
        ("kms:Encrypt", KEY, {"alias": "alias/disagg-serving"}, True, False),
        ("kms:Decrypt", KEY, {"alias": "alias/theirs"}, False, False),
        ("s3:CreateBucket", "arn:aws:s3:::example-123456789012-weights", {}, True, False),
        ("s3:DeleteBucket", "arn:aws:s3:::example-123456789012-weights", {}, False, False),
        ("s3:GetObject", "arn:aws:s3:::example-123456789012-weights/models/m", {}, False, False),
        ("s3:PutObject", "arn:aws:s3:::example-123456789012-pulumi/.pulumi/stacks/dev.json", {}, True, False),
        ("s3:GetObject", "arn:aws:s3:::example-123456789012-pulumi/.pulumi/stacks/dev.json", {}, True, True),
        ("s3:DeleteBucket", "arn:aws:s3:::example-123456789012-pulumi", {}, False, False),
        ("route53:ChangeResourceRecordSets", "arn:aws:route53:::hostedzone/Z0123456789EXAMPLE", {}, True, False),
        ("route53:ChangeResourceRecordSets", "arn:aws:route53:::hostedzone/THEIRS", {}, False, False),
    ],
)  # fmt: skip
def test_policies_allow_what_is_theirs(action: str, resource: str, context: dict[str, str], deploys: bool, previews: bool) -> None:  # noqa: FBT001 (columns)
    """Own names are allowed, those of others are not; who previews changes nothing and reads no weights."""
    assert permits(rights.deployer(), action, resource, **context) is deploys
    assert permits(rights.previewer(), action, resource, **context) is previews


@pytest.mark.parametrize("case", [c for c in CASES if c not in {"local", "GovCloud"}])
def test_roles_and_policies_of_programs_are_allowed(case: str) -> None:
    """Each role that a program declares has a name that the policy covers, and each of AWS's policies that it attaches is named there."""
    name = case if case in STACKS else "test"
    policy = rights.document({"iam:CreateRole", "iam:AttachRolePolicy"}, (), {**rights.EXAMPLE, "name": name})
    for role in graph_of(case).of_type("aws:iam/role:Role"):
        full = role.inputs.get("name") or f"{role.inputs.get('namePrefix') or role.name + '-'}1a2b3c4"
        assert permits(policy, "iam:CreateRole", f"{ROLE}/{full}"), full
    for attachment in graph_of(case).of_type("aws:iam/rolePolicyAttachment:RolePolicyAttachment"):
        assert permits(policy, "iam:AttachRolePolicy", f"{ROLE}/{name}-x", policy=attachment.inputs["policyArn"])


def test_every_role_is_in_the_security_model() -> None:
    """The table of roles has one row for each kind of role that any program declares, with AWS's policies and the rights of its own."""
    rows = [[cell.strip(" `") for cell in line.strip("| ").split(" | ")] for line in rights.roles(graph_of("staging"), graph_of("glm5"))[2:]]
    forms = [
        re.escape(row[0]).replace("NAME", "[a-z0-9-]+").replace("MODEL", "[a-z0-9-]+").replace("REGION", "[a-z0-9-]+").replace(r"\.\.\.", ".*")
        for row in rows[:-1]
    ]
    for case in set(CASES) - {"long names", "GovCloud"}:
        for role in graph_of(case).of_type("aws:iam/role:Role"):
            full = role.inputs.get("name") or role.inputs.get("namePrefix") or f"{role.name}-"
            assert [form for form in forms if re.fullmatch(form, full)], full
    by_name = {row[0]: row for row in rows}
    assert "AmazonEKSComputePolicy" in by_name["NAME-cluster-..."][2]
    assert "ec2:RunInstances" in " ".join(by_name["NAME-cluster-..."])
    assert "s3:PutObject" in " ".join(by_name["NAME-MODEL-weights-write-..."])
    assert "s3:PutObject" not in " ".join(by_name["NAME-MODEL-weights-read-..."])
