"""What takes memory beside weights and KV cache, each with a case that was measured or that its source gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from disagg_serving.catalog import load_catalog
from disagg_serving.errors import SpecError
from disagg_serving.forecast.fit import Calibration, EngineShape, Fit, capacity
from disagg_serving.forecast.fit.activation import activation
from disagg_serving.forecast.fit.capacity import calibration_faults
from disagg_serving.forecast.fit.constants import batch_defaults
from disagg_serving.forecast.fit.experts import expert_buffers, expert_kernel
from disagg_serving.forecast.fit.gpus import gpu_of
from disagg_serving.forecast.fit.graphs import capture_sizes, captures, graphs
from disagg_serving.forecast.fit.kv import kv_plan, state_bytes
from disagg_serving.forecast.fit.sparse import kept_at_load
from disagg_serving.forecast.fit.vision import encoder_peak, tower_weights
from disagg_serving.forecast.fit.weights import in_gib, stages, weights
from factories import ROOT

CATALOG = load_catalog(["tests/data"], ROOT)
GIB, MIB = 2**30, 2**20
A100, H100, H200, B200 = 79.25, 79.19, 139.81, 178.36


def shape(model: str, gib: float = H200, version: str = "0.27.1", **given: Any) -> EngineShape:
    """An engine, on H200 unless it is said."""
    return EngineShape(CATALOG.models[model], version, gib, **given)


def test_packed_sparse_attention_unpacks_its_longest_prefill() -> None:
    """GLM-5.2-FP8 with TP8 and FP8 KV of 1,048,576 tokens: 5.6 GiB at load up to v0.30, so 94.3 GiB before KV and about 25 left; 2.25 from v0.31."""
    given: dict[str, Any] = {"tensor_parallel": 8, "kv_cache_dtype": "fp8", "max_model_len": 1_048_576}
    old, new = (capacity(shape("glm-5.2-fp8", version=v, **given)) for v in ("0.27.1", "0.33.0"))
    rows = {v: kept_at_load(shape("glm-5.2-fp8", version=v, **given)) / GIB for v in ("0.17.0", "0.30.0", "0.33.0")}
    assert rows["0.17.0"] == pytest.approx(5 * 1_048_576 * 576 * 2 / GIB)
    assert rows["0.30.0"] - rows["0.33.0"] == pytest.approx(3 * 1_048_576 * 576 * 2 / GIB)
    assert old.weights_gib.mid == pytest.approx(94.2, abs=0.3)
    assert old.kv_gib.mid == pytest.approx(25.8, abs=1)
    assert new.kv_gib.mid > old.kv_gib.mid + 2


def test_bf16_sparse_attention_unpacks_nothing() -> None:
    """A bf16 cache is read as it is; from v0.25 Hopper's kernel joins no queries either, and on Blackwell FlashInfer keeps FP8 plain."""
    given: dict[str, Any] = {"tensor_parallel": 8}
    assert kept_at_load(shape("glm-5-fp8", version="0.24.0", **given)) == 8192 * 64 / 8 * 576 * 2
    assert kept_at_load(shape("glm-5-fp8", version="0.26.0", **given)) == 0
    assert kept_at_load(shape("glm-5-fp8", B200, "0.27.1", kv_cache_dtype="fp8", **given)) == 0
    assert kept_at_load(shape("deepseek-v3", **given)) == 0


@pytest.mark.parametrize(
    ("gib", "version", "dtype", "expected"),
    [
        (H200, "0.33.0", "auto", 100_152),
        (H200, "0.33.0", "fp8_e4m3", 61_464),
        (B200, "0.33.0", "auto", 78 * (576 + 132)),
        (B200, "0.33.0", "fp8_ds_mla", 61_464),
        (B200, "0.30.0", "auto", 100_152),
        (B200, "0.24.0", "fp8", 78 * (576 + 132)),
        (B200, "0.17.0", "fp8", 61_464),
    ],
)
def test_sparse_models_choose_their_kv_layout_by_gpu_and_version(gib: float, version: str, dtype: str, expected: int) -> None:
    """FP8 is packed (656 B) on Hopper; Blackwell keeps it plain from v0.19 on, and takes it by default from v0.31 on."""
    assert capacity(shape("glm-5-fp8", gib, version, kv_cache_dtype=dtype)).kv_bytes_per_token_per_gpu == expected


