"""Models and roles that break a rule."""

from __future__ import annotations

from factories import aggregated, environment, existing_cluster, role

from .case import DECODE, LLAMA_CONFIG, OLD_ENGINE, PREFILL, SERVER, Case, decode, one, server

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
