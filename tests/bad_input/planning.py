"""Models that do not fit the memory of their GPUs, and engines that cannot be cut as asked."""

from __future__ import annotations

from typing import Any

from factories import aggregated, environment, model, role

from .case import DECODE, SERVER, Case, one, server

CONTEXT = "models[0].maxModelLen"


def large(**overrides: Any) -> dict[str, Any]:
    """An environment with GLM-5 in server mode on a p5.48xlarge."""
    return environment(aggregated(model="glm-5-fp8", server=role(tensorParallel=8, **overrides)))


def both(prefill: int, decode: int, **overrides: Any) -> dict[str, Any]:
    """An environment whose roles have these numbers of GPUs an engine."""
    return one(prefill=role(tensorParallel=prefill), decode=role(tensorParallel=decode), **overrides)


PLANNING_CASES = [
    Case(
        "744B on one node of 80 GB",
        large(),
        f"{SERVER}.tensorParallel",
        "8",
        "an engine that keeps less than 71.3 GiB a GPU besides its KV cache",
        "use tensorParallel 8 with pipelineParallel 2 on p5.48xlarge, or use tensorParallel 8 on p5en.48xlarge",
        says="88.2 to 90.0 GiB of weights",
    ),
    Case(
        "744B split on nodes of 80 GB",
        environment(model(model="glm-5-fp8", prefill=role(tensorParallel=8), decode=role(tensorParallel=8))),
        f"{DECODE}.tensorParallel",
        "8",
        "on p5en.48xlarge",
        says="does not fit p5.48xlarge",
    ),
    Case(
        "unquantized 70B on two GPUs",
        one(model="llama-3.3-70b-instruct"),
        CONTEXT,
        "131072",
        "tensorParallel 4 on p5.48xlarge",
        "use tensorParallel 4 on p5.48xlarge",
    ),
    Case(
        "context beyond the cache",
        environment(aggregated(model="qwen3-32b", server=role(tensorParallel=1))),
        CONTEXT,
        "",
        "at most",
        "use 17280",
        says="is more than the KV cache of server holds",
    ),
    Case(
        "a million tokens on one node",
        environment(model(model="glm-5.2-fp8", **{r: role(instanceType="p5en.48xlarge", tensorParallel=8) for r in ("prefill", "decode")})),
        CONTEXT,
        "",
        "at most",
        "use 239488",
        says="is more than the KV cache",
    ),
    Case(
        "prefill with more GPUs than KV heads", both(16, 8), f"{DECODE}.tensorParallel", "8", "16 or more", "use 16, or set prefill.tensorParallel: 8"
    ),
    Case(
        "experts cut inside a block",
        environment(aggregated(model="qwen3-235b-a22b-instruct-fp8", maxModelLen=4096, server=role(tensorParallel=8))),
        f"{SERVER}.tensorParallel",
        "8",
        "1, 2, 4",
        "set expertParallel: true",
    ),
    Case(
        "exchange that needs InfiniBand",
        environment(
            aggregated(
                model="glm-5-fp8",
                maxModelLen=16384,
                server=role(tensorParallel=8, dataParallel=2, expertParallel=True, all2allBackend="deepep_low_latency"),
            )
        ),
        f"{SERVER}.all2allBackend",
        "deepep_low_latency",
        "allgather_reducescatter, deepep_v2",
        "use allgather_reducescatter",
        says="needs InfiniBand",
    ),
    Case(
        "data parallelism of a dense model",
        server(dataParallel=2, replicas=3),
        f"{SERVER}.dataParallel",
        "2",
        "(allowed: 1)",
        "remove it and set replicas: 6",
        says="has no experts to share",
    ),
    Case(
        "ranks that fill no whole nodes",
        environment(aggregated(model="deepseek-v3", maxModelLen=8192, server=role(tensorParallel=4, dataParallel=3, expertParallel=True))),
        f"{SERVER}.dataParallel",
        "3",
        "1, 2, 4, 6",
        "use 4",
        says="nor fill whole nodes",
    ),
    Case(
        "experts over too many ranks",
        environment(aggregated(model="gpt-oss-120b", maxModelLen=8192, server=role(tensorParallel=8, dataParallel=32, expertParallel=True))),
        f"{SERVER}.dataParallel",
        "32",
        "1, 2, 4, 8, 16",
        says="makes 256 GPUs, which do not divide the 128 experts",
    ),
    Case(
        "KV of two GPU generations",
        environment(
            model(
                model="glm-5-fp8",
                maxModelLen=16384,
                prefill=role(instanceType="p5en.48xlarge", tensorParallel=8),
                decode=role(instanceType="p6-b200.48xlarge", tensorParallel=8),
            )
        ),
        f"{DECODE}.instanceType",
        "p6-b200.48xlarge",
        "p5en.48xlarge",
        "use p5en.48xlarge",
        says="decode cannot read it",
    ),
    Case(
        "traffic taken off EFA",
        one(extraEnv={"FI_EFA_USE_DEVICE_RDMA": "0"}),
        "models[0].extraEnv.FI_EFA_USE_DEVICE_RDMA",
        "0",
        "1, or without it",
        "remove it",
    ),
    Case(
        "flag of one role that decides the form of KV",
        one(decode=role(extraArgs=["--disable-hybrid-kv-cache-manager"])),
        f"{DECODE}.extraArgs[0]",
        "--disable-hybrid-kv-cache-manager",
        "the same on both roles",
        "remove it",
    ),
    Case(
        "KV dtype that an FP8 checkpoint refuses",
        environment(
            aggregated(
                model="deepseek-v3",
                maxModelLen=8192,
                kvCacheDtype="fp8_e5m2",
                server=role(instanceType="p5en.48xlarge", tensorParallel=8),
            )
        ),
        "models[0].kvCacheDtype",
        "fp8_e5m2",
        "fp8_e4m3",
        "use fp8",
    ),
    Case(
        "guesses without layers for them",
        one(speculative={"method": "mtp", "numSpeculativeTokens": 2}),
        "models[0].speculative.method",
        "mtp",
        "ngram",
        "remove speculative",
    ),
    Case(
        "more requests than tokens in a step",
        one(decode=role(maxNumSeqs=512, maxNumBatchedTokens=256)),
        f"{DECODE}.maxNumSeqs",
        "512",
        "at most 256",
        "set maxNumBatchedTokens: 512",
    ),
    Case(
        "certificate of another region",
        one(gateway={"certificateArn": "arn:aws:acm:eu-west-1:123456789012:certificate/a"}),
        "models[0].gateway.certificateArn",
        "eu-west-1",
        "a certificate of us-east-1",
        "make one there",
    ),
    Case(
        "rate for another prompt length",
        server(measuredRates=[{"inputTokens": 0, "tokensPerSecondPerGPU": 1}]),
        f"{SERVER}.measuredRates[0].inputTokens",
        "0",
    ),
    Case(
        "calibration of another engine",
        server(calibration={"weightsGiB": 34, "kvCacheGiB": 70}),
        f"{SERVER}.calibration.kvCacheGiB",
        "70.0",
        "figures of one start of this engine",
        "take the figures from a log of this very engine",
        says="more than the 71.3 GiB",
    ),
    Case(
        "KV dtype of unknown size",
        one(kvCacheDtype="fp8_ds_mla"),
        "models[0].kvCacheDtype",
        "fp8_ds_mla",
        "fp8_e4m3",
        "remove it",
    ),
    Case("calibration without KV", server(calibration={"weightsGiB": 30}), f"{SERVER}.calibration.kvCacheGiB", says="is required"),
]
