"""A cluster in which everything is as planned, as plain data; a test changes the one thing that it is about."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from disagg_serving import labels
from disagg_serving.manifests.gateway import build_load_balancer, router_values
from disagg_serving.manifests.lws import CONTROLLER_LABELS
from disagg_serving.manifests.names import picker_name, router_labels
from disagg_serving.manifests.serving import build_leader_worker_set, build_pod_template, build_service
from disagg_serving.pins import lws_image
from disagg_serving.planning.connector import BACKENDS
from disagg_serving.planning.placement import place
from disagg_serving.planning.shapes import Group, Layout, Served
from disagg_serving.rules.evaluation import evaluate_file
from disagg_serving.spec.stack_file import find_project
from disagg_serving.verify.snapshot import Answers, Ref, Snapshot, Unread
from disagg_serving.verify.view import NODES, View, deployments_in, lists_to_read, objects_to_read, pods_in, slices_in
from factories import SHIPPED

PROJECT = find_project(SHIPPED)
READY = {"conditions": [{"type": "Ready", "status": "True"}]}
POD_IDENTITY = [{"name": "AWS_CONTAINER_CREDENTIALS_FULL_URI", "value": "http://169.254.170.23/v1/credentials"}]
"""What EKS puts into a pod whose account has an association."""
LWS_ENV = [{"name": n, "value": "x"} for n in ("LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX")]


def stack_layout(stack: str) -> Layout:
    """The layout of a stack file."""
    return evaluate_file(PROJECT.stack_file(stack), SHIPPED).require_layout()


def metrics(*, prompt: float = 2000, local: float = 0, transfers: float = 0, failed: float = 0, answered: float = 2) -> str:
    """Metrics of an engine in Prometheus' form."""
    return (
        f'vllm:prompt_tokens_total{{engine="0"}} {prompt}\nvllm:prompt_tokens_by_source_total{{engine="0",source="local_compute"}} {local}\n'
        f'vllm:request_success_total{{finished_reason="stop"}} {answered}\nvllm:nixl_xfer_time_seconds_count {transfers}\n'
        f"vllm:nixl_num_failed_transfers_total {failed}\nvllm:nixl_num_failed_notifications_total 0\n"
    )


@dataclass
class Picture:
    """A snapshot in the making."""

    layout: Layout
    version: str | Unread = "v1.36.3-eks-0000000"
    objects: dict[Ref, Any] = field(default_factory=dict)
    lists: dict[Ref, Any] = field(default_factory=dict)
    answers: dict[tuple[str, str], Answers] = field(default_factory=dict)

    def snapshot(self) -> Snapshot:
        """As a check takes it."""
        return Snapshot("https://cluster.invalid", self.version, self.objects, self.lists, self.answers)

    def named(self, kind: Ref, name: str) -> dict[str, Any]:
        """One object of a list, to be changed."""
        found: dict[str, Any] = next(o for o in self.lists[kind] if o["metadata"]["name"] == name)
        return found

    def made(self, kind: str, name: str) -> Ref:
        """The reference of a generated object."""
        return next(r for r in self.objects if (r.kind, r.name) == (kind, name))


