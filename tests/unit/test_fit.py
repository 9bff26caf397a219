from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from disagg_serving.catalog import Catalog, Model, load_catalog
from disagg_serving.catalog.families import calculated
from disagg_serving.catalog.loader import PACKAGE_DIR
from disagg_serving.errors import SpecError
from disagg_serving.forecast import fit
from disagg_serving.forecast.fit import Bars, Calibration, Capacity, EngineShape, Fit, capacity, unknown_architecture
from disagg_serving.forecast.fit.constants import constant, follows, release
from disagg_serving.forecast.fit.sparse import LONG
from disagg_serving.forecast.fit.weights import indexer_layers, precisions, stages, weight_parts
from disagg_serving.yaml_io import read_yaml
from hypothesis import assume, given
from hypothesis import strategies as st

CATALOG: Catalog = load_catalog()
MODELS, INSTANCES = list(CATALOG.models), list(CATALOG.instances)
H100, H200, B200 = (CATALOG.instances[i].gpu.memory_gib_torch for i in ("p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge"))
UNIFORM = [m for m in MODELS if CATALOG.models[m].sliding_window is None]
DATA = read_yaml(PACKAGE_DIR / "overheads.yaml")


def shape(model: str = "glm-5-fp8", **overrides: Any) -> EngineShape:
    """An engine of the newest catalogued version on H200."""
    return EngineShape(**{"facts": CATALOG.models[model], "engine_version": "0.33.0", "gpu_memory_gib": H200, **overrides})


def fitted(model: str = "glm-5-fp8", **overrides: Any) -> Capacity:
    """The capacity of such an engine."""
    return capacity(shape(model, **overrides))


def engines(models: list[str] = MODELS) -> st.SearchStrategy[dict[str, Any]]:
    """Engines of catalogued models, with the sizes of a step given so that they do not follow from the GPU."""
    return st.fixed_dictionaries(
        {
            "model": st.sampled_from(models),
            "gpu_memory_gib": st.floats(20, 300),
            "gpu_memory_utilization": st.floats(0.3, 0.98),
            "tensor_parallel": st.sampled_from([1, 2, 4, 8, 16]),
            "pipeline_parallel": st.integers(1, 4),
            "kv_cache_dtype": st.sampled_from(["auto", "fp8"]),
            "engine_version": st.sampled_from(["0.11.0", "0.19.0", "0.24.0", "0.33.0"]),
            "max_model_len": st.integers(1, 300_000),
            "max_num_batched_tokens": st.sampled_from([1024, 8192, 16384]),
            "max_num_seqs": st.sampled_from([64, 1024]),
            "nixl": st.booleans(),
            "speculative": st.booleans(),
            "gpu": st.just("h100"),
        }
    )


def test_the_playbook_s_two_p5_nodes_hold_glm_5() -> None:
    """GLM-5-FP8 with TP8 x PP2 on p5: 46.1 GiB of weights a GPU, and twice the KV tokens of TP16, whose ranks each keep all layers."""
    two = fitted(gpu_memory_gib=H100, tensor_parallel=8, pipeline_parallel=2, nodes=2, gpu_memory_utilization=0.92)
    fp8 = fitted(gpu_memory_gib=H100, tensor_parallel=8, pipeline_parallel=2, nodes=2, gpu_memory_utilization=0.92, kv_cache_dtype="fp8")
    flat = fitted(gpu_memory_gib=H100, tensor_parallel=16, nodes=2, gpu_memory_utilization=0.92)
    assert two.weights_gib.mid == pytest.approx(46.1, rel=0.01)
    assert two.budget_gib == pytest.approx(72.85, abs=0.01)
    assert (two.kv_bytes_per_token_per_gpu, fp8.kv_bytes_per_token_per_gpu) == (50_076, 30_732)
    assert 19 <= two.kv_gib.mid <= 21
    assert two.fits is Fit.FITS
    assert two.kv_tokens.mid > 1.9 * flat.kv_tokens.mid
    assert two.stage == 1
    assert two.max_concurrency.mid == pytest.approx(two.kv_tokens.mid / 202_752, rel=0.01)


