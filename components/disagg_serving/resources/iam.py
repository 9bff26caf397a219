"""IAM documents: who may assume a role, and the one policy that AWS has no managed form of."""

import json

CLUSTER_POLICIES = (
    "AmazonEKSClusterPolicy",
    "AmazonEKSComputePolicy",
    "AmazonEKSBlockStoragePolicy",
    "AmazonEKSLoadBalancingPolicy",
    "AmazonEKSNetworkingPolicy",
)
"""What an Auto Mode cluster role needs (EKS user guide, Auto Mode cluster IAM role)."""
NODE_POLICIES = ("AmazonEKSWorkerNodeMinimalPolicy", "AmazonEC2ContainerRegistryPullOnly")
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
