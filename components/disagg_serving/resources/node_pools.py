"""NodeClasses and NodePools of the GPU nodes."""

from collections.abc import Sequence
from typing import Any, NotRequired, Required, TypedDict

import pulumi

from ..manifests.node_pools import NodeIdentity, build_node_class, build_node_pool
from ..planning.shapes import Layout
from ..planning.standalone import evaluate_models
from .base import POOL_DELETE_TIMEOUT, checked, declare, id_terms, project_folder, take
from .spec_args import ModelSpecArgs, NodePoolsSpecArgs


class NodePoolsArgs(TypedDict):
    """Arguments of NodePools."""

    models: Required[Sequence[ModelSpecArgs]]
    """The models whose roles the pools are for."""

    zone: Required[str]
    """Availability zone of all GPU nodes."""

    node_role: Required[pulumi.Input[str]]
    """Name of the nodes' IAM role; it has an EC2 access entry with AmazonEKSAutoNodePolicy."""

    subnet_ids: Required[pulumi.Input[Sequence[pulumi.Input[str]]]]
    """Private subnets in the zone."""

    security_group_ids: Required[pulumi.Input[Sequence[pulumi.Input[str]]]]
    """Security groups that allow all traffic from and to themselves."""

    settings: NotRequired[NodePoolsSpecArgs]
    """How nodes live. Default: as documented there."""

    catalog_dirs: NotRequired[Sequence[str]]
    """Folders that add to the catalogue. Default: none."""


class NodePools(pulumi.ComponentResource):
    """One NodeClass an instance type and one NodePool a role, instance type and capacity source.

    Output: `pool_names`.
    """

    pool_names: pulumi.Output[list[str]]
    """Names of the NodePools."""

    def __init__(self, name: str, args: NodePoolsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Make the pools with the Kubernetes provider of `opts`. Raises pulumi.RunError when a check fails."""
        given = take(args, NodePoolsArgs)
        evaluation = evaluate_models(
            given["models"],
            given["zone"],
            project_folder(),
            settings=given.get("settings"),
            catalog_dirs=given.get("catalog_dirs", ()),
        )
        identity = NodeIdentity(given["node_role"], id_terms(given["subnet_ids"]), id_terms(given["security_group_ids"]))
        self._declare(name, checked(evaluation), identity, opts)

    @classmethod
    def of_layout(cls, name: str, layout: Layout, identity: NodeIdentity, opts: pulumi.ResourceOptions) -> "NodePools":
        """The pools of a layout that has been checked as part of a whole environment."""
        self = cls.__new__(cls)
        self._declare(name, layout, identity, opts)
        return self

    def _declare(self, name: str, layout: Layout, identity: NodeIdentity, opts: Any) -> None:
        super().__init__("disagg-serving:index:NodePools", name, {}, opts)
        classes = declare(name, (build_node_class(c, identity, layout.settings) for c in layout.node_classes), self)
        declare(name, (build_node_pool(p, layout.settings) for p in layout.pools), self, classes, POOL_DELETE_TIMEOUT)
        self.pool_names = pulumi.Output.from_input([p.name for p in layout.pools])
        self.register_outputs({"poolNames": self.pool_names})
