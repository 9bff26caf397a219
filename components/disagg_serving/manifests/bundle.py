"""All Kubernetes objects of an environment, in apply order, and the images and charts behind them."""

from __future__ import annotations

from typing import Any

from .. import labels
from ..pins import keda_images, lws_image
from ..planning.image_sources import located
from ..planning.shapes import Layout
from ..spec import EnvironmentSpec
from .autoscaling import build_keda_base, build_scaled_objects, installs_keda, keda_chart
from .gateway import build_load_balancer, router_chart
from .lws import build_lws_base, lws_chart
from .mirror import build_mirror_jobs
from .network_policy import build_policy_controller
from .node_identity import NodeIdentity, SelectorTerm
from .node_pools import build_node_class, build_node_pool
from .observability import build_observability
from .observability.dcgm import exporter_chart, exporter_image
from .serving import build_model_base, build_model_workloads, build_namespace, build_service

COMPUTED = "<computed>"


def build_all(layout: Layout) -> list[dict[str, Any]]:
    """Every object that the project itself makes; the charts' own objects are not among them."""
    spec, identity = layout.spec, node_identity(layout.spec)
    objects = [build_policy_controller()] if makes_policy_controller(spec) else []
    objects += [build_node_class(c, identity, layout.settings) for c in layout.node_classes]
    objects += [build_node_pool(p, layout.settings) for p in layout.pools]
    objects += build_lws_base(spec.lws)
    objects += [build_keda_base(spec.autoscaling)] if installs_keda(spec.autoscaling, layout.groups) else []
    for served in layout.served:
        groups, pairs = layout.groups_of(served), [served, *layout.candidates_of(served)]
        everyone = [g for pair in pairs for g in layout.groups_of(pair)]
        objects += [build_namespace(served, everyone), *build_model_base(served, spec)]
        objects += build_mirror_jobs(pairs)
        objects += [build_service(g) for g in everyone]
        objects += build_model_workloads(everyone)
        objects += build_scaled_objects(groups, spec.autoscaling)
        objects += [build_load_balancer(served, groups, spec)] if served.spec.gateway.enabled else []
    return objects + build_observability(layout)


def makes_policy_controller(spec: EnvironmentSpec) -> bool:
    """Whether the ConfigMap that turns policies on is ours: on an adopted cluster it is its owner's."""
    return spec.network_policy.enabled and spec.existing_cluster is None


def images(layout: Layout) -> list[str]:
    """Images of all pods, those of the charts included, from where they are read; sorted."""
    found = _images_in(build_all(layout))
    if layout.spec.lws.install == "chart":
        found.add(located(lws_image(layout.spec.lws.version), layout.spec.image_sources))
    if layout.spec.observability.dcgm_exporter == "chart":
        found.add(exporter_image(layout.spec))
    if installs_keda(layout.spec.autoscaling, layout.groups):
        found |= {located(i, layout.spec.image_sources) for i in keda_images(layout.spec.autoscaling.version).values()}
    for served in layout.served:
        if served.spec.gateway.enabled:
            parts = served.router.images
            found |= {served.located(i.reference) for i in (parts.endpoint_picker, parts.proxy)}
    return sorted(found)


def charts(layout: Layout) -> list[str]:
    """Charts that are installed, with version, from where they are read; sorted."""
    spec = layout.spec
    found = {lws_chart(spec.lws, spec.image_sources)} if spec.lws.install == "chart" else set()
    found |= {keda_chart(spec.autoscaling, spec.image_sources)} if installs_keda(spec.autoscaling, layout.groups) else set()
    found |= {router_chart(s, spec) for s in layout.served if s.spec.gateway.enabled}
    found |= {exporter_chart(spec)} if spec.observability.dcgm_exporter == "chart" else set()
    return sorted(f"{chart}:{version}" if version else chart for chart, version in found)


def _images_in(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["image"]} if isinstance(value.get("image"), str) else set()
        return own.union(*(_images_in(inner) for inner in value.values()))
    return set().union(*(_images_in(inner) for inner in value)) if isinstance(value, list) else set()


def node_identity(spec: EnvironmentSpec) -> NodeIdentity:
    """What NodeClasses name, as far as it is known without AWS: tags and names of our own, ids that were given."""
    existing, adopted = spec.existing_cluster, spec.network.existing
    own = existing is None
    role: Any = spec.node_role_name if own else (existing.node_role if existing else None) or COMPUTED
    subnets: list[SelectorTerm] = [{"id": i} for i in adopted.gpu_subnet_ids] if adopted else []
    groups: list[SelectorTerm] = [{"id": i} for i in existing.security_group_ids] if existing else []
    name = spec.cluster_name if own else (existing.name if existing else None) or COMPUTED
    return NodeIdentity(
        role=role,
        subnet_terms=subnets or [{"tags": {labels.GPU_SUBNET_TAG: name}}],
        security_group_terms=groups or [{"tags": {labels.CLUSTER_SECURITY_GROUP_TAG: name}}],
    )