def test_glm_5_does_not_fit_one_p5_and_fits_one_p5en() -> None:
    """TP8 on one p5.48xlarge is refused with the numbers; on p5en it fits even in the worst case."""
    refused, accepted = (fitted(gpu_memory_gib=m, tensor_parallel=8, gpu_memory_utilization=0.92) for m in (H100, H200))
    assert (refused.fits, accepted.fits) == (Fit.NO, Fit.FITS)
    assert refused.kv_tokens == refused.kv_gib == Bars(0, 0, 0)
    text = "\n".join(f"{s.name}: {s.formula} -> {s.result}" for s in refused.steps)
    assert "79.19 GiB x 0.92 -> 72.85 GiB" in text
    assert "72.85 - 89.10 - 7.56 GiB = -23.81, so nothing is left" in text
    assert accepted.longest_fitting == 202_752


@pytest.mark.parametrize(
    ("model", "parallel", "bf16", "fp8"),
    [
        ("llama-3.3-70b-instruct", {}, 327_680, 163_840),
        ("llama-3.3-70b-instruct", {"tensor_parallel": 8}, 40_960, 20_480),
        ("llama-3.3-70b-instruct", {"tensor_parallel": 16}, 40_960, 20_480),
        ("llama-3.3-70b-instruct", {"pipeline_parallel": 2}, 163_840, 81_920),
        ("qwen3-235b-a22b-instruct", {}, 192_512, 96_256),
        ("qwen3-235b-a22b-instruct", {"tensor_parallel": 4}, 48_128, 24_064),
        ("qwen3-235b-a22b-instruct", {"tensor_parallel": 8}, 48_128, 24_064),
        ("deepseek-v3", {"tensor_parallel": 8}, 70_272, 35_136),
        ("kimi-k2-instruct", {"tensor_parallel": 8}, 70_272, 35_136),
        ("deepseek-v3", {"pipeline_parallel": 2}, 35_712, 17_856),
        ("deepseek-v3.2", {}, 78_324, 48_068),
        ("deepseek-v3.2", {"pipeline_parallel": 2}, 39_804, 24_428),
        ("glm-5-fp8", {}, 100_152, 61_464),
        ("glm-5-fp8", {"pipeline_parallel": 2}, 50_076, 30_732),
        ("glm-5.2-fp8", {}, 92_628, 53_940),
        ("glm-5.2-fp8", {"pipeline_parallel": 2}, 46_512, 27_168),
        ("glm-5-fp8", {"speculative": True}, 101_436, 62_252),
        ("glm-5-fp8", {"tensor_parallel": 8, "decode_context_parallel": 8}, 12_519, 7_683),
    ],
)
def test_kv_bytes_a_token_are_exact(model: str, parallel: dict[str, Any], bf16: int, fp8: int) -> None:
    """KV of a token and GPU to the byte: heads are split down to one a GPU, a latent is not, stages and DCP divide both."""
    assert [fitted(model, kv_cache_dtype=d, **parallel).kv_bytes_per_token_per_gpu for d in ("auto", "fp8")] == [bf16, fp8]