@pytest.mark.parametrize(
    ("model", "gib", "version", "given", "kernel"),
    [
        ("qwen3-235b-a22b-instruct-fp8", H100, "0.20.0", {"tensor_parallel": 4}, "triton"),
        ("qwen3-235b-a22b-instruct-fp8", H100, "0.20.0", {"tensor_parallel": 4, "expert_parallel": True}, "flashinfer_cutlass"),
        ("qwen3-235b-a22b-instruct-fp8", H100, "0.15.1", {"tensor_parallel": 4}, "deep_gemm"),
        ("glm-5-fp8", H200, "0.15.1", {"tensor_parallel": 8}, "triton"),
        ("glm-5-fp8", B200, "0.33.0", {"tensor_parallel": 8}, "flashinfer_trtllm"),
        ("kimi-k2.5", H200, "0.15.1", {"tensor_parallel": 8}, "marlin_by_itself"),
        ("kimi-k2.5", H200, "0.27.1", {"tensor_parallel": 8}, "marlin"),
        ("kimi-k2.5-nvfp4", B200, "0.19.0", {"tensor_parallel": 8}, "flashinfer_trtllm"),
        ("gpt-oss-120b", H100, "0.11.0", {}, "marlin"),
        ("gpt-oss-120b", H100, "0.12.0", {}, "triton_mxfp4"),
        ("gpt-oss-120b", B200, "0.33.0", {}, "flashinfer_trtllm"),
        ("gpt-oss-20b", A100, "0.19.0", {"gpu": "A100-80GB"}, "marlin"),
        ("qwen3.6-35b-a3b", H200, "0.20.0", {}, "flashinfer_cutlass"),
        ("qwen3.6-35b-a3b", H200, "0.33.0", {}, "triton"),
    ],
)
def test_the_kernel_of_experts_is_read_from_the_release(model: str, gib: float, version: str, given: dict[str, Any], kernel: str) -> None:
    """By precision, GPU, version and whether experts are whole: what vLLM's oracles choose."""
    assert expert_kernel(shape(model, gib, version, **given)) == kernel


def test_experts_keep_two_buffers_and_copies() -> None:
    """Qwen3-235B-FP8 with whole experts on Triton: 163 KB a token, as a run measured between 8,192 and 65,536 tokens."""
    few, many = (
        shape(
            "qwen3-235b-a22b-instruct-fp8",
            H100,
            "0.20.0",
            tensor_parallel=4,
            expert_parallel=True,
            moe_backend="triton",
            gpu_memory_utilization=0.92,
            max_num_seqs=128,
            max_num_batched_tokens=n,
        )
        for n in (8192, 65_536)
    )
    assert expert_buffers(few).kept == 8192 * 8 * 2 * 4096 * 2
    grown = activation(many, stages(many)[0]).mid - activation(few, stages(few)[0]).mid
    assert grown * GIB / (65_536 - 8192) == pytest.approx(163_000, rel=0.02)
    assert capacity(many).kv_gib.mid == pytest.approx(4.15, abs=0.3)


def test_steps_were_cut_for_experts_up_to_v0_17() -> None:
    """While vLLM cut steps into 16,384 tokens, a larger one takes only its output more."""
    at = {"tensor_parallel": 4, "max_num_batched_tokens": 32_768}
    old, new = (expert_buffers(shape("qwen3-235b-a22b-instruct-fp8", H100, v, moe_backend="triton", **at)).kept for v in ("0.17.0", "0.18.0"))
    assert (old, new) == (16_384 * 8 * 2 * 4096 * 2 + 32_768 * 4096 * 2, 32_768 * 8 * 2 * 4096 * 2)


@pytest.mark.parametrize(
    ("model", "given", "count", "gib"),
    [
        ("kimi-k2.6", {"tensor_parallel": 8, "max_num_seqs": 1}, 3, 0.13),
        ("qwen3.6-35b-a3b", {"max_num_seqs": 32, "speculative": True, "draft_tokens": 3}, 50, 0.50),
        ("qwen3-235b-a22b-instruct-fp8", {"tensor_parallel": 4, "max_num_seqs": 128}, 54, 1.10),
    ],
)
def test_graphs_grow_with_the_captured_sizes(model: str, given: dict[str, Any], count: int, gib: float) -> None:
    """As many graphs as a log names, and about what it estimates for them, where one constant was 1 GiB."""
    engine = shape(model, version="0.20.0", **given)
    assert captures(engine) == count
    assert graphs(engine).low <= gib <= graphs(engine).high
    assert graphs(engine).mid == pytest.approx(gib, abs=0.05)


