"""Our manifests against those that peers publish for the same job, field by field.

What is equal stays equal, and what differs stands in INTENDED with our value and the reason. Only facts are taken from the peers, in
our own names: SGLang's --context-length is --max-model-len here.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from disagg_serving import labels
from disagg_serving.manifests.bundle import build_all
from disagg_serving.manifests.gateway import router_chart, router_values
from disagg_serving.manifests.picker import picker_config
from disagg_serving.planning.shapes import Layout
from factories import environment, layout, model, role

SOURCES = {
    "R1": "https://github.com/llm-d/llm-d/tree/1a1626cd/guides/pd-disaggregation/modelserver/gpu/vllm (base and aws)",
    "R1b": "https://github.com/llm-d/llm-d/blob/1a1626cd/guides/pd-disaggregation/router/pd-disaggregation.values.yaml",
    "R3": "https://github.com/ai-dynamo/dynamo/blob/4a285691/examples/deployments/EKS/manifests/vllm/v1beta1/disagg-p5.yaml",
    "R4": "https://github.com/ai-dynamo/dynamo/blob/d3e91c64/recipes/qwen3-32b/vllm/cloud-providers/deploy-aws-p5.48xlarge.yaml",
    "R5": "https://github.com/aws-samples/sample-llm-inference-on-eks/blob/7a03f3ab/k8s-manifest/lws/lws-glm-5.2-pd-p5en.yaml",
    "R5b": "https://github.com/aws-samples/sample-llm-inference-on-eks/blob/7a03f3ab/k8s-manifest/lws/lws-deepseek-v3.2-pd-p5.yaml",
}
"""Where each peer's values were read, last on 2026-11-29."""

ENGINES, ROUTER = ("prefill", "decode"), "router"
Key = tuple[str, str, str]
"""Peer, role and field."""


@dataclass(frozen=True)
class Published:
    """The value that a peer publishes for one field; None where leaving it out says something."""

    peer: str
    role: str
    field: str
    value: Any

    @property
    def key(self) -> Key:
        """What INTENDED knows it by."""
        return self.peer, self.role, self.field


@dataclass(frozen=True)
class Intended:
    """Our value where it differs, and why."""

    value: Any
    reason: str


def places(place: str) -> Iterator[tuple[str, str]]:
    """`R1 decode` is one role of a peer, `R1` both of its engines."""
    peer, _, only = place.partition(" ")
    yield from ((peer, name) for name in ([only] if only else ENGINES))


