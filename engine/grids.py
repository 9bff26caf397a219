"""What is asked of both: for each rule that mirrors a refusal of vLLM, inputs on both sides of its border."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

H100, H200 = "p5.48xlarge", "p5en.48xlarge"
LLAMA, QWEN, GPT, GLM, DEEPSEEK = "llama-3.3-70b-instruct", "qwen3-32b", "gpt-oss-120b", "glm-5-fp8", "deepseek-v3"
FP8_LLAMA, MOE = "llama-3.3-70b-instruct-fp8", "qwen3-235b-a22b-instruct"


@dataclass(frozen=True)
class Probe:
    """One input: fields of the model and of its role or roles, as a stack file has them.

    `swap` is for values that no field can hold: flags of the command line that are replaced, while `model` holds what a person would write.
    """

    what: str
    model: Mapping[str, Any]
    role: Mapping[str, Any] = field(default_factory=dict)
    split: bool = False
    swap: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Grid:
    """The inputs about one rule.

    `differs` says of inputs (a pattern of their whole names) why the rule refuses what the parser and the configuration checks take, namely at
    which later stage vLLM refuses it or what else speaks against it, or why the rule takes what they refuse; with the source.
    """

    rule: str
    probes: tuple[Probe, ...]
    differs: Mapping[str, str] = field(default_factory=dict)

    def why(self, probe: Probe) -> str:
        """The reason for a difference about an input, or nothing."""
        return next((reason for pattern, reason in self.differs.items() if re.fullmatch(pattern, probe.what)), "")


def served(name: str, **fields: Any) -> dict[str, Any]:
    """A model with a context that every engine holds."""
    return {"model": name, "maxModelLen": 4096, **fields}


def _heads() -> Grid:
    sizes = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64)
    probes = [Probe(f"{m} over {n} GPUs", served(m), {"tensorParallel": n}) for m in (LLAMA, QWEN, GPT, DEEPSEEK, MOE) for n in sizes]
    probes += [Probe(f"{GPT} in {n} stages", served(GPT), {"tensorParallel": 8, "pipelineParallel": n}) for n in (2, 36, 37, 64)]
    probes += [Probe(f"expertParallel of {m}", served(m), {"tensorParallel": 8, "expertParallel": True}) for m in (LLAMA, QWEN, GPT, MOE)]
    return Grid(
        "heads",
        tuple(probes),
        {f"{GPT} in (37|64) stages": "refused when the layers are shared out, after the configuration (distributed/utils.py: get_pp_indices)"},
    )


def _context() -> Grid:
    probes = [Probe(f"{m} with {n} tokens", {"model": m, "maxModelLen": n}, {"tensorParallel": 8, "instanceType": H200}) for m, n in (
        (LLAMA, 131072), (LLAMA, 131073), (QWEN, 40960), (QWEN, 40961), (GPT, 131072), (GPT, 262144), (GLM, 202752), (GLM, 202753),
        (DEEPSEEK, 163840), (DEEPSEEK, 163841), (LLAMA, 1), (LLAMA, 10_000_000),
    )]  # fmt: skip
    return Grid("max-model-len", tuple(probes))


def _batches() -> Grid:
    pairs = ((256, 256), (256, 257), (8192, 1024), (1024, 8192), (None, 1024), (None, 100_000), (16, 16), (1, 1))
    probes = [
        Probe(f"{seqs} requests, {tokens or 'default'} tokens a step", served(LLAMA), {
            "tensorParallel": 8, "maxNumSeqs": seqs, **({"maxNumBatchedTokens": tokens} if tokens else {})})
        for tokens, seqs in pairs
    ]  # fmt: skip
    return Grid("max-num-seqs", tuple(probes))


def _kv_dtype() -> Grid:
    dtypes = ("auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2")
    probes = [Probe(f"{m}, KV as {d}", served(m, kvCacheDtype=d), {"tensorParallel": 8}) for m in (LLAMA, DEEPSEEK, MOE) for d in dtypes]
    return Grid(
        "kv-dtype",
        tuple(probes),
        {
            f"{DEEPSEEK}, KV as fp8_e5m2": "refused when the attention layers are made (layers/attention/attention.py: fp8_e5m2 kv-cache is not "
            "supported with fp8 checkpoints)"
        },
    )


def _experts() -> Grid:
    sizes = (1, 2, 3, 4, 8, 16)
    probes = [
        Probe(f"{m}, {n} GPUs by {r} ranks", served(m), {"tensorParallel": n, "dataParallel": r, "expertParallel": True, "instanceType": H200})
        for m in (GPT, DEEPSEEK)
        for n in sizes
        for r in (1, 2, 3)
    ]
    return Grid(
        "experts",
        tuple(probes),
        {
            ".* by 3 ranks": "vLLM spreads experts that do not come out even, one more on some GPUs (fused_moe/expert_map_manager.py: "
            "determine_expert_map): those GPUs need more memory than the forecast counts, and set the pace"
        },
    )


def _ranks() -> Grid:
    probes = [
        Probe(f"{m} with {r} ranks", served(m), {"tensorParallel": 2, "dataParallel": r, "expertParallel": m not in (LLAMA, QWEN)})
        for m in (LLAMA, QWEN, GPT, MOE)
        for r in (1, 2, 4)
    ]
    return Grid(
        "data-parallel",
        tuple(probes),
        {
            f"({LLAMA}|{QWEN}) with . ranks": "vLLM takes ranks of a dense model, which are then engines of their own behind one port "
            "(https://github.com/vllm-project/vllm/blob/v0.33.0/docs/serving/data_parallel_deployment.md): replicas do the same, and the router "
            "sees them"
        },
    )


def _exchange() -> Grid:
    backends = (
        "allgather_reducescatter", "deepep_high_throughput", "deepep_low_latency", "deepep_v2", "nixl_ep", "moonep", "flashinfer_nvlink_one_sided",
        "flashinfer_nvlink_two_sided", "pplx", "naive", "fastest",
    )  # fmt: skip
    ranks = {"tensorParallel": 1, "dataParallel": 16, "expertParallel": True, "instanceType": H200}
    probes = [Probe(b, served(DEEPSEEK), {**ranks, "all2allBackend": b}, swap={"--all2all-backend": b}) for b in backends]
    return Grid(
        "all-to-all",
        tuple(probes),
        {
            "pplx|naive": "taken and replaced by allgather_reducescatter (config/parallel.py: has been removed)",
            "deepep_.*|nixl_ep|flashinfer_nvlink_.*": "what a backend needs of the network is seen when it is made, on GPUs "
            "(distributed/device_communicators/all2all.py); deepep_v2 is in the image of 0.33.0 and not in that of 0.27.1",
        },
    )


def _nixl_stages() -> Grid:
    probes = [Probe(f"{s} stages", served(LLAMA), {"tensorParallel": 2, "pipelineParallel": s}, split=True) for s in (1, 2, 4)] + [
        Probe(f"server with {s} stages", served(LLAMA), {"tensorParallel": 2, "pipelineParallel": s}) for s in (1, 2, 4)
    ]
    return Grid(
        "nixl-pipeline-parallel",
        tuple(probes),
        {
            "[24] stages": "refused when the connector's worker is made, after the configuration (nixl/base_worker.py), as tests/engine/"
            "test_serving_refusals.py shows on a running engine"
        },
    )


def _drafts() -> Grid:
    methods = ("ngram", "mtp", "deepseek_mtp", "eagle", "eagle3", "draft_model", "dflash", "suffix", "guess")
    probes = [
        Probe(f"{m}, {method}", served(m, speculative={"method": method, "numSpeculativeTokens": 2}), {"tensorParallel": 8, "instanceType": H200})
        for m in (LLAMA, DEEPSEEK, GLM)
        for method in methods
    ]
    return Grid(
        "speculative-method",
        tuple(probes),
        {".*, suffix": "it needs the package arctic-inference, which an image of one's own may hold: the rule warns"},
    )


def _versions(models: tuple[str, ...]) -> Grid:
    probes = [Probe(m, {"model": m, "maxModelLen": 2048}, {"tensorParallel": 8, "instanceType": H200}) for m in models]
    return Grid("engine-version", tuple(probes))


def _blocks() -> Grid:
    probes = [
        Probe(f"{m}, {n} GPUs by {r} ranks{', whole experts' if e else ''}", served(m), {
            "tensorParallel": n, "dataParallel": r, "expertParallel": e, "instanceType": H200})
        for m in (DEEPSEEK, "qwen3-235b-a22b-instruct-fp8") for n in (4, 8, 16) for r in (1, 2) for e in (False, True)
    ]  # fmt: skip
    return Grid(
        "expert-blocks",
        tuple(probes),
        {".*": "refused when the weights of the layers are made (quantization/utils/fp8_utils.py: validate_fp8_block_shape and for experts)"},
    )


def _node() -> Grid:
    probes = [Probe(f"{n} GPUs", served(LLAMA), {"tensorParallel": n}) for n in (1, 2, 4, 8, 16, 32)]
    probes += [Probe(f"{n} GPUs in {s} stages", served(LLAMA), {"tensorParallel": n, "pipelineParallel": s}) for n in (4, 8) for s in (1, 2, 3, 4)]
    return Grid(
        "tensor-parallel",
        tuple(probes),
        {"4 GPUs in 3 stages": "how pods share the GPUs of a node is not vLLM's matter"},
    )


def _form() -> Grid:
    """Values that the stack file's form itself refuses; the flag is what vLLM would have got."""
    one = {"tensorParallel": 8}
    probes = [Probe(f"gpuMemoryUtilization {u}", served(LLAMA, gpuMemoryUtilization=u), one, swap={"--gpu-memory-utilization": str(u)})
              for u in (0.1, 0.9, 0.99, 0, 1, 1.5, -0.5)]  # fmt: skip
    probes += [Probe(f"blockSize {b}", served(LLAMA, blockSize=b), one, swap={"--block-size": str(b)}) for b in (16, 32, 64, 128, 1, 77, 256, 0)]
    # the form takes any kind of KV cache; rule memory-unknown refuses those that nobody can count, fp4 and int3 among them
    kinds = ("auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla")
    probes += [Probe(f"kvCacheDtype {d}", served(LLAMA, kvCacheDtype=d), one, swap={"--kv-cache-dtype": d}) for d in kinds]
    probes += [Probe(f"dtype {d}", served(LLAMA, dtype=d), one, swap={"--dtype": d}) for d in ("bfloat16", "float16", "float32", "int8")]
    probes += [Probe(f"drainSeconds {n}", served(LLAMA, drainSeconds=n), one, swap={"--shutdown-timeout": str(n)}) for n in (1, 60, 0, -1)]
    probes += [
        Probe(f"{n} speculative tokens", served(LLAMA, speculative={"method": "ngram", "numSpeculativeTokens": n}), one,
              swap={"--speculative-config": f'{{"method":"ngram","num_speculative_tokens":{n}}}'})
        for n in (1, 32, 0, -1)
    ]  # fmt: skip
    probes += [Probe(f"tensorParallel {n}", served(LLAMA), {"tensorParallel": n}, swap={"--tensor-parallel-size": str(n)}) for n in (1, 0, -1)]
    probes += [Probe(f"maxModelLen {n}", {"model": LLAMA, "maxModelLen": n}, one, swap={"--max-model-len": str(n)}) for n in (0, -2)]
    return Grid(
        "schema",
        tuple(probes),
        {
            "blockSize (1|77|256)": "vLLM does not look at block sizes before the attention kernels do (v1/attention/backends); the stack file takes "
            "those that the kernels of these GPUs and NIXL run with",
            "dtype float32": "the forecast counts activations and KV of two bytes and less",
            "gpuMemoryUtilization 1": "nothing would be left for what vLLM does not count",
            "drainSeconds 0": "requests in flight would be cut off at each change",
        },
    )


