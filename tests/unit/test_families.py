"""Families of models as data: configs of today's architectures give the parameters that their publishers name, and the layout that vLLM makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from disagg_serving.catalog import Model
from disagg_serving.catalog.families import calculated, families, family_of
from disagg_serving.catalog.hf_config import read_model
from disagg_serving.errors import SpecError
from disagg_serving.forecast.fit import EngineShape, capacity
from disagg_serving.forecast.fit.kv import kv_plan

COMMON: dict[str, Any] = {"max_position_embeddings": 262_144, "vocab_size": 200_064}
KIMI_TEXT = COMMON | {
    "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 64, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 1, "kv_lora_rank": 512, "q_lora_rank": 1536,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 163840,
}  # fmt: skip
KIMI = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "text_config": KIMI_TEXT,
    "vision_config": {
        "vt_hidden_size": 1152, "vt_intermediate_size": 4304, "vt_num_attention_heads": 16, "vt_num_hidden_layers": 27, "patch_size": 14,
        "text_hidden_size": 7168, "merge_kernel_size": [2, 2], "init_pos_emb_height": 64, "init_pos_emb_width": 64,
    },
}  # fmt: skip
MINIMAX_M2 = COMMON | {
    "architectures": ["MiniMaxM2ForCausalLM"], "num_hidden_layers": 62, "hidden_size": 3072, "num_attention_heads": 48, "num_key_value_heads": 8,
    "head_dim": 128, "intermediate_size": 1536, "num_local_experts": 256, "num_experts_per_tok": 8,
}  # fmt: skip
MINIMAX_M3 = COMMON | {
    "architectures": ["MiniMaxM3SparseForCausalLM"], "num_hidden_layers": 60, "hidden_size": 6144, "num_attention_heads": 64,
    "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 3072, "dense_intermediate_size": 12288, "num_local_experts": 128,
    "num_experts_per_tok": 4, "n_shared_experts": 1, "moe_layer_freq": [0] * 3 + [1] * 57,
    "sparse_attention_config": {
        "sparse_num_index_heads": 4, "sparse_index_dim": 128, "sparse_topk_blocks": 16, "sparse_block_size": 128,
        "sparse_attention_freq": [0] * 3 + [1] * 57,
    },
}  # fmt: skip
GLM_4 = COMMON | {
    "architectures": ["Glm4MoeForCausalLM"], "num_hidden_layers": 92, "hidden_size": 5120, "num_attention_heads": 96, "num_key_value_heads": 8,
    "head_dim": 128, "intermediate_size": 12288, "moe_intermediate_size": 1536, "n_routed_experts": 160, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "first_k_dense_replace": 3, "num_nextn_predict_layers": 1, "vocab_size": 151552,
}  # fmt: skip
SCOUT = {
    "architectures": ["Llama4ForConditionalGeneration"],
    "text_config": COMMON | {
        "num_hidden_layers": 48, "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
        "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_local_experts": 16, "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 1, "attention_chunk_size": 8192, "vocab_size": 202048,
    },
}  # fmt: skip
MAVERICK = SCOUT | {"text_config": SCOUT["text_config"] | {"num_local_experts": 128, "interleave_moe_layer_step": 2}}  # type: ignore[operator]
QWEN_NEXT = COMMON | {
    "architectures": ["Qwen3NextForCausalLM"], "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 2,
    "head_dim": 256, "intermediate_size": 5120, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts": 512,
    "num_experts_per_tok": 10, "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "vocab_size": 151936,
}  # fmt: skip


GLM_FLASH = {
    "architectures": ["Glm5NextForConditionalGeneration"],
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "text_config": COMMON | {
        "num_hidden_layers": 45, "hidden_size": 4096, "num_attention_heads": 64, "intermediate_size": 12288, "moe_intermediate_size": 2048,
        "n_routed_experts": 288, "n_shared_experts": 1, "num_experts_per_tok": 8, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 256,
        "qk_rope_head_dim": 0, "v_head_dim": 256, "index_n_heads": 16, "index_head_dim": 128, "index_topk": 2048, "index_kpool": 4, "hc_mult": 4,
        "linear_num_heads": 64, "linear_head_dim": 128, "linear_conv_kernel_dim": 4, "vocab_size": 154880,
        "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 42,
    },
}  # fmt: skip


KIMI_K3 = {
    "architectures": ["KimiK3ForConditionalGeneration"],
    "text_config": COMMON | {
        "num_hidden_layers": 93, "hidden_size": 7168, "num_attention_heads": 96, "intermediate_size": 33792, "moe_intermediate_size": 3072,
        "num_experts": 896, "num_shared_experts": 2, "num_experts_per_token": 16, "first_k_dense_replace": 1, "routed_expert_hidden_size": 3584,
        "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 163840,
        "mla_use_nope": True, "mla_use_output_gate": True, "attn_res_block_size": 12,
        "linear_attn_config": {
            "kda_layers": [n for n in range(1, 94) if n % 4 and n != 93], "full_attn_layers": [n for n in range(1, 94) if n % 4 == 0 or n == 93],
            "num_heads": 96, "head_dim": 128, "short_conv_kernel_size": 4, "use_full_rank_gate": True,
        },
    },
}  # fmt: skip


def read(folder: Path, config: dict[str, Any]) -> Model:
    """The model of a config.json."""
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return read_model(folder, "m", "acme/m")


@pytest.mark.parametrize(
    ("config", "billions"),
    [
        (KIMI, 1026),
        (GLM_FLASH, 313),
        (KIMI_K3, 2780),
        (MINIMAX_M2, 229),
        (MINIMAX_M3, 426),
        (GLM_4, 353),
        (SCOUT, 108),
        (MAVERICK, 401),
        (QWEN_NEXT, 80),
    ],
    ids=["kimi-k2.5", "glm-5.3-flash", "kimi-k3", "minimax-m2", "minimax-m3", "glm-4.6", "llama-4-scout", "llama-4-maverick", "qwen3-next"],
)
def test_todays_architectures_are_read(tmp_path: Path, config: dict[str, Any], billions: int) -> None:
    """Parameters of the language model as published, within one per cent, and a forecast that is finite."""
    facts = read(tmp_path, config)
    assert facts.parameters_b.total == pytest.approx(billions, rel=0.01)
    assert capacity(EngineShape(facts, "0.33.0", 268, tensor_parallel=8, max_model_len=8192)).kv_tokens.mid >= 0


def test_index_keys_of_blocks_lie_beside_kv_heads(tmp_path: Path) -> None:
    """MiniMax-M3 keeps one bf16 key of 128 in each of 57 sparse layers, in blocks of 128 tokens, and nothing of FlashMLA's."""
    facts = read(tmp_path, MINIMAX_M3)
    plan = kv_plan(EngineShape(facts, "0.33.0", 178, tensor_parallel=4))
    assert (plan.block_size, plan.token_bytes) == (128, (60 * 2 * 128 * 2 + 57 * 128 * 2,))
    with pytest.raises(SpecError, match="does not say which of the 60 layers are sparse"):
        read(tmp_path, MINIMAX_M3 | {"sparse_attention_config": MINIMAX_M3["sparse_attention_config"] | {"sparse_attention_freq": [1]}})