@pytest.mark.parametrize(
    ("model", "parallel", "gib"),
    [
        ("glm-5-fp8", {"tensor_parallel": 8}, 88.9),
        ("glm-5-fp8", {"tensor_parallel": 16}, 45.5),
        ("glm-5-fp8", {"tensor_parallel": 8, "pipeline_parallel": 2, "speculative": True}, 47.4),
        ("deepseek-v3", {"tensor_parallel": 8}, 79.5),
        ("deepseek-v3", {"tensor_parallel": 16}, 40.3),
        ("deepseek-v3", {"tensor_parallel": 8, "pipeline_parallel": 2}, 41.0),
        ("qwen3-235b-a22b-instruct-fp8", {"tensor_parallel": 4}, 55.1),
        ("llama-3.3-70b-instruct-fp8", {}, 67.7),
        ("llama-3.3-70b-instruct-fp8", {"tensor_parallel": 2}, 33.8),
        ("gpt-oss-120b", {"engine_version": "0.14.1"}, 64.38),  # https://github.com/vllm-project/vllm/issues/33155
        ("gpt-oss-120b", {"engine_version": "0.10.1"}, 65.97),  # https://github.com/vllm-project/vllm/issues/23278
        ("gpt-oss-120b", {"engine_version": "0.11.0"}, 65.97),  # https://github.com/vllm-project/vllm/issues/27508
    ],
)
def test_weights_are_within_one_per_cent(model: str, parallel: dict[str, Any], gib: float) -> None:
    """GiB a GPU, calculated apart from this code, and what vLLM printed for gpt-oss-120b on Triton and on Marlin."""
    found = fitted(model, **parallel).weights_gib
    assert found.mid == pytest.approx(gib, rel=0.01)
    assert found.low < gib < found.high


def test_stages_are_cut_as_vllm_cuts_them() -> None:
    """The rest of an uneven split goes to the stages before the last; indexers of GLM-5.2 lie in the first layers and then in each fourth."""
    sizes = {n: [s.layers for s in stages(shape("deepseek-v3", pipeline_parallel=n))] for n in (1, 2, 3, 4, 5)}
    assert sizes == {1: [61], 2: [31, 30], 3: [20, 21, 20], 4: [15, 15, 16, 15], 5: [12, 12, 12, 13, 12]}
    halves = stages(shape("glm-5.2-fp8", pipeline_parallel=2, speculative=True))
    assert [indexer_layers(CATALOG.models["glm-5.2-fp8"], s) for s in halves] == [12, 9 + 1]
    assert sum(weight_parts(shape(tensor_parallel=8, pipeline_parallel=2), stages(shape(pipeline_parallel=2))[0]).values()) == pytest.approx(
        42.8 * 2**30, rel=0.01
    )


def test_experts_and_what_is_not_split() -> None:
    """Experts take the same bytes sliced or whole; with data parallelism attention is on every GPU, and shared experts too."""
    sliced, whole, four, data = (
        weight_parts(s, stages(s)[0])
        for s in (
            shape(tensor_parallel=8),
            shape(tensor_parallel=8, expert_parallel=True),
            shape(tensor_parallel=4),
            shape(tensor_parallel=4, data_parallel=2, expert_parallel=True),
        )
    )
    assert sliced["experts"] == pytest.approx(whole["experts"])
    assert data["attention"] == four["attention"] > sliced["attention"]
    assert data["experts"] - sliced["experts"] == pytest.approx(75 * 3 * 6144 * 2048 * (1 - 1 / 8), rel=0.01)
    uneven = shape(tensor_parallel=3, expert_parallel=True)
    assert weight_parts(uneven, stages(uneven)[0])["experts"] > weight_parts(shape(), stages(shape())[0])["experts"] / 3


def test_embeddings_follow_the_padded_vocabulary() -> None:
    """A vocabulary counts padded to 64; tied tables are one while both ends of the model are on one stage."""
    facts = CATALOG.models["llama-3.1-8b-instruct"].model_copy(update={"vocab_size": 128_001})
    tied = facts.model_copy(update={"tied_embeddings": True})
    one, half, both = (
        weight_parts(s, stages(s)[0])["embeddings and head"] for s in (shape(facts=tied), shape(facts=tied, pipeline_parallel=2), shape(facts=facts))
    )
    assert (one, half, both) == (128_064 * 4096 * 2, 128_064 * 4096 * 2, 2 * 128_064 * 4096 * 2)


