"""The endpoint of one model: the router's chart, a load balancer and a DNS record."""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, Required, TypedDict

import pulumi
import pulumi_kubernetes as k8s

from ..manifests.gateway import build_load_balancer, endpoint_scheme, release_name, router_chart, router_values
from ..planning.shapes import Layout, Served
from .base import KubernetesObject, read_args, require_model_layout
from .spec_args import ModelSpecArgs, NetworkPolicySpecArgs, RouterSpecArgs

DNS_TTL_SECONDS = 60
PENDING = "pending"
"""What stands for a load balancer's name in a preview that makes it."""


class GatewayArgs(TypedDict):
    """Arguments of Gateway."""

    model: Required[ModelSpecArgs]
    """The model that it stands before; ModelServing has made its namespace."""

    zone: NotRequired[str]
    """Availability zone of the model's pods; required where NodePools are made."""

    router: NotRequired[RouterSpecArgs]
    """Release and chart of the router. Default: as documented there."""

    network_policy: NotRequired[NetworkPolicySpecArgs]
    """Networks of load balancers, for its source ranges. Default: as documented there."""

    image_sources: NotRequired[Mapping[str, str]]
    """Registries to read instead, prefix to prefix. Default: none."""

    auto_mode: NotRequired[bool]
    """Whether the pods select NodePools of this project. Default: true."""

    catalog_dirs: NotRequired[Sequence[str]]
    """Folders that add to the catalogue. Default: none."""


class LoadBalancer(KubernetesObject):
    """A Service of type LoadBalancer, whose status tells its name."""

    status: pulumi.Output[Any]


class Gateway(pulumi.ComponentResource):
    """Router and load balancer of one model.

    Output: `endpoint`, its URL; of the DNS record where there is one.
    """

    endpoint: pulumi.Output[str]
    """URL of the model; of the DNS record where there is one."""

    def __init__(self, name: str, args: GatewayArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Make the gateway with the Kubernetes provider of `opts`. Raises pulumi.RunError when a check fails."""
        layout = require_model_layout(read_args(Gateway, name, args, GatewayArgs, opts))
        self._declare(name, layout, layout.served[0], opts)

    @classmethod
    def of_layout(cls, name: str, layout: Layout, served: Served, opts: pulumi.ResourceOptions) -> "Gateway":
        """The gateway of a model that has been checked as part of a whole environment."""
        self = cls.__new__(cls)
        self._declare(name, layout, served, opts)
        return self

    def _declare(self, name: str, layout: Layout, served: Served, opts: Any) -> None:
        super().__init__("disagg-serving:index:Gateway", name, {}, opts)
        groups, below = layout.groups_of(served), pulumi.ResourceOptions(parent=self)
        chart, version = router_chart(served, layout.spec)
        router = k8s.helm.v4.Chart(
            f"{name}-router",
            name=release_name(served),
            chart=chart,
            version=version,
            namespace=served.spec.kubernetes_namespace,
            values=router_values(served, groups),
            opts=below,
        )
        service = LoadBalancer(
            name, build_load_balancer(served, groups, layout.spec), pulumi.ResourceOptions(parent=self, depends_on=[router]), outputs=("status",)
        )
        host = service.status.apply(host_name)
        dns = served.spec.gateway.dns
        if dns is not None:
            import pulumi_aws as aws  # noqa: PLC0415 (slow: pulumi_aws)

            aws.route53.Record(name, zone_id=dns.zone_id, name=dns.name, type="CNAME", ttl=DNS_TTL_SECONDS, records=[host], opts=below)
        self.endpoint = pulumi.Output.concat(endpoint_scheme(served), "://", dns.name if dns else host)
        self.register_outputs({"endpoint": self.endpoint})


def host_name(status: Any) -> str:
    """The load balancer's name out of a Service's status; `pending` before there is one."""
    entries = ((status or {}).get("loadBalancer") or {}).get("ingress") or [{}]
    return str(entries[0].get("hostname") or entries[0].get("ip") or PENDING)
