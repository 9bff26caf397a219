"""The whole environment: network, cluster, pools, controller and models from one spec."""

from collections.abc import Mapping
from typing import Any

import pulumi

from ..planning.evaluation import evaluate
from ..planning.shapes import Layout
from .base import checked, plain, project_folder, take
from .cluster import Cluster
from .lws import Lws
from .node_pools import NodePools
from .serving import ModelServing
from .spec_args import EnvironmentSpecArgs


class EnvironmentArgs(EnvironmentSpecArgs, total=False):
    """Arguments of Environment: the spec's fields and the secrets that it names."""

    secrets: Mapping[str, pulumi.Input[str]]
    """Secret values by the key that the spec names, for example the value of weights.token_key. Default: none."""


class Environment(pulumi.ComponentResource):
    """Everything that one stack file describes; see Network, Cluster, NodePools, Lws and ModelServing for its parts."""

    def __init__(self, name: str, args: EnvironmentArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Make the environment. Raises pulumi.RunError when a check fails."""
        fields = take(args, EnvironmentArgs)
        secrets = fields.pop("secrets", {})
        self._declare(name, checked(evaluate({"name": name, **plain(fields, "args")}, project_folder())), secrets, opts)

    @classmethod
    def of_layout(cls, name: str, layout: Layout, secrets: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None) -> "Environment":
        """The environment of a layout that has been checked."""
        self = cls.__new__(cls)
        self._declare(name, layout, secrets, opts)
        return self

    def _declare(self, name: str, layout: Layout, secrets: Mapping[str, Any], opts: Any) -> None:
        super().__init__("disagg-serving:index:Environment", name, {}, opts)
        spec, below = layout.spec, pulumi.ResourceOptions(parent=self)
        network = self._network(name, layout)
        self.cluster = Cluster(
            name,
            {
                **(spec.cluster.model_dump(exclude_unset=True) if spec.cluster else {}),  # type: ignore[typeddict-item]
                **({"existing": spec.existing_cluster.model_dump(exclude_unset=True)} if spec.existing_cluster else {}),
                **({"vpc_id": network.vpc_id, "subnet_ids": network.private_subnet_ids} if network else {}),
                **({"gpu_subnet_ids": list(spec.network.existing.gpu_subnet_ids)} if spec.network.existing else {}),
                "name": spec.cluster_name,
                "node_role_name": spec.node_role_name,
                "node_tags": bool(spec.node_pools.tags),
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
                **({"chart_provider": self.cluster.kubernetes_provider(f"{name}-lws-chart", upsert=True)} if spec.lws.install == "chart" else {}),
            },
            in_cluster,
        )
        after = pulumi.ResourceOptions(depends_on=[lws, *([pools] if pools else [])])
        self.models: dict[str, ModelServing] = {}
        for served in layout.served:
            key = served.spec.weights.token_key
            self.models[served.spec.name] = ModelServing.of_layout(
                f"{name}-{served.spec.name}", layout, served, secrets.get(key) if key else None, pulumi.ResourceOptions.merge(in_cluster, after)
            )
        self.outputs: dict[str, Any] = {
            "kubeconfig": self.cluster.kubeconfig,
            "clusterName": self.cluster.cluster_name,
            "nodeRoleName": self.cluster.node_role_name,
            "gpuSubnetIds": network.gpu_subnet_ids if network else (list(spec.network.existing.gpu_subnet_ids) if spec.network.existing else []),
            "nodePools": pools.pool_names if pools else [],
            "services": {m: {"namespace": s.namespace, "names": s.service_names} for m, s in self.models.items()},
            # filled by capacity planning
            "capacity": [],
        }
        self.register_outputs(self.outputs)

    def _network(self, name: str, layout: Layout) -> Any:
        if layout.spec.existing_cluster is not None:
            return None
        from .network import Network  # noqa: PLC0415 (an adopted cluster needs no AWS module)

        args = {**layout.spec.network.model_dump(exclude_unset=True), "cluster_name": layout.spec.cluster_name}
        return Network(name, args, pulumi.ResourceOptions(parent=self))  # type: ignore[arg-type]

    def _pools(self, name: str, layout: Layout, opts: pulumi.ResourceOptions) -> NodePools | None:
        if not layout.pools:
            return None
        return NodePools.of_layout(name, layout, self.cluster.node_identity, opts)
