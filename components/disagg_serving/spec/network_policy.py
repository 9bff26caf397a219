"""Who may talk to whom."""

from pydantic import Field

from .base import Name, Spec
from .cluster import CidrText


class NetworkPolicySpec(Spec):
    """NetworkPolicies of the models' namespaces: default deny, and what serving needs."""

    enabled: bool = Field(
        True,
        description="Whether policies are made. On a cluster of our own the ConfigMap that makes Auto Mode enforce them is made too. Default: true.",
    )
    prometheus_namespace: Name = Field(
        "monitoring", description="Namespace whose pods labelled app.kubernetes.io/name: prometheus may read metrics. Default: monitoring."
    )
    vpc_cidrs: list[CidrText] = Field(
        [],
        description="Networks of the load balancers and of the API server's interfaces. Default: the subnets of a network of our own; all private "
        "ranges on one that exists.",
    )
    weights_cidrs: list[CidrText] = Field(
        [],
        description="Networks that engines reach on port 443 for weights, for example interface endpoints of S3; a mirror's Job reaches the "
        "internet too. Default: the "
        "internet without private ranges, which includes the S3 gateway endpoint.",
    )
