"""The network: a VPC of our own, or one that exists."""

from ipaddress import AddressValueError, IPv4Network, NetmaskValueError
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ..phrases import say
from .base import KnownLater, RefusalError, Spec, Tags, Text, form

SMALLEST_PREFIX, LARGEST_PREFIX = 16, 22


def _vpc_cidr(value: str) -> str:
    try:
        network = IPv4Network(value, strict=False)
    except (AddressValueError, NetmaskValueError, ValueError):
        raise RefusalError("is not an IPv4 network", allowed="address and length, like 10.40.0.0/16") from None
    if not network.is_private:
        raise RefusalError("is not a private network", allowed="a part of 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16")
    if not SMALLEST_PREFIX <= network.prefixlen <= LARGEST_PREFIX:
        raise RefusalError("has a size that cannot hold the subnets", allowed=f"/{SMALLEST_PREFIX} to /{LARGEST_PREFIX}")
    if str(network) != value:
        raise RefusalError("is not written as a network", allowed="address and length, no bits beyond it", right=str(network))
    return value


Cidr = Annotated[Text, AfterValidator(_vpc_cidr)]
Zone = Annotated[Text, form(r"^[a-z]{2}(-[a-z]+)+-\d[a-z]$", "an availability zone such as us-east-1a")]
SubnetId = Annotated[Text, form(r"^subnet-[0-9a-z]+$", "subnet-...")]
VpcId = Annotated[Text, form(r"^vpc-[0-9a-z]+$", "vpc-...")]


class ExistingNetworkSpec(Spec):
    """A VPC that somebody else made and keeps."""

    vpc_id: Annotated[VpcId | None, KnownLater()] = Field(
        None,
        description="Id of the VPC. Needed when a cluster is made; not needed with existingCluster, which already lives in one. Default: absent.",
    )
    subnet_ids: Annotated[list[SubnetId], KnownLater()] = Field(
        [], description="Private subnets for the control plane, in two zones or more. Needed when a cluster is made. Default: none."
    )
    gpu_subnet_ids: Annotated[list[SubnetId], KnownLater()] = Field(
        ...,
        min_length=1,
        description=say("Private subnets in {gpuZone} where the GPU nodes go; they need a route to the image registry and to the weights."),
    )


class NetworkSpec(Spec):
    """VPC, subnets, NAT and the S3 gateway endpoint; or the ids of existing ones."""

    cidr: Cidr = Field("10.0.0.0/16", description="IPv4 range of the VPC, /16 to /22. Default: 10.0.0.0/16.")
    zones: list[Zone] = Field(
        [],
        max_length=8,
        description="Availability zones with a public and a private subnet each; EKS wants two or more. The order fixes the subnets' ranges. "
        "Required when a network is made. Default: none.",
    )
    gpu_zone: Zone | None = Field(
        None,
        description="The one zone of all GPU nodes: EFA does not cross zones, and one fixed zone keeps Karpenter from starting a node in another. "
        "Default: the first of zones.",
    )
    nat_gateways: Literal["single", "perZone"] = Field(
        "single",
        description="One NAT gateway for all zones, or one a zone (a zone can then fail without cutting the others off). Default: single.",
    )
    tags: Tags = Field({}, description="AWS tags on every resource of the network. Default: none.")
    existing: ExistingNetworkSpec | None = Field(None, description="Use this network and make none. Default: a network is made.")

    @property
    def zone(self) -> str | None:
        """The zone of the GPU nodes, or None when neither gpuZone nor zones is given."""
        return self.gpu_zone or (self.zones[0] if self.zones else None)


_PARTITIONS = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}


def partition_of(zone: str) -> str:
    """The AWS partition of a zone or region."""
    return next((partition for start, partition in _PARTITIONS.items() if zone.startswith(start)), "aws")


def region_of(zone: str) -> str:
    """The region of an availability zone: us-east-1 for us-east-1a."""
    return zone[:-1]
