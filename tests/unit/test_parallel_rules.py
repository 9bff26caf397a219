"""Layouts and settings that vLLM or NIXL refuse at start: what the rules say, and that what they propose passes."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from disagg_serving.catalog.entries import WeightDtype
from disagg_serving.corrections import corrected
from disagg_serving.errors import Finding, Level
from disagg_serving.forecast.fit.gpus import gpu_of, native_on
from factories import aggregated, check, environment, model, role

H200, B200, H100 = "p5en.48xlarge", "p6-b200.48xlarge", "p5.48xlarge"


def said(data: dict[str, Any], rule: str) -> list[Finding]:
    """What a rule says."""
    return [f for f in check(data).findings if f.id == rule]


def levels(data: dict[str, Any], rule: str) -> list[str]:
    """Levels of what a rule says."""
    return [str(f.level) for f in said(data, rule)]


def split(name: str, prefill: str, decode: str, **overrides: Any) -> dict[str, Any]:
    """Prefill and decode of whole nodes of two types."""
    sides = {"prefill": role(instanceType=prefill, tensorParallel=8), "decode": role(instanceType=decode, tensorParallel=8)}
    return environment(model(**{"model": name, "maxModelLen": 16384, **sides, **overrides}))


def served(name: str, tensor_parallel: int, *, experts: bool, instance: str = H100) -> dict[str, Any]:
    """An aggregated engine of so many GPUs."""
    server = role(instanceType=instance, tensorParallel=tensor_parallel, expertParallel=experts)
    return environment(aggregated(model=name, maxModelLen=8192, server=server))


@pytest.mark.parametrize("name", ["glm-5-fp8", "deepseek-v3"])
def test_both_roles_keep_kv_in_one_layout(name: str) -> None:
    """Hopper and Blackwell choose other KV dtypes or block sizes for latent attention, so decode cannot read what prefill wrote."""
    (found,) = said(split(name, H200, B200), "pd-kv-layout")
    assert found.level is Level.ERROR
    assert found.path == "models[0].decode.instanceType"
    assert levels(split(name, B200, H200), "pd-kv-layout") == ["error"]
    for kind in (H200, B200):
        assert check(split(name, kind, kind)).ok
        assert not said(split(name, kind, kind), "pd-kv-layout")
    assert not said(split(name, "p5e.48xlarge", H200), "pd-kv-layout")


def test_the_same_bytes_on_two_generations_are_a_warning() -> None:
    """Where dtype and blocks agree the attention backend may still differ, unless it is named."""
    mixed = split("llama-3.3-70b-instruct-fp8", H200, B200)
    assert levels(mixed, "pd-kv-layout") == ["warning"]
    assert not said(split("llama-3.3-70b-instruct-fp8", H200, B200, extraArgs=["--attention-backend=FLASH_ATTN"]), "pd-kv-layout")


@pytest.mark.parametrize(
    ("name", "bad", "good", "level"),
    [
        ("FI_EFA_USE_DEVICE_RDMA", "0", "1", "error"),
        ("NCCL_NET", "Socket", "AWS Libfabric", "error"),
        ("UCX_TLS", "tcp", None, "warning"),
        ("FI_EFA_USE_HUGE_PAGE", "1", "0", "error"),
        ("LD_LIBRARY_PATH", "/usr/lib", None, "error"),
        ("RDMAV_FORK_SAFE", "1", None, "warning"),
    ],
)
def test_variables_that_harm_efa(name: str, bad: str, good: str | None, level: str) -> None:
    """The value that breaks EFA is refused, the right one is not, nor is any where nothing moves over EFA."""
    assert levels(environment(model(extraEnv={name: bad})), "efa-env") == [level]
    assert not said(environment(aggregated(extraEnv={name: bad})), "efa-env")
    if good is not None:
        assert not said(environment(model(extraEnv={name: good})), "efa-env")


@pytest.mark.parametrize("experts", [False, True])
@pytest.mark.parametrize("name", ["deepseek-v3", "kimi-k2-instruct", "glm-5-fp8"])
def test_fp8_is_cut_at_whole_blocks(name: str, *, experts: bool) -> None:
    """Shared experts and dense layers are cut by tensorParallel even where routed experts stay whole; the proposed size passes."""
    (found,) = said(served(name, 32, experts=experts), "expert-blocks")
    assert found.level is Level.ERROR
    assert "shared experts" in found.message
    assert ("dense layers" in found.message) == (name != "glm-5-fp8")
    assert ("routed experts" in found.message) != experts
    assert found.fix == "use 16"
    assert not said(served(name, 16, experts=experts), "expert-blocks")
    assert not said(served(name, 8, experts=experts), "expert-blocks")


def test_whole_experts_are_proposed_where_they_help() -> None:
    """Qwen3-235B has neither shared experts nor dense layers, so whole experts end the matter; FP8 without blocks is never refused."""
    (found,) = said(served("qwen3-235b-a22b-instruct-fp8", 8, experts=False), "expert-blocks")
    assert found.fix == "set expertParallel: true, or use 4"
    assert not said(served("qwen3-235b-a22b-instruct-fp8", 8, experts=True), "expert-blocks")
    assert not said(served("llama-3.3-70b-instruct-fp8", 32, experts=False), "expert-blocks")


def test_fp8_checkpoints_and_e5m2() -> None:
    """The engine refuses fp8_e5m2 for block-quantised checkpoints; for compressed-tensors only where they hold scales; never for bf16 ones."""
    block = aggregated(model="deepseek-v3", maxModelLen=8192, kvCacheDtype="fp8_e5m2", server=role(instanceType=H200, tensorParallel=8))
    assert levels(environment(block), "kv-dtype") == ["error"]
    assert not said(environment({**block, "kvCacheDtype": "auto"}), "kv-dtype")
    assert levels(environment(model(kvCacheDtype="fp8_e5m2")), "kv-dtype") == ["warning"]
    assert not said(environment(aggregated(model="llama-3.1-8b-instruct", kvCacheDtype="fp8_e5m2")), "kv-dtype")


@pytest.mark.parametrize(
    ("method", "expected"),
    [("mtp", ["error"]), ("deepseek_mtp", ["error"]), ("eagle3", ["error"]), ("nonsense", ["error"]), ("ngram", []), ("suffix", ["warning"])],
)
def test_speculative_methods(method: str, expected: list[str]) -> None:
    """Without MTP layers nothing drafts by mtp, and without a draft model nothing by eagle; what asks for one more package is a warning."""
    assert levels(environment(model(speculative={"method": method, "numSpeculativeTokens": 2})), "speculative-method") == expected


def test_mtp_with_layers_passes() -> None:
    """GLM-5 has an MTP layer."""
    result = check(split("glm-5-fp8", H200, H200, speculative={"method": "mtp", "numSpeculativeTokens": 2}))
    assert "speculative-method" not in {f.id for f in result.findings}
    assert result.ok


def test_a_step_has_a_token_for_each_request() -> None:
    """The SchedulerConfig of vLLM refuses fewer tokens than requests, by its own default too."""
    both = environment(model(decode=role(maxNumSeqs=512, maxNumBatchedTokens=256), prefill=role(maxNumSeqs=9000)))
    assert {f.path: f.allowed for f in said(both, "max-num-seqs")} == {
        "models[0].decode.maxNumSeqs": "at most 256",
        "models[0].prefill.maxNumSeqs": "at most 8192",
    }
    assert not said(environment(model(decode=role(maxNumSeqs=256, maxNumBatchedTokens=256))), "max-num-seqs")
    assert not said(environment(model(decode=role(maxNumBatchedTokens=64))), "max-num-seqs")


@pytest.mark.parametrize(
    "arg",
    [
        "--decode-context-parallel-size=2",
        "--decode_context_parallel_size=2",
        "--cpu-offload-gb=4",
        "--quantization=fp8",
        "--kv-cache-memory-bytes=1",
        "--num-gpu-blocks-override=3",
        "--hf-overrides.a=1",
        "--enable-lora",
        "--enable-eplb",
        "--disable-hybrid-kv-cache-manager",
        '--compilation-config={"cudagraph_mode":"FULL"}',
        '--eplb-config={"num_redundant_experts":32}',
        "--max-cudagraph-capture-size=2048",
    ],
)
def test_flags_that_the_forecast_does_not_count(arg: str) -> None:
    """They are a warning until every role has a calibration."""
    measured = {"weightsGiB": 34, "kvCacheGiB": 30}
    assert levels(environment(model(extraArgs=[arg])), "forecast-flags") == ["warning"]
    calibrated = model(extraArgs=[arg], prefill=role(calibration=measured), decode=role(calibration=measured))
    assert not said(environment(calibrated), "forecast-flags")
    assert not said(environment(model(extraArgs=["--enable-log-requests"])), "forecast-flags")


@pytest.mark.parametrize("name", ["VLLM_PP_LAYER_PARTITION", "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "VLLM_MLA_DISABLE"])
def test_variables_that_the_forecast_does_not_count(name: str) -> None:
    """The cut of layers into stages, whether graphs count in the budget and whether latents are kept are variables of vLLM's."""
    assert levels(environment(model(extraEnv={name: "1"})), "forecast-flags") == ["warning"]


