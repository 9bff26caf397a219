"""Architecture facts from a Hugging Face config.json, for models that are not in the catalogue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..errors import Finding, Level, SpecError, show
from ..spec.validation import parse
from .entries import Model

GQA = frozenset(
    {
        "LlamaForCausalLM",
        "MistralForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
        "GptOssForCausalLM",
        "MixtralForCausalLM",
    }
)
MLA = frozenset({"DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM", "KimiK2ForCausalLM"})
SUPPORTED = GQA | MLA
EXPERTS = (MLA - {"DeepseekV2ForCausalLM"}) | {"Qwen3MoeForCausalLM", "GptOssForCausalLM", "MixtralForCausalLM"}
"""Classes of which every published model has experts; without their number the memory would be that of a dense model."""
PLAIN_EXPERTS = frozenset({"GptOssForCausalLM", "MixtralForCausalLM"})
"""Classes whose intermediate_size is that of an expert."""
SPARSE = frozenset({"DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"})
MOST_LAYERS = 1000

_PLAIN = {"fp8": "fp8", "mxfp4": "mxfp4"}
_METHODS = ("awq", "compressed-tensors", "fp8", "gptq", "modelopt", "modelopt_fp4", "mxfp4")
_WIDTHS = (4,)
_ALGORITHMS = {"FP8": "fp8", "FP8_PB_WO": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8", "NVFP4": "nvfp4"}
_LARGEST_BYTES = 10**15
BLOCK = 128
_BYTES = {"bf16": 2.0, "fp8": 1.0, "int4": 0.5625, "mxfp4": 0.53, "nvfp4": 0.5625}


def read_model(path: Path, name: str, repository: str, root: Path | None = None) -> Model:
    """The entry for a config.json (or the folder that holds it). No file is read that a link puts outside `root`.

    The checkpoint's size is taken from `model.safetensors.index.json` beside it, else it is computed from the parameters.
    Raises SpecError when the file is missing, is not JSON, lacks a number, or is of an architecture whose memory is not known here.
    """
    file = path / "config.json" if path.is_dir() else path
    data = _read_json(file, root)
    names = data.get("architectures")
    architecture = str(names[0]) if isinstance(names, list) and names else "none" if names is None else show(names)
    if architecture not in SUPPORTED:
        raise _refused("architectures[0]", "is an architecture whose memory is not known here", architecture, ", ".join(sorted(SUPPORTED)))
    inner = data.get("text_config")
    config = _Config(inner if isinstance(inner, dict) else data)
    facts = _facts(config, architecture)
    weight_dtype = _weight_dtype(config, data)
    beside = file.parent / "hf_quant_config.json"
    if weight_dtype == "bf16" and beside.is_file():
        inside = _read_json(beside, root).get("quantization")
        weight_dtype = _modelopt(inside if isinstance(inside, dict) else {}, f"{beside.name}: quantization.quant_algo")
    index = file.parent / "model.safetensors.index.json"
    files = _Config(_read_json(index, root).get("metadata") if index.is_file() else None, index.name)
    size = files.number("total_size", 0)
    if config.findings or files.findings:
        raise SpecError([*config.findings, *files.findings])
    parameters = _parameters(facts)
    return parse(
        Model,
        {
            "id": "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-") or "model",
            "repository": repository,
            "architecture": architecture,
            "parametersB": {"total": parameters / 1e9, "active": _active(facts, parameters) / 1e9},
            **facts,
            "weightDtype": weight_dtype,
            "weightBlock": _weight_block(data, config.data),
            "checkpointGB": (size or parameters * _BYTES[weight_dtype]) / 1e9,
            "source": [file.name],
            "checked": datetime.fromtimestamp(file.stat().st_mtime, tz=UTC).date(),
        },
    )


class _Config:
    """Whole numbers out of a config.json; what is not one becomes a finding and counts as 1 meanwhile."""

    def __init__(self, data: Any, where: str = "") -> None:
        self.data: Mapping[str, Any] = data if isinstance(data, dict) else {}
        self.findings: list[Finding] = []
        self._where = f"{where}: " if where else ""

    def number(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """The number under `key`, or `default` where the key is absent or null; without a default the key is required."""
        value = self.data.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # some tools write sizes as 1.5e+11
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= _LARGEST_BYTES:
            return value
        message = "is missing" if value is None else "is not a positive whole number"
        self.findings.append(Finding("model-config", Level.ERROR, self._where + key, message, value, "a positive whole number, as on Hugging Face"))
        return 1

    def refuse(self, key: str, message: str, value: Any, allowed: str) -> None:
        """Add a finding about `key`."""
        self.findings.append(Finding("model-config", Level.ERROR, self._where + key, message, value, allowed))

    def first(self, *keys: str) -> int:
        """The number under the first of `keys` that is there, or 0."""
        return next((self.number(key) for key in keys if self.data.get(key) is not None), 0)


def _read_json(file: Path, root: Path | None) -> dict[str, Any]:
    if root is not None and not file.resolve().is_relative_to(root.resolve()):
        raise _refused("", "is a link that leads out of the project", file.name, "a file inside it")
    try:
        data = json.loads(file.read_bytes())
    except OSError as problem:
        raise _refused("", f"cannot be read: {(problem.strerror or 'no such file').lower()}", file.name, "a config.json or its folder") from None
    except (ValueError, RecursionError):
        raise _refused("", "is not JSON", file.name, "a config.json as on Hugging Face") from None
    if not isinstance(data, dict):
        raise _refused("", "is not a JSON object", file.name, "a config.json as on Hugging Face")
    return data


def _refused(path: str, message: str, value: Any, allowed: str) -> SpecError:
    return SpecError([Finding("model-config", Level.ERROR, path, message, value, allowed)])


def _facts(c: _Config, architecture: str) -> dict[str, Any]:
    layers, hidden, heads = c.number("num_hidden_layers"), c.number("hidden_size"), c.number("num_attention_heads")
    if layers > MOST_LAYERS:
        c.refuse("num_hidden_layers", "is more than any model has", layers, f"at most {MOST_LAYERS}")
    for key in ("first_k_dense_replace", "num_nextn_predict_layers"):
        if c.number(key, 0, least=0) > layers <= MOST_LAYERS:
            c.refuse(key, f"is more than the {layers} layers", c.data[key], f"at most {layers}")
    facts: dict[str, Any] = {
        "layers": layers,
        "hiddenSize": hidden,
        "attentionHeads": heads,
        "intermediateSize": c.number("intermediate_size"),
        "vocabSize": c.number("vocab_size"),
        "contextLength": c.number("max_position_embeddings"),
        "mtpLayers": c.number("num_nextn_predict_layers", 0, least=0),
        "tiedEmbeddings": c.data.get("tie_word_embeddings") is True,
    }
    if architecture in MLA:
        facts |= _latent(c, heads)
    else:
        facts |= {"kvHeads": c.number("num_key_value_heads", heads), "headDim": c.number("head_dim", max(1, hidden // heads))}
        if heads % facts["kvHeads"] and not c.findings:
            c.refuse("num_key_value_heads", f"does not divide the {heads} attention heads", facts["kvHeads"], f"a divisor of {heads}")
    if architecture in SPARSE or c.data.get("index_n_heads") is not None:
        facts["indexer"] = {
            "heads": c.number("index_n_heads"),
            "headDim": c.number("index_head_dim"),
            "topK": c.number("index_topk"),
            "layers": _indexers(c, layers),
        }
    if architecture in EXPERTS or any(c.data.get(key) is not None for key in _COUNTS):
        facts["moe"] = _experts(c, architecture, facts)
    if sliding := _sliding_layers(c, architecture, layers):
        facts["slidingWindow"] = {"size": c.number("sliding_window"), "layers": sliding}
    return facts


_COUNTS = ("n_routed_experts", "num_experts", "num_local_experts")


def _experts(c: _Config, architecture: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Routed and shared experts; what the config does not say is refused, because no size could be guessed."""
    usual = "num_local_experts" if architecture in PLAIN_EXPERTS else "num_experts" if architecture in GQA else _COUNTS[0]
    experts, visited = c.first(*_COUNTS) or c.number(usual), c.first("num_experts_per_tok", "experts_per_token") or c.number("num_experts_per_tok")
    if visited > experts and not c.findings:
        c.refuse("num_experts_per_tok", f"is more than the {experts} experts", visited, f"at most {experts}")
    return {
        "experts": experts,
        "expertsPerToken": visited,
        "sharedExperts": c.number("n_shared_experts", 0, least=0),
        "intermediateSize": c.number("moe_intermediate_size", facts["intermediateSize"] if architecture in PLAIN_EXPERTS else None),
        "denseLayers": _dense_layers(c, facts["layers"]),
    }


