"""Every IAM document that programs declare: its form, how much it allows, and whom it trusts."""

from __future__ import annotations

import re

import pytest
from disagg_serving.resources.iam import role_prefix
from iam_documents import ATTACHMENTS, BUCKETS, CASES, LONG, RIGHTS, TRUST, allowing, documents, graph_of, listed, permits, rights
from recording import kinds, stack_graph

# ---- the evaluator -------------------------------------------------------------------------------------------------------------------------

FOLDER = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Action": "s3:Get*", "Resource": "arn:aws:s3:::b/folder/*"},
        {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": ["arn:aws:s3:::b"], "Condition": {"StringLike": {"s3:prefix": "folder/*"}}},
        {"Effect": "Deny", "Action": "s3:*", "Resource": "*", "Condition": {"Bool": {"aws:SecureTransport": "false"}}},
    ],
}


@pytest.mark.parametrize(
    ("action", "resource", "context", "verdict"),
    [
        ("s3:GetObject", "arn:aws:s3:::b/folder/x", {}, True),
        ("s3:getobject", "arn:aws:s3:::b/folder/deep/x", {}, True),
        ("s3:PutObject", "arn:aws:s3:::b/folder/x", {}, False),
        ("s3:GetObject", "arn:aws:s3:::b/folder", {}, False),
        ("s3:GetObject", "arn:aws:s3:::b/folder-2/x", {}, False),
        ("s3:GetObject", "arn:aws:s3:::B/folder/x", {}, False),
        ("s3:GetObject", "arn:aws:s3:::b/folder/x", {"tls": "false"}, False),
        ("s3:GetObject", "arn:aws:s3:::b/folder/x", {"tls": "true"}, True),
        ("s3:ListBucket", "arn:aws:s3:::b", {"prefix": "folder/"}, True),
        ("s3:ListBucket", "arn:aws:s3:::b", {"prefix": ""}, False),
        ("s3:ListBucket", "arn:aws:s3:::b", {}, False),
    ],
)
def test_the_evaluator_knows_iam(action: str, resource: str, context: dict[str, str], verdict: bool) -> None:  # noqa: FBT001 (a table's column)
    """Wildcards, conditions and denials decide as in IAM: a condition on a key that the request lacks does not hold."""
    assert permits(FOLDER, action, resource, **context) is verdict


# ---- form ----------------------------------------------------------------------------------------------------------------------------------


def test_all_documents_are_seen() -> None:
    """The tests below look at roles of clusters, nodes and pods, at readers, writers and node tags, and at buckets."""
    found = {(d.type, d.name) for d in documents("glm5")}
    names = {"glm5-cluster", "glm5-gpu-node", "glm5-glm-5-weights-read", "glm5-glm-5-weights-write"}
    policies = {(RIGHTS, "glm5-glm-5-weights-read"), (RIGHTS, "glm5-glm-5-weights-write"), (BUCKETS, "glm5-example-123456789012-weights")}
    assert found == {(TRUST, n) for n in names} | policies
    assert {d.name for d in documents("node tags") if d.type == RIGHTS} == {"test-node-tags"}
    assert {d.name for d in documents("cluster by name")} == {"test-gpu-node", "test-m-weights-read", "test-m-weights-write"}
    assert {d.name for d in documents("there already") if d.type == RIGHTS} == {"test-m-weights-read"}
    assert documents("local") == ()


def test_every_carrier_of_policies_is_seen() -> None:
    """No role or policy hands its document over in a form that the collection above misses, such as an unknown."""
    for case in CASES:
        carriers = {(r.type, r.name) for r in graph_of(case).resources.values() if re.match("aws:.*(Policy|Role)$", r.type)}
        assert carriers == {(d.type, d.name) for d in documents(case)}


@pytest.mark.parametrize("case", CASES)
def test_documents_are_well_formed(case: str) -> None:
    """Current version, known elements only, an effect, ids that differ; nothing is granted by exclusion."""
    for document in documents(case):
        assert set(document.body) == {"Version", "Statement"}, document
        assert document.body["Version"] == "2012-10-17"
        sids = [s["Sid"] for s in document.body["Statement"] if "Sid" in s]
        assert all(re.fullmatch("[A-Za-z0-9]+", sid) for sid in sids)
        assert len(set(sids)) == len(sids)
        for statement in document.body["Statement"]:
            assert set(statement) <= {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}, document
            assert statement["Effect"] in {"Allow", "Deny"}
            assert ("Principal" in statement) is (document.type in {TRUST, BUCKETS})
            assert ("Resource" in statement) is (document.type != TRUST)
            actions = listed(statement["Action"])
            assert actions
            assert len(set(actions)) == len(actions)


# ---- breadth -------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_actions_are_named_one_by_one(case: str) -> None:
    """Nothing allows all actions, those of a service, or those that begin alike."""
    assert [(str(d), s["Action"]) for d, s in allowing(case) if any("*" in a or "?" in a for a in listed(s["Action"]))] == []


WIDE = {
    r"arn:aws[a-z-]*:s3:::[a-z0-9.-]+/[^*?]+/\*": "the objects of one folder of one bucket",
    r"arn:aws[a-z-]*:ec2:\*:\*:\*/\*": "nodes to be launched have no name yet; the condition binds them to the cluster's",
    r"arn:aws[a-z-]*:ec2:\*:\*:volume/\*": "the same, of their disks",
    r"arn:aws[a-z-]*:ec2:\*:\*:snapshot/\*": "the same",
    r"arn:aws[a-z-]*:ec2:\*:\*:network-interface/\*": "the same, of their interfaces",
}
"""Resources with wildcards that are allowed, each with its reason."""
WITHOUT_CONDITION = {next(iter(WIDE))}
"""Those of them that are narrow enough by themselves."""