def test_graphs_count_from_v0_20() -> None:
    """Before, the budget gives them nothing, nor to an engine without; 256 and more tokens are captured in steps of 16."""
    engine = {"tensor_parallel": 4}
    assert [graphs(shape("qwen3-32b", version=v, **engine)).mid > 0 for v in ("0.19.0", "0.20.0")] == [False, True]
    assert graphs(shape("qwen3-32b", eager=True)).high == 0
    sizes = capture_sizes(shape("qwen3-32b", max_num_seqs=1024))
    assert (sizes[:4], sizes[-2:], len(sizes)) == ((1, 2, 4, 8), (496, 512), 51)


def test_an_a100_takes_small_steps() -> None:
    """A device called A100 gets 2,048 tokens and 256 sequences in spite of its memory, and 16,384 to 160 GiB from v0.28 on."""
    a100 = shape("llama-3.1-8b-instruct", A100, gpu="A100-80GB")
    assert (a100.batched_tokens, a100.sequence_slots) == (2048, 256)
    assert (shape("llama-3.1-8b-instruct", H100, gpu="h100").batched_tokens, batch_defaults(B200, "0.27.1")) == (8192, (8192, 1024))
    assert batch_defaults(B200, "0.28.0") == (16_384, 1024)


def test_gpus_are_known_by_name() -> None:
    """The longest known name counts; for others the memory tells the generation."""
    assert gpu_of("H200-141GB", H200) == gpu_of("h200", 1) == gpu_of("", H200)
    assert not gpu_of("h200-nvl", H200).switched
    assert gpu_of("h200", H200).multicast
    assert gpu_of("A100-80GB", A100).switched
    assert not gpu_of("A100-80GB", A100).multicast
    assert gpu_of("RTX-PRO-6000-96GB", 95).capability == (12, 0)
    assert gpu_of("x9000", 200).capability == (10, 0)


def test_memory_outside_of_torch_follows_graphs_and_fabric() -> None:
    """What captures leave behind counts from v0.18 on; without graphs and over PCIe it is less."""
    version, given = "0.19.0", {"tensor_parallel": 4}
    with_graphs, eager, bridged = (
        capacity(shape("qwen3-32b", H100, version, **given, **more)).overhead_gib.mid for more in ({}, {"eager": True}, {"gpu": "h100-pcie"})
    )
    assert with_graphs - eager == pytest.approx(2.1 - 0.55)
    assert with_graphs - bridged == pytest.approx(2.1 - 0.7)
    assert capacity(shape("qwen3-32b", H100, "0.17.0", **given)).overhead_gib.mid == pytest.approx(eager)


def test_a_vision_tower_is_weights_and_work() -> None:
    """Kimi-K2.5's 0.9 GiB whole on each GPU, or cut by tensor parallelism; Qwen3.6's encoder of 65,536 patches is the peak of its dummy run."""
    forms: tuple[dict[str, Any], ...] = ({"whole_encoder": True}, {}, {"text_only": True})
    whole, cut, none = (shape("kimi-k2.5", tensor_parallel=8, **form) for form in forms)
    assert tower_weights(whole) / GIB == pytest.approx(0.87, abs=0.03)
    assert tower_weights(cut) / GIB == pytest.approx(0.21, abs=0.02)
    assert (tower_weights(none), encoder_peak(none)) == (0, 0)
    small = shape("qwen3.6-35b-a3b", version="0.20.0", max_num_seqs=32)
    assert activation(small, stages(small)[0]).mid == encoder_peak(small) / GIB
    assert encoder_peak(small) / GIB == pytest.approx(1.6, abs=0.1)


