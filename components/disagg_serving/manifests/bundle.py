"""All Kubernetes objects of an environment, in apply order, and the images and charts behind them."""

from __future__ import annotations

from typing import Any

from .. import labels
from ..planning.shapes import Layout
from ..spec import EnvironmentSpec
from .lws import build_lws_base
from .node_pools import NodeIdentity, build_node_class, build_node_pool
from .serving import build_model_base, build_model_workloads

COMPUTED = "<computed>"


def build_all(layout: Layout) -> list[dict[str, Any]]:
    """Every object that the project itself makes; the chart's own objects are not among them."""
    identity = node_identity(layout.spec)
    objects = [build_node_class(c, identity, layout.settings) for c in layout.node_classes]
    objects += [build_node_pool(p, layout.settings) for p in layout.pools]
    objects += build_lws_base(layout.spec.lws)
    for served in layout.served:
        objects += [*build_model_base(served), *build_model_workloads(layout.groups_of(served))]
    return objects


def images(objects: list[dict[str, Any]]) -> list[str]:
    """Images of all pods, sorted."""
    found: set[str] = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("image"), str):
                found.add(value["image"])
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(objects)
    return sorted(found)


def charts(layout: Layout) -> list[str]:
    """Charts that are installed, with version."""
    lws = layout.spec.lws
    return [f"{lws.chart}:{lws.version}"] if lws.install == "chart" else []


def node_identity(spec: EnvironmentSpec) -> NodeIdentity:
    """What NodeClasses name, as far as it is known without AWS: tags and names of our own, ids that were given."""
    existing, adopted = spec.existing_cluster, spec.network.existing
    own = existing is None
    role: Any = spec.node_role_name if own else (existing.node_role if existing else None) or COMPUTED
    subnets: list[dict[str, Any]] = [{"id": i} for i in adopted.gpu_subnet_ids] if adopted else []
    groups: list[dict[str, Any]] = [{"id": i} for i in existing.security_group_ids] if existing else []
    name = spec.cluster_name if own else (existing.name if existing else None) or COMPUTED
    return NodeIdentity(
        role=role,
        subnet_terms=subnets or [{"tags": {labels.GPU_SUBNET_TAG: name}}],
        security_group_terms=groups or [{"tags": {labels.CLUSTER_SECURITY_GROUP_TAG: name}}],
    )
