from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from disagg_serving.cli.main import main
from factories import aggregated, environment, existing_cluster, model, role

RESERVED = {"type": "reserved", "reservationIds": ["cr-0123456789abcdef0"], "nodes": 2}
GPU_NODES = {"gpuZone": "us-east-1a", "existing": {"gpuSubnetIds": ["subnet-1"]}}
LLAMA_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "intermediate_size": 128,
    "vocab_size": 128,
    "max_position_embeddings": 64,
}
OLD_ENGINE = {
    "id": "old",
    "engine": "vllm",
    "version": "0.1.0",
    "image": "vllm:old",
    "libfabric": True,
    "tagVerified": True,
    "stalePeerFix": True,
    "defaultGpuMemoryUtilization": 0.9,
    "source": ["here"],
    "checked": "2026-11-29",
}
PREFILL = "models[0].prefill"
DECODE = "models[0].decode"
SERVER = "models[0].server"


@dataclass(frozen=True)
class Case:
    """Bad input, and what the one line about it has to say: place, value, what is allowed and what to do."""

    name: str
    data: Any
    path: str | None = None
    value: str = ""
    allowed: str = ""
    fix: str = ""
    says: str = ""
    files: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The YAML file."""
        return self.data if isinstance(self.data, str) else yaml.safe_dump(self.data, sort_keys=False)


def one(**overrides: Any) -> dict[str, Any]:
    """An environment whose one model has prefill and decode."""
    return environment(model(**overrides))


def decode(**overrides: Any) -> dict[str, Any]:
    """An environment whose one model has this decode."""
    return one(decode=role(**overrides))


def server(**overrides: Any) -> dict[str, Any]:
    """An environment whose one model has this server."""
    return environment(aggregated(server=role(**overrides)))


def network(**overrides: Any) -> dict[str, Any]:
    """An environment with this network."""
    return environment(network={"zones": ["us-east-1a", "us-east-1b"], **overrides})


def stack(data: Any, **config: Any) -> dict[str, Any]:
    """A stack file with this environment."""
    return {"config": {"aws:region": "us-east-1", "disagg-serving:environment": data, **config}}


def on_disk(**overrides: Any) -> dict[str, Any]:
    """An environment whose model is the config.json beside it."""
    return environment(aggregated(**{"model": "./config.json", "repository": "a/b", **overrides}))


FORM_CASES = [
    Case("empty file", "", "", says="is empty", allowed="a mapping of keys to values", fix="start with `models:`"),
    Case("comment only", "# nothing yet\n", "", says="is empty", fix="start with `models:`"),
    Case("scalar", "hello\n", "", "hello", "a mapping of keys to values", "start with `models:`"),
    Case("list", "- a\n- b\n", "", "['a', 'b']", "a mapping of keys to values", "start with `models:`"),
    Case("broken YAML", "name: test\nmodels: [\n", "env.yaml:3:1", says="is not valid", fix="correct the line"),
    Case("tab as indentation", "network:\n\tzones: []\n", "env.yaml:2:1", says="is not valid", fix="correct the line"),
    Case("no UTF-8", "name: \udcff\n", "env.yaml", says="is not valid", fix="correct the line"),
    Case("python object", "name: !!python/object/apply:os.getcwd []\n", "env.yaml:1:7", says="is not valid", fix="correct the line"),
    Case("duplicate key", "name: a\nmodels: []\nname: b\n", "env.yaml:3:1", says="key name stands here twice", fix="correct the line"),
    Case("unknown key at the top", {**one(), "networks": {}}, "networks", says="is not a known key", allowed="models", fix="did you mean network?"),
    Case("unknown key of a role", decode(tensorParalel=2), f"{DECODE}.tensorParalel", allowed="replicas", fix="did you mean tensorParallel?"),
    Case("duplicate key keeps its case", "models: []\nnodePools: {}\nnodePools: {}\n", "env.yaml:3:1", says="nodePools", fix="correct the line"),
    Case("number as key", {**one(), 5: 1}, says="5", allowed="models"),
    Case("yes as key", "yes: 1\nmodels: []\n", says="true", allowed="models"),
    Case("number as nested key", {**one(), "lws": {5: 1}}, says="lws", allowed="chart"),
    Case("text for a mapping", environment(network="10.0.0.0/16"), "network", "10.0.0.0/16", "a mapping of keys to values"),
    Case("list for a mapping", one(extraEnv=["A=b"]), "models[0].extraEnv", "['A=b']", "a mapping"),
    Case("text for a whole number", decode(replicas="two"), f"{DECODE}.replicas", "two", "a whole number"),
    Case("fraction for a whole number", decode(replicas=1.5), f"{DECODE}.replicas", "1.5", "a whole number"),
    Case("text for yes or no", environment(cluster={"protect": "maybe"}), "cluster.protect", "maybe", "true, false"),
    Case("text for a list", network(zones="us-east-1a"), "network.zones", "us-east-1a", "a list"),
    Case("mapping for a list", environment(models={"a": 1}), "models", "{'a': 1}", "a list"),
    Case("number for a text", one(servedModelName=5), "models[0].servedModelName", "5", "a text", 'quote it: "5"'),
    Case(
        "null for a text", "models:\n- name: m\n  model:\n  server: {instanceType: p5.48xlarge}\n", "models[0].model", says="is empty", fix="remove"
    ),
    Case(
        "version without quotes",
        "cluster: {kubernetesVersion: 1.36}\nmodels: []\n",
        "cluster.kubernetesVersion",
        "1.36",
        "a text",
        'quote it: "1.36"',
    ),
    Case(
        "version that YAML shortens",
        "cluster: {kubernetesVersion: 1.30}\nmodels: []\n",
        "cluster.kubernetesVersion",
        "1.3",
        "a text",
        "quote it",
    ),
    Case("replicas 0", decode(replicas=0), f"{DECODE}.replicas", "0", "at least 1"),
    Case("replicas true", decode(replicas=True), f"{DECODE}.replicas", "true", "a number"),
    Case("replicas above the limit", decode(replicas=5000), f"{DECODE}.replicas", "5000", "at most 1000"),
    Case("name with bad characters", one(name="My_Model"), "models[0].name", "My_Model", "small letters, digits and dashes", "for example my-model"),
    Case("name that ends in a dash", one(name="m-"), "models[0].name", "m-", "small letters, digits and dashes", "for example m"),
    Case("environment's name too long", environment(name="a" * 41), "name", "a" * 41, "at most 40 characters"),
    Case("no models", environment(models=[]), "models", "[]", "at least 1"),
    Case("models missing", {"network": {"zones": ["us-east-1a", "us-east-1b"]}}, "models", says="is required", allowed="one or more", fix="add it"),
    Case("model without name", one(name=None), "models[0].name", says="is required", fix="add it"),
    Case("role without instance type", one(decode={"tensorParallel": 2}), f"{DECODE}.instanceType", says="is required", fix="add it"),
    Case(
        "secret inside the environment",
        one(extraEnv={"A": {"secure": "v1:abc"}}),
        "models[0].extraEnv.A",
        says="is not kept secret",
        allowed="secrets as separate top-level keys of config",
        fix="pulumi config set --secret",
    ),
    Case("misspelt capacity", decode(capacity={"type": "ondemand"}), f"{DECODE}.capacity.type", "ondemand", "on-demand", "did you mean on-demand?"),
    Case("block size in between", one(blockSize=48), "models[0].blockSize", "48", "16, 32, 64, 128"),
    Case("range that is no network", network(cidr="10.0.0.1/16"), "network.cidr", "10.0.0.1/16", "10.40.0.0/16", "has host bits set"),
    Case("range that is no address", network(cidr="ten"), "network.cidr", "ten", "for example 10.40.0.0/16"),
    Case("range too large", network(cidr="10.0.0.0/8"), "network.cidr", "10.0.0.0/8", "/16 to /22"),
    Case("range too small", network(cidr="10.0.0.0/26"), "network.cidr", "10.0.0.0/26", "/16 to /22"),
    Case("public range", network(cidr="8.8.0.0/16"), "network.cidr", "8.8.0.0/16", "10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16"),
    Case("region as zone", network(gpuZone="us-east-1"), "network.gpuZone", "us-east-1", "an availability zone such as us-east-1a"),
    Case("memory share above 1", one(gpuMemoryUtilization=1.5), "models[0].gpuMemoryUtilization", "1.5", "below 1"),
    Case("memory share 0", one(gpuMemoryUtilization=0), "models[0].gpuMemoryUtilization", "0", "above 0"),
    Case("memory share as text", one(gpuMemoryUtilization="most"), "models[0].gpuMemoryUtilization", "most", "a number"),
    Case("digest cut short", one(imageDigest="sha256:abc"), "models[0].imageDigest", "sha256:abc", "sha256: and 64 hexadecimal digits"),
    Case("role that is no ARN", environment(cluster={"adminRoleArns": ["admin"]}), "cluster.adminRoleArns[0]", "admin", "an ARN, arn:aws:service"),
    Case("security group by name", existing_cluster(securityGroupIds=["my-group"]), "existingCluster.securityGroupIds[0]", "my-group", "sg-..."),
    Case("floating chart version", environment(lws={"version": "0.11"}), "lws.version", "0.11", "an exact version such as 0.11.1"),
    Case(
        "clock without minutes",
        environment(nodePools={"maintenanceWindow": {"startUtc": "2am"}}),
        "nodePools.maintenanceWindow.startUtc",
        "2am",
        "HH:MM",
    ),
    Case("variable's name with a dash", one(extraEnv={"MY-VAR": "1"}), "models[0].extraEnv.MY-VAR", allowed="the name of an environment variable"),
]

CATALOG_CASES = [
    Case(
        "misspelt instance type",
        decode(instanceType="p5.48xlage"),
        f"{DECODE}.instanceType",
        "p5.48xlage",
        "p5.48xlarge, p5.4xlarge, p5e.48xlarge",
        "did you mean p5.48xlarge?",
    ),
    Case("unknown instance type", decode(instanceType="t9"), f"{DECODE}.instanceType", "t9", "p5.48xlarge", "add instances/t9.yaml to a folder"),
    Case("misspelt model", one(model="qwen3-32"), "models[0].model", "qwen3-32", "qwen3-32b", "did you mean qwen3-32b?"),
    Case("unknown engine", one(engine="sglang"), "models[0].engine", "sglang", "vllm-0.33.0-efa", "add engines/sglang.yaml to a folder"),
    Case("misspelt engine", one(engine="vllm-0.33.0-ef"), "models[0].engine", "vllm-0.33.0-ef", "vllm-0.33.0", "did you mean vllm-0.33.0-efa?"),
    Case("model outside the project", on_disk(model="../../etc/passwd"), "models[0].model", "../../etc/passwd", "a path inside it"),
    Case("model that is no file", on_disk(model="./gone.json"), "models[0].model", "gone.json", "a config.json or its folder", says="cannot be read"),
    Case("model path without repository", on_disk(repository=None), "models[0].repository", says="is required", allowed="Hugging Face", fix="add it"),
    Case(
        "unknown architecture",
        on_disk(),
        "models[0].model",
        "MambaForCausalLM",
        "LlamaForCausalLM",
        says="architectures[0]",
        files={"config.json": {**LLAMA_CONFIG, "architectures": ["MambaForCausalLM"]}},
    ),
    Case(
        "config.json that is no JSON",
        on_disk(),
        "models[0].model",
        "config.json",
        "as on Hugging Face",
        says="is not JSON",
        files={"config.json": "{"},
    ),
    Case(
        "config.json without layers",
        on_disk(),
        "models[0].model",
        says="num_hidden_layers",
        allowed="a positive whole number",
        files={"config.json": {k: v for k, v in LLAMA_CONFIG.items() if k != "num_hidden_layers"}},
    ),
    Case("catalogue folder missing", environment(catalogDirs=["./mine"]), "catalogDirs[0]", "./mine", "a folder below", says="is not a folder"),
    Case("catalogue folder outside the project", environment(catalogDirs=["../.."]), "catalogDirs[0]", "../..", "a folder below"),
    Case(
        "catalogue file in a wrong form",
        environment(aggregated(engine="old"), catalogDirs=["."]),
        says="engines/old.yaml",
        allowed="engine version",
        fix="add it",
        files={"engines/old.yaml": {k: v for k, v in OLD_ENGINE.items() if k != "version"}},
    ),
    Case(
        "catalogue file of another id",
        environment(aggregated(engine="other"), catalogDirs=["."]),
        says="engines/other.yaml: id",
        value="old is not the file's name",
        allowed="(allowed: other)",
        files={"engines/other.yaml": OLD_ENGINE},
    ),
]

ROLE_CASES = [
    Case("no decode", one(decode=None), DECODE, says="is missing beside prefill", allowed="prefill and decode, or server", fix="add decode"),
    Case("no prefill", one(prefill=None), PREFILL, says="is missing beside decode", allowed="prefill and decode, or server", fix="add prefill"),
    Case("no role", one(prefill=None, decode=None), "models[0]", says="has no role", allowed="prefill and decode, or server", fix="add `server:"),
    Case("server beside prefill", one(server=role(), decode=None), SERVER, says="stands beside", allowed="or server", fix="remove one mode"),
    Case("three GPUs of eight", decode(tensorParallel=3), f"{DECODE}.tensorParallel", "3", "1, 2, 4, 8", "use 2", says="does not divide the 8 GPUs"),
    Case("one node and a half", decode(tensorParallel=12), f"{DECODE}.tensorParallel", "12", "a multiple of 8", says="fills no whole number"),
    Case(
        "attention heads over 16 GPUs",
        environment(aggregated(model="./config.json", repository="a/b", server=role(tensorParallel=16))),
        f"{SERVER}.tensorParallel",
        "16",
        "1, 2, 4, 8",
        says="does not divide the 8 attention heads",
        files={"config.json": LLAMA_CONFIG},
    ),
    Case(
        "KV heads over 4 GPUs",
        environment(aggregated(model="./config.json", repository="a/b", server=role(tensorParallel=4))),
        f"{SERVER}.tensorParallel",
        "4",
        "(allowed: 1, 2)",
        says="does not divide the 6 KV heads",
        files={"config.json": {**LLAMA_CONFIG, "num_attention_heads": 24, "hidden_size": 192, "num_key_value_heads": 6}},
    ),
    Case(
        "more stages than layers",
        environment(aggregated(model="gpt-oss-120b", server=role(tensorParallel=8, pipelineParallel=40))),
        f"{SERVER}.pipelineParallel",
        "40",
        "at most 36",
        says="is more than the 36 layers",
    ),
    Case("experts of a dense model", decode(expertParallel=True), f"{DECODE}.expertParallel", "true", "false", "remove it", says="has no experts"),
    Case(
        "stages with NIXL",
        decode(tensorParallel=8, pipelineParallel=2),
        f"{DECODE}.pipelineParallel",
        "2",
        "(allowed: 1)",
        "use server mode",
        says="not possible with the nixl connector",
    ),
    Case("stages that do not divide the node", server(pipelineParallel=3), f"{SERVER}.pipelineParallel", "3", "1, 2, 4", says="makes 6 GPUs"),
    Case(
        "no GPUDirect RDMA",
        decode(instanceType="p5.4xlarge", tensorParallel=1),
        f"{DECODE}.instanceType",
        "p5.4xlarge",
        "p5.48xlarge",
        "use server mode on it",
    ),
    Case("image without libfabric", one(engine="vllm-0.33.0"), "models[0].engine", "vllm-0.33.0", "vllm-0.33.0-efa", "use vllm-0.33.0-efa"),
    Case(
        "image too old",
        environment(aggregated(model="glm-5-fp8", engine="old", server=role(tensorParallel=8)), catalogDirs=["."]),
        "models[0].engine",
        "old",
        "or newer",
        says="is vLLM 0.1.0, too old for glm-5-fp8",
        files={"engines/old.yaml": OLD_ENGINE},
    ),
    Case("beyond the context", one(maxModelLen=131073), "models[0].maxModelLen", "131073", "at most 131072", "use 131072"),
    Case(
        "requests beyond maxModelLen",
        one(maxModelLen=1000, workload={"inputTokens": 1000, "outputTokens": 24, "requestsPerSecond": 1}),
        "models[0].workload",
        "1024",
        "at most 1000 together",
        "raise maxModelLen to 1024",
    ),
    Case("flag of the project", one(extraArgs=["--port=80"]), "models[0].extraArgs[0]", "--port=80", "flags without a field", "use the field"),
    Case(
        "flag of the project with _",
        one(extraArgs=["--a=1", "--max_model_len=8"]),
        "models[0].extraArgs[1]",
        "--max_model_len=8",
        fix="use the field",
    ),
    Case("short flag of the project", one(extraArgs=["-tp=4"]), "models[0].extraArgs[0]", "-tp=4", "--flag=value"),
    Case(
        "part of a flag of the project",
        one(extraArgs=["--kv-transfer-config.engine_id=x"]),
        "models[0].extraArgs[0]",
        "--kv-transfer-config.engine_id=x",
        "flags without a field",
        "use the field",
    ),
    Case(
        "flag of the project negated",
        one(extraArgs=["--no-enable-expert-parallel"]),
        "models[0].extraArgs[0]",
        "--no-enable-expert-parallel",
        "flags without a field",
        "use the field",
    ),
    Case(
        "flag without dashes", one(extraArgs=["seed=1"]), "models[0].extraArgs[0]", "seed=1", "--flag or --flag=value", "join flag and value with ="
    ),
    Case("flag and value apart", one(extraArgs=["--seed 1"]), "models[0].extraArgs[0]", "--seed 1", "--flag=value", "join flag and value with ="),
    Case("NCCL_ALGO", one(extraEnv={"NCCL_ALGO": "Ring"}), "models[0].extraEnv.NCCL_ALGO", allowed="without it", fix="remove it", says="OFI tuner"),
    Case(
        "variable of the project", one(extraEnv={"HF_HOME": "/x"}), "models[0].extraEnv.HF_HOME", allowed="variables that it does not", fix="remove"
    ),
    Case(
        "secret in the manifest",
        one(extraEnv={"WANDB_API_KEY": "k"}),
        "models[0].extraEnv.WANDB_API_KEY",
        says="looks like a secret",
        fix="name a secret",
    ),
    Case(
        "selector with Auto Mode",
        decode(nodeSelector={"a": "b"}),
        f"{DECODE}.nodeSelector",
        allowed="without it",
        fix="existingCluster.autoMode: false",
    ),
    Case(
        "no selector without Auto Mode",
        existing_cluster(aggregated(), autoMode=False),
        f"{SERVER}.nodeSelector",
        says="is required",
        allowed="labels of p5.48xlarge nodes",
        fix="add it",
    ),
    Case(
        "capacity without Auto Mode",
        existing_cluster(aggregated(server=role(nodeSelector={"a": "b"}, capacity={"type": "spot"})), autoMode=False),
        f"{SERVER}.capacity",
        says="has no effect",
        allowed="without it",
        fix="remove it",
    ),
]

CAPACITY_CASES = [
    Case(
        "reserved without ids",
        decode(capacity={"type": "reserved", "nodes": 1}),
        f"{DECODE}.capacity.reservationIds",
        allowed="cr-...",
        fix="add the",
    ),
    Case(
        "reserved without nodes",
        decode(capacity={k: v for k, v in RESERVED.items() if k != "nodes"}),
        f"{DECODE}.capacity.nodes",
        says="is required with reserved",
        allowed="the number of reserved instances",
        fix="add it",
    ),
    Case(
        "id of the offering",
        decode(capacity={**RESERVED, "reservationIds": ["cb-0123456789abcdef0"]}),
        f"{DECODE}.capacity.reservationIds[0]",
        "cb-0123456789abcdef0",
        "the reservation's own id starts with cr-",
    ),
    Case(
        "reservation on demand",
        decode(capacity={"reservationIds": ["cr-0123456789abcdef0"]}),
        f"{DECODE}.capacity.type",
        "on-demand",
        "(allowed: reserved)",
        "set type: reserved or remove reservationIds",
    ),
    Case(
        "groups for more nodes than reserved",
        server(tensorParallel=8, pipelineParallel=2, replicas=3, capacity={**RESERVED, "nodes": 5}),
        f"{SERVER}.capacity.nodes",
        "5",
        "at least 6",
        "set replicas to 2",
        says="needs 6 nodes for 3 x 2 pods and 5 are reserved",
    ),
    Case(
        "pods for more nodes than allowed",
        decode(tensorParallel=4, replicas=5, capacity={"nodes": 2}),
        f"{DECODE}.capacity.nodes",
        "2",
        "at least 3",
        "set replicas to 4",
    ),
    Case("CPU beyond the node", decode(cpu=500), f"{DECODE}.cpu", "500", "at most 190.45", "lower it", says="pod asks for 501 vCPU"),
    Case(
        "memory beyond the node",
        decode(memoryGiB=5000),
        f"{DECODE}.memoryGiB",
        "5000",
        "at most 1891",
        "lower it",
        says="more than p5.48xlarge offers",
    ),
    Case("disk beyond the node", server(ephemeralStorageGiB=30000), f"{SERVER}.ephemeralStorageGiB", "30000", "at most 28312", "lower it"),
    Case("shared memory beyond memory", decode(memoryGiB=16, shmGiB=64), f"{DECODE}.shmGiB", "64", "at most 15", "raise memoryGiB"),
    Case(
        "one pool, two bounds",
        environment(
            aggregated(name="a", server=role(capacity={"nodes": 1})),
            aggregated(name="b", server=role(capacity={"nodes": 2})),
        ),
        "models[1].server.capacity.nodes",
        "2",
        "(allowed: 1)",
        "state it once",
        says="differs from models[0].server.capacity.nodes",
    ),
]

ENVIRONMENT_CASES = [
    Case("cluster's name too long for its role", environment(cluster={"name": "c" * 60}), "cluster.name", "c" * 60, "at most"),
    Case(
        "one namespace for two models",
        environment(aggregated(name="a", namespace="x"), aggregated(name="b", namespace="x")),
        "models[1].namespace",
        "x",
        says="models[0]",
    ),
    Case("namespace of the controller", one(name="lws-system"), "models[0].namespace", "lws-system", "a namespace of its own", "models[].namespace"),
    Case("namespace of the system", one(namespace="kube-system"), "models[0].namespace", "kube-system", "a namespace of its own", "choose another"),
    Case(
        "one selector for two instance types",
        existing_cluster(
            aggregated(name="a", server=role(nodeSelector={"pool": "gpu"})),
            aggregated(name="b", server=role(nodeSelector={"pool": "gpu"}, instanceType="p5.4xlarge", tensorParallel=1)),
            autoMode=False,
        ),
        "models[1].server.nodeSelector",
        says="models[0].server",
    ),
    Case("GPU zone elsewhere", network(gpuZone="us-east-1f"), "network.gpuZone", "us-east-1f", "us-east-1a, us-east-1b", says="is not one of"),
    Case("one zone", network(zones=["us-east-1a"]), "network.zones", "['us-east-1a']", "two or more zones", "add a zone"),
    Case("no zones", environment(network=None), "network.zones", says="has too few zones", allowed="two or more zones", fix="add a zone"),
    Case("a zone twice", network(zones=["us-east-1a", "us-east-1a"]), "network.zones", "us-east-1a", "each zone once", "remove it"),
    Case("zones of two regions", network(zones=["us-east-1a", "us-west-2a"]), "network.zones", "us-east-1, us-west-2", "zones of one region"),
    Case(
        "another region than the stack's",
        stack(one(), **{"aws:region": "eu-central-1"}),
        "network.zones",
        "us-east-1",
        "zones of eu-central-1",
        "change zones or aws:region",
    ),
    Case(
        "environment encrypted",
        stack({"secure": "v1:abc:def"}),
        "disagg-serving:environment",
        says="is encrypted as a whole",
        allowed="a mapping",
        fix="put secrets under keys of their own",
    ),
    Case(
        "environment missing",
        {"config": {"aws:region": "us-east-1"}},
        "disagg-serving:environment",
        says="is missing",
        allowed="a mapping",
        fix="add it under config",
    ),
    Case("environment as a list", stack([one()]), "", says="is not a mapping", allowed="a mapping of keys to values", fix="start with `models:`"),
    Case("two models of one name", environment(model(), model()), "models[1].name", "m", "names whose objects differ", "choose another"),
    Case(
        "a model named like another's role",
        environment(model(name="a"), aggregated(name="a-decode")),
        "models[1].name",
        "a-decode",
        "names whose objects differ",
        "choose another",
        says="clashes with models[0].name a",
    ),
    Case("name too long for LWS", one(name="a" * 45), "models[0].name", "a" * 45, "at most 42 characters", "shorten it", says="pods of prefill"),
    Case(
        "cluster made and adopted", environment(existingCluster={"name": "c"}), "existingCluster", allowed="one of cluster", fix="remove one of them"
    ),
    Case(
        "cluster found in two ways",
        existing_cluster(name="c"),
        "existingCluster",
        "kubeconfig, name",
        "kubeconfig, name, stackReference",
        "give one of them",
    ),
    Case("cluster found in no way", existing_cluster(kubeconfig=None), "existingCluster", allowed="kubeconfig, name, stackReference", fix="give one"),
    Case(
        "context without kubeconfig", existing_cluster(kubeconfig=None, name="c", context="x"), "existingCluster.context", "x", fix="add kubeconfig"
    ),
    Case(
        "kubeconfig without node role", existing_cluster(nodeRole=None), "existingCluster.nodeRole", says="is required", fix="or set autoMode: false"
    ),
    Case(
        "GPU subnets missing",
        {**existing_cluster(), "network": {"gpuZone": "us-east-1a"}},
        "network.existing",
        says="is required with existingCluster",
        allowed="gpuSubnetIds",
        fix="add network.existing.gpuSubnetIds",
    ),
    Case(
        "range of an existing network",
        {**existing_cluster(), "network": {**GPU_NODES, "cidr": "10.0.0.0/16"}},
        "network.cidr",
        says="has no effect on an existing network",
        allowed="without it",
        fix="remove it",
    ),
    Case(
        "VPC missing", environment(network=GPU_NODES), "network.existing.vpcId", says="is required to make a cluster", allowed="vpc-...", fix="add it"
    ),
    Case(
        "nobody administers",
        environment(cluster={"creatorAdmin": False}),
        "cluster.adminRoleArns",
        says="is empty while creatorAdmin is false",
        allowed="ARN of the role",
        fix="add it",
    ),
    Case(
        "Kubernetes too old",
        environment(cluster={"kubernetesVersion": "1.30"}),
        "cluster.kubernetesVersion",
        "1.30",
        "1.34 or newer",
        'set "1.34"',
    ),
    Case(
        "existing Kubernetes too old", existing_cluster(kubernetesVersion="1.33"), "existingCluster.kubernetesVersion", "1.33", "1.34 or newer", "set"
    ),
    Case(
        "nodes outlive Auto Mode",
        environment(nodePools={"expireAfterHours": 600}),
        "nodePools.expireAfterHours",
        "600",
        "at most 480 with terminationGraceHours 24",
        "lower one of the two",
    ),
]

HOSTILE_CASES = [
    Case("a list that holds itself", "models: &a [*a]\n"),
    Case("a mapping that holds itself", "models: &a {b: *a}\n"),
    Case("brackets without end", "models: " + "[" * 5000 + "]" * 5000 + "\n", says="is not valid"),
    Case("almost no CPU", decode(cpu=1e-9), f"{DECODE}.cpu", "1e-09"),
    Case("infinite CPU", decode(cpu=float("inf")), f"{DECODE}.cpu", "inf"),
    Case("CPU beyond any float", decode(cpu=1e308), f"{DECODE}.cpu", "1e+308"),
    Case("memory beyond any float", decode(memoryGiB=10**400), f"{DECODE}.memoryGiB"),
    Case(
        "number too long to print",
        "models:\n- {name: m, model: qwen3-32b, server: {instanceType: p5.48xlarge, replicas: 0x" + "f" * 5000 + "}}\n",
        f"{SERVER}.replicas",
        allowed="at most 1000",
    ),
    Case(
        "infinite arrival rate",
        one(workload={"inputTokens": 1, "outputTokens": 1, "requestsPerSecond": float("inf")}),
        "models[0].workload.requestsPerSecond",
    ),
    Case("zero byte in a path", on_disk(model="./a\0b"), "models[0].model"),
    Case("zero byte in a folder", environment(catalogDirs=["a\0b"]), "catalogDirs[0]"),
    Case("path too long", on_disk(model="./" + "a" * 4000), "models[0].model"),
    Case("folder's name too long", environment(catalogDirs=["a" * 4000]), "catalogDirs[0]"),
]
"""Values that a program of somebody else may write, or that overflow: refused like any other, at their place."""


def hugging_face(name: str, says: str = "", index: Any = None, **facts: Any) -> Case:
    """A config.json, perhaps with an index of weights beside it, that holds what it should not."""
    files = {"config.json": {**LLAMA_CONFIG, **facts}, **({"model.safetensors.index.json": index} if index else {})}
    return Case(f"config.json: {name}", on_disk(), "models[0].model", says=says, files=files)


CONFIG_JSON_CASES = [
    hugging_face("architectures is a number", "architectures", architectures=5),
    hugging_face("architectures is a mapping", "architectures", architectures={"a": 1}),
    hugging_face("KV heads are a text", num_key_value_heads="8"),
    hugging_face("KV heads are negative", num_key_value_heads=-1),
    hugging_face("head size is a text", head_dim="x"),
    hugging_face("experts are a text", num_experts="x"),
    hugging_face("dense layers are a text", num_experts=8, first_k_dense_replace="a"),
    hugging_face("expert size is a text", num_experts=8, moe_intermediate_size="a"),
    hugging_face("indexer without head size", "index_head_dim", index_n_heads=5),
    hugging_face("hidden size beyond any float", hidden_size=10**400),
    hugging_face("quantization is unknown", "quant_method", quantization_config={"quant_method": "new"}),
    hugging_face("size of the weights is a text", index={"metadata": {"total_size": "x"}}),
    hugging_face("size of the weights is negative", index={"metadata": {"total_size": -1}}),
    hugging_face("index is no JSON", "is not JSON", index="{"),
]
"""Files that people download and edit: what is wrong in them is named by its key."""

CASES = [*FORM_CASES, *CATALOG_CASES, *ROLE_CASES, *CAPACITY_CASES, *ENVIRONMENT_CASES]
UNTRUSTED = [*HOSTILE_CASES, *CONFIG_JSON_CASES]


def write(case: Case, folder: Path) -> Path:
    """The case's files in `folder`; returns the one to check."""
    for name, data in case.files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    given = folder / "env.yaml"
    given.write_bytes(case.text.encode("utf-8", "surrogateescape"))
    return given


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, list[str]]:
    """Exit code and all printed lines of a command, which must not be a traceback."""
    code = main(list(argv))
    printed = capsys.readouterr()
    assert "Traceback" not in printed.out
    assert "Traceback" not in printed.err
    return code, (printed.out + printed.err).splitlines()