# a line for each value would be five times as long
# fmt: off
PUBLISHED_BY_PLACE: dict[str, dict[str, Any]] = {
    "R1": {
        "engine": "vllm", "image.tag": "0.26.0-gpu-py312-cu130-ubuntu22.04-ec2", "kind": "DisaggregatedSet", "lws.size": 1,
        "nodes.instanceType": "p5en.48xlarge", "placement.zone": "podAffinity", "placement.otherRole": "preferred", "limits.cpu": None,
        "args.--block-size": 128, "args.--no-disable-hybrid-kv-cache-manager": True, "args.--shutdown-timeout": 60,
        "args.--enable-auto-tool-choice": True, "args.--tool-call-parser": "openai", "args.--reasoning-parser": "openai_gptoss",
        "kvTransferConfig.kv_connector": "NixlConnector", "kvTransferConfig.kv_role": "kv_both", "kvTransferConfig.backends": ["LIBFABRIC"],
        "env.VLLM_NIXL_SIDE_CHANNEL_HOST": "status.podIP", "env.HF_TOKEN": "llm-d-hf-token", "ports.sideChannel": 5600, "ports.service": 8000,
        "securityContext.capabilities": ["IPC_LOCK"], "shm": "20Gi", "gracePeriod": 90, "probes.startup.path": "/v1/models",
        "probes.startup.budgetSeconds": 15 + 30 * 120, "probes.startup.timeoutSeconds": 5, "probes.liveness.path": "/health",
        "probes.liveness.periodSeconds": 10, "probes.liveness.failureThreshold": 3, "probes.liveness.timeoutSeconds": 5,
        "probes.readiness.path": "/v1/models", "probes.readiness.periodSeconds": 5, "probes.readiness.failureThreshold": 3,
        "probes.readiness.timeoutSeconds": 2, "labels.llm-d.ai/inference-serving": "true", "labels.llm-d.ai/model": "gpt-oss-120b",
        "labels.llm-d.ai/guide": "pd-disaggregation", "labels.llm-d.ai/accelerator-variant": "gpu", "labels.llm-d.ai/accelerator-vendor": "nvidia",
        "labels.llm-d.ai/engine-type": "vllm",
    },
    "R1 prefill": {
        "lws.replicas": 8, "args.--tensor-parallel-size": 1, "resources.cpu": "8", "resources.memory": "16Gi", "resources.nvidia.com/gpu": "1",
        "resources.vpc.amazonaws.com/efa": "2", "ports.engine": 8000, "rollout.maxSurge": 0, "rollout.maxUnavailable": 1,
        "labels.llm-d.ai/role": "prefill", "env.VLLM_HTTP_TIMEOUT_KEEP_ALIVE": 120, "sidecar.image": None,
    },
    "R1 decode": {
        "lws.replicas": 2, "args.--tensor-parallel-size": 4, "resources.cpu": "16", "resources.memory": "64Gi", "resources.nvidia.com/gpu": "4",
        "resources.vpc.amazonaws.com/efa": "8", "ports.engine": 8200, "rollout.maxSurge": 1, "rollout.maxUnavailable": 0,
        "labels.llm-d.ai/role": "decode", "sidecar.image": "llm-d-router-disagg-sidecar", "sidecar.restartPolicy": "Always",
        "sidecar.runAsNonRoot": True, "sidecar.args.--port": 8000, "sidecar.args.--model-server-port": None, "sidecar.args.--kv-connector": "nixlv2",
        "sidecar.args.--secure-proxy": False,
    },
    "R1b router": {
        "epp.replicas": 1, "epp.apiVersion": "llm-d.ai/v1", "epp.kind": "EndpointPickerConfig", "epp.decider": "always-disagg-pd-decider",
        "epp.handler": "disagg-profile-handler", "epp.producers": ["approx-prefix-cache-producer", "inflight-load-producer"],
        "epp.maxPrefixTokensToMatch": 131072, "epp.peakPrefillThroughput": 33821, "epp.profiles": ["prefill", "decode"],
        "epp.profiles.prefill": ["prefill-filter", "prefix-cache-affinity-filter", "token-load-scorer", "max-score-picker"],
        "epp.profiles.decode": ["decode-filter", "active-request-scorer", "max-score-picker"],
        "router.chart": "oci://ghcr.io/llm-d/charts/llm-d-router-standalone", "router.image": "llm-d-router-endpoint-picker",
        "router.service": "80 -> 8081",
    },
    "R3": {
        "image.tag": "1.3.1-efa", "nodes.instanceType": "p5.48xlarge", "nodes.capacityType": "reserved", "tolerations.nvidia.com/gpu": "Exists",
        "placement.zone": "podAffinity", "args.--tensor-parallel-size": 2, "resources.cpu": None, "resources.memory": None,
        "resources.nvidia.com/gpu": "2", "resources.vpc.amazonaws.com/efa": "8", "kvTransferConfig.kv_role": "kv_both",
        "kvTransferConfig.backends": ["LIBFABRIC"], "securityContext.capabilities": ["IPC_LOCK"], "securityContext.privileged": False,
        "volumes.weights": "persistentVolumeClaim", "volumes.compileCache": "persistentVolumeClaim",
    },
    "R3 prefill": {"lws.replicas": 6, "placement.sameRole": "preferred", "placement.otherRole": None},
    "R3 decode": {"lws.replicas": 2, "placement.otherRole": "preferred"},
    "R3 router": {"router.image": "dynamo-frontend", "router.tag": "1.3.1", "router.prefixes": "events"},
    "R4": {
        "image.tag": "1.5.0-efa", "lws.replicas": 1, "args.--tensor-parallel-size": 4, "resources.nvidia.com/gpu": "4",
        "resources.vpc.amazonaws.com/efa": "16", "args.--block-size": 64, "args.--max-model-len": 131072, "args.--gpu-memory-utilization": 0.9,
        "args.--hf-overrides": "YaRN, factor 4", "args.--async-scheduling": True, "kvTransferConfig.kv_role": "kv_both",
        "kvTransferConfig.backends": ["LIBFABRIC"], "env.FI_PROVIDER": "efa", "env.FI_EFA_USE_DEVICE_RDMA": 1, "env.FI_EFA_ENABLE_SHM_TRANSFER": 0,
        "env.NIXL_TELEMETRY_EXPORTER": "prometheus",
        "env.NIXL_TELEMETRY_PROMETHEUS_PORT": 19090, "env.DYN_KVBM_NIXL_BACKEND_LIBFABRIC": True,
        "securityContext.capabilities": ["IPC_LOCK", "SYS_PTRACE"], "securityContext.privileged": True, "securityContext.runAsUser": 0,
    },
    "R4 prefill": {"args.--no-enable-prefix-caching": None},
    "R4 decode": {"args.--no-enable-prefix-caching": True},
    "R5": {
        "engine": "sglang", "kind": "LeaderWorkerSet", "lws.size": 1, "lws.replicas": 1, "lws.restartPolicy": "None",
        "nodes.instanceType": "p5en.48xlarge", "tolerations.nvidia.com/gpu": "Exists", "args.--tensor-parallel-size": 8,
        "args.--max-model-len": 131072, "args.--gpu-memory-utilization": 0.85, "args.--kv-cache-dtype": "fp8_e4m3",
        "args.--reasoning-parser": "glm45", "args.--tool-call-parser": "glm47", "resources.nvidia.com/gpu": "8",
        "resources.vpc.amazonaws.com/efa": "16", "ports.rendezvous": 5000, "env.FI_PROVIDER": "efa", "env.NCCL_NET_PLUGIN": "ofi",
        "env.NCCL_TUNER_PLUGIN": "ofi", "env.NCCL_SOCKET_IFNAME": "eth0", "securityContext.privileged": True, "shm": "500Gi",
        "probes.startup.budgetSeconds": 60 + 15 * 150, "probes.liveness.kind": "tcpSocket", "probes.liveness.periodSeconds": 60,
        "probes.liveness.failureThreshold": 5,
    },
    "R5 prefill": {"ports.engine": 30000, "ports.sideChannel": 8998, "args.--kv-offloading-size": "2 x the GPUs' cache"},
    "R5 decode": {"ports.engine": 30001, "args.--max-num-seqs": 128, "placement.zone": "podAffinity"},
    "R5b": {
        "lws.size": 2, "args.--tensor-parallel-size": 16, "resources.nvidia.com/gpu": "8", "resources.vpc.amazonaws.com/efa": "16",
        "placement.zone": None,
    },
}
"""What the peers publish: place, field, value. On prefill alone llm-d sets the keep-alive that outlasts the sidecar's connections."""

