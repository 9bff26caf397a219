"""IAM documents: who may assume a role, and the policies that AWS has no managed form of."""

import hashlib
import json
from collections.abc import Sequence

CLUSTER_POLICIES = (
    "AmazonEKSClusterPolicy",
    "AmazonEKSComputePolicy",
    "AmazonEKSBlockStoragePolicy",
    "AmazonEKSLoadBalancingPolicy",
    "AmazonEKSNetworkingPolicy",
)
"""What an Auto Mode cluster role needs (EKS user guide, Auto Mode cluster IAM role)."""
NODE_POLICIES = ("AmazonEKSWorkerNodeMinimalPolicy", "AmazonEC2ContainerRegistryPullOnly")
ROLE_PREFIX_LIMIT = 38
AUTO_NODE_ACCESS_POLICY = "AmazonEKSAutoNodePolicy"
CLUSTER_ADMIN_ACCESS_POLICY = "AmazonEKSClusterAdminPolicy"


def managed_policy(partition: str, name: str) -> str:
    """ARN of an AWS managed policy."""
    return f"arn:{partition}:iam::aws:policy/{name}"


def access_policy(partition: str, name: str) -> str:
    """ARN of an EKS access policy."""
    return f"arn:{partition}:eks::aws:cluster-access-policy/{name}"


def assume_role_policy(service: str, *actions: str) -> str:
    """Trust policy for an AWS service."""
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": ["sts:AssumeRole", *actions]}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def role_prefix(name: str) -> str:
    """Beginning of a role's name, to which AWS adds 26 characters; at most 38, cut names with a part of their hash."""
    return f"{name}-" if len(name) < ROLE_PREFIX_LIMIT else f"{name[: ROLE_PREFIX_LIMIT - 10]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}-"


def weights_policy(partition: str, bucket: str, prefixes: Sequence[str], key_arn: str | None, *, writes: bool) -> str:
    """Reads folders of a bucket; `writes` also fills them. Nothing is deleted and no other folder is listed."""
    folder = f"arn:{partition}:s3:::{bucket}"
    objects = ["s3:GetObject", *(["s3:PutObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"] if writes else [])]
    within = {"StringLike": {"s3:prefix": [f"{prefix}/*" for prefix in prefixes]}}
    statements: list[dict[str, object]] = [
        {"Sid": "List", "Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": [folder], "Condition": within},
        {"Sid": "Objects", "Effect": "Allow", "Action": objects, "Resource": [f"{folder}/{prefix}/*" for prefix in prefixes]},
    ]
    if key_arn:
        keys = ["kms:Decrypt", *(["kms:GenerateDataKey"] if writes else [])]
        statements.append({"Sid": "Key", "Effect": "Allow", "Action": keys, "Resource": [key_arn]})
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def tls_only_policy(partition: str, bucket: str) -> str:
    """Refuses requests to a bucket that do not come over TLS."""
    arn = f"arn:{partition}:s3:::{bucket}"
    statement = {
        "Sid": "OnlyTls",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [arn, f"{arn}/*"],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def node_tags_policy(partition: str) -> str:
    """Lets the cluster role launch nodes with tags of our own.

    Without it a NodeClass with `tags` launches nothing (EKS user guide, Auto Mode: custom AWS tags). The conditions bind it to
    resources that carry this cluster's name.
    """
    own = {"aws:RequestTag/eks:eks-cluster-name": "${aws:PrincipalTag/eks:eks-cluster-name}"}

    def statement(sid: str, actions: list[str], resources: list[str], like: dict[str, str]) -> dict[str, object]:
        condition: dict[str, dict[str, str]] = {"StringEquals": own}
        if like:
            condition["StringLike"] = like
        return {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resources, "Condition": condition}

    ec2 = f"arn:{partition}:ec2:*:*"
    compute = {"aws:RequestTag/eks:kubernetes-node-class-name": "*", "aws:RequestTag/eks:kubernetes-node-pool-name": "*"}
    interface = {"aws:RequestTag/eks:kubernetes-cni-node-name": "*"}
    return json.dumps(
        {
            "Version": "2012-10-17",
            "Statement": [
                statement("Compute", ["ec2:CreateFleet", "ec2:RunInstances", "ec2:CreateLaunchTemplate"], [f"{ec2}:*/*"], compute),
                statement("Volumes", ["ec2:CreateVolume", "ec2:CreateSnapshot"], [f"{ec2}:volume/*", f"{ec2}:snapshot/*"], {}),
                statement("Interfaces", ["ec2:CreateNetworkInterface"], [f"{ec2}:network-interface/*"], interface),
            ],
        }
    )