def test_linear_layers_hold_a_state_and_no_tokens() -> None:
    """Qwen3.6-35B with 3 draft tokens: blocks of 1,072 tokens, four states of three groups of layers, 33.55 requests of 65,536 in 55.87 GiB."""
    engine = shape("qwen3.6-35b-a3b", version="0.20.0", max_model_len=65_536, speculative=True, draft_tokens=3)
    plan = kv_plan(engine)
    assert state_bytes(engine) == 6 * 8192 * 2 + 32 * 128 * 128 * 4
    assert (plan.block_size, plan.full_groups, plan.state_groups, plan.states) == (1072, 1, 3, 4)
    blocks = int(55.87 * GIB / plan.block_bytes[0])
    assert blocks / plan.blocks_of(65_536) == pytest.approx(33.55, rel=0.002)
    assert plan.tokens_of(blocks, 65_536) == pytest.approx(664_640, rel=0.002)


def test_windows_may_have_heads_of_their_own() -> None:
    """Gemma 4 keeps 8 heads of 256 in 25 windows and 2 of 512 in 5 layers: a block holds twice the tokens of the latter."""
    plan = kv_plan(shape("gemma-4-26b-a4b"))
    assert (plan.full_groups, plan.window_groups, plan.block_size, plan.window_block) == (1, 5, 32, 16)
    assert plan.block_bytes == (5 * 2 * 8 * 256 * 2 * 16,)
    assert plan.token_bytes == (5 * 2 * 2 * 512 * 2,)


def test_a_start_settles_a_model_that_cannot_be_calculated() -> None:
    """A class whose cache is not known is refused with the way out; with the memory of its log, weights, tokens and requests are those of the log."""
    facts = CATALOG.models["llama-3.1-8b-instruct"].model_copy(update={"architecture": "DeepseekV4ForCausalLM"})
    with pytest.raises(SpecError, match="compressed by 4 and by 128 tokens") as caught:
        capacity(EngineShape(facts, "0.33.0", H200))
    assert "disagg fit --log" in caught.value.findings[0].fix
    record = Calibration(weights_gib=20.32, kv_gib=90, tokens=1_000_000, gpu_memory_utilization=0.9)
    found = capacity(EngineShape(facts, "0.33.0", H200, calibration=record, max_model_len=100_000))
    assert (found.weights_gib.mid, found.kv_gib.mid, found.fits) == (20.32, 90, Fit.FITS)
    assert found.kv_tokens.mid == pytest.approx(1_000_000, rel=0.001)
    assert found.max_concurrency.mid == pytest.approx(10, rel=0.001)
    assert [s.name for s in found.steps] == ["budget", "weights", "KV cache", "KV bytes a token", "tokens"]
    too_much = replace(record, kv_gib=120.0)
    assert [field for field, _ in calibration_faults(EngineShape(facts, "0.33.0", H200, calibration=too_much))] == ["kvCacheGiB"]
    with pytest.raises(SpecError):
        capacity(EngineShape(facts, "0.33.0", H200, calibration=replace(record, tokens=None)))


def test_marlin_by_itself_keeps_no_output_in_its_second_buffer() -> None:
    """INT4 experts of v0.20 take 3.25 GiB less than the modular kernel of v0.27 for the same 32,768 tokens: 8 x (7,168 - 512) bf16 values each."""
    given = {"tensor_parallel": 4, "max_num_batched_tokens": 32768}
    old, new = (expert_buffers(shape("kimi-k2.5", B200, version, **given)) for version in ("0.20.0", "0.27.1"))
    output = 32768 * 7168 * 2
    assert old.kept == output
    assert new.kept - old.step == 32768 * 8 * (7168 - 512) * 2


def test_marlin_spreads_the_scales_of_fp8_blocks() -> None:
    """MiniMax-M2.7-FP8 with TP4 takes 54.58 GiB on A100 and 53.7 where the GPU multiplies FP8: a bf16 scale for each column of 128 rows."""
    engines = (shape("minimax-m2.7", gib, tensor_parallel=4, gpu=gpu) for gpu, gib in (("a100", A100), ("h100", H100)))
    a100, h100 = (in_gib(weights(engine, stages(engine)[0])).mid for engine in engines)
    assert a100 == pytest.approx(54.58, rel=0.003)
    assert h100 == pytest.approx(53.67, rel=0.003)


def test_cached_prefixes_keep_a_second_state() -> None:
    """Hybrid models cache prefixes by default from v0.26 on, and then each group of linear layers holds two states of a request instead of one."""
    before, after = (kv_plan(shape("qwen3.6-35b-a3b", version=version)).blocks_of(65_536) for version in ("0.25.0", "0.27.1"))
    assert after - before == kv_plan(shape("qwen3.6-35b-a3b")).state_groups == 3