def _connector() -> Grid:
    """Fields that the project writes; extraArgs cannot change them."""
    good = '{"kv_connector":"NixlConnector","kv_role":"kv_consumer"}'
    configs = {
        "kv_connector": good.replace("NixlConnector", "NixelConnector"),
        "kv_role": good.replace("kv_consumer", "kv_eater"),
        "an unknown field": good.replace("kv_role", "kv_roll"),
        "no JSON": "nixl",
    }
    probes = [Probe(f"--kv-transfer-config with another {name}" if name.startswith("kv") else f"--kv-transfer-config with {name}", served(
        LLAMA, extraArgs=[f"--kv-transfer-config={text}"]), {"tensorParallel": 8}, True, {"--kv-transfer-config": text})
        for name, text in configs.items()]  # fmt: skip
    others = ("--tensor-parallel-size=3", "--nnodes=0", "--node-rank=7", "--max-model-len=many", "--block-size=x", "--port=http")
    probes += [Probe(arg, served(LLAMA, extraArgs=[arg]), {"tensorParallel": 8}, swap=dict([arg.split("=", 1)])) for arg in others]
    return Grid(
        "extra-args",
        tuple(probes),
        {"--node-rank=7": "one node has one rank, which vLLM then does not compare; the project sets it from the pod's place in its group"},
    )


