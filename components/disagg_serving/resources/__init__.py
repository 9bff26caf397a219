"""Pulumi components; besides the recorder the only part of the package that imports Pulumi."""

from typing import TYPE_CHECKING

from .autoscaling import Autoscaling, AutoscalingArgs
from .cluster import Cluster, ClusterArgs
from .environment import Environment, EnvironmentArgs
from .gateway import Gateway, GatewayArgs
from .lws import Lws, LwsArgs
from .node_pools import NodePools, NodePoolsArgs
from .observability import Observability, ObservabilityArgs
from .program import deploy
from .serving import ModelServing, ModelServingArgs
from .weights import Weights, WeightsArgs

if TYPE_CHECKING:
    from .network import Network, NetworkArgs

__all__ = [
    "Autoscaling",
    "AutoscalingArgs",
    "Cluster",
    "ClusterArgs",
    "Environment",
    "EnvironmentArgs",
    "Gateway",
    "GatewayArgs",
    "Lws",
    "LwsArgs",
    "ModelServing",
    "ModelServingArgs",
    "Network",
    "NetworkArgs",
    "NodePools",
    "NodePoolsArgs",
    "Observability",
    "ObservabilityArgs",
    "Weights",
    "WeightsArgs",
    "deploy",
]


def __getattr__(name: str) -> object:
    if name in ("Network", "NetworkArgs"):
        from . import network  # noqa: PLC0415 (slow: pulumi_aws)

        return getattr(network, name)
    raise AttributeError(name)