INTENDED_BY_FIELD: dict[str, tuple[str, dict[str, Any]]] = {
    "engine": ("The library serves with vLLM alone, whose flags, images and rules for NIXL its checks know.", {"R5": "vllm"}),
    "image.tag": ("The pinned release is the first of vLLM with an EFA image of its own, and forgets peers that have restarted.",
        {"R1": "v0.33.0-efa", "R3": "v0.33.0-efa", "R4": "v0.33.0-efa"}),
    "kind": ("DisaggregatedSet is still alpha in LWS 0.11, and a change of one role's template would roll every role.", {"R1": "LeaderWorkerSet"}),
    "placement.zone": ("The pods select one zone, so even the first of them cannot go to another.",
        {"R1": "nodeSelector", "R3": "nodeSelector", "R5 decode": "nodeSelector", "R5b": "nodeSelector"}),
    "placement.otherRole": ("Every role has nodes of its own, the strict form of a preference.", {"R1": "own nodes", "R3": "own nodes"}),
    "placement.sameRole": ("Prefill pods that repel each other waste GPUs, and are a slip of the peer's.", {"R3 prefill": None}),
    "tolerations.nvidia.com/gpu": ("Pods tolerate the exact taint of their own pools and no other.", {"R3": "Equal", "R5": "Equal"}),
    "resources.cpu": ("Nothing else is meant to run on a node, so a pod asks for its share.", {"R1 prefill": "22", "R1 decode": "90", "R3": "45"}),
    "resources.memory": ("EFA registers memory for each device, so a pod asks for its share.",
        {"R1 prefill": "225Gi", "R1 decode": "900Gi", "R3": "450Gi"}),
    "resources.vpc.amazonaws.com/efa": ("A whole p5 has 32 devices, and the peer's 16 leave half of the bandwidth unused.", {"R5b": "32"}),
    "args.--block-size": ("It is what llm-d and vLLM's own NIXL tests use with grouped-query attention.", {"R4": 128}),
    "args.--no-disable-hybrid-kv-cache-manager": ("Since vllm-project/vllm/pull/41847 it stays on with NIXL by itself.", {"R1": None}),
    "args.--max-model-len": ("A context beyond the model's own changes it by YaRN, which its owner decides.", {"R4": 40960}),
    "args.--hf-overrides": ("Positions stay as the model was trained until its owner stretches them.", {"R4": None}),
    "args.--gpu-memory-utilization": ("SGLang's fraction leaves activations out, vLLM's has them in.", {"R5": 0.9}),
    "args.--async-scheduling": ("Since vllm-project/vllm/pull/27614 vLLM schedules asynchronously by itself wherever it can.", {"R4": None}),
    "args.--no-enable-prefix-caching": ("Decode fetches only what its cache does not hold, so a second turn moves less.", {"R4 decode": None}),
    "args.--kv-cache-dtype": ("The cache keeps the checkpoint's precision until kvCacheDtype asks for another on both roles.", {"R5": None}),
    "args.--kv-offloading-size": ("Offloading takes a second connector beside NIXL, which was not run here.", {"R5 prefill": None}),
    "args.--max-num-seqs": ("What fits a step depends on the prompts, so vLLM's own bound stays.", {"R5 decode": None}),
    "kvTransferConfig.kv_role": ("In vLLM kv_both has been deprecated since 0.23 at the latest, and each role says what it does.",
        {f"{peer} {name}": kv_role for peer in ("R1", "R3", "R4") for name, kv_role in zip(ENGINES, ("kv_producer", "kv_consumer"), strict=True)}),
    "env.HF_TOKEN": ("The Secret is made from the stack's configuration, under the project's name for it.", {"R1": "hf-token"}),
    "env.FI_EFA_USE_DEVICE_RDMA": ("Libfabric from 1.18 on, as in the pinned image, uses RDMA without it.", {"R4": None}),
    "env.FI_EFA_ENABLE_SHM_TRANSFER": ("The roles are on different nodes, and R1 and R3 do without it too.", {"R4": None}),
    "env.NIXL_TELEMETRY_EXPORTER": ("Transfers are counted by vLLM's own metrics, which are read anyway.", {"R4": None}),
    "env.NIXL_TELEMETRY_PROMETHEUS_PORT": ("No exporter runs, so NetworkPolicies need no second port for metrics.", {"R4": None}),
    "env.DYN_KVBM_NIXL_BACKEND_LIBFABRIC": ("Only Dynamo's block manager reads it, and it is not part of vLLM.", {"R4": None}),
    "securityContext.capabilities": ("Registering memory for EFA needs IPC_LOCK, and serving traces nothing.", {"R4": ["IPC_LOCK"]}),
    "securityContext.privileged": ("The device plugin hands EFA devices to the pod, so only risk is gained.", {"R4": False, "R5": False}),
    "securityContext.runAsUser": ("The image says which user runs it, so that an image without root needs no change here.", {"R4": None}),
    "shm": ("Shared memory counts as the pod's memory, and half of our size is known to be enough for eight ranks of vLLM.", {"R5": "64Gi"}),
    "gracePeriod": ("A preStop sleep of 20 seconds comes before the same drain, in which vLLM refuses requests.", {"R1": 95}),
    "ports.engine": ("The router calls port 8000 of every pod; on decode the sidecar has it.", {"R5 prefill": 8000, "R5 decode": 8200}),
    "ports.rendezvous": ("An engine inside one pod has no other node to meet, so it opens no port for that.", {"R5": None}),
    "ports.sideChannel": ("NIXL's side channel takes the place of SGLang's bootstrap server.", {"R5 prefill": 5600}),
    "probes.startup.path": ("Both answer only when the model is loaded, and one path is easier to know.", {"R1": "/health"}),
    "probes.startup.budgetSeconds": ("It follows from the checkpoint's size at the slow end of downloads.", {"R1": 1560, "R5": 8460}),
    "probes.startup.timeoutSeconds": ("Start and life have one time-out, so that the first answer is judged like all later ones.", {"R1": 10}),
    "probes.liveness.kind": ("A socket that accepts says nothing about a dead engine, which /health reports.", {"R5": "httpGet"}),
    "probes.liveness.periodSeconds": ("A dead engine should be found within a minute and not within five.", {"R5": 10}),
    "probes.liveness.failureThreshold": ("A restart loads the weights again, so a minute of silence is awaited before it.", {"R1": 6, "R5": 6}),
    "probes.liveness.timeoutSeconds": ("A long prompt that is tokenized must not look like a dead server, whose restart costs minutes.", {"R1": 10}),
    "probes.readiness.path": ("The list of models is answered by a server whose engine has died, and /health is not.", {"R1": "/health"}),
    "probes.readiness.timeoutSeconds": ("Two seconds take a loaded pod out of the router in the moment of its highest load.", {"R1": 5}),
    "labels.llm-d.ai/guide": ("It names the peer's document, and a namespace of ours holds one model.", {"R1": None}),
    "labels.llm-d.ai/accelerator-variant": ("No plugin of the pinned router reads the kind of accelerator from it.", {"R1": None}),
    "labels.llm-d.ai/accelerator-vendor": ("All instance types of the catalogue have NVIDIA GPUs.", {"R1": None}),
    "labels.llm-d.ai/engine-type": ("The router takes pods without it for vLLM, which all of ours are.", {"R1": None}),
    "rollout.maxSurge": ("A new engine beside the old one needs a spare GPU node, which reserved capacity does not have.", {"R1 decode": 0}),
    "rollout.maxUnavailable": ("Without a surge one engine has to go first, and a plan says so where it is the only one.", {"R1 decode": 1}),
    "sidecar.args.--model-server-port": ("The default is written down, so that the manifest shows both ports.", {"R1 decode": 8200}),
    "volumes.weights": ("No shared file system is made, so weights come from S3 or the internet to the pod's own disk.", {"R3": "emptyDir"}),
    "volumes.compileCache": ("Compiling again takes about a minute, which is little beside loading.", {"R3": "emptyDir"}),
    "epp.apiVersion": ("The pinned router 0.10.0 knows the group only as v1alpha1.", {"R1b router": "llm-d.ai/v1alpha1"}),
    "epp.producers": ("For active-request-scorer the picker adds the other producer by itself.", {"R1b router": ["approx-prefix-cache-producer"]}),
    "epp.peakPrefillThroughput": ("It must be measured on each model and instance type, so it cannot be a default.", {"R1b router": None}),
    "epp.profiles.prefill": ("The filter of the peer is only as good as its measured throughput, and weighted scorers work without one.",
        {"R1b router": ["prefill-filter", "prefix-cache-scorer", "kv-cache-utilization-scorer", "queue-scorer", "max-score-picker"]}),
    "epp.profiles.decode": ("Decode keeps its prefix cache and fills its KV cache, so both count beside the number of requests.",
        {"R1b router": ["decode-filter", "prefix-cache-scorer", "kv-cache-utilization-scorer", "active-request-scorer", "max-score-picker"]}),
    "router.image": ("Dynamo's frontend routes to its own workers, ours to plain vLLM.", {"R3 router": "llm-d-router-endpoint-picker"}),
    "router.tag": ("Another program has other versions, and ours is pinned in the catalogue.", {"R3 router": "v0.10.0"}),
    "router.prefixes": ("The picker remembers what it sent where, so engines need no port for events.", {"R3 router": "approximate"}),
}
"""Where we differ: field, reason, and our value by place."""