def errors_of(lines: list[str]) -> list[str]:
    """What the lines of level error say, from the path on."""
    found = (re.match(r"error(?: \[[a-z-]+\]|:) (.*)", line) for line in lines)
    return [match[1] for match in found if match]


def assert_says(case: Case, errors: list[str]) -> None:
    """One error is about the case's place and holds all that a person needs."""
    wanted = [text for text in (case.value, case.says, case.allowed, case.fix) if text]
    about = [e for e in errors if not case.path or e.startswith(f"{case.path}:")]
    assert about, f"nothing is said about {case.path}: {errors}"
    assert any(all(text in error for text in wanted) for error in about), f"{wanted} not together in one of {about}"


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_bad_input_is_explained(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bad input ends with exit code 2 and one line with place, value, allowed values and fix; never with a traceback."""
    code, lines = run(capsys, "check", str(write(case, tmp_path)))
    errors = errors_of(lines)

    assert code == 2
    assert_says(case, errors)
    assert [e for e in errors if "(allowed: " not in e and "; " not in e] == [], "says neither what is allowed nor what to do"


@pytest.mark.parametrize("case", UNTRUSTED, ids=lambda c: c.name)
def test_hostile_input_is_refused(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Values that overflow, refer to themselves or are of another type are refused at their place like any other bad input."""
    code, lines = run(capsys, "check", str(write(case, tmp_path)))

    assert code == 2
    assert_says(case, errors_of(lines))


RENDERED = [c for c in CASES if c.name in {"empty file", "broken YAML", "misspelt instance type", "three GPUs of eight", "disk beyond the node"}]


@pytest.mark.parametrize("case", RENDERED, ids=lambda c: c.name)
def test_render_refuses_bad_input(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`render` writes nothing for input that `check` refuses, and says the same."""
    given, output = write(case, tmp_path), tmp_path / "out"
    code, lines = run(capsys, "render", str(given), "-o", str(output))

    assert code == 2
    assert_says(case, errors_of(lines))
    assert not output.exists()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one stack, as the current folder."""
    (tmp_path / "Pulumi.yaml").write_text("name: disagg-serving\nruntime: python\nstackConfigDir: stacks\n", encoding="utf-8")
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "Pulumi.prod.yaml").write_text(yaml.safe_dump(stack(decode(tensorParallel=3))), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_plan_shows_findings_of_a_refused_stack(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`plan` shows the same findings as `check` for a stack that is refused, and ends with exit code 2."""
    code, lines = run(capsys, "plan", "prod")
    checked, by_check = run(capsys, "check", "prod")

    assert (code, checked) == (2, 2)
    text = " ".join(" ".join(lines).split())
    assert "models[0].decode.tensorParallel" in text
    assert "does not divide the 8 GPUs of p5.48xlarge" in text
    assert "models[0].decode.tensorParallel" in " ".join(by_check)
    assert project.is_dir()


@pytest.mark.parametrize("key", ["disagg-serving:environment", "environment"])
def test_stack_file_that_is_no_mapping(project: Path, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A stack whose file or environment is something else than a mapping is refused and says what belongs there."""
    (project / "stacks" / "Pulumi.text.yaml").write_text("hello\n", encoding="utf-8")
    (project / "stacks" / "Pulumi.five.yaml").write_text(f"config:\n  {key}: 5\n", encoding="utf-8")
    code, lines = run(capsys, "check", "text")
    assert (code, "config: " in errors_of(lines)[0], "a mapping with disagg-serving:environment" in errors_of(lines)[0]) == (2, True, True)

    code, lines = run(capsys, "check", "five")
    assert code == 2
    assert errors_of(lines)[0].startswith("5 is not a mapping (allowed: a mapping of keys to values)")


def test_every_error_is_shown_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One run shows the errors of the form and those of the rules together, sorted by path, so that nobody repairs one by one."""
    data = {
        **environment(
            model(extraEnv={"NCCL_ALGO": "Ring"}, gpuMemoryUtilization=1.5, prefill=role(tensorParallel=3), decode=role(replicas=0)),
            aggregated(name="b", engine="vllm-0.33.1", maxModelLen=10**9, server=role(instanceType="p5.48xlage", tensorParalel=2)),
            network={"zones": ["us-east-1a", "us-east-1b"], "gpuZone": "us-east-1c"},
            cluster={"kubernetesVersion": "1.30", "protect": "maybe"},
            nodePools={"expireAfterHours": 600},
        ),
        "modles": [],
    }
    file = tmp_path / "env.yaml"
    file.write_text(yaml.safe_dump(data), encoding="utf-8")
    code, lines = run(capsys, "check", str(file))
    paths = [e.split(": ", 1)[0] for e in errors_of(lines)]

    assert code == 2
    assert set(paths) >= {
        "cluster.kubernetesVersion",
        "cluster.protect",
        "models[0].decode.replicas",
        "models[0].extraEnv.NCCL_ALGO",
        "models[0].gpuMemoryUtilization",
        "models[0].prefill.tensorParallel",
        "models[1].engine",
        "models[1].server.instanceType",
        "models[1].server.tensorParalel",
        "modles",
        "network.gpuZone",
        "nodePools.expireAfterHours",
    }
    assert paths == sorted(paths)
    assert lines[-1].startswith(f"{len(paths)} errors, ")


def test_json_holds_what_the_text_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON output of bad input has path, value, allowed values and fix as fields of their own, with the value's type."""
    file = tmp_path / "env.yaml"
    file.write_text(yaml.safe_dump(decode(tensorParallel=3)), encoding="utf-8")
    assert main(["check", str(file), "--format", "json"]) == 2
    checks = json.loads(capsys.readouterr().out)["checks"]

    found = next(c for c in checks if c["id"] == "tensor-parallel")
    assert (found["level"], found["path"], found["value"]) == ("error", "models[0].decode.tensorParallel", 3)
    assert (found["allowed"], found["fix"]) == ("1, 2, 4, 8", "use 2")


def _largest(key: str, role_name: str, asked: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    file = tmp_path / "env.yaml"
    given = {"server": None, "prefill": role(), "decode": role()} if role_name != "server" else {"server": role(), "prefill": None, "decode": None}
    file.write_text(yaml.safe_dump(one(**{**given, role_name: role(**{key: asked})})), encoding="utf-8")
    _, lines = run(capsys, "check", str(file))
    return next(m[1] for e in errors_of(lines) if (m := re.match(rf"models\[0\]\.{role_name}\.{key}: .*at most ([0-9.]+)", e)))


@pytest.mark.parametrize("role_name", ["prefill", "decode", "server"])
@pytest.mark.parametrize(("key", "asked"), [("cpu", 999), ("memoryGiB", 9999), ("ephemeralStorageGiB", 99999)])
def test_the_largest_value_named_is_accepted(role_name: str, key: str, asked: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The limit that an error names can be written into the file, and is then accepted."""
    largest = float(_largest(key, role_name, asked, tmp_path, capsys))
    value = largest if key == "cpu" else int(largest)
    file = tmp_path / "env.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace(f"{key}: {asked}", f"{key}: {value}"), encoding="utf-8")
    code, lines = run(capsys, "check", str(file))

    assert (code, errors_of(lines)) == (0, [])


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "VLLM_LOGGING_LEVEL", "FI_EFA_USE_HUGE_PAGE"])
def test_harmless_variables_are_accepted(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Common variables that are no secrets and break nothing can be set, also where their name resembles a secret's."""
    file = tmp_path / "env.yaml"
    file.write_text(yaml.safe_dump(one(extraEnv={name: "0"})), encoding="utf-8")
    code, lines = run(capsys, "check", str(file))

    assert (code, errors_of(lines)) == (0, [])


@pytest.mark.parametrize("command", ["check", "plan"])
def test_absent_stack(project: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt stack is a wrong call: exit code 1 and one line that names the stacks that exist and the likely one."""
    code, lines = run(capsys, command, "prodd")

    assert code == 1
    assert lines == ["error: no stack prodd in stacks (known: prod); did you mean prod?"]
    assert project.is_dir()


def test_absent_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that does not exist, a folder and a file outside a project are wrong calls: exit code 1 and one line that names it."""
    for argv in (["check", "gone.yaml"], ["render", "gone.yaml", "-o", "out"], ["plan", "gone.yaml"], ["check", str(project / "gone.yaml")]):
        code, lines = run(capsys, *argv)
        assert (code, lines) == (1, ["error: gone.yaml: no such file or directory"]), argv

    code, lines = run(capsys, "check", "./stacks")
    assert (code, lines) == (1, ["error: stacks: is a directory"])


def test_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A stack's name outside a project ends with exit code 1 and says how to go on."""
    monkeypatch.chdir(tmp_path)
    for argv in (["check", "prod"], ["plan", "prod"], ["plan", "--all"]):
        code, lines = run(capsys, *argv)
        assert code == 1
        assert len(lines) == 1
        assert "no Pulumi.yaml here or in a folder above" in lines[0]


def test_plan_of_a_bare_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`plan` needs a stack; a bare environment gives exit code 1 and names the commands that take it."""
    (project / "env.yaml").write_text(yaml.safe_dump(one()), encoding="utf-8")
    code, lines = run(capsys, "plan", "env.yaml")

    assert code == 1
    assert len(lines) == 1
    assert "`disagg check` and `disagg render` take a bare environment file" in lines[0]


WRONG_CALLS = {
    "unknown option": (["check", "prod", "--strict"], "--strict"),
    "no argument": (["check"], "STACK|FILE"),
    "too many arguments": (["check", "prod", "dev"], "dev"),
    "unknown command": (["chekc", "prod"], "chekc"),
    "unknown format": (["check", "prod", "--format", "xml"], "xml"),
    "unknown level": (["check", "prod", "--fail-on", "never"], "never"),
    "stack and --all": (["plan", "prod", "--all"], "--all"),
    "neither stack nor --all": (["plan"], "--all"),
    "render without a folder": (["render", "prod"], "-o"),
}


@pytest.mark.parametrize(("argv", "named"), WRONG_CALLS.values(), ids=WRONG_CALLS.keys())
def test_wrong_calls(project: Path, argv: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong call ends with exit code 1, not with 2 as failed checks do, and names the part that is wrong."""
    code, lines = run(capsys, *argv)

    assert code == 1
    assert named in " ".join(lines)
    assert project.is_dir()
