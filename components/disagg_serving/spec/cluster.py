"""The cluster: an EKS Auto Mode cluster of our own, or one that exists."""

from ipaddress import IPv4Network
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ..pins import KUBERNETES
from .base import KnownLater, PathText, RefusalError, Spec, Tags, Text, form

LogType = Literal["api", "audit", "authenticator", "controllerManager", "scheduler"]
ClusterName = Annotated[Text, form(r"^[0-9A-Za-z][A-Za-z0-9_-]*$", "letters, digits, - and _"), Field(max_length=100)]
Minor = Annotated[Text, form(r"^1\.\d{2}$", "a minor version such as 1.36")]
RoleArn = Annotated[Text, form(r"^arn:aws[a-z-]*:iam::\d{12}:role/.+$", "a role's ARN, arn:aws:iam::123456789012:role/name")]
IamRoleName = Annotated[Text, form(r"^[A-Za-z0-9_+=,.@-]{1,64}$", "the name of a role without path and account")]
SecurityGroupId = Annotated[Text, form(r"^sg-[0-9a-z]+$", "sg-...")]
PolicyArn = Annotated[Text, form(r"^arn:aws[a-z-]*:iam::(\d{12}|aws):policy/.+$", "a policy's ARN, arn:aws:iam::123456789012:policy/name")]
KeyArn = Annotated[Text, form(r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:(key|alias)/.+$", "a key's ARN, arn:aws:kms:region:123456789012:key/id")]

KmsKeyArn = Annotated[Text, form(r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[A-Za-z0-9-]+$", "a key's ARN, arn:aws:kms:region:123456789012:key/id")]
"""A key itself: IAM policies take no alias."""


def _network(value: str) -> str:
    try:
        network = IPv4Network(value, strict=False)
    except ValueError:
        raise RefusalError("is not an IPv4 network", allowed="for example 203.0.113.0/24") from None
    if str(network) != value:
        raise RefusalError("is not written as a network", allowed="address and length, no bits beyond it", right=str(network))
    return value


CidrText = Annotated[Text, AfterValidator(_network)]


class EndpointSpec(Spec):
    """Who reaches the Kubernetes API server."""

    public_access: bool = Field(
        True,
        description="Reachable from the internet (with IAM authentication). False needs a deployer in the VPC or a network routed to it, whom "
        "privateAccessSecurityGroupIds or privateAccessCidrs let in; pulumi-eks then does not wait for the API. Default: true.",
    )
    public_access_cidrs: list[CidrText] = Field(
        ["0.0.0.0/0"], min_length=1, description="Networks that reach the public endpoint. Default: 0.0.0.0/0, which gives a warning."
    )
    private_access: bool = Field(True, description="Reachable from inside the VPC; nodes use this path. Default: true.")
    private_access_cidrs: list[CidrText] = Field(
        [],
        description="Networks that reach the private endpoint besides the cluster's nodes, by a rule for port 443 on the security group of the "
        "cluster and its nodes. Default: none.",
    )
    private_access_security_group_ids: list[SecurityGroupId] = Field(
        [], description="Security groups, such as that of the machine that deploys, which reach the private endpoint likewise. Default: none."
    )


class ClusterSpec(Spec):
    """An EKS Auto Mode cluster."""

    name: ClusterName | None = Field(None, description="Name of the EKS cluster. Default: the environment's name.")
    kubernetes_version: Minor = Field(KUBERNETES.version, description=f"Kubernetes minor version, quoted. Default: {KUBERNETES.version}.")
    admin_role_arns: list[RoleArn] = Field(
        [],
        description="IAM roles that get cluster administration by access entries. With creatorAdmin the creating role is not among "
        "them: it has an entry already, and EKS refuses a second. Default: none (the creator stays administrator).",
    )
    creator_admin: bool = Field(
        True,
        description="Whether the identity that creates the cluster is its administrator. False needs it among adminRoleArns. Default: true.",
    )
    endpoint: EndpointSpec = Field(
        default={}, validate_default=True, description="Access to the API server. Default: public from anywhere and private."
    )
    log_types: list[LogType] = Field(
        ["api", "audit", "authenticator", "controllerManager", "scheduler"],
        description="Control-plane logs sent to CloudWatch. Default: all five.",
    )
    kms_key_arn: KeyArn | None = Field(None, description="KMS key for Kubernetes secrets. Default: a key is made, rotated yearly.")
    service_cidr: CidrText = Field(
        "172.20.0.0/16", description="Addresses of Services, apart from the VPC's; fixed when the cluster is made. Default: 172.20.0.0/16."
    )
    upgrade_policy: Literal["STANDARD", "EXTENDED"] = Field(
        "STANDARD", description="STANDARD upgrades at the end of standard support, EXTENDED stays and costs more. Default: STANDARD."
    )
    permissions_boundary_arn: PolicyArn | None = Field(None, description="Permissions boundary on every IAM role that is made. Default: none.")
    partition: Literal["aws", "aws-cn", "aws-us-gov"] = Field("aws", description="AWS partition of managed policies. Default: aws.")
    deployer_role_arn: RoleArn | None = Field(
        None, description="Role that the kubeconfig assumes to reach the API server. Default: the caller's own identity."
    )
    deployer_profile: Text | None = Field(None, description="AWS profile that the kubeconfig uses. Default: the caller's environment.")
    protect: bool = Field(
        True,
        description="Guard cluster and key against deletion, in Pulumi and in EKS. To destroy: set false, `pulumi up`, `pulumi destroy`. "
        "Default: true.",
    )
    tags: Tags = Field({}, description="AWS tags on the cluster, its roles and key. Default: none.")


class ExistingClusterSpec(Spec):
    """A cluster that somebody else made and keeps; exactly one of kubeconfig, name and stackReference says where it is."""

    kubeconfig: Annotated[PathText | None, KnownLater()] = Field(
        None, description="Path of a kubeconfig file; no AWS provider is used. Default: absent."
    )
    context: Text | None = Field(None, description="Context of the kubeconfig. Default: its current context.")
    name: ClusterName | None = Field(None, description="Name of an EKS cluster, looked up in AWS. Default: absent.")
    stack_reference: Annotated[Text, form(r"^[^/\s]+(/[^/\s]+){0,2}$", "organization/project/stack")] | None = Field(
        None, description="Another stack of this project that made the cluster, for example acme/disagg-serving/prod-cluster. Default: absent."
    )
    auto_mode: bool = Field(
        True,
        description="Whether it is an Auto Mode cluster. False: no NodeClass and no NodePool is made, and pods go to nodes by each role's "
        "nodeSelector. Default: true.",
    )
    node_role: Annotated[IamRoleName | None, KnownLater()] = Field(
        None,
        description="Name of the IAM role of GPU nodes; it must have an EC2 access entry with AmazonEKSAutoNodePolicy. Required with kubeconfig "
        "and Auto Mode. Default with name: role and entry are made; with stackReference: that stack's.",
    )
    security_group_ids: Annotated[list[SecurityGroupId], KnownLater()] = Field(
        [],
        description="Security groups of GPU nodes; each must allow all traffic from and to itself, or EFA fails silently. Required with kubeconfig "
        "and Auto Mode. Default otherwise: the cluster's own group.",
    )
    service_cidr: CidrText | None = Field(
        None, description="Its Service addresses, of which policies admit DNS (.10) and API server (.1). Default: both ranges that EKS chooses from."
    )
    partition: Literal["aws", "aws-cn", "aws-us-gov"] = Field("aws", description="Its AWS partition. Default: aws.")
    deployer_role_arn: RoleArn | None = Field(None, description="With name: role that the kubeconfig assumes. Default: the caller's own identity.")
    deployer_profile: Text | None = Field(None, description="With name: AWS profile that the kubeconfig uses. Default: the caller's environment.")
    kubernetes_version: Minor = Field(
        KUBERNETES.version, description=f"Its Kubernetes minor version, quoted; the checks use it. Default: {KUBERNETES.version}."
    )