def _names() -> Grid:
    values = {
        "--tool-call-parser": ("hermes", "glm47", "kimi_k2", "deepseek_v3", "hermess", "none"),
        "--reasoning-parser": ("glm45", "deepseek_r1", "qwen3", "deepseek_r2"),
        "--quantization": ("fp8", "awq", "fp9"),
        "--attention-backend": ("FLASH_ATTN", "FLASHINFER", "FASTEST"),
        "--tokenizer-mode": ("auto", "slow", "quick"),
        "--convert": ("auto", "embedding"),
        "--scheduling-policy": ("fcfs", "lifo"),
        "--config-format": ("auto", "hf", "toml"),
        "--model-impl": ("auto", "vllm", "fast"),
        "--optimization-level": ("0", "3", "4"),
        "--compilation-config": ('{"mode":3}', '{"mod":3}', "x"),
        "--enforce-eager": ("1",),
        "--max-logprobs": ("20", "many"),
        "--magic": ("1",),
    }
    probes = [
        Probe(f"{flag}={value}", served(LLAMA, extraArgs=[f"{flag}={value}"]), {"tensorParallel": 8})
        for flag, several in values.items()
        for value in several
    ]
    return Grid(
        "engine-flags",
        tuple(probes),
        {
            "--quantization=awq": "whether a quantization goes with the model's own checkpoint is not known here",
            r'--compilation-config=\{"mod":3\}': "keys inside a JSON value are not known here",
        },
    )


