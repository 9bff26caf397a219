"""A config.json whose memory is unclear is refused: quantizations, kinds of layers, heads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from disagg_serving.catalog import Model
from disagg_serving.catalog.hf_config import read_model
from disagg_serving.errors import SpecError
from disagg_serving.forecast.fit import EngineShape
from disagg_serving.forecast.fit.weights import Stage, weight_parts

BASE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 4,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "intermediate_size": 4096,
    "vocab_size": 32000,
    "max_position_embeddings": 8192,
}
MOE = BASE | {"architectures": ["Qwen3MoeForCausalLM"], "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512}
V2_LITE: dict[str, Any] = {
    "architectures": ["DeepseekV2ForCausalLM"],
    "num_hidden_layers": 27,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "vocab_size": 102400,
    "max_position_embeddings": 163840,
    "q_lora_rank": None,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}


def read(folder: Path, data: dict[str, Any]) -> Model:
    """The entry of a config.json with this data."""
    (folder / "config.json").write_text(json.dumps(data), encoding="utf-8")
    return read_model(folder, "m", "acme/m")


def refused(folder: Path, data: dict[str, Any]) -> str:
    """The sentence of the one finding about this data."""
    with pytest.raises(SpecError) as caught:
        read(folder, data)
    (finding,) = caught.value.findings
    return finding.sentence()


def groups(**weights: Any) -> dict[str, Any]:
    """Compressed tensors with one group of such weights."""
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


@pytest.mark.parametrize(
    ("quantization", "dtype"),
    [
        (None, "bf16"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4"}}, "nvfp4"),
        ({"quant_method": "gptq", "bits": 4}, "int4"),
        ({"quant_method": "awq", "w_bit": 4}, "int4"),
        (groups(num_bits=8, type="float"), "fp8"),
        (groups(num_bits=4, type="int", group_size=128), "int4"),
        (groups(num_bits=4, type="float", group_size=16), "nvfp4"),
    ],
)
def test_a_quantization_is_read(tmp_path: Path, quantization: object, dtype: str) -> None:
    """The width of the weights is what the config says, not what the tool's name suggests."""
    assert read(tmp_path, BASE | {"quantization_config": quantization}).weight_dtype == dtype


@pytest.mark.parametrize(
    ("quantization", "words"),
    [
        ("fp8", "quantization_config: fp8 is not a mapping"),
        ({}, "quantization_config.quant_method: is not a known quantization"),
        ({"quant_method": ["fp8"]}, "quantization_config.quant_method"),
        ({"quant_method": "gptq", "bits": 8}, "quantization_config.bits: 8 is not a width of gptq"),
        ({"quant_method": "awq"}, "quantization_config.bits: is not a width of awq"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "quantization_config.quant_algo: MIXED_PRECISION"),
        ({"quant_method": "modelopt"}, "quantization_config.quant_algo"),
        ({"quant_method": "compressed-tensors"}, "quantization_config.config_groups"),
        (groups(num_bits=8, type="int"), "quantization_config.config_groups.group_0.weights: 8 bits int"),
        (groups(num_bits=4, type="float"), "4 bits float"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": None}}}, "group_0.weights"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"weights": {"num_bits": 8, "type": "float"}}, "b": {"weights": {"num_bits": 4, "type": "int"}}},
            },
            "fp8, int4 are of several dtypes",
        ),
    ],
)
def test_an_unclear_quantization_is_refused(tmp_path: Path, quantization: object, words: str) -> None:
    """Half or twice the memory is no small mistake, so nothing is guessed."""
    sentence = refused(tmp_path, BASE | {"quantization_config": quantization})
    assert words in sentence
    assert "(allowed: " in sentence


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (BASE | {"layer_types": ["linear_attention"] * 3 + ["full_attention"]}, "layer_types: linear_attention is a kind of layer"),
        (BASE | {"layer_types": ["full_attention"]}, "layer_types: 1 kinds are not the kinds of 4 layers"),
        (BASE | {"layer_types": "full_attention"}, "layer_types: full_attention is no list"),
        (BASE | {"architectures": ["Qwen3ForCausalLM"], "sliding_window": 1024, "use_sliding_window": True}, "layer_types: is missing"),
        (MOE | {"architectures": ["GptOssForCausalLM"], "sliding_window": 128}, "layer_types: is missing"),
        (BASE | {"num_key_value_heads": 3}, "num_key_value_heads: 3 does not divide the 16"),
        (BASE | {"num_key_value_heads": 32}, "num_key_value_heads: 32 does not divide the 16"),
        (MOE | {"mlp_only_layers": [2]}, "mlp_only_layers"),
        (MOE | {"mlp_only_layers": [9]}, "mlp_only_layers: [9] is no list of layers (allowed: numbers from 0 to 3)"),
        (MOE | {"decoder_sparse_step": 2}, "decoder_sparse_step: 2 puts layers without experts between others"),
        ({k: v for k, v in V2_LITE.items() if k != "q_lora_rank"}, "q_lora_rank: is missing"),
    ],
)
def test_layers_that_are_not_understood_are_refused(tmp_path: Path, data: dict[str, Any], words: str) -> None:
    """Linear attention, dense layers between others and heads that cannot be shared out have another memory than calculated here."""
    assert words in refused(tmp_path, data)