def as_planned(layout: Layout) -> Picture:
    """Everything is there, ready, and has seen some traffic."""
    picture = Picture(layout)
    view = View(layout, Snapshot("", ""))
    for made in deepcopy(view.made):
        picture.objects[Ref.of(made)] = made
    picture.lists = {kind: [] for kind in lists_to_read(layout)}
    pods = {name: (g, i) for g in layout.groups for names in g.pods() for i, name in enumerate(names)}
    for pool, _, nodes in place(layout):
        for number, node in enumerate(nodes):
            name = f"{pool}-{number}"
            group = pods[node.pods[0]][0]
            picture.lists[NODES].append(_node(layout, name, group))
            for pod in node.pods:
                _pod(picture, pod, *pods[pod], name)
    for group in layout.groups:
        found, numbers = picture.objects[Ref.of(build_leader_worker_set(group))], ("replicas", "readyReplicas", "updatedReplicas")
        found["spec"]["replicas"] = group.replicas  # KEDA's, where the role is scaled
        found["status"] = dict.fromkeys(numbers, group.replicas)
        service = build_service(group)
        _slice(picture, group.namespace, service["metadata"]["name"], [names[0] for names in group.pods()])
    for ref in (r for r in objects_to_read(layout) if r.kind == "Job"):
        picture.objects[ref]["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    for ref in (r for r in objects_to_read(layout) if r.kind == "ScaledObject"):
        picture.objects[ref]["status"] = deepcopy(READY)
    for served in (s for s in layout.served if s.spec.gateway.enabled):
        _router(picture, served)
    controller = _deployment("lws-controller-manager", CONTROLLER_LABELS, [lws_image(layout.spec.lws.version)], {})
    picture.lists[deployments_in(layout.spec.lws.namespace)].append(controller)
    return picture


def _node(layout: Layout, name: str, group: Group) -> dict[str, Any]:
    instance = group.instance
    zone = {labels.ZONE: layout.spec.network.zone} if layout.spec.network.zone else {}
    has = {**group.node_selector, labels.INSTANCE_TYPE: instance.id, labels.CAPACITY_TYPE: group.spec.capacity.type, **zone}
    offers = {labels.GPU: str(instance.gpu.count), labels.EFA: str(instance.efa.count)}
    return {"metadata": {"name": name, "labels": has}, "status": {**READY, "allocatable": offers}}


def _pod(picture: Picture, name: str, group: Group, index: int, node: str) -> None:
    pod = deepcopy(build_pod_template(group, worker=index > 0))
    pod["metadata"] |= {"name": name, "namespace": group.namespace}
    pod["metadata"]["labels"] |= {labels.LWS_NAME: group.name, labels.LWS_WORKER_INDEX: str(index)}
    for container in pod["spec"]["containers"]:
        container["env"] = [*LWS_ENV, *container["env"], *(POD_IDENTITY if group.served.weights_uri else [])]
    pod["spec"]["nodeName"] = node
    pod["spec"]["tolerations"].append({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"})
    pod["status"] = {**READY, "phase": "Running", "containerStatuses": [{"name": "vllm", "state": {"running": {}}}]}
    picture.lists[pods_in(group.namespace)].append(pod)
    backend = ", ".join(BACKENDS)
    said = metrics(transfers=2, local=2) if group.role == "decode" else metrics(local=2000)
    picture.answers[group.namespace, name] = Answers(f"INFO Backend {backend} was instantiated\n", said, group.served.engine.version)


def _slice(picture: Picture, namespace: str, service: str, pods: list[str]) -> None:
    endpoints = [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}, "targetRef": {"kind": "Pod", "name": p}} for p in pods]
    metadata = {"name": f"{service}-abc", "labels": {labels.SERVICE_NAME: service}}
    picture.lists[slices_in(namespace)].append({"metadata": metadata, "endpoints": endpoints})


def _router(picture: Picture, served: Served) -> None:
    namespace, groups, name = served.spec.kubernetes_namespace, picture.layout.groups_of(served), picker_name(served)
    parts = served.router.images
    images = [served.located(i.reference) for i in (parts.proxy, parts.endpoint_picker)]
    values = router_values(served, groups)["router"]
    picture.lists[deployments_in(namespace)].append(_deployment(name, router_labels(served), images, values["epp"]["podAnnotations"]))
    picture.objects[Ref("v1", "Service", namespace, name)] = {"metadata": {"name": name}, "spec": {"selector": router_labels(served)}}
    pod = {"metadata": {"name": f"{name}-1", "labels": dict(router_labels(served))}, "spec": {}, "status": READY}
    picture.lists[pods_in(namespace)].append(pod)
    balancer = build_load_balancer(served, groups, picture.layout.spec)
    picture.objects[Ref.of(balancer)]["status"] = {"loadBalancer": {"ingress": [{"hostname": "model.elb.invalid"}]}}
    for service in (name, balancer["metadata"]["name"]):
        _slice(picture, namespace, service, [f"{name}-1"])


def _deployment(name: str, selector: Mapping[str, str], images: list[str], annotations: Mapping[str, str]) -> dict[str, Any]:
    template = {
        "metadata": {"annotations": dict(annotations)},
        "spec": {"containers": [{"name": f"c{i}", "image": image} for i, image in enumerate(images)]},
    }
    return {
        "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": dict(selector)}, "template": template},
        "status": {"readyReplicas": 1, "conditions": [{"type": "Available", "status": "True"}]},
    }


def warning(kind: str, name: str, reason: str, message: str) -> dict[str, Any]:
    """An event."""
    return {"type": "Warning", "reason": reason, "message": message, "involvedObject": {"kind": kind, "name": name}, "metadata": {}}
