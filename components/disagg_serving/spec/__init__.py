"""What a person writes: the models of a stack file. Nothing here knows Pulumi or Kubernetes."""

from __future__ import annotations

from .cluster import ClusterSpec, EndpointSpec, ExistingClusterSpec
from .environment import EnvironmentSpec
from .lws import LwsSpec
from .network import ExistingNetworkSpec, NetworkSpec
from .node_pools import MaintenanceWindowSpec, NodePoolsSpec
from .serving import (
    CapacitySpec,
    ModelSpec,
    RoleSpec,
    SpeculativeSpec,
    TolerationSpec,
    WeightsSpec,
    WorkloadSpec,
)

__all__ = [
    "CapacitySpec",
    "ClusterSpec",
    "EndpointSpec",
    "EnvironmentSpec",
    "ExistingClusterSpec",
    "ExistingNetworkSpec",
    "LwsSpec",
    "MaintenanceWindowSpec",
    "ModelSpec",
    "NetworkSpec",
    "NodePoolsSpec",
    "RoleSpec",
    "SpeculativeSpec",
    "TolerationSpec",
    "WeightsSpec",
    "WorkloadSpec",
]