def test_what_a_four_bit_checkpoint_quantises_is_read_from_its_size() -> None:
    """The checkpoint's size tells whether attention is bf16; a size that was calculated tells nothing, and the bars then hold all cases."""
    deepseek = CATALOG.models["deepseek-v3"].model_copy(update={"weight_dtype": "nvfp4", "checkpoint_gb": 425.0})
    assert [p.attention for p in precisions(deepseek)] == [2.0]
    small = deepseek.model_copy(update={"checkpoint_gb": 385.0})
    assert [p.attention for p in precisions(small)] == [0.5625]
    unknown = deepseek.model_copy(update={"checkpoint_gb": 671 * 0.5625})
    assert len(precisions(unknown)) == 3
    bars = fitted(facts=unknown, tensor_parallel=8).weights_gib
    assert bars.high / bars.low > 1.05
    assert fitted(facts=deepseek, tensor_parallel=8).weights_gib.mid == pytest.approx(51, rel=0.05)


def test_blocks_have_the_size_of_the_kernel() -> None:
    """Blocks of 16 for grouped-query attention, of 64 for MLA kernels that want them, and what was asked for where it was."""
    sizes = [fitted(m).block_size for m in ("llama-3.1-8b-instruct", "deepseek-v3", "glm-5-fp8")]
    assert sizes == [16, 16, 64]
    assert fitted("deepseek-v3", kv_cache_dtype="fp8").block_size == fitted("deepseek-v3", engine_version="0.19.0").block_size == 64
    assert fitted("deepseek-v3", gpu_memory_gib=B200).block_size == 32
    asked = fitted("llama-3.1-8b-instruct", block_size=128)
    assert asked.block_size == 128
    assert asked.kv_tokens.mid % 128 == 0


def test_layers_with_windows_hold_few_tokens() -> None:
    """Half of gpt-oss keeps 128 tokens: two groups share the pool, and what vLLM prints for them changed with v0.21."""
    old = shape("gpt-oss-120b", engine_version="0.11.0", max_model_len=131_072, max_num_batched_tokens=8192)
    new = shape("gpt-oss-120b", max_model_len=131_072, max_num_batched_tokens=8192)
    block = 18 * 2 * 8 * 64 * 2 * 16
    pool = math.floor(10 * 2**30 / block)
    assert capacity(replace(old, calibration=Calibration(60, 10))).kv_tokens.mid == pool // 2 * 16
    one = 131_072 // 16 + math.ceil((127 + 2 * 8192) / 16) + 1
    assert capacity(replace(new, calibration=Calibration(60, 10))).kv_tokens.mid == pool * 131_072 // one
    assert capacity(new).kv_bytes_per_token_per_gpu == 18 * 2048
    assert capacity(old).max_concurrency.mid > capacity(old).kv_tokens.mid / 131_072
    grown = fitted("gpt-oss-120b", engine_version="0.19.0", nixl=True)
    assert grown.kv_bytes_per_token_per_gpu == 36 * 2048, "a connector that turns the hybrid manager off makes all layers grow"
    facts = CATALOG.models["gpt-oss-120b"]
    for full, window, groups in ((13, 12, (1, 1)), (12, 36, (1, 3)), (0, 36, (0, 1))):
        changed = {"layers": full + window, "sliding_window": {"size": 128, "layers": window}}
        plan = fitted(facts=Model.model_validate(facts.model_dump() | changed)).plan
        assert (plan.full_groups, plan.window_groups) == groups


