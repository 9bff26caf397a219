"""VPC, subnets, NAT gateways, routes and the S3 gateway endpoint; or the ids of existing ones."""

import pulumi
import pulumi_aws as aws

from .. import labels
from ..planning.addresses import subnet_ranges
from ..rules.standalone import check_network
from ..spec import NetworkSpec
from ..spec.network import region_of
from .base import read_args, require_spec
from .spec_args import NetworkSpecArgs


class NetworkArgs(NetworkSpecArgs, total=False):
    """Arguments of Network: the spec's fields, and the cluster whose load balancers and nodes use it."""

    cluster_name: str
    """Name of the EKS cluster, put into the tags by which its NodeClasses find their subnets. Default: the component's name."""


class Network(pulumi.ComponentResource):
    """The network of a cluster.

    Outputs: `vpc_id`; `private_subnet_ids` (control plane and nodes, one a zone); `gpu_subnet_ids` (those in gpuZone).
    """

    vpc_id: pulumi.Output[str]
    """Id of the VPC."""

    private_subnet_ids: pulumi.Output[list[str]]
    """Private subnets of control plane and nodes, one a zone."""

    gpu_subnet_ids: pulumi.Output[list[str]]
    """The private subnets in gpuZone."""

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Make or adopt the network. Raises pulumi.RunError when the args are not valid."""
        given = read_args(Network, name, args, NetworkArgs, opts)
        spec = require_spec(given, NetworkSpec, check_network)
        super().__init__("disagg-serving:index:Network", name, {}, opts)
        cluster_name = given.get("cluster_name", name)
        self._tags = spec.tags
        if spec.existing:
            self.vpc_id = pulumi.Output.from_input(given.with_outputs(spec.existing.vpc_id or ""))
            self.private_subnet_ids = pulumi.Output.from_input(given.with_outputs(spec.existing.subnet_ids))
            self.gpu_subnet_ids = pulumi.Output.from_input(given.with_outputs(spec.existing.gpu_subnet_ids))
        else:
            self._make(spec, cluster_name)
        self.register_outputs({"vpcId": self.vpc_id, "privateSubnetIds": self.private_subnet_ids, "gpuSubnetIds": self.gpu_subnet_ids})

    def _make(self, spec: NetworkSpec, cluster_name: str) -> None:
        name, below = self.pulumi_resource_name, pulumi.ResourceOptions(parent=self)
        vpc = aws.ec2.Vpc(name, cidr_block=spec.cidr, enable_dns_hostnames=True, enable_dns_support=True, tags=self._named(name), opts=below)
        gateway = aws.ec2.InternetGateway(name, vpc_id=vpc.id, tags=self._named(name), opts=below)
        public = aws.ec2.RouteTable(f"{name}-public", vpc_id=vpc.id, tags=self._named(f"{name}-public"), opts=below)
        to_internet = aws.ec2.Route(f"{name}-public", route_table_id=public.id, destination_cidr_block="0.0.0.0/0", gateway_id=gateway.id, opts=below)
        private_ranges, public_ranges = subnet_ranges(spec)
        private_tables, private_subnets, gpu_subnets, nats = [], [], [], []
        for i, zone in enumerate(spec.zones):
            subnet = self._subnet(f"{name}-public-{zone}", vpc, zone, public_ranges[i], {labels.PUBLIC_LOAD_BALANCERS: "1"})
            aws.ec2.RouteTableAssociation(f"{name}-public-{zone}", route_table_id=public.id, subnet_id=subnet.id, opts=below)
            if i == 0 or spec.nat_gateways == "perZone":
                address = aws.ec2.Eip(f"{name}-nat-{zone}", domain="vpc", tags=self._named(f"{name}-nat-{zone}"), opts=below)
                nats.append(
                    aws.ec2.NatGateway(
                        f"{name}-{zone}", subnet_id=subnet.id, allocation_id=address.allocation_id, tags=self._named(f"{name}-{zone}"),
                        opts=pulumi.ResourceOptions(parent=self, depends_on=[to_internet]),
                    )
                )  # fmt: skip
        for i, zone in enumerate(spec.zones):
            gpu = {labels.GPU_SUBNET_TAG: cluster_name} if zone == spec.zone else {}
            subnet = self._subnet(f"{name}-private-{zone}", vpc, zone, private_ranges[i], {labels.INTERNAL_LOAD_BALANCERS: "1", **gpu})
            table = aws.ec2.RouteTable(f"{name}-private-{zone}", vpc_id=vpc.id, tags=self._named(f"{name}-private-{zone}"), opts=below)
            aws.ec2.Route(
                f"{name}-private-{zone}", route_table_id=table.id, destination_cidr_block="0.0.0.0/0",
                nat_gateway_id=nats[min(i, len(nats) - 1)].id, opts=below,
            )  # fmt: skip
            aws.ec2.RouteTableAssociation(f"{name}-private-{zone}", route_table_id=table.id, subnet_id=subnet.id, opts=below)
            private_tables.append(table)
            private_subnets.append(subnet)
            if gpu:
                gpu_subnets.append(subnet)
        # weights from S3 stay off the NAT gateway, which is shared and billed by the GB
        aws.ec2.VpcEndpoint(
            f"{name}-s3", vpc_id=vpc.id, service_name=f"com.amazonaws.{region_of(spec.zones[0])}.s3", vpc_endpoint_type="Gateway",
            route_table_ids=[t.id for t in private_tables], tags=self._named(f"{name}-s3"), opts=below,
        )  # fmt: skip
        self.vpc_id = vpc.id
        self.private_subnet_ids = pulumi.Output.all(*(s.id for s in private_subnets))
        self.gpu_subnet_ids = pulumi.Output.all(*(s.id for s in gpu_subnets))

    def _subnet(self, name: str, vpc: aws.ec2.Vpc, zone: str, cidr: str, tags: dict[str, str]) -> aws.ec2.Subnet:
        return aws.ec2.Subnet(
            name, vpc_id=vpc.id, availability_zone=zone, cidr_block=cidr, tags={**self._named(name), **tags},
            opts=pulumi.ResourceOptions(parent=self),
        )  # fmt: skip

    def _named(self, name: str) -> dict[str, str]:
        return {"Name": name, **self._tags}
