"""KEDA from its chart, and a ScaledObject a scaled role."""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, Required, TypedDict

import pulumi
import pulumi_kubernetes as k8s

from ..manifests.autoscaling import CHART_RELEASE, build_keda_base, build_scaled_objects, installs_keda, keda_chart, keda_chart_values
from ..planning.image_sources import in_repository
from ..planning.shapes import Layout
from .base import declare, read_args, require_model_layout
from .lws import keep_and_ignore
from .spec_args import AutoscalingSpecArgs, ModelSpecArgs, RouterSpecArgs


class AutoscalingArgs(TypedDict):
    """Arguments of Autoscaling."""

    model: Required[ModelSpecArgs]
    """The model whose roles have autoscaling; ModelServing has made it. Depend on it."""

    autoscaling: Required[AutoscalingSpecArgs]
    """KEDA and its Prometheus; install: existing from the second model on."""

    chart_provider: NotRequired[k8s.Provider]
    """A provider with upsert_existing_objects, for the chart only. Default: the component's provider, which then fails on kept CRDs."""

    zone: NotRequired[str]
    """Availability zone of the model's pods; required where NodePools are made."""

    router: NotRequired[RouterSpecArgs]
    """Release of the router, whose metrics are read. Default: as documented there."""

    image_sources: NotRequired[Mapping[str, str]]
    """Registries to read instead, prefix to prefix. Default: none."""

    auto_mode: NotRequired[bool]
    """Whether the pods select NodePools of this project. Default: true."""

    catalog_dirs: NotRequired[Sequence[str]]
    """Folders that add to the catalogue. Default: none."""


class Autoscaling(pulumi.ComponentResource):
    """KEDA, unless it is there, and the ScaledObjects of scaled roles.

    ScaledObjects go before KEDA, which removes their finalizers, and before the LeaderWorkerSets. KEDA's CRDs stay when the component is
    destroyed: deleting them would delete every ScaledObject of the cluster.
    """

    def __init__(self, name: str, args: AutoscalingArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Scale a model's roles with the Kubernetes provider of `opts`. Raises pulumi.RunError when a check fails."""
        given = read_args(Autoscaling, name, args, AutoscalingArgs, opts)
        self._declare(name, require_model_layout(given), given.get("chart_provider"), {}, opts)

    @classmethod
    def of_layout(
        cls,
        name: str,
        layout: Layout,
        chart_provider: k8s.Provider | None,
        models: Mapping[str, pulumi.Resource],
        opts: pulumi.ResourceOptions,
    ) -> "Autoscaling":
        """The scaled roles of a layout that has been checked as part of a whole environment; `models` by name."""
        self = cls.__new__(cls)
        self._declare(name, layout, chart_provider, models, opts)
        return self

    def _declare(self, name: str, layout: Layout, chart_provider: k8s.Provider | None, models: Mapping[str, pulumi.Resource], opts: Any) -> None:
        super().__init__("disagg-serving:index:Autoscaling", name, {}, opts)
        spec, sources = layout.spec.autoscaling, layout.spec.image_sources
        keda: list[pulumi.Resource] = []
        if installs_keda(spec, layout.groups):
            base = declare(name, [build_keda_base(spec)], self)
            chart, version = keda_chart(spec, sources)
            chart, repository = in_repository(chart)
            keda.append(
                k8s.helm.v4.Chart(
                    f"{name}-keda",
                    name=CHART_RELEASE,
                    chart=chart,
                    version=version,
                    repository_opts={"repo": repository} if repository else None,
                    namespace=spec.namespace,
                    values=keda_chart_values(spec, sources),
                    opts=pulumi.ResourceOptions(parent=self, provider=chart_provider, depends_on=base, transforms=[keep_and_ignore]),
                )
            )
        for served in layout.served:
            after = [*keda, *([models[served.spec.name]] if served.spec.name in models else [])]
            declare(name, build_scaled_objects(layout.groups_of(served), spec), self, after)
        self.register_outputs({})
