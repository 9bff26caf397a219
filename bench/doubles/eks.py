"""`pulumi-resource-eks` of the bench: its Cluster is a component with the children that the real one makes, and the bench's kubeconfig."""

import os
import sys
from importlib.metadata import version
from pathlib import Path

import pulumi
from pulumi.provider.experimental import provider as p
from pulumi.provider.experimental.property_value import PropertyValue as Value
from pulumi.provider.experimental.property_value import ResourceReference
from pulumi.provider.experimental.server import main

from bench.doubles.provider import Double

AWS_VERSION = version("pulumi-aws")


class Cluster(pulumi.ComponentResource):
    """The component under the type token of pulumi-eks."""

    def __init__(self, name: str, opts: pulumi.ResourceOptions) -> None:
        """Nothing but the component."""
        super().__init__("eks:index:Cluster", name, {}, opts)


class EksDouble(Double):
    """Constructs clusters."""

    kubeconfig = Path(os.environ["BENCH_KUBECONFIG"]).read_text(encoding="utf-8")

    async def construct(self, request: p.ConstructRequest) -> p.ConstructResponse:
        """Make an eks Cluster with its node role; outputs are unknown in a preview, as on AWS."""
        component = Cluster(request.name, request.options)
        below = pulumi.ResourceOptions(parent=component, version=AWS_VERSION)
        pulumi.CustomResource("aws:iam/role:Role", f"{request.name}-auto-mode-node", {"assumeRolePolicy": "{}"}, below)
        inputs = {"name": _plain(request.inputs.get("name")), "version": _plain(request.inputs.get("version"))}
        cluster = pulumi.CustomResource(
            "aws:eks/cluster:Cluster",
            f"{request.name}-eksCluster",
            {**inputs, "accessConfig": {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": True}},
            below,
        )
        urn, cluster_id = await cluster.urn.future(), await cluster.id.future()
        reference = ResourceReference(urn=str(urn), resource_id=Value(cluster_id) if cluster_id else None, package_version=AWS_VERSION)
        state = {"eksCluster": Value(reference)}
        if not pulumi.runtime.is_dry_run():
            # left out it is unknown; the SDK's server cannot send an unknown value
            state |= {"kubeconfigJson": Value(self.kubeconfig), "kubeconfig": Value(self.kubeconfig)}
        component.register_outputs({})
        return p.ConstructResponse(urn=str(await component.urn.future()), state=state, state_dependencies={})


def _plain(value: Value | None) -> object:
    return value.value if value is not None else None


if __name__ == "__main__":
    released = version("pulumi-eks")
    main(sys.argv[1:], released, EksDouble("eks", released))