def test_overhead_follows_step_size_role_and_version() -> None:
    """More tokens a step, a NIXL connector and CUDA graphs inside the budget each take memory; a later stage that samples takes most."""
    base = fitted("qwen3-32b", tensor_parallel=4, engine_version="0.19.0").overhead_gib
    assert base.low < base.mid < base.high
    assert 0.8 < fitted("qwen3-32b", tensor_parallel=4, engine_version="0.20.0").overhead_gib.mid - base.mid < 1.6
    assert fitted("qwen3-32b", tensor_parallel=4, engine_version="0.20.0", eager=True).overhead_gib.mid < base.mid - 1
    assert fitted("qwen3-32b", tensor_parallel=4, engine_version="0.11.0").overhead_gib.mid > base.mid
    assert fitted("qwen3-32b", tensor_parallel=4, engine_version="0.19.0", nixl=True).overhead_gib.mid == pytest.approx(base.mid + 3.5)
    assert fitted("qwen3-32b", tensor_parallel=4, engine_version="0.19.0", max_num_batched_tokens=65_536).overhead_gib.mid > base.mid + 2
    assert fitted("qwen3-32b", tensor_parallel=4, engine_version="0.19.0", max_num_seqs=64).overhead_gib.mid < base.mid - 1
    wide = fitted("glm-5.2-fp8", data_parallel=16, expert_parallel=True, nodes=2, all2all_backend="deepep_low_latency").overhead_gib
    assert (wide.low, wide.mid, wide.high) == (15, 23, 29)


@pytest.mark.parametrize("model", ["llama-3.3-70b-instruct-fp8", "deepseek-v3", "gpt-oss-120b"])
def test_bars_are_as_wide_as_planning_says(model: str) -> None:
    """KV GiB are at least +-0.5 for dense models up to TP4, +-2.5 with experts, +-4 over several nodes or with prefill and decode."""
    least = 0.5 if CATALOG.models[model].moe is None else 2.5
    for extra, bar in ({}, least), ({"nodes": 2}, 4), ({"nixl": True}, 4):
        kv = fitted(model, gpu_memory_gib=B200, tensor_parallel=8 if model == "deepseek-v3" else 4, **extra).kv_gib
        assert kv.mid - kv.low >= bar
        assert kv.high - kv.mid >= bar


@given(engines(), st.integers(1, 300_000))
def test_a_longer_limit_never_holds_more(engine: dict[str, Any], length: int) -> None:
    """Tokens never rise with maxModelLen, nor do requests; only the number that vLLM derives for windows is no capacity and may."""
    short, long = (fitted(**{**engine, "max_model_len": n}) for n in sorted((engine["max_model_len"], length)))
    facts = CATALOG.models[engine["model"]]
    same_rows = max(engine["max_model_len"], length) <= LONG or min(engine["max_model_len"], length) > LONG
    assume(facts.indexer is None or same_rows)  # above 256 x 1024 tokens newer engines unpack fewer rows
    assert long.max_concurrency.mid <= short.max_concurrency.mid
    if facts.indexer is not None:
        assert long.kv_gib.mid <= short.kv_gib.mid, "sparse attention unpacks an FP8 cache of the longest sequence"
        return
    assert long.kv_gib == short.kv_gib
    assert long.blocks == short.blocks
    if not long.plan.hybrid:
        assert long.kv_tokens == short.kv_tokens
    assert [Fit.NO, Fit.TIGHT, Fit.FITS].index(long.fits) <= [Fit.NO, Fit.TIGHT, Fit.FITS].index(short.fits)


@given(engines(), st.floats(1, 1.5), st.floats(1, 1.5))
def test_more_memory_never_holds_less(engine: dict[str, Any], memory: float, share: float) -> None:
    """Tokens never fall with more memory of a GPU or with a higher utilisation."""
    assume(engine["gpu_memory_utilization"] * share <= 1)
    less = fitted(**engine)
    for more in ({"gpu_memory_gib": engine["gpu_memory_gib"] * memory}, {"gpu_memory_utilization": engine["gpu_memory_utilization"] * share}):
        found = fitted(**{**engine, **more})
        assert all(getattr(found.kv_tokens, bar) >= getattr(less.kv_tokens, bar) for bar in ("low", "mid", "high"))


