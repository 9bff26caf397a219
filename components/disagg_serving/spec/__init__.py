"""What a person writes: the models of a stack file. Nothing here knows Pulumi or Kubernetes."""

from __future__ import annotations

from .autoscaling import AutoscalingSpec, RoleAutoscalingSpec
from .capacity import CapacitySpec, ReservationSpec
from .cluster import ClusterSpec, EndpointSpec, ExistingClusterSpec
from .environment import EnvironmentSpec
from .gateway import DnsSpec, GatewaySpec, PluginSpec, RouterSpec, RoutingSpec, SizeSpec
from .lws import LwsSpec
from .measured import CalibrationSpec, RateSpec
from .network import ExistingNetworkSpec, NetworkSpec
from .network_policy import NetworkPolicySpec
from .node_pools import MaintenanceWindowSpec, NodePoolsSpec
from .observability import ObservabilitySpec
from .serving import CandidateSpec, ModelSpec, RoleSpec, SpeculativeSpec, TolerationSpec, WorkloadSpec
from .weights import S3WeightsSpec, WeightsSpec

__all__ = [
    "AutoscalingSpec",
    "CalibrationSpec",
    "CandidateSpec",
    "CapacitySpec",
    "ClusterSpec",
    "DnsSpec",
    "EndpointSpec",
    "EnvironmentSpec",
    "ExistingClusterSpec",
    "ExistingNetworkSpec",
    "GatewaySpec",
    "LwsSpec",
    "MaintenanceWindowSpec",
    "ModelSpec",
    "NetworkPolicySpec",
    "NetworkSpec",
    "NodePoolsSpec",
    "ObservabilitySpec",
    "PluginSpec",
    "RateSpec",
    "ReservationSpec",
    "RoleAutoscalingSpec",
    "RoleSpec",
    "RouterSpec",
    "RoutingSpec",
    "S3WeightsSpec",
    "SizeSpec",
    "SpeculativeSpec",
    "TolerationSpec",
    "WeightsSpec",
    "WorkloadSpec",
]
