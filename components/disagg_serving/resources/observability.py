"""Monitors, dashboards, alerts and the DCGM exporter of an environment."""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, Required, TypedDict

import pulumi
import pulumi_kubernetes as k8s

from ..manifests.observability import build_observability
from ..manifests.observability.dcgm import RELEASE, exporter_chart, exporter_values
from ..planning.image_sources import in_repository
from ..planning.observability import EXPORTER_NAMESPACE
from ..planning.shapes import Layout
from .base import declare, evaluate_args, read_args, require_layout
from .spec_args import ModelSpecArgs, NetworkPolicySpecArgs, NodePoolsSpecArgs, ObservabilitySpecArgs, RouterSpecArgs


class ObservabilityArgs(TypedDict):
    """Arguments of Observability."""

    models: Required[Sequence[ModelSpecArgs]]
    """The models that are watched; ModelServing has made their namespaces."""

    observability: Required[ObservabilitySpecArgs]
    """What is wanted."""

    zone: NotRequired[str]
    """Availability zone of the models' pods; required where NodePools are made."""

    router: NotRequired[RouterSpecArgs]
    """Release of the router. Default: as documented there."""

    network_policy: NotRequired[NetworkPolicySpecArgs]
    """Where Prometheus is. Default: as documented there."""

    node_pools: NotRequired[NodePoolsSpecArgs]
    """How nodes live, for the alert before one ends. Default: as documented there."""

    image_sources: NotRequired[Mapping[str, str]]
    """Registries to read instead, prefix to prefix. Default: none."""

    auto_mode: NotRequired[bool]
    """Whether the pods select NodePools of this project. Default: true."""

    catalog_dirs: NotRequired[Sequence[str]]
    """Folders that add to the catalogue. Default: none."""


class Observability(pulumi.ComponentResource):
    """What is watched. The Prometheus operator's kinds must be there before PodMonitors and PrometheusRules."""

    def __init__(self, name: str, args: ObservabilityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Watch the models with the Kubernetes provider of `opts`. Raises pulumi.RunError when a check fails."""
        given = read_args(Observability, name, args, ObservabilityArgs, opts)
        rest = ("observability", "router", "network_policy", "image_sources")
        self._declare(name, require_layout(evaluate_args(given, settings="node_pools", rest=rest), given), opts)

    @classmethod
    def of_layout(cls, name: str, layout: Layout, opts: pulumi.ResourceOptions) -> "Observability":
        """The objects of a layout that has been checked as part of a whole environment."""
        self = cls.__new__(cls)
        self._declare(name, layout, opts)
        return self

    def _declare(self, name: str, layout: Layout, opts: Any) -> None:
        super().__init__("disagg-serving:index:Observability", name, {}, opts)
        objects = build_observability(layout)
        namespaces = declare(name, (o for o in objects if o["kind"] == "Namespace"), self)
        made = declare(name, (o for o in objects if o["kind"] != "Namespace"), self, namespaces)
        if layout.spec.observability.dcgm_exporter == "chart":
            chart, version = exporter_chart(layout.spec)
            own, repository = in_repository(chart)
            k8s.helm.v4.Chart(
                f"{name}-dcgm-exporter",
                name=RELEASE,
                chart=own,
                version=version,
                namespace=EXPORTER_NAMESPACE,
                repository_opts={"repo": repository} if repository else None,
                values=exporter_values(layout),
                opts=pulumi.ResourceOptions(parent=self, depends_on=[*namespaces, *made]),
            )
        self.register_outputs({})