@pytest.mark.parametrize("case", CASES)
def test_resources_are_named_or_bound(case: str) -> None:
    """No statement allows something on everything: a wildcard stands in the list, and has a condition unless it is one folder."""
    for document, statement in allowing(case):
        for resource in listed(statement["Resource"]):
            assert resource.startswith("arn:aws"), document
            if "*" in resource or "?" in resource:
                forms = {pattern for pattern in WIDE if re.fullmatch(pattern, resource)}
                assert forms, f"{document}: {resource}"
                assert forms <= WITHOUT_CONDITION or statement["Condition"], f"{document}: {resource}"


def test_every_wide_resource_is_needed() -> None:
    """The list of wildcards holds nothing that no document uses."""
    used = [r for case in CASES for _, s in allowing(case) for r in listed(s["Resource"])]
    assert [pattern for pattern in WIDE if not any(re.fullmatch(pattern, r) for r in used)] == []


def test_node_tags_are_bound_to_the_cluster() -> None:
    """The cluster's role may launch, with tags of its own, only what carries the cluster's name; and it may do nothing but create."""
    own = {"aws:RequestTag/eks:eks-cluster-name": "${aws:PrincipalTag/eks:eks-cluster-name}"}
    for case, name in (("node tags", "test-node-tags"), ("staging", "staging-node-tags")):
        for statement in rights(case, name)["Statement"]:
            assert statement["Condition"]["StringEquals"] == own
            assert all(re.match("ec2:(Create|Run)[A-Z]", a) for a in statement["Action"])
    assert not [d for d in documents("prod") if d.type == RIGHTS]


CLUSTER = {"ClusterPolicy", "ComputePolicy", "BlockStoragePolicy", "LoadBalancingPolicy", "NetworkingPolicy"}
NODE = {"iam::aws:policy/AmazonEKSWorkerNodeMinimalPolicy", "iam::aws:policy/AmazonEC2ContainerRegistryPullOnly"}
ACCESS = {"eks::aws:cluster-access-policy/AmazonEKSAutoNodePolicy"}


@pytest.mark.parametrize("case", [c for c in CASES if c != "local"])
def test_attached_policies_are_those_of_auto_mode(case: str) -> None:
    """AWS's own policies are attached by name: the least of a cluster and of a node, in the environment's partition, and no other."""
    partition = "aws-us-gov" if case == "GovCloud" else "aws"
    attached = {(r.name, r.inputs["policyArn"].removeprefix(f"arn:{partition}:")) for r in kinds(graph_of(case), *ATTACHMENTS)}
    assert {arn for name, arn in attached if "-gpu-node" in name} == NODE | ACCESS
    ours = set() if case == "cluster by name" else {f"iam::aws:policy/AmazonEKS{p}" for p in CLUSTER}
    assert {arn for name, arn in attached if "-gpu-node" not in name} == ours