def test_an_instance_that_does_not_hold_the_model_is_no_way_out() -> None:
    """Beside a model that does not fit one GPU, another node of the same GPU is no answer; an engine that holds it is."""
    small = role(instanceType="p5.4xlarge", tensorParallel=1)
    (found,) = [f for f in said(environment(model(prefill=small)), "gpu-direct-rdma") if f.path.startswith("models[0].prefill")]
    assert {"models[0].prefill.instanceType": H100} not in found.corrections
    assert {"models[0].prefill.instanceType": H100, "models[0].prefill.tensorParallel": 2} in found.corrections
    light = model(model="llama-3.1-8b-instruct", maxModelLen=8192, prefill=small, decode=small)
    (found, _) = said(environment(light), "gpu-direct-rdma")
    assert {"models[0].decode.instanceType": H100} in found.corrections


def test_a_proposed_size_divides_the_heads() -> None:
    """Three GPUs divide no heads, so another size is proposed for both roles, and it passes."""
    (found,) = said(environment(model(prefill=role(tensorParallel=3), decode=role(tensorParallel=2))), "pd-tensor-parallel")
    assert found.fix == "use 2 in both roles"
    assert check(environment(model(prefill=role(tensorParallel=2), decode=role(tensorParallel=2)))).ok
    (found,) = said(environment(model(prefill=role(tensorParallel=4), decode=role(tensorParallel=3))), "pd-tensor-parallel")
    assert found.fix == "use 4"
    (found,) = said(environment(model(prefill=role(tensorParallel=24), decode=role(tensorParallel=8))), "pd-tensor-parallel")
    assert found.fix == "set prefill.tensorParallel: 8"


