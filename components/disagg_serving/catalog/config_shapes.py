"""The shapes of a model from its config.json, by the family of its class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .config_file import Config
from .families import Family

MOST_LAYERS = 1000


def shapes(c: Config, family: Family) -> dict[str, Any]:
    """The model's shapes as a catalogue entry has them; faults are added to the config's findings."""
    layers, hidden, heads = c.number("num_hidden_layers"), c.number("hidden_size"), c.number("num_attention_heads")
    if layers > MOST_LAYERS:
        c.refuse("num_hidden_layers", "is more than any model has", layers, f"at most {MOST_LAYERS}")
    for key in (family.dense_layers, family.drafts):
        if c.number(key, 0, least=0) > layers <= MOST_LAYERS:
            c.refuse(key, f"is more than the {layers} layers", c.data[key], f"at most {layers}")
    has_experts = family.experts == "required" or any(c.data.get(key) is not None for key in _COUNTS)
    # a model whose layers all have experts may give no size of dense ones
    dense = c.number(family.dense_size, c.number(family.expert_size) if has_experts else None)
    facts: dict[str, Any] = {
        "layers": layers,
        "hiddenSize": hidden,
        "attentionHeads": heads,
        "intermediateSize": dense,
        "vocabSize": c.number("vocab_size"),
        "contextLength": c.number("max_position_embeddings"),
        "mtpLayers": c.number(family.drafts, 0, least=0),
        "tiedEmbeddings": c.data.get("tie_word_embeddings") is True,
    }
    if family.gated_attention:
        facts["gatedAttention"] = True
    facts |= _latent(c, heads) if family.attention == "latent" else _grouped(c, family, layers, heads, hidden)
    if family.linear == "kda":
        facts |= _delta_attention(c, layers)
    if family.indexer or c.data.get("index_n_heads") is not None:
        facts["indexer"] = {
            "heads": c.number("index_n_heads"),
            "headDim": c.number("index_head_dim"),
            "topK": c.number("index_topk"),
            "layers": _indexers(c, layers) if "linearAttention" not in facts else layers - facts["linearAttention"]["layers"],
            "pool": c.number("index_kpool", 1),
        }
    if family.block_index and isinstance(c.data.get(family.block_index), dict):
        facts |= _block_index(c, family.block_index, layers)
    if has_experts:
        facts["moe"] = _experts(c, family, facts)
    return facts


_COUNTS = ("n_routed_experts", "num_experts", "num_local_experts")
KDA_BLOCK = 128
"""Tokens of which a block of latents is a multiple beside Kimi delta attention (vllm: glm5next/common/attention.py, Glm5NextTailCache)."""
_LAYERS = ("full_attention", "sliding_attention", "chunked_attention", "linear_attention")


def _grouped(c: Config, family: Family, layers: int, heads: int, hidden: int) -> dict[str, Any]:
    """KV heads, and layers with a window or a state; where full layers have heads of their own, those are the model's."""
    kv, size = c.number("num_key_value_heads", heads), c.number("head_dim", max(1, hidden // heads))
    if heads % kv and not c.findings:
        c.refuse("num_key_value_heads", f"does not divide the {heads} attention heads", kv, f"a divisor of {heads}")
    kinds = _kinds(c, family, layers)
    facts: dict[str, Any] = {"kvHeads": kv, "headDim": size}
    if windows := kinds.count("sliding_attention") + kinds.count("chunked_attention"):
        facts["slidingWindow"] = {"size": c.number(family.chunked or "sliding_window"), "layers": windows}
        if family.full_layers:
            full = {"kvHeads": c.number(f"num_{family.full_layers}_key_value_heads", kv), "headDim": c.number(f"{family.full_layers}_head_dim", size)}
            facts["slidingWindow"] |= {"kvHeads": kv, "headDim": size}
            facts |= full
    if linear := kinds.count("linear_attention"):
        facts["linearAttention"] = {
            "layers": linear,
            "keyHeads": c.number("linear_num_key_heads"),
            "valueHeads": c.number("linear_num_value_heads"),
            "keyHeadDim": c.number("linear_key_head_dim"),
            "valueHeadDim": c.number("linear_value_head_dim"),
            "kernel": c.number("linear_conv_kernel_dim"),
        }
    return facts


def _delta_attention(c: Config, layers: int) -> dict[str, Any]:
    """Layers with Kimi delta attention, three of four where the config does not list them (transformers: Glm5NextTextConfig)."""
    kinds, known = c.data.get("layer_types"), {"linear_attention", "full_attention", "indexed_attention"}
    if kinds is None:
        kinds = ["full_attention" if n % 4 == 3 else "linear_attention" for n in range(min(layers, MOST_LAYERS))]  # noqa: PLR2004
    elif not isinstance(kinds, list) or len(kinds) != layers or set(map(str, kinds)) - known or "linear_attention" not in kinds[:-1]:
        c.refuse("layer_types", f"are not the kinds of {layers} layers", kinds, f"{layers} of {', '.join(sorted(known))}")
        kinds = ["linear_attention"]
    inner = c.data.get("linear_attn_config")
    own = Config(inner, "linear_attn_config") if isinstance(inner, dict) else None
    heads = own.number("num_heads") if own else c.number("linear_num_heads")
    size = own.number("head_dim") if own else c.number("linear_head_dim")
    kernel = own.number("short_conv_kernel_size") if own else c.number("linear_conv_kernel_dim")
    listed = inner.get("kda_layers") if isinstance(inner, dict) else None
    if own is not None and listed is not None and not (isinstance(listed, list) and 0 < len(set(map(str, listed))) < layers):
        own.refuse("kda_layers", "is no list of some of the layers", listed, f"numbers from 1 to {layers}")
    c.findings += own.findings if own else []
    block = c.number("attn_res_block_size", 0, least=0)
    return {
        "linearAttention": {
            "layers": len(listed) if isinstance(listed, list) else kinds.count("linear_attention"),
            "fullGate": isinstance(inner, dict) and inner.get("use_full_rank_gate") is True,
            "keyHeads": heads, "valueHeads": heads, "keyHeadDim": size, "valueHeadDim": size, "kernel": kernel,
        },
        "residualStreams": c.number("hc_mult", 1),
        "keptResiduals": -(-layers // block) if block else 0,
        "gatedAttention": c.data.get("mla_use_output_gate") is True,
        **({"blockSize": KDA_BLOCK} if "index_kpool" in c.data else {}),
    }  # fmt: skip


def _block_index(c: Config, key: str, layers: int) -> dict[str, Any]:
    """Sparse attention that chooses blocks of tokens by one key a token."""
    inner = Config(c.data[key], key)
    chosen, size = inner.number("sparse_topk_blocks"), inner.number("sparse_block_size")
    sparse = inner.data.get("sparse_attention_freq", [1] * min(layers, MOST_LAYERS))
    if not isinstance(sparse, list) or len(sparse) != layers or set(sparse) - {0, 1}:
        inner.refuse("sparse_attention_freq", f"does not say which of the {layers} layers are sparse", sparse, "0 or 1 for each layer")
        sparse = [1]
    indexer = {
        "heads": inner.number("sparse_num_index_heads"),
        "headDim": inner.number("sparse_index_dim"),
        "topK": chosen * size,
        "layers": sum(sparse),
    }
    c.findings += inner.findings
    return {"indexer": indexer, "blockSize": size}


def _experts(c: Config, family: Family, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Routed and shared experts; what the config does not say is refused, because no size could be guessed."""
    usual = "num_local_experts" if family.expert_size == "intermediate_size" else _COUNTS[0] if family.attention == "latent" else "num_experts"
    experts = c.first(*_COUNTS) or c.number(usual)
    visited = c.first(*filter(None, (family.visited, "num_experts_per_tok", "experts_per_token"))) or c.number("num_experts_per_tok")
    if visited > experts and not c.findings:
        c.refuse("num_experts_per_tok", f"is more than the {experts} experts", visited, f"at most {experts}")
    inner, step = c.number(family.expert_size), c.number(family.expert_every, 1) if family.expert_every else 1
    return {
        "experts": experts,
        "expertsPerToken": visited,
        "sharedExperts": _shared(c, family, inner),
        "intermediateSize": inner,
        "hiddenSize": c.first("routed_expert_hidden_size") or None,
        "denseLayers": _dense_layers(c, family, facts["layers"]),
        "everyNth": step,
    }


def _shared(c: Config, family: Family, inner: int) -> int:
    """Experts that every token visits; a config may give their inner size alone."""
    if not family.shared_size:
        return c.number("num_shared_experts" if c.data.get("num_shared_experts") is not None else "n_shared_experts", 0, least=0)
    size = c.number(family.shared_size, 0, least=0)
    if size % inner and not c.findings:
        c.refuse(family.shared_size, f"is no multiple of the {inner} of an expert", size, f"a multiple of {inner}")
    return size // inner


def _indexers(c: Config, layers: int) -> int:
    """Layers that have an indexer of their own."""
    kinds = c.data.get("indexer_types")
    if kinds is None:
        return layers
    if not isinstance(kinds, list) or len(kinds) != layers or "full" not in kinds:
        c.refuse("indexer_types", f"are not the kinds of {layers} layers", kinds, f"{layers} kinds, some of them full")
        return layers
    return kinds.count("full")


def _latent(c: Config, heads: int) -> dict[str, Any]:
    """Latent attention. `q_lora_rank: null` (DeepSeek-V2-Lite) is a query projection in one piece."""
    nope, rope = c.number("qk_nope_head_dim"), c.number("qk_rope_head_dim", least=0)
    whole = "q_lora_rank" in c.data and c.data["q_lora_rank"] is None
    return {
        "kvHeads": heads,
        "headDim": nope + rope,
        "mla": {
            "qLoraRank": None if whole else c.number("q_lora_rank"),
            "kvLoraRank": c.number("kv_lora_rank"),
            "qkNopeHeadDim": nope,
            "qkRopeHeadDim": rope,
            "vHeadDim": c.number("v_head_dim"),
        },
    }


def _dense_layers(c: Config, family: Family, layers: int) -> int:
    """First layers without experts; in any other place they are refused."""
    leading, step = c.number(family.dense_layers, 0, least=0), c.number("decoder_sparse_step", 1)
    listed, each, kinds = c.data.get("mlp_only_layers") or [], c.data.get("moe_layer_freq"), c.data.get("mlp_layer_types")
    if isinstance(kinds, list) and len(kinds) == layers and set(kinds) <= {"dense", "sparse"} and kinds == sorted(kinds):
        leading = kinds.count("dense")
    if isinstance(each, list) and len(each) == layers and not set(each) - {0, 1} and each == sorted(each):
        leading = layers - sum(each)
    elif c.number("moe_layer_freq", 1) != 1:
        c.refuse("moe_layer_freq", "puts layers without experts between others", c.data["moe_layer_freq"], "1")
    if not (isinstance(listed, list) and all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < layers for n in listed)):
        c.refuse("mlp_only_layers", "is no list of layers", listed, f"numbers from 0 to {layers - 1}")
        return leading
    if step > 1:
        c.refuse("decoder_sparse_step", "puts layers without experts between others", step, "1")
    elif set(listed) != set(range(len(set(listed)))):
        c.refuse("mlp_only_layers", "puts layers without experts between others", listed, "none, or the first ones")
    return max(leading, len(set(listed)))


def _kinds(c: Config, family: Family, layers: int) -> list[str]:
    """The kind of each layer. Empty where all are alike; a kind whose memory is not known is refused.

    Where all layers slide (Mistral's `sliding_window` without `layer_types`) they count as full ones: a request then takes more here than in
    vLLM, never less, and what a token costs stays above 0.
    """
    kinds = c.data.get("layer_types")
    if kinds is None and family.linear:
        step = c.number("full_attention_interval")
        return ["full_attention" if (n + 1) % step == 0 else "linear_attention" for n in range(min(layers, MOST_LAYERS))]
    if kinds is None and family.chunked and c.data.get(family.chunked) is not None:
        step = c.number("no_rope_layer_interval", 4)  # transformers: Llama4TextConfig
        return ["full_attention" if (n + 1) % step == 0 else "chunked_attention" for n in range(min(layers, MOST_LAYERS))]
    if isinstance(kinds, list):
        known = [k for k in _LAYERS if k != "linear_attention" or family.linear]
        unknown = next((k for k in kinds if k not in known), None)
        if unknown is not None or len(kinds) != layers:
            message = "is a kind of layer whose memory is not known here" if unknown is not None else f"are not the kinds of {layers} layers"
            value = unknown if unknown is not None else f"{len(kinds)} kinds"
            c.refuse("layer_types", message, value, f"{layers} of {', '.join(known)}")
            return []
        return [] if "full_attention" not in kinds else [str(k) for k in kinds]
    if kinds is not None:
        c.refuse("layer_types", "is no list", kinds, "a kind for each layer, or without it")
    some = family.name == "GptOssForCausalLM" or c.data.get("use_sliding_window") is True
    if some and c.data.get("sliding_window") is not None:
        c.refuse("layer_types", "is missing, so it is not known which layers have the sliding_window", None, "a kind for each layer")
    return []
