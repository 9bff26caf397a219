"""The objects of one model: namespace, identity, secrets, network policies, LeaderWorkerSets, Services and budgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import labels
from ..planning.scaling import scaled
from ..planning.shapes import API_PORT, BEHIND_SIDECAR_PORT, SIDECAR_CPU_MILLIS, SIDECAR_MEMORY_MIB, Group, Served
from ..planning.startup import ready_wait_seconds
from ..spec import EnvironmentSpec
from .engine import API_KEY_KEY, API_KEY_SECRET, TOKEN_KEY, TOKEN_SECRET, build_container, grace_seconds, uses_node_cache
from .names import leader_selector, managed, mirror_account, owned, priority_class, pull_secrets, service_name
from .network_policy import build_network_policies

SECRET_PLACEHOLDER = "<secret>"  # noqa: S105 (what is shown instead of one)
PRIORITY = 1_000_000


NODE_CACHE = "/mnt/.ephemeral/disagg-serving"
"""Folder on the RAID of a node's NVMe drives, where Auto Mode mounts it (EKS user guide: fast model loading)."""


@dataclass(frozen=True)
class Secrets:
    """Values of the Secrets that a model names; may be Pulumi Outputs."""

    token: Any = SECRET_PLACEHOLDER
    api_key: Any = SECRET_PLACEHOLDER


PLACEHOLDERS = Secrets()


def build_namespace(served: Served, groups: Sequence[Group]) -> dict[str, Any]:
    """The namespace. IPC_LOCK, which EFA needs, is outside the baseline level of pod security, and so is a folder of the node."""
    more = any(g.uses_efa for g in groups) or uses_node_cache(served)
    level = {labels.POD_SECURITY_ENFORCE: "privileged" if more else "baseline"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": served.spec.kubernetes_namespace, "labels": {**owned(served), **level}}}


def build_model_base(served: Served, spec: EnvironmentSpec, secrets: Secrets = PLACEHOLDERS) -> list[dict[str, Any]]:
    """What a model's pods need to exist before them, in the namespace."""
    model = served.spec
    objects: list[dict[str, Any]] = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": priority_class(served), "labels": owned(served)},
            "value": PRIORITY,
            "preemptionPolicy": "Never",
            "description": f"Serving pods of {model.name}: ahead of ordinary pods in the queue, never evicting others.",
        },
        _account(model.name, served),
    ]
    if model.weights.mirror:
        objects.append(_account(mirror_account(served), served))
    if model.weights.token_key:
        objects.append(_secret(TOKEN_SECRET, TOKEN_KEY, secrets.token, served))
    if model.gateway.api_key_secret:
        objects.append(_secret(API_KEY_SECRET, API_KEY_KEY, secrets.api_key, served))
    return objects + build_network_policies(served, spec)


def build_model_workloads(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """PodDisruptionBudgets and LeaderWorkerSets of some roles."""
    return [build(group) for build in (build_disruption_budget, build_leader_worker_set) for group in groups]


def build_service(group: Group) -> dict[str, Any]:
    """The HTTP Service of a role; it selects leaders only, since workers have no HTTP server."""
    metadata = managed(service_name(group), group.served)
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
        "metadata": managed(group.name, group.served),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {labels.LWS_NAME: group.name}}},
    }


def build_leader_worker_set(group: Group) -> dict[str, Any]:
    """The LeaderWorkerSet of a role: `replicas` engines of `size` pods."""
    template: dict[str, Any] = {"workerTemplate": build_pod_template(group, worker=group.size > 1)}
    if group.size > 1:
        template = {"leaderTemplate": build_pod_template(group, worker=False), **template}
    metadata = managed(group.name, group.served)
    # a number that an autoscaler or a person has set is ours again when the stack file states one; without this `up` fails on a conflict
    metadata["annotations"] = {labels.PATCH_FORCE: "true"}
    seconds = ready_wait_seconds(group.served)
    if seconds is not None:
        metadata["annotations"] |= {labels.WAIT_FOR: "condition=Available", labels.TIMEOUT_SECONDS: str(seconds)}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": metadata,
        "spec": {
            # KEDA's HorizontalPodAutoscaler owns the number of a scaled role that serves
            **({} if scaled([group]) else {"replicas": group.replicas}),
            # LeaderReady would deadlock: a leader is ready only after its workers have joined
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxUnavailable": 0 if group.surge else 1, "maxSurge": group.surge},
            },
            "leaderWorkerTemplate": {
                "size": group.size,
                "restartPolicy": _restart_policy(group),
                **template,
            },
        },
    }


def _restart_policy(group: Group) -> str:
    """NCCL groups must restart whole, and a lone pod restarts in place and keeps its weights.

    One that streams them keeps none and is recreated, too: credentials of EKS Pod Identity are put into a pod at its admission, and one that
    was admitted before its association took effect never gets any (https://docs.aws.amazon.com/eks/latest/userguide/pod-identities.html).
    """
    return "RecreateGroupAfterStart" if group.size > 1 or group.served.weights_uri else "None"


def build_pod_template(group: Group, *, worker: bool) -> dict[str, Any]:
    """Pod of a leader (or lone engine), or of a worker."""
    sidecar = {"initContainers": [build_routing_sidecar(group.served)]} if group.role == "decode" and not worker else {}
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
            **apart_from_other_roles(group),
            **pull_secrets(group.served),
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            **sidecar,
            "containers": [build_container(group, worker=worker)],
            "volumes": [
                {"name": "weights", "emptyDir": {"sizeLimit": f"{group.engine_requests.disk_gib}Gi"}},
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{group.shm_gib}Gi"}},
                *([_node_cache(group.served)] if uses_node_cache(group.served) else []),
            ],
        },
    }


def apart_from_other_roles(group: Group) -> dict[str, Any]:
    """Keep prefill off nodes of decode where no pools do: EFA has no loopback inside a node (https://github.com/ai-dynamo/dynamo/pull/9521)."""
    if group.pool or not group.served.spec.disaggregated:
        return {}
    others = [name for name in group.served.spec.roles if name != group.role]
    other = {"matchLabels": {labels.PART_OF: group.served.spec.name}, "matchExpressions": [_one_of(labels.COMPONENT, others)]}
    term = {"labelSelector": other, "topologyKey": labels.HOST_NAME}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _one_of(key: str, values: Sequence[str]) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def build_routing_sidecar(served: Served) -> dict[str, Any]:
    """llm-d's routing sidecar as a native sidecar: it sends the prompt to a prefill pod, then the request to vLLM beside it."""
    return {
        "name": "routing-sidecar",
        "image": served.sidecar_image,
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


def _node_cache(served: Served) -> dict[str, Any]:
    path = f"{NODE_CACHE}/{served.spec.kubernetes_namespace}"
    return {"name": "node-cache", "hostPath": {"path": path, "type": "DirectoryOrCreate"}}


def _account(name: str, served: Served) -> dict[str, Any]:
    metadata = managed(name, served)
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, "automountServiceAccountToken": False}


def _secret(name: str, key: str, value: Any, served: Served) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": managed(name, served), "type": "Opaque", "stringData": {key: value}}