@pytest.mark.parametrize("ranks", [2, 3, 12, 64])
@pytest.mark.parametrize("sizes", [(3, 2), (16, 1), (24, 8)])
def test_sizes_that_differ_are_explained_with_ranks_too(sizes: tuple[int, int], ranks: int) -> None:
    """With a number of ranks for which few or no sizes fill a node there is still a finding and no traceback."""
    for name in ("deepseek-v3", "qwen3-235b-a22b-instruct-fp8"):
        sides = {
            side: role(tensorParallel=size, dataParallel=ranks, expertParallel=True) for side, size in zip(("prefill", "decode"), sizes, strict=True)
        }
        assert not check(environment(model(model=name, maxModelLen=8192, **sides))).ok


def test_roles_without_stages_that_are_proposed_pass() -> None:
    """Each engine that is named instead of pipeline stages holds the model, and no rule refuses it."""
    staged = {side: role(tensorParallel=8, pipelineParallel=2) for side in ("prefill", "decode")}
    found = said(environment(model(model="glm-5-fp8", maxModelLen=16384, **staged)), "nixl-pipeline-parallel")
    assert len(found) == 2
    data = environment(model(model="glm-5-fp8", maxModelLen=16384, **staged))
    ranks = {"tensorParallel": 8, "pipelineParallel": 1, "dataParallel": 2, "expertParallel": True, "instanceType": H100}
    assert {f"models[0].prefill.{key}": value for key, value in ranks.items()}.items() <= found[0].corrections[0].items()
    for correction in found[0].corrections:
        result = check(corrected(data, correction))
        assert result.ok, [f.sentence() for f in result.findings if f.level is Level.ERROR]


