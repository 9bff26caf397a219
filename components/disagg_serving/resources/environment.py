"""The whole environment: network, cluster, pools, controller and models from one spec."""

from collections.abc import Callable, Mapping
from typing import Any, TypedDict

import pulumi

from ..forecast.capacities import capacities
from ..manifests.autoscaling import installs_keda
from ..manifests.serving import Secrets
from ..planning.scaling import scaled
from ..planning.shapes import Layout, Served
from ..records import data_of
from ..rules import NO_STACK, StackContext
from ..rules.evaluation import evaluate
from ..spec import EnvironmentSpec
from ..spec.validation import by_alias
from .autoscaling import Autoscaling
from .base import project_folder, read_args, require_layout
from .cluster import Cluster
from .gateway import Gateway
from .lws import Lws
from .node_pools import NodePools
from .observability import Observability
from .secrets import of_models as secrets_of_models
from .serving import ModelServing
from .spec_args import EnvironmentSpecArgs
from .weights import Weights

TYPE = "disagg-serving:index:Environment"


class EnvironmentArgs(EnvironmentSpecArgs, total=False):
    """Arguments of Environment: the spec's fields and the secrets that it names."""

    secrets: Mapping[str, pulumi.Input[str]]
    """Secret values by the key that the spec names, for example the value of weights.token_key. Default: none."""


class ServicesOfModel(TypedDict):
    """Where the engines of a model answer inside the cluster."""

    namespace: str
    """Namespace of the Services."""

    names: list[str]
    """Names of the Services, one a role."""