PUBLISHED = [Published(*at, field, value) for place, fields in PUBLISHED_BY_PLACE.items() for field, value in fields.items() for at in places(place)]
INTENDED_LIST = [
    ((*at, field), Intended(value, reason))
    for field, (reason, values) in INTENDED_BY_FIELD.items() for place, value in values.items() for at in places(place)
]
# fmt: on
INTENDED: Mapping[Key, Intended] = dict(INTENDED_LIST)

P5EN = {"instanceType": "p5en.48xlarge"}
RESERVED = {"type": "reserved", "reservationIds": ["cr-0123456789abcdef0"], "nodes": 2}
LLM_D_ROLES = {"prefill": role(**P5EN, tensorParallel=1, replicas=8), "decode": role(**P5EN, tensorParallel=4, replicas=2)}
LLM_D = model(name="gpt-oss-120b", model="gpt-oss-120b", weights={"tokenKey": "hfToken"}, **LLM_D_ROLES)
DYNAMO = model(model="qwen3-32b", prefill=role(replicas=6, capacity=RESERVED), decode=role(replicas=2, capacity=RESERVED))
DYNAMO_RECIPE = model(model="qwen3-32b", prefill=role(tensorParallel=4), decode=role(tensorParallel=4))
# the model's own context is 1,048,576 tokens, more than the KV cache of one node holds
SLLM = model(model="glm-5.2-fp8", maxModelLen=131072, **{name: role(**P5EN, tensorParallel=8) for name in ENGINES})
SLLM_TWO_NODES = model(model="deepseek-v3.2", **{name: role(tensorParallel=16) for name in ENGINES})
JOBS = {"R1": LLM_D, "R1b": LLM_D, "R3": DYNAMO, "R4": DYNAMO_RECIPE, "R5": SLLM, "R5b": SLLM_TWO_NODES}
"""The same job in our words: instance type, engines and their GPUs of the peer, the rest by default."""

