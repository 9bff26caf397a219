"""Who reaches the private endpoint of a cluster's API server besides its nodes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pulumi

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pulumi_eks as eks

    from ..spec import ClusterSpec

API_SERVER_PORT = 443


def endpoint_rules(name: str, spec: ClusterSpec, cluster: eks.Cluster, parent: pulumi.Resource) -> Sequence[pulumi.Resource]:
    """Rules on the security group that EKS makes with the cluster and that lets in its nodes alone.

    What is declared in the cluster has to come after them: the deployer may be one of those who are let in.
    """
    import pulumi_aws as aws  # noqa: PLC0415 (slow: pulumi_aws)

    endpoint = spec.endpoint
    sources = [
        *((cidr, {"cidr_ipv4": cidr}) for cidr in endpoint.private_access_cidrs),
        *((group, {"referenced_security_group_id": group}) for group in endpoint.private_access_security_group_ids),
    ]
    return [
        aws.vpc.SecurityGroupIngressRule(
            # by what is let in and not by its place in the list, so that taking one out leaves the others
            f"{name}-api-{re.sub(r'[^0-9a-z]+', '-', shown)}",
            security_group_id=cluster.cluster_security_group_id,
            description="Kubernetes API",
            ip_protocol="tcp",
            from_port=API_SERVER_PORT,
            to_port=API_SERVER_PORT,
            cidr_ipv4=source.get("cidr_ipv4"),
            referenced_security_group_id=source.get("referenced_security_group_id"),
            tags=spec.tags,
            opts=pulumi.ResourceOptions(parent=parent),
        )
        for shown, source in sources
    ]