# ---- trust ---------------------------------------------------------------------------------------------------------------------------------

SETS = "kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet"
SERVICES = {"-cluster": "eks.amazonaws.com", "-gpu-node": "ec2.amazonaws.com"}


@pytest.mark.parametrize("case", [c for c in CASES if c != "local"])
def test_roles_trust_one_service(case: str) -> None:
    """A role is assumed by the one AWS service that it is for, and by no account or user; nodes need no session tags."""
    found = [d for d in documents(case) if d.type == TRUST]
    assert found
    for document in found:
        (statement,) = document.body["Statement"]
        service = next((s for suffix, s in SERVICES.items() if document.name.endswith(suffix)), "pods.eks.amazonaws.com")
        assert statement["Effect"] == "Allow"
        assert statement["Principal"] == {"Service": service}, document
        assert statement["Action"] == ["sts:AssumeRole", *([] if service.startswith("ec2") else ["sts:TagSession"])]


def test_readers_and_writers_are_different_accounts() -> None:
    """Engines run as the reader, the copying Job as the writer, each in the model's namespace; rights are there before the binding."""
    graph = stack_graph("glm5")
    bound = {r.name: r for r in kinds(graph, "aws:eks/podIdentityAssociation:PodIdentityAssociation")}
    accounts = {name: (r.inputs["namespace"], r.inputs["serviceAccount"]) for name, r in bound.items()}
    assert accounts == {"glm5-glm-5-weights-read": ("glm-5", "glm-5"), "glm5-glm-5-weights-write": ("glm-5", "glm-5-mirror")}
    for name, binding in bound.items():
        assert {u.rsplit("::", 1)[1] for u in binding.depends_on} == {name}
        assert {u.split("$")[-1].split("::")[0] for u in binding.depends_on} == {TRUST, RIGHTS}
    engines = {r.inputs["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["serviceAccountName"] for r in kinds(graph, SETS)}
    jobs = {r.inputs["spec"]["template"]["spec"]["serviceAccountName"] for r in kinds(graph, "kubernetes:batch/v1:Job")}
    assert (engines, jobs) == ({"glm-5"}, {"glm-5-mirror"})


# ---- names ---------------------------------------------------------------------------------------------------------------------------------

FITS = "a" * 37


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("test-m-weights-read", "test-m-weights-read-"),
        (FITS, f"{FITS}-"),
        (f"{FITS}a", f"{'a' * 28}-365a9c3e-"),
        ("prod-a-model-with-a-rather-long-name-weights-write", "prod-a-model-with-a-rather-l-d66dbbf9-"),
    ],
)
def test_prefixes_of_roles_fit(name: str, prefix: str) -> None:
    """AWS's provider takes 38 characters; what would be longer is cut, with a part of its hash, the same one each time."""
    assert role_prefix(name) == prefix
    assert len(prefix) <= 38


@pytest.mark.parametrize("case", ["glm5", "one base", "long names", "GovCloud", "cluster by name"])
def test_roles_of_weights_are_named_apart(case: str) -> None:
    """Readers and writers of all models have beginnings of their own that fit, also where long names differ only at their ends."""
    roles = [r for r in kinds(graph_of(case), TRUST) if "-weights-" in r.name]
    prefixes = [r.inputs["namePrefix"] for r in roles]
    assert prefixes == [role_prefix(r.name) for r in roles]
    assert len(roles) >= 2
    assert len({*prefixes}) == len(prefixes)
    assert max(map(len, prefixes)) <= 38
    assert not [r.name for r in roles if "name" in r.inputs]


def test_long_names_are_cut() -> None:
    """The case above holds names that are cut."""
    for name in LONG:
        assert all(len(f"test-{name}-weights-{purpose}") > 38 for purpose in ("read", "write"))
