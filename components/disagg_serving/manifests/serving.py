"""The objects of one model: namespace, identity, LeaderWorkerSets, Services and budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import labels
from ..pins import ROUTING_SIDECAR, image
from ..planning.shapes import API_PORT, BEHIND_SIDECAR_PORT, SIDECAR_CPU_MILLIS, SIDECAR_MEMORY_MIB, Group, Served
from .engine import SECRET_KEY, SECRET_NAME, build_container, grace_seconds

SECRET_PLACEHOLDER = "<secret>"  # noqa: S105 (what is shown instead of one)
PRIORITY = 1_000_000


def build_model_base(served: Served, token: Any = SECRET_PLACEHOLDER) -> list[dict[str, Any]]:
    """What a model's pods need to exist before them. `token` may be a Pulumi Output."""
    model, namespace = served.spec, served.spec.kubernetes_namespace
    objects: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            # IPC_LOCK is outside the baseline level
            "metadata": {"name": namespace, "labels": {**_labels(served), labels.POD_SECURITY_ENFORCE: "privileged"}},
        },
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": priority_class(served), "labels": _labels(served)},
            "value": PRIORITY,
            "preemptionPolicy": "Never",
            "description": f"Serving pods of {model.name}: ahead of ordinary pods in the queue, never evicting others.",
        },
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": _metadata(model.name, namespace, served),
            "automountServiceAccountToken": False,
        },
    ]
    if model.weights.token_key:
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": _metadata(SECRET_NAME, namespace, served),
                "type": "Opaque",
                "stringData": {SECRET_KEY: token},
            }
        )
    return objects


def build_model_workloads(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Services, PodDisruptionBudgets and LeaderWorkerSets of one model's roles."""
    return [build(group) for build in (build_service, build_disruption_budget, build_leader_worker_set) for group in groups]


def build_service(group: Group) -> dict[str, Any]:
    """The HTTP Service of a role; it selects leaders only, since workers have no HTTP server."""
    metadata = _metadata(service_name(group), group.namespace, group.served)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        # endpoints appear when a model is loaded, which outlasts every default timeout
        "metadata": {**metadata, "annotations": {labels.SKIP_AWAIT: "true"}},
        "spec": {
            "type": "ClusterIP",
            "selector": leader_selector(group),
            "ports": [{"name": "http", "port": API_PORT, "targetPort": API_PORT, "protocol": "TCP"}],
        },
    }


def build_disruption_budget(group: Group) -> dict[str, Any]:
    """One eviction at a time: the first makes its group unavailable and so holds back the next."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(group.name, group.namespace, group.served),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {labels.LWS_NAME: group.name}}},
    }


def build_leader_worker_set(group: Group) -> dict[str, Any]:
    """The LeaderWorkerSet of a role: `replicas` engines of `size` pods."""
    template: dict[str, Any] = {"workerTemplate": build_pod_template(group, worker=group.size > 1)}
    if group.size > 1:
        template = {"leaderTemplate": build_pod_template(group, worker=False), **template}
    metadata = _metadata(group.name, group.namespace, group.served)
    seconds = group.served.spec.wait_for_ready_seconds
    if seconds is not None:
        metadata["annotations"] = {labels.WAIT_FOR: "condition=Available", labels.TIMEOUT_SECONDS: str(seconds)}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": metadata,
        "spec": {
            "replicas": group.spec.replicas,
            # LeaderReady would deadlock: a leader is ready only after its workers have joined
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0}},
            "leaderWorkerTemplate": {
                "size": group.size,
                # a lone pod restarts in place and keeps its weights; NCCL groups must restart whole
                "restartPolicy": "RecreateGroupAfterStart" if group.size > 1 else "None",
                **template,
            },
        },
    }


def build_pod_template(group: Group, *, worker: bool) -> dict[str, Any]:
    """Pod of a leader (or lone engine), or of a worker."""
    sidecar = {"initContainers": [build_routing_sidecar()]} if group.role == "decode" and not worker else {}
    return {
        "metadata": {"labels": dict(group.labels), "annotations": {labels.DO_NOT_DISRUPT: "true"}},
        "spec": {
            "serviceAccountName": group.served.spec.name,
            "automountServiceAccountToken": False,
            # a Service named vllm would set VLLM_PORT, which vLLM refuses
            "enableServiceLinks": False,
            "priorityClassName": priority_class(group.served),
            "terminationGracePeriodSeconds": grace_seconds(group),
            "nodeSelector": dict(group.node_selector),
            "tolerations": [dict(t) for t in group.tolerations],
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            **sidecar,
            "containers": [build_container(group, worker=worker)],
            "volumes": [
                {"name": "weights", "emptyDir": {"sizeLimit": f"{group.engine_requests.disk_gib}Gi"}},
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{group.shm_gib}Gi"}},
            ],
        },
    }


def build_routing_sidecar() -> dict[str, Any]:
    """llm-d's routing sidecar as a native sidecar: it sends the prompt to a prefill pod, then the request to vLLM beside it."""
    return {
        "name": "routing-sidecar",
        "image": image(ROUTING_SIDECAR),
        "restartPolicy": "Always",
        "args": [f"--port={API_PORT}", f"--model-server-port={BEHIND_SIDECAR_PORT}", "--kv-connector=nixlv2", "--secure-proxy=false"],
        "ports": [{"name": "http", "containerPort": API_PORT}],
        "resources": {"requests": {"cpu": str(SIDECAR_CPU_MILLIS // 1000), "memory": f"{SIDECAR_MEMORY_MIB // 1024}Gi"}},
        "readinessProbe": {"tcpSocket": {"port": API_PORT}, "periodSeconds": 5, "failureThreshold": 3},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "runAsNonRoot": True,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def leader_selector(group: Group) -> dict[str, str]:
    """Labels of the pods that answer HTTP."""
    return {labels.LWS_NAME: group.name, labels.LWS_WORKER_INDEX: labels.LEADER}


def service_name(group: Group) -> str:
    """Name of a role's Service; LWS gives its own headless one the set's name."""
    return f"{group.name}-api"


def priority_class(served: Served) -> str:
    """Name of a model's PriorityClass, which is not in a namespace."""
    return f"{served.spec.name}-serving"


def _metadata(name: str, namespace: str, served: Served) -> dict[str, Any]:
    return {"name": name, "namespace": namespace, "labels": _labels(served)}


def _labels(served: Served) -> Mapping[str, str]:
    return {labels.MANAGED_BY: labels.OWNER, labels.PART_OF: served.spec.name}
