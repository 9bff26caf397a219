"""Vision towers from a config.json."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import Finding
from .config_file import Config

Reader = Callable[[Config], dict[str, Any]]


def tower(found: Any, form: str, findings: list[Finding]) -> dict[str, Any]:
    """The tower of a `vision_config` as a catalogue entry has it, in one of the forms of families.yaml; nothing where a model has none."""
    if not isinstance(found, dict):
        return {}
    c = Config(found, "vision_config")
    facts = _FORMS[form](c)
    findings += c.findings
    return {"vision": facts}


def _moonvit(c: Config) -> dict[str, Any]:
    """Kimi (vllm: kimi_k25_vit.py): patches merged by `merge_kernel_size`, a projector of two square layers over them."""
    hidden, out = c.number("vt_hidden_size"), c.number("text_hidden_size")
    merged = _product(c, "merge_kernel_size")
    wide = merged * hidden
    return {
        "layers": c.number("vt_num_hidden_layers"),
        "hiddenSize": hidden,
        "intermediateSize": c.number("vt_intermediate_size"),
        "attentionHeads": c.number("vt_num_attention_heads"),
        "patchSize": c.number("patch_size"),
        "positions": c.number("init_pos_emb_height") * c.number("init_pos_emb_width"),
        "patchesPerToken": merged,
        "itemTokens": 4096,  # vllm: kimi_k25.py, in_patch_limit 16,384 of which 4 become a token
        "projectorMillions": (wide * wide + wide * out) / 1e6,
    }


def _qwen(c: Config) -> dict[str, Any]:
    """Qwen3-VL and later (vllm: qwen3_vl.py)."""
    hidden, merged = c.number("hidden_size"), c.number("spatial_merge_size") ** 2
    wide = merged * hidden
    return {
        "layers": c.number("depth"),
        "hiddenSize": hidden,
        "intermediateSize": c.number("intermediate_size"),
        "attentionHeads": c.number("num_heads"),
        "patchSize": c.number("patch_size"),
        "frames": c.number("temporal_patch_size", 1),
        "positions": c.number("num_position_embeddings", 0, least=0),
        "patchesPerToken": merged,
        "itemTokens": 16384,  # a log of v0.20 says so; the processor's size of 16,777,216 pixels over 32 x 32
        "projectorMillions": (wide * wide + wide * c.number("out_hidden_size")) / 1e6,
    }


def _gemma4(c: Config) -> dict[str, Any]:
    """Gemma 4 (vllm: gemma4_mm.py): patches pooled, one projection into the language model."""
    hidden = c.number("hidden_size")
    return {
        "layers": c.number("num_hidden_layers"),
        "hiddenSize": hidden,
        "intermediateSize": c.number("intermediate_size"),
        "attentionHeads": c.number("num_attention_heads"),
        "patchSize": c.number("patch_size"),
        "gated": True,
        "positions": 2 * c.number("position_embedding_size", 0, least=0),
        "patchesPerToken": c.number("pooling_kernel_size", 1) ** 2,
        "itemTokens": 280,
        "projectorMillions": hidden * c.number("text_hidden_size", hidden) / 1e6,
    }


def _llama4(c: Config) -> dict[str, Any]:
    """Llama 4 (vllm: mllama4.py): tiles of an image, shuffled into a quarter of the patches."""
    hidden, inner, out = c.number("hidden_size"), c.number("intermediate_size"), c.number("projector_output_dim", 4096)
    return {
        "layers": c.number("num_hidden_layers"),
        "hiddenSize": hidden,
        "intermediateSize": inner,
        "attentionHeads": c.number("num_attention_heads"),
        "patchSize": c.number("patch_size"),
        "positions": (c.number("image_size") // max(1, c.number("patch_size"))) ** 2,
        "itemTokens": 2448,
        "projectorMillions": (inner * c.number("projector_input_dim", 4096) + out * out) / 1e6,
    }


def _pixtral(c: Config) -> dict[str, Any]:
    """Mistral 3 (vllm: mistral3.py): four patches merged into one of the encoder's size, then two layers of the language model's."""
    hidden, size, patch = c.number("hidden_size"), c.number("image_size"), c.number("patch_size")
    out = c.number("text_hidden_size", 5120)
    return {
        "layers": c.number("num_hidden_layers"),
        "hiddenSize": hidden,
        "intermediateSize": c.number("intermediate_size"),
        "attentionHeads": c.number("num_attention_heads"),
        "patchSize": patch,
        "gated": True,
        "itemTokens": (size // (2 * patch)) ** 2,
        "projectorMillions": (4 * hidden * hidden + hidden * out + out * out) / 1e6,
    }


def _glm5next(c: Config) -> dict[str, Any]:
    """GLM-5.3 (vllm: glm5next/common/multimodal.py): patches merged by a convolution, then one square layer and a gated MLP."""
    hidden, out, merged = c.number("hidden_size"), c.number("out_hidden_size"), c.number("spatial_merge_size") ** 2
    inner, patch = c.number("projection_intermediate_size"), c.number("patch_size")
    return {
        "layers": c.number("depth"),
        "hiddenSize": hidden,
        "intermediateSize": c.number("intermediate_size"),
        "attentionHeads": c.number("num_heads"),
        "patchSize": patch,
        "frames": c.number("temporal_patch_size", 1),
        "gated": True,
        "patchesPerToken": merged,
        "itemTokens": max(1, (c.number("image_size") // patch) ** 2 // merged),
        "projectorMillions": (merged * hidden * out + out * out + 3 * out * inner) / 1e6,
    }


def _clip(c: Config) -> dict[str, Any]:
    """MiniMax-M3 (vllm: minimax_m3/common/vision_tower.py): four patches merged, and a projector of two layers."""
    hidden, size, patch, out = c.number("hidden_size"), c.number("image_size"), c.number("patch_size"), c.number("projection_dim")
    return {
        "layers": c.number("num_hidden_layers"),
        "hiddenSize": hidden,
        "intermediateSize": c.number("intermediate_size"),
        "attentionHeads": c.number("num_attention_heads"),
        "patchSize": patch,
        "itemTokens": (size // (2 * patch)) ** 2,
        "projectorMillions": (4 * hidden * out + out * out) / 1e6,
    }


def _product(c: Config, key: str) -> int:
    sizes = c.data.get(key)
    if isinstance(sizes, list) and sizes and all(isinstance(n, int) and n > 0 for n in sizes):
        found = 1
        for n in sizes:
            found *= n
        return found
    c.refuse(key, "is no list of sizes", sizes, "such as [2, 2]")
    return 1


_FORMS: dict[str, Reader] = {
    "moonvit": _moonvit,
    "qwen": _qwen,
    "gemma4": _gemma4,
    "llama4": _llama4,
    "pixtral": _pixtral,
    "clip": _clip,
    "glm5next": _glm5next,
}
