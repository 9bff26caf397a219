"""The addresses that NetworkPolicies name, as far as a spec tells them."""

from __future__ import annotations

from ipaddress import IPv4Network, collapse_addresses
from typing import NamedTuple

from ..spec import ClusterSpec, EnvironmentSpec, NetworkSpec

PRIVATE = ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16")
LINK_LOCAL = "169.254.0.0/16"
INTERNET = "0.0.0.0/0"
POD_IDENTITY = "169.254.170.23/32"
"""Where the Pod Identity agent of a node answers, on port 80 (EKS user guide: Pod Identity)."""
NODE_LOCAL_DNS = "169.254.20.10/32"
"""Where NodeLocal DNSCache answers pods by default (Kubernetes: Using NodeLocal DNSCache in Kubernetes Clusters)."""
EKS_SERVICE_CIDRS = ("10.100.0.0/16", "172.20.0.0/16")
"""What EKS chooses from when a cluster names no Service range."""
DNS_HOST, API_SERVER_HOST = 10, 1
SUBNET_BITS = 4
"""The VPC is cut into 16 subnets: private ones from the first half, public ones from the second, so zones can be added."""


class Addresses(NamedTuple):
    """IPv4 networks as text, each list sorted."""

    dns: tuple[str, ...]
    """Cluster DNS: on Auto Mode it answers on each node, so that no pod selector finds it (https://github.com/aws/containers-roadmap/issues/2552)."""

    api_server: tuple[str, ...]
    """The API server: its Service address, and the networks of its interfaces."""

    internal_balancers: tuple[str, ...]
    """Where load balancers inside the VPC have their addresses; pods have theirs there too."""

    public_balancers: tuple[str, ...]
    """Where load balancers that face the internet have theirs."""

    weights: tuple[str, ...]
    """Where weights come from; empty means the internet without what is `inside`."""

    inside: tuple[str, ...]
    """Private ranges, the link-local one, and those of the VPC that are none of these."""


def addresses_of(spec: EnvironmentSpec) -> Addresses:
    """The addresses of an environment."""
    if spec.existing_cluster is not None:
        given = spec.existing_cluster.service_cidr
        ranges = (given,) if given else EKS_SERVICE_CIDRS
    else:
        ranges = (service_cidr(spec),)
    vpc = vpc_cidrs(spec)
    private, public = (vpc, vpc) if spec.network_policy.vpc_cidrs or not makes_network(spec) else subnet_ranges(spec.network)
    return Addresses(
        dns=tuple(sorted(_host(r, DNS_HOST) for r in ranges)),
        api_server=tuple(sorted({*(_host(r, API_SERVER_HOST) for r in ranges), *private})),
        internal_balancers=private,
        public_balancers=public,
        weights=tuple(sorted(spec.network_policy.weights_cidrs)),
        inside=tuple(str(n) for n in collapse_addresses(IPv4Network(n) for n in (*PRIVATE, LINK_LOCAL, *vpc))),
    )


def service_cidr(spec: EnvironmentSpec) -> str:
    """The Service range of a cluster of our own."""
    cluster = spec.cluster
    return cluster.service_cidr if cluster else str(ClusterSpec.model_fields["service_cidr"].default)


def vpc_cidrs(spec: EnvironmentSpec) -> tuple[str, ...]:
    """The networks of the VPC: as given, or of a network of our own; all private ranges where nothing is known."""
    if spec.network_policy.vpc_cidrs:
        return tuple(sorted(spec.network_policy.vpc_cidrs))
    return (spec.network.cidr,) if makes_network(spec) else PRIVATE


def makes_network(spec: EnvironmentSpec) -> bool:
    """Whether the VPC is ours, so that its ranges are known."""
    return spec.existing_cluster is None and spec.network.existing is None


def subnet_ranges(network: NetworkSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ranges of the private and of the public subnets of a network of our own, one of each a zone, in the order of its zones."""
    ranges = [str(r) for r in IPv4Network(network.cidr).subnets(prefixlen_diff=SUBNET_BITS)]
    count, half = len(network.zones), len(ranges) // 2
    return tuple(ranges[:count]), tuple(ranges[half : half + count])


def _host(network: str, number: int) -> str:
    return f"{IPv4Network(network)[number]}/32"