def test_flags_about_tokens_are_no_secrets() -> None:
    """A flag is suspected by what its name ends in or says outright, not by a word for the unit it counts in."""
    assert not said(environment(model(extraArgs=["--long-prefill-token-threshold=2048"])), "extra-args")
    for secret in ("--hf-token=x", "--my-secret-token-file=x"):
        assert said(environment(model(extraArgs=[secret])), "extra-args")


@pytest.mark.parametrize(
    ("data", "ways"),
    [
        (served("llama-3.3-70b-instruct", 16, experts=False), [{"tensorParallel": 8, "pipelineParallel": 2}, {"tensorParallel": 8, "replicas": 2}]),
        (
            served("glm-5-fp8", 16, experts=False, instance=H100),
            [{"tensorParallel": 8, "dataParallel": 2, "expertParallel": True}, {"tensorParallel": 8, "pipelineParallel": 2}],
        ),
    ],
)
def test_layers_stay_inside_a_node(data: dict[str, Any], ways: list[dict[str, Any]]) -> None:
    """Tensor parallelism over nodes starts, and waits for the network in every layer: stages, ranks or more engines do not."""
    (found,) = said(data, "tensor-parallel-nodes")
    assert (found.level, found.value, found.allowed) == (Level.WARNING, 16, "at most 8")
    assert [{k.rpartition(".")[2]: v for k, v in c.items()} for c in found.corrections] == ways
    for correction in found.corrections:
        result = check(corrected(data, correction))
        assert result.ok
        assert not [f for f in result.findings if f.id == "tensor-parallel-nodes"]
    assert not said(served("llama-3.3-70b-instruct", 8, experts=False), "tensor-parallel-nodes")


def test_both_roles_leave_the_second_node_together() -> None:
    """Decode alone cannot have fewer GPUs than prefill where each of those holds a copy of a KV head."""
    pair = environment(model(prefill=role(tensorParallel=16), decode=role(tensorParallel=16)))
    decode, prefill = said(pair, "tensor-parallel-nodes")
    assert {k.split(".")[1] for k in decode.corrections[0]} == {"prefill", "decode"}
    assert not [f for f in check(corrected(pair, decode.corrections[0])).findings if f.id in {"tensor-parallel-nodes", "pd-tensor-parallel"}]
    assert prefill.corrections


@pytest.mark.parametrize(
    ("gpu", "unpacked"),
    [
        ("a100", {"fp8", "mxfp4", "nvfp4"}),
        ("l40s", {"mxfp4", "nvfp4"}),
        ("h100", {"nvfp4"}),
        ("gh200", {"nvfp4"}),
        ("b200", set()),
        ("rtx-pro-6000", set()),
    ],
)
def test_gpus_compute_in_some_dtypes(gpu: str, unpacked: set[str]) -> None:
    """Which weights are unpacked to 16 bits follows from the GPU's compute capability, whatever its name begins with; the rest runs as it is."""
    assert {dtype for dtype in get_args(WeightDtype) if not native_on(dtype, gpu_of(gpu, 80))} == unpacked
