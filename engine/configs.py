"""The config.json of a catalogue entry, as Hugging Face writes it: what vLLM's configuration checks want of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from disagg_serving.catalog import Model

MODEL_TYPES = {
    "LlamaForCausalLM": "llama",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "GptOssForCausalLM": "gpt_oss",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "DeepseekV32ForCausalLM": "deepseek_v32",
    "GlmMoeDsaForCausalLM": "glm_moe_dsa",
    "KimiK2ForCausalLM": "kimi_k2",
    "KimiK25ForConditionalGeneration": "kimi_k2",
    "MiniMaxM2ForCausalLM": "minimax_m2",
}
AROUND = {"KimiK25ForConditionalGeneration": ("kimi_k25", "DeepseekV3ForCausalLM")}
"""Architectures that see: the type of the whole, and the architecture of the language model, which stands in `text_config`."""
BLOCK_QUANTIZED = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}
COMPRESSED = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
            "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "symmetric": True},
        }
    },
    "ignore": ["lm_head"],
}
PACKED = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True},
        }
    },
    "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],
}


def config_of(model: Model) -> dict[str, Any]:
    """The entry's numbers under Hugging Face's names."""
    config: dict[str, Any] = {
        "architectures": [model.architecture],
        "model_type": MODEL_TYPES[model.architecture],
        "torch_dtype": "bfloat16",
        "num_hidden_layers": model.layers,
        "hidden_size": model.hidden_size,
        "intermediate_size": model.intermediate_size,
        "num_attention_heads": model.attention_heads,
        "num_key_value_heads": model.kv_heads,
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.context_length,
        "tie_word_embeddings": model.tied_embeddings,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
    }
    if model.mla:
        config |= model.mla.model_dump()
    else:
        config["head_dim"] = model.head_dim
    if model.indexer:
        config |= {"index_n_heads": model.indexer.heads, "index_head_dim": model.indexer.head_dim, "index_topk": model.indexer.top_k}
        if model.indexer.layers < model.layers:
            config["indexer_types"] = ["full" if i < model.indexer.layers else "shared" for i in range(model.layers)]
    if model.moe:
        config |= _experts(model)
    if model.mtp_layers:
        config["num_nextn_predict_layers"] = model.mtp_layers
    if model.sliding_window:
        sliding = model.sliding_window.layers
        config |= {
            "sliding_window": model.sliding_window.size,
            "layer_types": ["sliding_attention" if i % 2 == 0 and i // 2 < sliding else "full_attention" for i in range(model.layers)],
        }
    if quantized := _quantized(model):
        config["quantization_config"] = quantized
    return _with_eyes(model, config) if model.architecture in AROUND else config


def _quantized(model: Model) -> dict[str, Any] | None:
    block = {**BLOCK_QUANTIZED, "weight_block_size": [model.weight_block] * 2} if model.weight_block else COMPRESSED
    return {"fp8": block, "mxfp4": {"quant_method": "mxfp4"}, "int4": PACKED}.get(model.weight_dtype)


def _with_eyes(model: Model, config: dict[str, Any]) -> dict[str, Any]:
    kind, inner = AROUND[model.architecture]
    return {
        "architectures": [model.architecture],
        "model_type": kind,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": model.tied_embeddings,
        "text_config": config | {"architectures": [inner]},
    }


def _experts(model: Model) -> dict[str, Any]:
    moe = model.moe
    assert moe is not None  # noqa: S101 (the caller has looked)
    names = {"Qwen3MoeForCausalLM": "num_experts", "GptOssForCausalLM": "num_local_experts", "MiniMaxM2ForCausalLM": "num_local_experts"}
    found: dict[str, Any] = {
        names.get(model.architecture, "n_routed_experts"): moe.experts,
        "num_experts_per_tok": moe.experts_per_token,
        "moe_intermediate_size": moe.intermediate_size,
    }
    if model.mla:
        found |= {"n_shared_experts": moe.shared_experts, "first_k_dense_replace": moe.dense_layers, "moe_layer_freq": 1}
        found |= {
            "n_group": 1,
            "topk_group": 1,
            "scoring_func": "sigmoid",
            "topk_method": "noaux_tc",
            "routed_scaling_factor": 2.5,
            "norm_topk_prob": True,
        }
    elif moe.dense_layers:
        found["mlp_only_layers"] = list(range(moe.dense_layers))
    return found


def write_config(model: Model, folder: Path) -> Path:
    """Write it into a folder of its own; returns that folder."""
    place = folder / model.id
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.json").write_text(json.dumps(config_of(model), indent=1), encoding="utf-8")
    return place
