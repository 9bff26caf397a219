"""The whole environment of one stack."""

from pydantic import Field

from ..pins import KUBERNETES
from .autoscaling import AutoscalingSpec
from .base import Name, Reason, Spec, Text
from .cluster import ClusterSpec, ExistingClusterSpec
from .gateway import RouterSpec
from .lws import LwsSpec
from .network import NetworkSpec, region_of
from .network_policy import NetworkPolicySpec
from .node_pools import NodePoolsSpec
from .observability import ObservabilitySpec
from .serving import ModelSpec


class EnvironmentSpec(Spec):
    """What `disagg-serving:environment` of a stack file holds."""

    name: Name = Field("disagg", max_length=40, description="Prefix of AWS names. Default: the stack's name.")
    catalog_dirs: list[Text] = Field(
        [],
        description="Folders with models/, instances/ and engines/ that add to the catalogue or override it, later ones first. Default: none.",
    )
    network: NetworkSpec = Field(
        default={}, validate_default=True, description="VPC and zones. Default: 10.0.0.0/16; zones are required when it is made."
    )
    cluster: ClusterSpec | None = Field(
        None, description="The EKS cluster to make. Default: one with default settings, unless existingCluster is given."
    )
    existing_cluster: ExistingClusterSpec | None = Field(None, description="Use this cluster and make none. Default: a cluster is made.")
    node_pools: NodePoolsSpec = Field(default={}, validate_default=True, description="How GPU nodes live. Default: as documented there.")
    lws: LwsSpec = Field(default={}, validate_default=True, description="The LeaderWorkerSet controller. Default: installed by its chart.")
    router: RouterSpec = Field(default={}, validate_default=True, description="The router behind the gateways. Default: llm-d's, by its chart.")
    autoscaling: AutoscalingSpec = Field(
        default={}, validate_default=True, description="KEDA and its Prometheus, for roles with autoscaling. Default: as documented there."
    )
    look_ups: bool = Field(
        False,
        description="Whether `pulumi preview` and `up` ask AWS for quota, offerings, reservations and prices, as `disagg check --look-up` does. It "
        "changes no resource; without credentials or rights it only warns. Default: false.",
    )
    network_policy: NetworkPolicySpec = Field(
        default={}, validate_default=True, description="Who may talk to whom. Default: what serving needs, and nothing else."
    )
    observability: ObservabilitySpec = Field(
        default={}, validate_default=True, description="PodMonitors, dashboards, alerts and GPU metrics. Default: none of them."
    )
    image_sources: dict[Text, Text] = Field(
        {},
        description="Registries to read instead, prefix to prefix, for images and charts: docker.io/envoyproxy: mirror.example.com/envoyproxy. The "
        "longest prefix wins; `disagg render --images` lists what is needed. Default: none.",
    )
    accept: dict[Text, Reason] = Field(
        {},
        description="Rules whose errors are only warnings here, each with the reason, which the plan shows: group-capacity: the second reservation "
        "begins on Monday. Rules that guard secrets or the form cannot be accepted (docs/rules.md). Default: none.",
    )
    models: list[ModelSpec] = Field(..., min_length=1, max_length=200, description="The served models, one or more.")

    @property
    def makes_pools(self) -> bool:
        """Whether NodeClasses and NodePools are made: always on our own cluster, on an existing one with Auto Mode."""
        return self.existing_cluster is None or self.existing_cluster.auto_mode

    def secret_keys(self) -> list[tuple[str, str]]:
        """Secret keys of the stack that the models name, each with the place that names it."""
        found = []
        for i, model in enumerate(self.models):
            named = {"weights.tokenKey": model.weights.token_key, "gateway.apiKeySecret": model.gateway.api_key_secret}
            found += [(f"models[{i}].{place}", key) for place, key in named.items() if key]
        return found

    @property
    def cluster_name(self) -> str:
        """Name of the EKS cluster that is made."""
        return (self.cluster.name if self.cluster else None) or self.name

    @property
    def node_role_name(self) -> str:
        """Name of the GPU nodes' IAM role: with the region, because IAM names are global."""
        return f"{self.cluster_name}-{region_of(self.network.zone or '')}-gpu-node"

    @property
    def kubernetes_version(self) -> str:
        """Minor version of the cluster, as stated."""
        if self.existing_cluster is not None:
            return self.existing_cluster.kubernetes_version
        return self.cluster.kubernetes_version if self.cluster else KUBERNETES.version