def _indexers(c: _Config, layers: int) -> int:
    """Layers that have an indexer of their own."""
    kinds = c.data.get("indexer_types")
    if kinds is None:
        return layers
    if not isinstance(kinds, list) or len(kinds) != layers or "full" not in kinds:
        c.refuse("indexer_types", f"are not the kinds of {layers} layers", kinds, f"{layers} kinds, some of them full")
        return layers
    return kinds.count("full")


def _latent(c: _Config, heads: int) -> dict[str, Any]:
    """Latent attention. `q_lora_rank: null` (DeepSeek-V2-Lite) is a query projection in one piece."""
    nope, rope = c.number("qk_nope_head_dim"), c.number("qk_rope_head_dim")
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


def _dense_layers(c: _Config, layers: int) -> int:
    """Layers without experts. They are counted from the first, so any other place is refused."""
    leading, step = c.number("first_k_dense_replace", 0, least=0), c.number("decoder_sparse_step", 1)
    listed = c.data.get("mlp_only_layers") or []
    if c.number("moe_layer_freq", 1) != 1:
        c.refuse("moe_layer_freq", "puts layers without experts between others", c.data["moe_layer_freq"], "1")
    if not (isinstance(listed, list) and all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < layers for n in listed)):
        c.refuse("mlp_only_layers", "is no list of layers", listed, f"numbers from 0 to {layers - 1}")
        return leading
    if step > 1:
        c.refuse("decoder_sparse_step", "puts layers without experts between others", step, "1")
    elif set(listed) != set(range(len(set(listed)))):
        c.refuse("mlp_only_layers", "puts layers without experts between others", listed, "none, or the first ones")
    return max(leading, len(set(listed)))