def grids(models: tuple[str, ...]) -> tuple[Grid, ...]:
    """All grids; `models` are the catalogue's."""
    return (
        _heads(), _context(), _batches(), _kv_dtype(), _experts(), _ranks(), _exchange(), _nixl_stages(), _drafts(), _versions(models), _blocks(),
        _node(), _form(), _connector(), _names(),
    )  # fmt: skip


ELSEWHERE = {
    "block-size": "vLLM looks at it when it chooses an attention kernel, on a GPU",
    "context-parallel": "its cases are in tests/unit/test_cross_checks.py; how many GPUs a pod has is asked of CUDA alone",
    "flag-pairs": "its cases are in tests/unit/test_cross_checks.py",
    "offload-memory": "about the node's memory",
    "calibration": "about figures of a log, which no flag holds",
    "connector-settings": "tells what has no effect",
    "context-fit": "vLLM refuses it after it has measured the GPU's memory",
    "engine-libfabric": "about the image: NIXL loads LIBFABRIC when the engine starts on a node with EFA",
    "engine-lmcache": "about the image: the package is loaded when the engine starts",
    "extra-env": "vLLM reads variables without looking for wrong ones",
    "host-kv": "about the pod's memory, which no flag names",
    "latent-copies": "tells, refuses nothing",
    "memory-margin": "seen under traffic, on a GPU",
    "memory-fit": "vLLM refuses it when weights are loaded or memory is measured, on a GPU",
    "pair-identity": "seen at the handshake of two engines (tests/engine/test_serving.py)",
    "pd-alike": "seen at the handshake of two engines; what it compares is read from the engine's source (tests/engine/test_pairing.py)",
    "pd-kv-layout": "seen at the handshake of two engines (tests/engine/test_serving.py)",
    "pd-tensor-parallel": "seen at the handshake of two engines, with more than one GPU each",
    "pipeline-speculative": "warns: nobody has published that it works",
    "pipeline-stages": "tells: the slowest stage sets the pace",
    "draft-heads": "seen at the handshake of two engines",
    "draft-model": "about where files are, and their size",
    "hardware-dtype": "vLLM asks the GPU for its generation",
    "tensor-parallel-nodes": "tells what is slow, refuses nothing",
    "weights-streamer": "about the image: the streamer is loaded when weights are read",
    "object-image": "about the image, not about the engine",
}
"""Rules that speak of vLLM and that its parser and configuration checks cannot answer for, with the reason."""