def test_a_plain_window_counts_as_full_attention(tmp_path: Path) -> None:
    """Mistral's `sliding_window` without kinds of layers holds for all of them: counted as full, which never promises too much."""
    mistral = BASE | {"architectures": ["MistralForCausalLM"], "sliding_window": 1024}
    same: tuple[dict[str, Any], ...] = (
        {},
        {"use_sliding_window": False},
        {"layer_types": ["sliding_attention"] * 4},
        {"layer_types": ["full_attention"] * 4},
    )
    assert [read(tmp_path, mistral | change).sliding_window for change in same] == [None] * 4
    window = read(tmp_path, mistral | {"layer_types": ["sliding_attention", "full_attention"] * 2}).sliding_window
    assert window is not None
    assert (window.size, window.layers) == (1024, 2)


def test_dense_layers_are_counted(tmp_path: Path) -> None:
    """Layers that are listed as dense have no experts."""
    facts = read(tmp_path, MOE | {"mlp_only_layers": [1, 0], "decoder_sparse_step": 1})
    assert facts.moe is not None
    assert facts.moe.dense_layers == 2


def test_queries_without_a_rank_are_legal(tmp_path: Path) -> None:
    """DeepSeek-V2-Lite projects its queries in one piece: 15.7 billion parameters."""
    facts = read(tmp_path, V2_LITE)
    assert facts.parameters_b.total == pytest.approx(15.7, rel=0.01)
    assert facts.mla is not None
    stage = Stage(0, 1, 0, is_first=True, is_last=False)
    one, two = (weight_parts(EngineShape(facts, "0.33.0", 80, tensor_parallel=n), stage)["attention"] for n in (1, 2))
    latent = 2 * facts.hidden_size * (facts.mla.kv_lora_rank + facts.mla.qk_rope_head_dim)
    assert one - latent == 2 * (two - latent), "queries are cut by heads, and only the projection to the latent is whole on each GPU"


def test_a_size_may_be_written_as_a_float(tmp_path: Path) -> None:
    """Some tools write the checkpoint's size with a fraction of zero."""
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"metadata": {"total_size": 150000000000.0}}', encoding="utf-8")
    assert read(tmp_path, BASE).checkpoint_gb == 150
    index.write_text('{"metadata": {"total_size": 1.5}}', encoding="utf-8")
    assert "total_size" in refused(tmp_path, BASE)


@pytest.mark.parametrize(
    ("quantization", "block"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 128),
        ({"quant_method": "fp8", "activation_scheme": "static"}, None),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, None),
        ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, 128),
        (groups(num_bits=8, type="float", strategy="channel"), None),
        (groups(num_bits=8, type="float", strategy="block", block_structure=[128, 128]), 128),
    ],
)
def test_only_scales_of_blocks_have_a_block(tmp_path: Path, quantization: dict[str, Any], block: int | None) -> None:
    """A rule about blocks must not refuse checkpoints whose scales are of a tensor or a channel."""
    assert read(tmp_path, BASE | {"quantization_config": quantization}).weight_block == block


def test_a_quantization_beside_the_config_is_read(tmp_path: Path) -> None:
    """NVIDIA's checkpoints keep it in a file of its own; without it NVFP4 weights would pass for bf16."""
    beside = tmp_path / "hf_quant_config.json"
    beside.write_text(json.dumps({"quantization": {"quant_algo": "NVFP4"}}), encoding="utf-8")
    assert read(tmp_path, BASE).weight_dtype == "nvfp4"
    beside.write_text(json.dumps({"quantization": {"quant_algo": "W4A8"}}), encoding="utf-8")
    assert "hf_quant_config.json" in refused(tmp_path, BASE)


MIXTRAL = BASE | {"architectures": ["MixtralForCausalLM"], "num_local_experts": 8, "num_experts_per_tok": 2}
V32 = V2_LITE | {"architectures": ["DeepseekV32ForCausalLM"], "index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048}


def without(data: dict[str, Any], key: str) -> dict[str, Any]:
    """The data less one key."""
    return {k: v for k, v in data.items() if k != key}


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (without(MIXTRAL, "num_local_experts"), "num_local_experts"),
        (without(MIXTRAL, "num_experts_per_tok"), "num_experts_per_tok"),
        (without(V32, "n_routed_experts"), "n_routed_experts"),
        (without(V32, "index_n_heads"), "index_n_heads"),
        (without(V32, "index_head_dim"), "index_head_dim"),
        (without(V32, "index_topk"), "index_topk"),
        (V32 | {"moe_intermediate_size": None}, "moe_intermediate_size"),
        (V32 | {"first_k_dense_replace": 10**14}, "first_k_dense_replace"),
        (V32 | {"num_nextn_predict_layers": 10**14}, "num_nextn_predict_layers"),
        (V32 | {"num_hidden_layers": 10**14}, "num_hidden_layers"),
        (V32 | {"indexer_types": ["full"] * 3}, "indexer_types"),
        (V32 | {"indexer_types": ["shared"] * 27}, "indexer_types"),
        (MOE | {"num_experts_per_tok": 9}, "num_experts_per_tok"),
    ],
)
def test_no_dense_model_is_guessed(tmp_path: Path, data: dict[str, Any], key: str) -> None:
    """A config without what its class has, or with numbers that no model has, is refused: its memory would be that of another model."""
    assert key in refused(tmp_path, data)


def test_whole_configs_with_experts_are_read(tmp_path: Path) -> None:
    """The data that the refusals above start from is good."""
    assert read(tmp_path, MIXTRAL).moe
    assert read(tmp_path, V32).indexer
    assert read(tmp_path, V32 | {"indexer_types": ["full"] * 20 + ["shared"] * 7}).indexer.layers == 20  # type: ignore[union-attr]