def _sliding_layers(c: _Config, architecture: str, layers: int) -> int:
    """Layers that attend to a window only, beside others; a kind of layer whose memory is not known is refused.

    Where all layers slide (Mistral's `sliding_window` without `layer_types`) they count as full ones: a request then takes more here than in
    vLLM, never less, and what a token costs stays above 0.
    """
    kinds = c.data.get("layer_types")
    if isinstance(kinds, list):
        unknown = next((k for k in kinds if k not in ("full_attention", "sliding_attention")), None)
        if unknown is not None or len(kinds) != layers:
            message = "is a kind of layer whose memory is not known here" if unknown is not None else f"are not the kinds of {layers} layers"
            value = unknown if unknown is not None else f"{len(kinds)} kinds"
            c.refuse("layer_types", message, value, f"{layers} of full_attention and sliding_attention")
        return kinds.count("sliding_attention") % layers
    if kinds is not None:
        c.refuse("layer_types", "is no list", kinds, "a kind for each layer, or without it")
    some = architecture == "GptOssForCausalLM" or c.data.get("use_sliding_window") is True
    if some and c.data.get("sliding_window") is not None:
        c.refuse("layer_types", "is missing, so it is not known which layers have the sliding_window", None, "a kind for each layer")
    return 0


def _weight_dtype(c: _Config, data: Mapping[str, Any]) -> str:
    """Dtype of most weights. What is unclear, or has no size here, is refused and never guessed."""
    key = "quantization_config"
    found = next((d[k] for d in (data, c.data) for k in (key, "compression_config") if d.get(k) is not None), None)
    if found is None:
        return "bf16"
    if not isinstance(found, dict):
        raise _refused(key, "is not a mapping", found, "a mapping with quant_method, as on Hugging Face")
    method = found.get("quant_method")
    if not isinstance(method, str) or method not in _METHODS:
        raise _refused(f"{key}.quant_method", "is not a known quantization", method, ", ".join(_METHODS))
    if method in {"awq", "gptq"}:
        bits = "bits" if found.get("bits") is not None else "w_bit"
        if found.get(bits) not in _WIDTHS:
            raise _refused(f"{key}.bits", f"is not a width of {method} whose memory is known here", found.get(bits), "the number 4")
        return "int4"
    if method in {"modelopt", "modelopt_fp4"}:
        return _modelopt(found, f"{key}.quant_algo")
    return _PLAIN[method] if method in _PLAIN else _compressed(found, f"{key}.config_groups")


