"""Values that overflow, refer to themselves or come from files of others."""

from __future__ import annotations

from typing import Any

from factories import environment

from .case import DECODE, LLAMA_CONFIG, Case, decode, on_disk, one

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
        "env.yaml:2:77",
        says="a number has 5002 characters",
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