def test_states_stand_beside_latents_and_pooled_index_keys(tmp_path: Path) -> None:
    """GLM-5.3-Flash on eight H200, v0.28: 214 blocks a request of 131,072 tokens, as its log divides them, each of 7,441,280 B.

    205 blocks hold 640 tokens of 11 layers with a latent of 1,024 B and a fourth of an index key of 132 B; 34 layers with a state are four groups of
    two blocks, and the keys of the group that is being pooled take one more. From v0.29 on a checkpoint of prefill adds a block a group.
    """
    facts = read(tmp_path, GLM_FLASH)
    plan, later = (kv_plan(EngineShape(facts, v, 139.8, tensor_parallel=8, max_model_len=131_072)) for v in ("0.28.1", "0.33.0"))
    assert (plan.block_size, plan.block_bytes) == (640, (11 * 640 * (1024 + 33),))
    assert (plan.blocks_of(131_072), later.blocks_of(131_072)) == (205 + 4 * 2 + 1, 205 + 4 * 3 + 1)
    with pytest.raises(SpecError, match="are not the kinds of 45 layers"):
        read(tmp_path, GLM_FLASH | {"text_config": GLM_FLASH["text_config"] | {"layer_types": ["linear_attention"] * 44}})  # type: ignore[operator]


def test_experts_of_kimi_k3_work_on_half_the_hidden_state(tmp_path: Path) -> None:
    """2.78 trillion parameters and 1.56 TB in MXFP4, as published; a token has 24 latents, and a sequence 69 states in three groups."""
    quantised = KIMI_K3 | {"quantization_config": {"quant_method": "mxfp4"}}
    facts = read(tmp_path, quantised)
    assert facts.moe is not None
    assert (facts.moe.hidden_size, facts.moe.shared_experts, facts.kept_residuals) == (3584, 2, 8)
    engine = EngineShape(facts, "0.33.0", 268, tensor_parallel=8, gpu="b300", max_model_len=131_072)
    # the way into the narrow state and the gates of attention are bf16; the router and what is narrow stand on each GPU
    assert capacity(engine).weights_gib.mid * 8 * 2**30 == pytest.approx(1.56e12, rel=0.06)
    plan = kv_plan(engine)
    assert (plan.full_groups, plan.state_groups, plan.rings) == (1, 3, 0)
    assert plan.token_bytes == (24 * (512 + 64) * 2,)


def test_three_of_four_layers_of_llama_4_hold_a_chunk(tmp_path: Path) -> None:
    """Layers with rotary positions attend to 8,192 tokens, each fourth to all; of Maverick every second layer has experts."""
    facts = read(tmp_path, MAVERICK)
    assert facts.sliding_window is not None
    assert (facts.sliding_window.size, facts.sliding_window.layers) == (8192, 36)
    assert facts.moe is not None
    assert (facts.moe.every_nth, facts.moe.shared_experts, facts.intermediate_size) == (2, 1, 16384)


def test_shares_that_are_no_experts_are_refused(tmp_path: Path) -> None:
    """A shared expert of another size than a multiple of the routed ones has no number here; a tower that lacks a size is named, too."""
    with pytest.raises(SpecError, match="is no multiple of the 512 of an expert"):
        read(tmp_path, QWEN_NEXT | {"shared_expert_intermediate_size": 700})
    with pytest.raises(SpecError, match="merge_kernel_size"):
        read(tmp_path, KIMI | {"vision_config": KIMI["vision_config"] | {"merge_kernel_size": None}})  # type: ignore[operator]


def test_every_family_says_where_it_was_read() -> None:
    """Each names vLLM's file of a release, and either how its attention keeps tokens or why that is not calculated."""
    for name, family in families().items():
        assert family.source.startswith("https://github.com/vllm-project/vllm/blob/v")
        assert bool(family.attention) != bool(family.unknown), name
    assert family_of("OddForCausalLM") is None
    assert "MiniMaxM3SparseForCausalLM" in calculated()
    assert "DeepseekV4ForCausalLM" not in calculated()