class Environment(pulumi.ComponentResource):
    """What one stack file describes: Network, Cluster, NodePools, Lws, Weights, ModelServing, Gateway, Autoscaling, Observability."""

    kubeconfig: pulumi.Output[str]
    """Kubeconfig of the cluster, a secret."""

    cluster_name: pulumi.Output[str]
    """Name of the EKS cluster."""

    node_role_name: pulumi.Output[str]
    """Name of the GPU nodes' IAM role."""

    gpu_subnet_ids: pulumi.Output[list[str]]
    """Subnets of the GPU nodes."""

    node_pools: pulumi.Output[list[str]]
    """Names of the NodePools."""

    endpoints: pulumi.Output[dict[str, str]]
    """URL of each model that has a gateway, by the model's name."""

    services: pulumi.Output[dict[str, ServicesOfModel]]
    """Services of each model, by the model's name."""

    def __init__(self, name: str, args: EnvironmentArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Make the environment. Raises pulumi.RunError when a check fails."""
        given = read_args(Environment, name, args, EnvironmentArgs, opts)
        given.faults.extend(secrets_of_models(given))
        layout = require_layout(evaluate(by_alias(EnvironmentSpec, {"name": name, **given.of_spec}), project_folder()), given)
        self._declare(name, layout, given.inputs.get("secrets", {}), opts, NO_STACK, given.with_outputs)

    @classmethod
    def of_layout(
        cls, name: str, layout: Layout, secrets: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None, *, stack: StackContext = NO_STACK
    ) -> "Environment":
        """The environment of a layout that has been checked, in a stack that says so much besides."""
        self = cls.__new__(cls)
        self._declare(name, layout, secrets, opts, stack, lambda value: value)
        return self

    def _declare(
        self, name: str, layout: Layout, secrets: Mapping[str, Any], opts: Any, stack: StackContext, with_outputs: Callable[[Any], Any]
    ) -> None:
        spec = layout.spec
        # what the spec says stands in the state and in every preview's diff, and the policy pack reads it there; it holds no Output
        inputs = {"spec": spec.model_dump(mode="json", by_alias=True, exclude_unset=True), "stack": stack.as_dict()}
        super().__init__(TYPE, name, inputs, opts)
        below = pulumi.ResourceOptions(parent=self)
        network = self._network(name, layout, with_outputs)
        self.cluster = Cluster(
            name,
            {
                **(spec.cluster.model_dump(exclude_unset=True) if spec.cluster else {}),  # type: ignore[typeddict-item]
                **({"existing": with_outputs(spec.existing_cluster.model_dump(exclude_unset=True))} if spec.existing_cluster else {}),
                **({"vpc_id": network.vpc_id, "subnet_ids": network.private_subnet_ids} if network else {}),
                **({"gpu_subnet_ids": with_outputs(spec.network.existing.gpu_subnet_ids)} if spec.network.existing else {}),
                "name": spec.cluster_name,
                "node_role_name": spec.node_role_name,
                "node_tags": bool(spec.node_pools.tags),
                "network_policies": spec.network_policy.enabled,
            },
            pulumi.ResourceOptions(parent=self, depends_on=[network] if network else []),
        )
        in_cluster = pulumi.ResourceOptions.merge(below, pulumi.ResourceOptions(providers=[self.cluster.provider]))
        ready: list[pulumi.Resource] = [self.cluster, *([network] if network else [])]
        pools = self._pools(name, layout, pulumi.ResourceOptions.merge(in_cluster, pulumi.ResourceOptions(depends_on=ready)))
        lws = Lws(
            name,
            {
                **spec.lws.model_dump(),  # type: ignore[typeddict-item]
                "image_sources": spec.image_sources,
                **({"chart_provider": self.cluster.adopting} if spec.lws.install == "chart" else {}),
            },
            in_cluster,
        )
        before: list[pulumi.Resource] = [lws, *([pools] if pools else [])]
        weights = self._weights(name, layout, pulumi.ResourceOptions(parent=self, depends_on=[self.cluster]))
        after = pulumi.ResourceOptions(depends_on=[*before, *([weights] if weights else [])])
        self.models: dict[str, ModelServing] = {}
        self.gateways: dict[str, Gateway] = {}
        for served in layout.served:
            model = served.spec.name
            self.models[model] = ModelServing.of_layout(
                f"{name}-{model}", layout, served, _secrets_of(served, secrets), pulumi.ResourceOptions.merge(in_cluster, after)
            )
            if served.spec.gateway.enabled:
                behind = pulumi.ResourceOptions(depends_on=[*ready, self.models[model]])
                self.gateways[model] = Gateway.of_layout(f"{name}-{model}", layout, served, pulumi.ResourceOptions.merge(in_cluster, behind))
        if spec.observability.makes_anything:
            watched = pulumi.ResourceOptions(depends_on=[*ready, *self.models.values()])
            Observability.of_layout(name, layout, pulumi.ResourceOptions.merge(in_cluster, watched))
        if scaled(layout.groups):
            keda = pulumi.ResourceOptions.merge(in_cluster, pulumi.ResourceOptions(depends_on=ready))
            adopting = self.cluster.adopting if installs_keda(spec.autoscaling, layout.groups) else None
            Autoscaling.of_layout(name, layout, adopting, self.models, keda)
        self.kubeconfig, self.cluster_name, self.node_role_name = self.cluster.kubeconfig, self.cluster.cluster_name, self.cluster.node_role_name
        adopted = with_outputs(spec.network.existing.gpu_subnet_ids) if spec.network.existing else []
        self.gpu_subnet_ids = network.gpu_subnet_ids if network else pulumi.Output.from_input(adopted)
        self.node_pools = pools.pool_names if pools else pulumi.Output.from_input([])
        endpoints: Any = {m: g.endpoint for m, g in self.gateways.items()}
        services: Any = {m: {"namespace": s.namespace, "names": s.service_names} for m, s in self.models.items()}
        self.endpoints, self.services = pulumi.Output.from_input(endpoints), pulumi.Output.from_input(services)
        self.outputs: dict[str, Any] = {
            "kubeconfig": self.kubeconfig,
            "clusterName": self.cluster_name,
            "nodeRoleName": self.node_role_name,
            "gpuSubnetIds": self.gpu_subnet_ids,
            "nodePools": self.node_pools,
            "endpoints": endpoints,
            "services": services,
            "capacity": data_of(capacities(layout)),
        }
        self.register_outputs(self.outputs)

    def _network(self, name: str, layout: Layout, with_outputs: Callable[[Any], Any]) -> Any:
        if layout.spec.existing_cluster is not None:
            return None
        from .network import Network  # noqa: PLC0415 (slow: pulumi_aws)

        args = {**with_outputs(layout.spec.network.model_dump(exclude_unset=True)), "cluster_name": layout.spec.cluster_name}
        return Network(name, args, pulumi.ResourceOptions(parent=self))  # type: ignore[arg-type]

    def _pools(self, name: str, layout: Layout, opts: pulumi.ResourceOptions) -> NodePools | None:
        if not layout.pools:
            return None
        return NodePools.of_layout(name, layout, self.cluster.node_identity, opts)

    def _weights(self, name: str, layout: Layout, opts: pulumi.ResourceOptions) -> Weights | None:
        spec = layout.spec
        by_file = spec.existing_cluster is not None and spec.existing_cluster.kubeconfig is not None
        if by_file or not any(s.weights_uri for s in layout.served):
            return None
        settings = spec.cluster.model_dump(include={"partition", "permissions_boundary_arn", "tags"}) if spec.cluster else {}
        if spec.existing_cluster:
            settings = {"partition": spec.existing_cluster.partition}
        return Weights.of_layout(name, layout, self.cluster.cluster_name, settings, opts)


def _secrets_of(served: Served, secrets: Mapping[str, Any]) -> Secrets:
    weights, gateway = served.spec.weights, served.spec.gateway
    return Secrets(
        token=secrets.get(weights.token_key) if weights.token_key else None,
        api_key=secrets.get(gateway.api_key_secret) if gateway.api_key_secret else None,
    )