OPEN = ("args", "env", "labels", "limits", "resources", "sidecar.args")
"""First words of fields that may be absent; any other field that we do not know is a slip of the tables."""


@functools.cache
def rendered(peer: str) -> tuple[Layout, list[dict[str, Any]]]:
    """The layout of a peer's job and all its objects."""
    shape = layout(environment(JOBS[peer]))
    return shape, build_all(shape)


def under(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values with their names below a first word."""
    return {f"{prefix}.{name}": value for name, value in values.items()}


def flags(container: Mapping[str, Any]) -> dict[str, Any]:
    """Values of flags as YAML reads them, True for a switch."""
    return {name: yaml.safe_load(value) if has else True for name, has, value in (a.partition("=") for a in container.get("args", []))}


def variable(entry: Mapping[str, Any]) -> Any:
    """An environment variable: its value, or the field or Secret that it comes from."""
    source = entry.get("valueFrom")
    if source is None:
        return yaml.safe_load(entry["value"])
    return source["fieldRef"]["fieldPath"] if "fieldRef" in source else source["secretKeyRef"]["name"]


def probe(found: Mapping[str, Any]) -> dict[str, Any]:
    """A probe's numbers, what it asks, and the seconds until it gives up."""
    kind = next(k for k in ("httpGet", "tcpSocket", "exec") if k in found)
    seconds = found.get("initialDelaySeconds", 0) + found["periodSeconds"] * found["failureThreshold"]
    return {**found, "kind": kind, "path": found[kind].get("path"), "budgetSeconds": seconds}


@functools.cache
def engine_fields(peer: str, name: str) -> dict[str, Any]:
    """Our values of a role's fields; of a group over several nodes, the leader's."""
    _, objects = rendered(peer)
    (lws,) = [o for o in objects if o["kind"] == "LeaderWorkerSet" and o["metadata"]["name"].endswith(f"-{name}")]
    group = lws["spec"]["leaderWorkerTemplate"]
    template = group.get("leaderTemplate", group["workerTemplate"])
    pod = template["spec"]
    (engine,) = pod["containers"]
    sidecar: dict[str, Any] = next(iter(pod.get("initContainers", [])), {})
    (pool,) = [o for o in objects if o["kind"] == "NodePool" and o["metadata"]["name"] == pod["nodeSelector"][labels.POOL]]
    nodes = {q["key"]: q["values"][0] for q in pool["spec"]["template"]["spec"]["requirements"]}
    given, env = flags(engine), {e["name"]: variable(e) for e in engine["env"]}
    connector, security, affinity = given["--kv-transfer-config"], engine["securityContext"], pod.get("affinity", {})
    kinds = {v["name"]: next(k for k in v if k != "name") for v in pod["volumes"]}
    volumes = {mount["mountPath"]: kinds[mount["name"]] for mount in engine["volumeMounts"]}
    zone = "nodeSelector" if labels.ZONE in pod["nodeSelector"] else None
    return {
        "engine": engine["command"][0],
        "image.tag": engine["image"].rpartition(":")[2],
        "kind": lws["kind"],
        "gracePeriod": pod["terminationGracePeriodSeconds"],
        "shm": next(v["emptyDir"]["sizeLimit"] for v in pod["volumes"] if v["name"] == "shm"),
        "nodes.instanceType": nodes[labels.INSTANCE_TYPE],
        "nodes.capacityType": nodes[labels.CAPACITY_TYPE],
        "placement.zone": "podAffinity" if "podAffinity" in affinity else zone,
        "placement.otherRole": "own nodes" if labels.ROLE in pod["nodeSelector"] else None,
        "placement.sameRole": affinity.get("podAntiAffinity"),
        "ports.engine": given["--port"],
        "ports.service": (sidecar or engine)["ports"][0]["containerPort"],
        "ports.sideChannel": env["VLLM_NIXL_SIDE_CHANNEL_PORT"],
        "ports.rendezvous": given.get("--master-port"),
        "kvTransferConfig.backends": connector["kv_connector_extra_config"]["backends"],
        "securityContext.capabilities": security["capabilities"]["add"],
        "securityContext.privileged": security.get("privileged", False),
        "securityContext.runAsUser": security.get("runAsUser"),
        "sidecar.image": sidecar["image"].rpartition("/")[2].partition(":")[0] if sidecar else None,
        "sidecar.restartPolicy": sidecar.get("restartPolicy"),
        "sidecar.runAsNonRoot": sidecar.get("securityContext", {}).get("runAsNonRoot"),
        "volumes.weights": next(kind for path, kind in volumes.items() if env["HF_HOME"].startswith(path)),
        "volumes.compileCache": next(kind for path, kind in volumes.items() if env["VLLM_CACHE_ROOT"].startswith(path)),
        **under("lws", {"replicas": lws["spec"]["replicas"], **group}),
        **under("rollout", lws["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]),
        **under("tolerations", {t["key"]: t["operator"] for t in pod["tolerations"]}),
        **under("kvTransferConfig", connector),
        **{key: v for which in ("startup", "liveness", "readiness") for key, v in under(f"probes.{which}", probe(engine[f"{which}Probe"])).items()},
        **under("args", given),
        **under("env", env),
        **under("labels", template["metadata"]["labels"]),
        **under("limits", engine["resources"]["limits"]),
        **under("resources", engine["resources"]["requests"]),
        **under("sidecar.args", flags(sidecar)),
    }


@functools.cache
def router_fields(peer: str) -> dict[str, Any]:
    """Our values of the router's fields."""
    shape, objects = rendered(peer)
    (served,) = shape.served
    epp = router_values(served, shape.groups)["router"]["epp"]
    config = picker_config(served)
    assert yaml.safe_load(epp["pluginsCustomConfig"][epp["pluginsConfigFile"]]) == config
    plugins = {p["type"]: p.get("parameters", {}) for p in config["plugins"]}
    (handler,) = [p for p in plugins if served.router.plugins[p].kind == "profile-handler"]
    producers = [p for p in plugins if served.router.plugins[p].kind == "producer"]
    profiles = {p["name"]: [reference["pluginRef"] for reference in p["plugins"]] for p in config["schedulingProfiles"]}
    ((way_in,),) = [o["spec"]["ports"] for o in objects if o["kind"] == "Service" and o["spec"]["type"] == "LoadBalancer"]
    return {
        **under("epp", {"replicas": epp["replicas"], "apiVersion": config["apiVersion"], "kind": config["kind"], "handler": handler}),
        "epp.decider": plugins[handler]["deciders"]["prefill"],
        "epp.producers": producers,
        "epp.maxPrefixTokensToMatch": plugins["approx-prefix-cache-producer"]["maxPrefixTokensToMatch"],
        "epp.peakPrefillThroughput": plugins.get("prefix-cache-affinity-filter", {}).get("peakPrefillThroughput"),
        "epp.profiles": list(profiles),
        **under("epp.profiles", profiles),
        "router.chart": router_chart(served, shape.spec)[0],
        "router.image": epp["image"]["repository"],
        "router.tag": epp["image"]["tag"],
        "router.prefixes": "approximate" if "approx-prefix-cache-producer" in producers else "events",
        "router.service": f"{way_in['port']} -> {way_in['targetPort']}",
    }


def ours(peer: str, name: str, field: str) -> Any:
    """Our value of a field, None where it may be absent and is."""
    fields = router_fields(peer) if name == ROUTER else engine_fields(peer, name)
    return fields.get(field) if field.startswith(tuple(f"{word}." for word in OPEN)) else fields[field]


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: "-".join(case.key))
def test_a_field_is_as_published_or_differs_as_intended(case: Published) -> None:
    """What a peer publishes for the same job is what we render, unless our value stands in INTENDED with its reason."""
    assert ours(*case.key) == (INTENDED[case.key].value if case.key in INTENDED else case.value)


def test_no_intended_difference_is_stale() -> None:
    """Every entry of INTENDED is about a published field, is there once, and is a difference: what became equal is taken out."""
    values = {case.key: case.value for case in PUBLISHED}
    assert [key for key, count in Counter(case.key for case in PUBLISHED).items() if count > 1] == []
    assert [key for key, count in Counter(key for key, _ in INTENDED_LIST).items() if count > 1] == []
    assert [key for key in INTENDED if key not in values] == []
    assert [key for key, difference in INTENDED.items() if difference.value == values[key]] == []


def test_every_reason_is_a_sentence_about_its_field() -> None:
    """A reason is one full sentence, and no two fields share one, so nothing is waved through in bulk."""
    fields = defaultdict(set)
    for (_, _, field), difference in INTENDED.items():
        reason = difference.reason
        assert reason[0].isupper() and reason.endswith(".") and ". " not in reason, reason  # noqa: PT018 (one form)
        assert len(reason.split()) >= 8, reason
        fields[reason].add(field)
    assert [reason for reason, about in fields.items() if len(about) > 1] == []


def test_every_peer_is_compared_in_both_roles() -> None:
    """The table covers each peer with a source, for prefill and decode alike; R1b is the router of R1."""
    compared = defaultdict(set)
    for case in PUBLISHED:
        compared[case.peer].add(case.role)
    assert compared.keys() == SOURCES.keys() == JOBS.keys()
    assert {peer for peer, roles in compared.items() if not set(ENGINES) <= roles} == {"R1b"}
    assert {name for roles in compared.values() for name in roles} == {*ENGINES, ROUTER}
