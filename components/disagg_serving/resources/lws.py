"""The LeaderWorkerSet controller from its chart."""

from collections.abc import Mapping
from typing import NotRequired

import pulumi
import pulumi_kubernetes as k8s

from ..manifests.lws import CHART_RELEASE, build_lws_base, chart_values, lws_chart
from ..spec import LwsSpec
from .base import declare, read_args, require_spec
from .spec_args import LwsSpecArgs

CRD = "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition"
WEBHOOKS = (
    "kubernetes:admissionregistration.k8s.io/v1:MutatingWebhookConfiguration",
    "kubernetes:admissionregistration.k8s.io/v1:ValidatingWebhookConfiguration",
)
SECRET = "kubernetes:core/v1:Secret"  # noqa: S105 (a resource type)


class LwsArgs(LwsSpecArgs, total=False):
    """Arguments of Lws: the spec's fields, and the provider that may take over the CRDs of an earlier installation."""

    chart_provider: NotRequired[k8s.Provider]
    """A provider with upsert_existing_objects, for the chart only. Default: the component's provider, which then fails on kept CRDs."""

    image_sources: NotRequired[Mapping[str, str]]
    """Registries to read instead, prefix to prefix. Default: none."""


class Lws(pulumi.ComponentResource):
    """LeaderWorkerSet CRDs, controller and webhooks; nothing with install: existing.

    The CRDs stay when the component is destroyed: deleting them would delete every LeaderWorkerSet of the cluster.
    """

    def __init__(self, name: str, args: LwsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Install with the Kubernetes provider of `opts`. Raises pulumi.RunError when the args are not valid."""
        given = read_args(Lws, name, args, LwsArgs, opts)
        spec = require_spec(given, LwsSpec)
        super().__init__("disagg-serving:index:Lws", name, {}, opts)
        provider, sources = given.get("chart_provider"), given.get("image_sources", {})
        if spec.install == "chart":
            base = declare(name, build_lws_base(spec), self)
            chart, version = lws_chart(spec, sources)
            k8s.helm.v4.Chart(
                f"{name}-lws",
                name=CHART_RELEASE,
                chart=chart,
                version=version,
                namespace=spec.namespace,
                values=chart_values(spec, sources),
                opts=pulumi.ResourceOptions(parent=self, provider=provider, depends_on=base, transforms=[keep_and_ignore]),
            )
        self.register_outputs({})


def keep_and_ignore(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
    """Keep CRDs on destroy, and leave alone what the controller itself writes: its certificate and the webhooks' CA."""
    extra = None
    if args.type_ == CRD:
        extra = pulumi.ResourceOptions(retain_on_delete=True)
    elif args.type_ in WEBHOOKS:
        extra = pulumi.ResourceOptions(ignore_changes=["webhooks[*].clientConfig.caBundle"])
    elif args.type_ == SECRET:
        extra = pulumi.ResourceOptions(ignore_changes=["data"])
    return pulumi.ResourceTransformResult(args.props, pulumi.ResourceOptions.merge(args.opts, extra)) if extra else None
