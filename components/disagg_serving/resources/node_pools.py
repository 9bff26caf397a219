"""NodeClasses and NodePools of the GPU nodes."""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, Required, TypedDict

import pulumi

from ..errors import Finding, Level
from ..manifests.node_identity import NodeIdentity
from ..manifests.node_pools import build_node_class, build_node_pool
from ..phrases import say
from ..planning.shapes import Layout
from .arguments import ComponentArgs
from .base import POOL_DELETE_TIMEOUT, declare, evaluate_args, id_terms, read_args, require_layout
from .spec_args import ModelSpecArgs, NodePoolsSpecArgs


class NodePoolsArgs(TypedDict):
    """Arguments of NodePools."""

    models: Required[Sequence[ModelSpecArgs]]
    """The models whose roles the pools are for."""

    zone: Required[str]
    """Availability zone of all GPU nodes."""

    node_identity: NotRequired[pulumi.Input[NodeIdentity]]
    """Role, subnets and security groups of the nodes as Cluster gives them. Required without the three arguments below."""

    node_role: NotRequired[pulumi.Input[str]]
    """Name of the nodes' IAM role; it has an EC2 access entry with AmazonEKSAutoNodePolicy. Default: that of node_identity."""

    subnet_ids: NotRequired[pulumi.Input[Sequence[pulumi.Input[str]]]]
    """Private subnets in the zone. Default: those of node_identity."""

    security_group_ids: NotRequired[pulumi.Input[Sequence[pulumi.Input[str]]]]
    """Security groups that allow all traffic from and to themselves. Default: those of node_identity."""

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
        given = read_args(NodePools, name, args, NodePoolsArgs, opts)
        given.faults.extend(_missing(given))
        layout = require_layout(evaluate_args(given, settings="settings"), given)
        self._declare(name, layout, _identity(given.inputs), opts)

    @classmethod
    def of_layout(cls, name: str, layout: Layout, identity: pulumi.Output[NodeIdentity], opts: pulumi.ResourceOptions) -> "NodePools":
        """The pools of a layout that has been checked as part of a whole environment."""
        self = cls.__new__(cls)
        self._declare(name, layout, _by_key(identity), opts)
        return self

    def _declare(self, name: str, layout: Layout, identity: Mapping[str, Any], opts: Any) -> None:
        super().__init__("disagg-serving:index:NodePools", name, {}, opts)
        classes = declare(name, (build_node_class(c, identity, layout.settings) for c in layout.node_classes), self)
        declare(name, (build_node_pool(p, layout.settings) for p in layout.pools), self, classes, POOL_DELETE_TIMEOUT)
        self.pool_names = pulumi.Output.from_input([p.name for p in layout.pools])
        self.register_outputs({"poolNames": self.pool_names})


_PARTS = {"node_role": "role", "subnet_ids": "subnet_terms", "security_group_ids": "security_group_terms"}


def _missing(given: ComponentArgs) -> list[Finding]:
    """Without an identity every part of one has to be given."""
    if given.get("node_identity") is not None:
        return []
    message, fix = say("is required without {node_identity}"), say("add it, or {node_identity} of a Cluster")
    return [Finding("missing", Level.ERROR, key, message, None, "", fix) for key in _PARTS if given.get(key) is None]


def _identity(given: Mapping[str, Any]) -> dict[str, Any]:
    identity = _by_key(given["node_identity"]) if given.get("node_identity") is not None else {}
    own = {part: given[key] for key, part in _PARTS.items() if given.get(key) is not None}
    return {**identity, **{part: value if part == "role" else id_terms(value) for part, value in own.items()}}


def _by_key(identity: pulumi.Input[NodeIdentity]) -> dict[str, Any]:
    known: Any = pulumi.Output.from_input(identity)
    return {key: known[key] for key in NodeIdentity.__annotations__}