@given(engines(), st.integers(1, 500_000))
def test_figures_are_ordered_and_not_negative(engine: dict[str, Any], tokens: int) -> None:
    """Low, mid and high are in order and at least 0, tokens are whole blocks, and the verdict is that of the longest fitting request."""
    found = fitted(**engine)
    bars = (found.weights_gib, found.overhead_gib, found.kv_gib, found.kv_tokens, found.max_concurrency, found.blocks, found.concurrency_at(tokens))
    assert all(0 <= b.low <= b.mid <= b.high and math.isfinite(b.high) for b in bars)
    if not found.plan.hybrid:
        assert found.kv_tokens.mid % found.block_size == 0
    assert (found.longest_fitting >= engine["max_model_len"]) == (found.plan.blocks_of(engine["max_model_len"]) < found.blocks.mid)
    assert found.fits is not Fit.FITS or found.longest_fitting >= engine["max_model_len"]


@given(engines(UNIFORM))
def test_stages_divide_kv_and_tensor_parallelism_does_not_divide_a_latent(engine: dict[str, Any]) -> None:
    """The fullest stage keeps the layers' share of bytes; with MLA each tensor-parallel GPU keeps all of them."""
    facts, count = CATALOG.models[engine["model"]], engine["pipeline_parallel"]
    engine = {**engine, "speculative": False}
    alone, cut = fitted(**{**engine, "pipeline_parallel": 1}), fitted(**engine)
    per_stage = alone.kv_bytes_per_token_per_gpu / facts.layers * math.ceil(facts.layers / count)
    assert cut.kv_bytes_per_token_per_gpu == pytest.approx(per_stage, rel=0.01)
    one = fitted(**{**engine, "tensor_parallel": 1, "pipeline_parallel": 1})
    assert (one.kv_bytes_per_token_per_gpu == alone.kv_bytes_per_token_per_gpu) is (facts.mla is not None or engine["tensor_parallel"] == 1)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("instance", INSTANCES)
def test_every_model_on_every_instance_has_finite_figures(model: str, instance: str) -> None:
    """All catalogue models on all catalogue types: figures that are finite, and a longest request that then fits."""
    gpu = CATALOG.instances[instance].gpu
    engine = {"gpu_memory_gib": gpu.memory_gib_torch, "tensor_parallel": gpu.count}
    found = fitted(model, **engine)
    assert math.isfinite(found.kv_tokens.high)
    assert {s.name for s in found.steps} >= {"budget", "weights", "overhead", "KV cache", "blocks", "tokens"}
    if found.longest_fitting:
        assert fitted(model, max_model_len=found.longest_fitting, **engine).fits is not Fit.NO


def test_the_calculation_explains_itself() -> None:
    """Each step has its formula with the numbers in it; an engine newer than the figures and a draft model that is not counted are said."""
    steps = {s.name: s for s in fitted("qwen3-32b", engine_version="0.40.0", speculative=True).steps}
    assert steps["KV bytes a token"].formula == "64 layers x 4,096 B"
    assert steps["engine"].result == "calculated as for 0.33"
    assert "not counted" in steps["draft model"].result
    assert "activation" in steps["overhead"].formula


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"tensor_parallel": 0}, "tensorParallel"),
        ({"pipeline_parallel": 79}, "pipelineParallel"),
        ({"gpu_memory_gib": math.nan}, "gpuMemoryGiB"),
        ({"gpu_memory_utilization": 1.1}, "gpuMemoryUtilization"),
        ({"kv_cache_dtype": "int8"}, "kvCacheDtype"),
        ({"engine_version": "latest"}, "engineVersion"),
    ],
)
def test_engines_that_do_not_exist_are_refused(wrong: dict[str, Any], path: str) -> None:
    """A number that no engine has is a finding at its place, and no division by zero later."""
    with pytest.raises(SpecError) as caught:
        shape(**wrong)
    assert [f.path for f in caught.value.findings] == [path]


