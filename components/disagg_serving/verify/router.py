"""The way in: endpoint picker and Envoy, the load balancer, and where Services lead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .. import labels
from ..manifests.gateway import build_load_balancer, router_values
from ..manifests.names import picker_name, router_labels
from ..manifests.serving import build_service
from ..planning.shapes import Served
from .compare import mismatches
from .points import Point, compare, failed, ok, unknown
from .snapshot import Object, Ref
from .view import UnreadError, View, deployments_in, is_true, pods_in, slices_in

APPLY = "`pulumi up` installs it"


def check(view: View) -> Iterator[Point]:
    """The points of each model's router and Services."""
    for served in view.layout.served:
        namespace, groups = served.spec.kubernetes_namespace, view.layout.groups_of(served)
        for group in groups:
            made = build_service(group)
            yield _endpoints(view, Ref.of(made), made["spec"]["selector"], made)
        if not served.spec.gateway.enabled:
            continue
        yield from _router(view, served)
        yield _endpoints(view, Ref("v1", "Service", namespace, picker_name(served)), router_labels(served), None)
        balancer = build_load_balancer(served, groups, view.layout.spec)
        yield _endpoints(view, Ref.of(balancer), router_labels(served), balancer)
        yield _address(view, Ref.of(balancer))


def _router(view: View, served: Served) -> Iterator[Point]:
    namespace, name = served.spec.kubernetes_namespace, picker_name(served)
    subject = f"Deployment {namespace}/{name}"
    try:
        found = next((d for d in view.all(deployments_in(namespace)) if d["metadata"]["name"] == name), None)
    except UnreadError as problem:
        yield unknown("router-ready", subject, "available", problem)
        return
    if found is None:
        yield failed("router-ready", subject, "available", "it is not there", APPLY)
        return
    ready, wanted = found.get("status", {}).get("readyReplicas", 0), found["spec"].get("replicas", 1)
    if ready and ready == wanted:
        yield ok("router-ready", subject, "available")
    else:
        why = view.warnings(namespace, "Pod", [p["metadata"]["name"] for p in _pods(view, namespace, router_labels(served))])
        fix = f"`kubectl describe -n {namespace} deployment/{name}`"
        yield failed("router-ready", subject, "available", f"{ready} of {wanted} pods ready{why}", fix)
    values = router_values(served, view.layout.groups_of(served))["router"]
    template = found["spec"]["template"]
    images = {c["image"] for c in template["spec"]["containers"]}
    expected = {served.located(i.reference) for i in (served.router.images.endpoint_picker, served.router.images.proxy)}
    if expected <= images:
        yield ok("router-image", subject, ", ".join(sorted(expected)))
    else:
        yield failed("router-image", subject, ", ".join(sorted(expected)), ", ".join(sorted(images)), APPLY)
    mark = values["epp"]["podAnnotations"][labels.CONFIG_HASH]
    has = (template["metadata"].get("annotations") or {}).get(labels.CONFIG_HASH, "none")
    yield compare("router-config", subject, f"hash {mark}", f"hash {has}", "`pulumi up` gives it the configuration of the stack file")


def _pods(view: View, namespace: str, selector: Mapping[str, str]) -> list[Object]:
    return [p for p in view.all(pods_in(namespace)) if selector.items() <= (p["metadata"].get("labels") or {}).items()]


def _endpoints(view: View, ref: Ref, selector: Mapping[str, str], made: Object | None) -> Point:
    name, wanted = "service-endpoints", "the ready pods that answer"
    try:
        found = view.get(ref)
        if found is None:
            if made is None:
                return failed(name, str(ref), wanted, "there is no such Service", APPLY)
            return unknown(name, str(ref), wanted, "there is no such Service: see object")
        if made is not None and mismatches(made["spec"], found["spec"]):
            return unknown(name, str(ref), wanted, "the Service is not as generated: see object")
        ready = {p["metadata"]["name"] for p in _pods(view, ref.namespace, selector) if is_true(p, "Ready")}
        reached = {e for s in view.all(slices_in(ref.namespace)) if _is_of(s, ref) for e in _ready_endpoints(s)}
    except UnreadError as problem:
        return unknown(name, str(ref), wanted, problem)
    if not ready:
        return unknown(name, str(ref), wanted, "none of its pods is ready: see group-ready and router-ready")
    if reached == ready:
        return ok(name, str(ref), f"{len(ready)} pods")
    strangers, lost = sorted(reached - ready), sorted(ready - reached)
    parts = [f"leads to {', '.join(strangers)}"] if strangers else []
    parts += [f"does not lead to {', '.join(lost)}"] if lost else []
    fix = "compare its selector with the labels of the pods"
    return failed(name, str(ref), f"{len(ready)} pods: {', '.join(sorted(ready))}", " and ".join(parts), fix)


def _is_of(endpoint_slice: Object, service: Ref) -> bool:
    return bool((endpoint_slice["metadata"].get("labels") or {}).get(labels.SERVICE_NAME) == service.name)


def _ready_endpoints(endpoint_slice: Object) -> Iterator[str]:
    endpoints: list[dict[str, Any]] = endpoint_slice.get("endpoints") or []
    for endpoint in endpoints:
        # absent means unknown, which counts as ready (EndpointSlice API)
        if (endpoint.get("conditions") or {}).get("ready") is not False:
            yield (endpoint.get("targetRef") or {}).get("name") or ", ".join(endpoint["addresses"])


def _address(view: View, ref: Ref) -> Point:
    name, wanted = "router-address", "a load balancer"
    try:
        found = view.get(ref)
    except UnreadError as problem:
        return unknown(name, str(ref), wanted, problem)
    if found is None:
        return unknown(name, str(ref), wanted, "there is no such Service: see object")
    entries = (found.get("status", {}).get("loadBalancer") or {}).get("ingress") or []
    if entries:
        return ok(name, str(ref), wanted, entries[0].get("hostname") or entries[0].get("ip"))
    why = view.warnings(ref.namespace, "Service", [ref.name])
    return failed(name, str(ref), wanted, f"none yet{why}", "wait a few minutes, then see the Service's events")
