"""The vLLM container: environment, probes and lifecycle."""

from __future__ import annotations

from typing import Any

from .. import labels
from ..planning.command_line import MASTER_PORT, command_args
from ..planning.extras import variables_of
from ..planning.shapes import Group, Served
from ..planning.startup import startup_budget_seconds

SIDE_CHANNEL_PORT = 5600
"""Of data-parallel rank 0; vLLM itself adds the rank, counted over all pods of the engine."""
PRE_STOP_SECONDS = 20
"""While it drains, vLLM answers new requests with 500, or with 200 and nothing in it, so traffic must have moved away before SIGTERM."""
GRACE_MARGIN_SECONDS = 15
PROBE_SECONDS = 10
WEIGHTS_PATH, NODE_CACHE_PATH = "/weights", "/node-cache"
TOKEN_SECRET, TOKEN_KEY = "hf-token", "token"
API_KEY_SECRET, API_KEY_KEY = "api-key", "key"
POD_INTERFACE = "eth0"
NCCL_LOG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
"""Which fabric NCCL took is said at INFO alone, by these two subsystems when it starts, and not by traffic
(https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-debug-subsys)."""

_DIAL_LEADER = "import os,socket;socket.create_connection((os.environ['LWS_LEADER_ADDRESS']," + str(MASTER_PORT) + "),5).close()"
"""`tcpSocket` probes do not expand variables, so a worker dials its leader itself; Python is in every vLLM image."""


def build_container(group: Group, *, worker: bool) -> dict[str, Any]:
    """The engine's container; `worker` for ranks above 0 of a group over several nodes."""
    requests = group.engine_requests
    devices = {labels.GPU: str(requests.gpus), **({labels.EFA: str(requests.efa)} if requests.efa else {})}
    return {
        "name": "vllm",
        "image": group.served.image,
        "command": ["vllm", "serve"],
        "args": command_args(group, worker=worker),
        "env": environment(group),
        **({} if worker else {"ports": [{"name": "http", "containerPort": group.engine_port}]}),
        "resources": {
            "requests": {
                "cpu": _cpu(requests.cpu_millis),
                "memory": _memory(requests.memory_mib),
                labels.EPHEMERAL_STORAGE: f"{requests.disk_gib}Gi",
                **devices,
            },
            "limits": devices,
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            **({"capabilities": {"add": ["IPC_LOCK"]}} if requests.efa else {}),
        },
        **_probes(group, worker=worker),
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SECONDS}}},
        "volumeMounts": [
            {"name": "weights", "mountPath": WEIGHTS_PATH},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
            *([{"name": "node-cache", "mountPath": NODE_CACHE_PATH}] if uses_node_cache(group.served) else []),
        ],
    }


def uses_node_cache(served: Served) -> bool:
    """Whether downloads are kept on the node; what streams from S3 is kept nowhere."""
    return served.spec.weights.cache == "node" and served.weights_uri is None


def grace_seconds(group: Group) -> int:
    """terminationGracePeriodSeconds: the preStop sleep, the drain, and a margin."""
    return PRE_STOP_SECONDS + group.served.spec.drain_seconds + GRACE_MARGIN_SECONDS


def environment(group: Group) -> list[dict[str, Any]]:
    """Environment variables, in a fixed order; those of LWS are put before them by its webhook."""
    served = group.served
    plain = {
        "VLLM_ENGINE_READY_TIMEOUT_S": str(startup_budget_seconds(served)),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": f"{WEIGHTS_PATH}/vllm-cache",
        "HF_HOME": f"{NODE_CACHE_PATH if uses_node_cache(served) else WEIGHTS_PATH}/huggingface",
        "USER": "vllm",
        "NCCL_SOCKET_IFNAME": POD_INTERFACE,
        "GLOO_SOCKET_IFNAME": POD_INTERFACE,
        **NCCL_LOG,
    }
    if served.weights_uri:
        plain |= {"HF_HUB_OFFLINE": "1", **aws_region(served)}
    if group.uses_efa:
        plain |= {"FI_PROVIDER": "efa", "NCCL_NET_PLUGIN": "ofi", "NCCL_TUNER_PLUGIN": "ofi"}
    if served.spec.disaggregated:
        plain["VLLM_NIXL_SIDE_CHANNEL_PORT"] = str(SIDE_CHANNEL_PORT)
    # longer than Envoy and the sidecar keep idle connections, which else meet a closed one
    plain["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"] = "120"
    plain |= {name: extra.value for name, extra in sorted(variables_of(served.spec, group.role).items())}
    pod_ip = {"fieldRef": {"fieldPath": "status.podIP"}}
    env: list[dict[str, Any]] = [{"name": "VLLM_HOST_IP", "valueFrom": pod_ip}]
    if served.spec.disaggregated:
        env.append({"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": pod_ip})
    env += [{"name": name, "value": value} for name, value in plain.items()]
    if served.spec.weights.token_key and served.weights_uri is None:
        env.append(from_secret("HF_TOKEN", TOKEN_SECRET, TOKEN_KEY))
    if served.spec.gateway.api_key_secret:
        env.append(from_secret("VLLM_API_KEY", API_KEY_SECRET, API_KEY_KEY))
    return env


def aws_region(served: Served) -> dict[str, str]:
    """Both variables or none: boto3 reads only the second, and EKS adds neither where one is set."""
    return {"AWS_REGION": served.region, "AWS_DEFAULT_REGION": served.region} if served.region else {}


def from_secret(variable: str, secret: str, key: str) -> dict[str, Any]:
    """An environment variable whose value a Secret holds."""
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _probes(group: Group, *, worker: bool) -> dict[str, Any]:
    how: dict[str, Any] = (
        {"exec": {"command": ["python3", "-c", _DIAL_LEADER]}} if worker else {"httpGet": {"path": "/health", "port": group.engine_port}}
    )
    attempts = startup_budget_seconds(group.served) // PROBE_SECONDS
    return {
        "startupProbe": {**how, "periodSeconds": PROBE_SECONDS, "timeoutSeconds": 10, "failureThreshold": attempts},
        "livenessProbe": {**how, "periodSeconds": PROBE_SECONDS, "timeoutSeconds": 10, "failureThreshold": 6},
        "readinessProbe": {**how, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 3},
    }


def _cpu(millis: int) -> str:
    return str(millis // 1000) if millis % 1000 == 0 else f"{millis}m"


def _memory(mib: int) -> str:
    return f"{mib // 1024}Gi" if mib % 1024 == 0 else f"{mib}Mi"