def test_unknown_attention_is_refused_and_never_guessed() -> None:
    """A class that is not known, and facts that do not go with a known one, are refused with what is known."""
    known = CATALOG.models["glm-5-fp8"]
    cases = {
        "architecture": known.model_copy(update={"architecture": "MambaForCausalLM"}),
        "mla": known.model_copy(update={"mla": None}),
        "indexer": CATALOG.models["qwen3-32b"].model_copy(update={"indexer": known.indexer}),
        "slidingWindow": known.model_copy(update={"sliding_window": CATALOG.models["gpt-oss-120b"].sliding_window}),
    }
    for path, facts in cases.items():
        with pytest.raises(SpecError) as caught:
            fitted(facts=facts)
        assert [f.path for f in caught.value.findings] == [path]
    assert all(a in unknown_architecture(cases["architecture"]).allowed for a in calculated())  # type: ignore[union-attr]
    assert [unknown_architecture(m) for m in CATALOG.models.values()] == [None] * len(MODELS)


def test_a_calibration_record_makes_it_exact() -> None:
    """With the figures of a real start there are no bars, the verdict is strict, and another utilisation moves the KV cache alone."""
    record = Calibration(weights_gib=46.4, kv_gib=18.0, tokens=384_000, gpu_memory_utilization=0.92)
    engine: dict[str, Any] = {"gpu_memory_gib": H100, "tensor_parallel": 8, "pipeline_parallel": 2, "calibration": record}
    exact = fitted(gpu_memory_utilization=0.92, **engine)
    assert exact.kv_gib == Bars(18, 18, 18)
    assert exact.kv_tokens == Bars(384_000, 384_000, 384_000)
    assert exact.overhead_gib.mid == pytest.approx(79.19 * 0.92 - 46.4 - 18)
    assert {fitted(gpu_memory_utilization=0.92, max_model_len=n, **engine).fits for n in (383_000, 385_000)} == {Fit.FITS, Fit.NO}
    assert fitted(gpu_memory_utilization=0.9, **engine).kv_gib.mid == pytest.approx(18 - 0.02 * H100)
    assert next(s.result for s in exact.steps if s.name == "log against formula") == "+0.5%"
    bare = fitted(**{**engine, "calibration": Calibration(46.4, 18.0)})
    assert bare.kv_tokens.mid == pytest.approx(18 * 2**30 / 50_076, abs=64)


@pytest.mark.parametrize("name", list(DATA["constants"]))
def test_every_figure_has_source_date_and_bars(name: str) -> None:
    """Figures have a source and a day, are in order, hold for every version exactly once, and come from no single run."""
    entries = DATA["constants"][name]["entries"]
    for entry in entries:
        assert len(entry["source"]) > 20
        assert entry["asOf"] <= DATA["checked"]
        assert entry["low"] <= entry["mid"] <= entry["high"]
        assert entry.get("runs", 2) > 1
    assert [e.get("before") for e in entries] == [e.get("from") for e in entries[1:]] + [None]
    assert entries[0].get("from") is None
    for version in ("0.6.0", "0.16.2", "0.17.0", "0.33.0", "1.0.0"):
        assert constant(name, version).high >= 0


def test_rules_of_the_engine_have_sources_and_versions_compare_as_numbers() -> None:
    """0.9 is before 0.11, release candidates and the file's `<=0.11` are read, and each rule says where it was read."""
    assert release("0.9.2") < release("v0.11.0rc1") == release("<=0.11")
    assert not follows("printedTokensFromConcurrency", "0.9.2")
    assert all(len(r["source"]) > 20 and release(r["from"]) > (0, 9) for r in DATA["rules"].values())


def test_the_package_exports_what_it_documents() -> None:
    """The public names are there, each with a docstring."""
    assert all((getattr(fit, name).__doc__ or "").strip() for name in fit.__all__)
