"""The vLLM container: command line, environment, probes and lifecycle."""

from __future__ import annotations

import json
from typing import Any

from .. import labels
from ..planning.shapes import Group, Served, block_size_of
from ..planning.startup import startup_budget_seconds

MASTER_PORT = 29501
DATA_PARALLEL_PORT = 29550
"""Where the leader waits for the engines of data-parallel ranks on other nodes."""
SIDE_CHANNEL_PORT = 5600
"""Of data-parallel rank 0; vLLM itself adds the rank, counted over all pods of the engine."""
DEFAULT_BACKEND = "allgather_reducescatter"
PRE_STOP_SECONDS = 20
"""While it drains, vLLM answers new requests with 500, or with 200 and nothing in it, so traffic must have moved away before SIGTERM."""
GRACE_MARGIN_SECONDS = 15
PROBE_SECONDS = 10
WEIGHTS_PATH, NODE_CACHE_PATH = "/weights", "/node-cache"
TOKEN_SECRET, TOKEN_KEY = "hf-token", "token"
API_KEY_SECRET, API_KEY_KEY = "api-key", "key"
STREAMER_CONCURRENCY = 16
"""Parallel reads of the Run:ai streamer, as Modelplane uses for 509 GiB in 6 minutes."""
POD_INTERFACE = "eth0"

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


def command_args(group: Group, *, worker: bool) -> list[str]:
    """Arguments after `vllm serve`; `$(VAR)` is expanded by the kubelet, so no shell is needed."""
    served, model, role = group.served, group.served.spec, group.spec
    args = [
        served.model_argument,
        f"--served-model-name={model.served_model_name or model.name}",
        f"--tensor-parallel-size={role.tensor_parallel}",
        f"--max-model-len={served.max_model_len}",
        f"--gpu-memory-utilization={role.gpu_memory_utilization or model.gpu_memory_utilization}",
        f"--shutdown-timeout={model.drain_seconds}",
        "--disable-access-log-for-endpoints=/health,/metrics,/v1/models",
    ]
    optional = {
        "--pipeline-parallel-size": role.pipeline_parallel if role.pipeline_parallel > 1 else None,
        "--data-parallel-size": role.data_parallel if role.data_parallel > 1 else None,
        "--revision": model.weights.revision if served.weights_uri is None else None,
        "--dtype": model.dtype if model.dtype != "auto" else None,
        "--kv-cache-dtype": model.kv_cache_dtype if model.kv_cache_dtype != "auto" else None,
        "--block-size": block_size_of(group),
        "--max-num-batched-tokens": role.max_num_batched_tokens,
        "--max-num-seqs": role.max_num_seqs,
    }
    args += [f"{flag}={value}" for flag, value in optional.items() if value is not None]
    if served.weights_uri:
        args += ["--load-format=runai_streamer", "--model-loader-extra-config=" + _json(streamer_config(group))]
    if role.expert_parallel:
        args.append("--enable-expert-parallel")
        if role.data_parallel > 1:
            args.append(f"--all2all-backend={role.all2all_backend or DEFAULT_BACKEND}")
    if model.speculative:
        args.append("--speculative-config=" + _json(model.speculative.model_dump()))
    if model.disaggregated:
        args.append("--kv-transfer-config=" + _json(kv_transfer_config(group)))
    args += [*served.facts.serve_flags, *model.extra_args]
    if group.size > 1:
        args += ["--nnodes=$(LWS_GROUP_SIZE)", "--node-rank=$(LWS_WORKER_INDEX)", "--master-addr=$(LWS_LEADER_ADDRESS)"]
        args.append(f"--master-port={MASTER_PORT}")
        if role.data_parallel > 1:
            # the leader listens there, and a listener on a name fails with some builds of ZMQ (kserve#5155)
            address = "LWS_LEADER_ADDRESS" if worker else "VLLM_HOST_IP"
            args += [f"--data-parallel-address=$({address})", f"--data-parallel-rpc-port={DATA_PARALLEL_PORT}"]
    args.append("--headless" if worker else f"--port={group.engine_port}")
    return args


def streamer_config(group: Group) -> dict[str, Any]:
    """Settings of the Run:ai streamer; ranks of one pod share the reading, over nodes or data-parallel ranks that is not known to work."""
    shared = group.size == 1 and group.spec.tensor_parallel > 1 and group.spec.data_parallel == 1
    return {"concurrency": STREAMER_CONCURRENCY, **({"distributed": True} if shared else {})}


def kv_transfer_config(group: Group) -> dict[str, Any]:
    """The NIXL connector of one role. No engine_id: replicas would share it and miss a peer's restart."""
    return {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_producer" if group.role == "prefill" else "kv_consumer",
        "kv_load_failure_policy": "fail",
        "kv_connector_extra_config": {"backends": ["LIBFABRIC"]},
    }


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
        "NCCL_DEBUG": "WARN",
    }
    if served.weights_uri:
        plain |= {"HF_HUB_OFFLINE": "1", **aws_region(served)}
    if group.uses_efa:
        plain |= {"FI_PROVIDER": "efa", "NCCL_NET_PLUGIN": "ofi", "NCCL_TUNER_PLUGIN": "ofi"}
    if served.spec.disaggregated:
        plain["VLLM_NIXL_SIDE_CHANNEL_PORT"] = str(SIDE_CHANNEL_PORT)
    # longer than Envoy and the sidecar keep idle connections, which else meet a closed one
    plain["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"] = "120"
    plain |= dict(sorted(served.spec.extra_env.items()))
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


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _cpu(millis: int) -> str:
    return str(millis // 1000) if millis % 1000 == 0 else f"{millis}m"


def _memory(mib: int) -> str:
    return f"{mib // 1024}Gi" if mib % 1024 == 0 else f"{mib}Mi"