def _weight_block(*places: Mapping[str, Any]) -> int | None:
    """Rows and columns that share a scale; None for scales of a tensor or a channel."""
    found: Mapping[str, Any] = next((d[k] for d in places for k in ("quantization_config", "compression_config") if isinstance(d.get(k), dict)), {})
    groups = found.get("config_groups")
    weights = [g.get("weights") for g in groups.values() if isinstance(g, dict)] if isinstance(groups, dict) else []
    blocks = [w.get("block_structure") for w in weights if isinstance(w, dict) and w.get("strategy") == "block"]
    if found.get("quant_algo") == "FP8_PB_WO" or (blocks and not isinstance(blocks[0], list)):
        return BLOCK
    size = blocks[0] if blocks else found.get("weight_block_size")
    if size is None:
        return None
    if not isinstance(size, list) or not size or not all(isinstance(n, int) and n > 0 for n in size):
        raise _refused("quantization_config.weight_block_size", "is no pair of sizes", size, "[128, 128]")
    return int(max(size))


def _modelopt(found: Mapping[str, Any], path: str) -> str:
    inner = found.get("quantization")
    algorithm = found.get("quant_algo") or (inner.get("quant_algo") if isinstance(inner, dict) else None)
    if algorithm is None and found.get("quant_method") == "modelopt_fp4":
        algorithm = "NVFP4"
    if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
        raise _refused(path, "is not an algorithm whose memory is known here", algorithm, ", ".join(_ALGORITHMS))
    return _ALGORITHMS[algorithm]


def _compressed(found: Mapping[str, Any], path: str) -> str:
    """Dtype of compressed tensors: all groups of layers must be of one."""
    groups = found.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        raise _refused(path, "is no mapping of groups", groups, "a mapping with weights.num_bits and weights.type")
    allowed = "8 bits float, 4 bits int, or 4 bits float in groups of 16 (nvfp4) or 32 (mxfp4)"
    dtypes: set[str] = set()
    for name, group in groups.items():
        weights = group.get("weights") if isinstance(group, dict) else None
        w = weights if isinstance(weights, dict) else {}
        bits, kind, size = w.get("num_bits"), w.get("type"), w.get("group_size")
        dtype = {(8, "float"): "fp8", (4, "int"): "int4"}.get((bits, kind)) if isinstance(bits, int) and isinstance(kind, str) else None
        if (bits, kind) == (4, "float"):
            dtype = {16: "nvfp4", 32: "mxfp4"}.get(size) if isinstance(size, int) else None
        if dtype is None:
            shown = f"{show(bits)} bits {show(kind)}" + ("" if size is None else f" in groups of {show(size)}")
            raise _refused(f"{path}.{name}.weights", "is no form of weights whose memory is known here", shown, allowed)
        dtypes.add(dtype)
    if len(dtypes) > 1:
        raise _refused(path, "are of several dtypes, whose shares are not known", ", ".join(sorted(dtypes)), "one dtype for all groups")
    return dtypes.pop()


def _parameters(f: Mapping[str, Any]) -> float:
    return _layers(f, active=False) + _embeddings(f)


def _active(f: Mapping[str, Any], total: float) -> float:
    return _layers(f, active=True) + _embeddings(f) if "moe" in f else total


def _embeddings(f: Mapping[str, Any]) -> float:
    return float(f["vocabSize"] * f["hiddenSize"] * (1 if f["tiedEmbeddings"] else 2))


def _layers(f: Mapping[str, Any], *, active: bool) -> float:
    """Parameters of all layers; `active` counts the experts that a token visits."""
    h, heads, layers, moe = f["hiddenSize"], f["attentionHeads"], f["layers"], f.get("moe")
    if "mla" in f:
        m = f["mla"]
        q, kv, nope, rope, v = m["qLoraRank"] or 0, m["kvLoraRank"], m["qkNopeHeadDim"], m["qkRopeHeadDim"], m["vHeadDim"]
        attention = h * q + h * (kv + rope) + (q or h) * heads * (nope + rope) + heads * v * h + kv * heads * (nope + v)
    else:
        attention = 2 * h * heads * f["headDim"] + 2 * h * f["kvHeads"] * f["headDim"]
    dense = layers if moe is None else min(moe["denseLayers"], layers)
    total = layers * attention + dense * 3 * h * f["intermediateSize"]
    if moe is not None:
        experts = (moe["expertsPerToken"] if active else moe["experts"]) + moe["sharedExperts"]
        total += (layers - dense) * (3 * h * moe["intermediateSize"] * experts + h * moe["experts"])
    return float(total)
