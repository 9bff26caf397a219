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

_QUANTIZATION = {"fp8": "fp8", "mxfp4": "mxfp4", "compressed-tensors": "fp8", "modelopt": "fp8", "awq": "int4", "gptq": "int4"}
_LARGEST_BYTES = 10**15
_BYTES = {"bf16": 2.0, "fp8": 1.0, "int4": 0.5625, "mxfp4": 0.53, "nvfp4": 0.5625}


def read_model(path: Path, name: str, repository: str) -> Model:
    """The entry for a config.json (or the folder that holds it).

    The checkpoint's size is taken from `model.safetensors.index.json` beside it, else it is computed from the parameters.
    Raises SpecError when the file is missing, is not JSON, lacks a number, or is of an architecture whose memory is not known here.
    """
    file = path / "config.json" if path.is_dir() else path
    data = _read_json(file)
    names = data.get("architectures")
    architecture = str(names[0]) if isinstance(names, list) and names else "none" if names is None else show(names)
    if architecture not in SUPPORTED:
        raise _refused("architectures[0]", "is an architecture whose memory is not known here", architecture, ", ".join(sorted(SUPPORTED)))
    inner = data.get("text_config")
    config = _Config(inner if isinstance(inner, dict) else data)
    facts = _facts(config, architecture)
    weight_dtype = _weight_dtype(data)
    index = file.parent / "model.safetensors.index.json"
    files = _Config(_read_json(index).get("metadata") if index.is_file() else None, index.name)
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
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= _LARGEST_BYTES:
            return value
        message = "is missing" if value is None else "is not a positive whole number"
        self.findings.append(Finding("model-config", Level.ERROR, self._where + key, message, value, "a positive whole number, as on Hugging Face"))
        return 1

    def first(self, *keys: str) -> int:
        """The number under the first of `keys` that is there, or 0."""
        return next((self.number(key) for key in keys if self.data.get(key) is not None), 0)


def _read_json(file: Path) -> dict[str, Any]:
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
        nope, rope = c.number("qk_nope_head_dim"), c.number("qk_rope_head_dim")
        facts |= {"kvHeads": heads, "headDim": nope + rope}
        facts["mla"] = {
            "qLoraRank": c.number("q_lora_rank"),
            "kvLoraRank": c.number("kv_lora_rank"),
            "qkNopeHeadDim": nope,
            "qkRopeHeadDim": rope,
            "vHeadDim": c.number("v_head_dim"),
        }
    else:
        facts |= {"kvHeads": c.number("num_key_value_heads", heads), "headDim": c.number("head_dim", max(1, hidden // heads))}
    kinds = c.data.get("indexer_types")
    if c.data.get("index_n_heads") is not None:
        full = kinds.count("full") if isinstance(kinds, list) else layers
        facts["indexer"] = {
            "heads": c.number("index_n_heads"),
            "headDim": c.number("index_head_dim"),
            "topK": c.number("index_topk"),
            "layers": full or layers,
        }
    if experts := c.first("n_routed_experts", "num_experts", "num_local_experts"):
        facts["moe"] = {
            "experts": experts,
            "expertsPerToken": c.first("num_experts_per_tok", "experts_per_token") or 1,
            "sharedExperts": c.number("n_shared_experts", 0, least=0),
            "intermediateSize": c.number("moe_intermediate_size", facts["intermediateSize"]),
            "denseLayers": c.number("first_k_dense_replace", 0, least=0),
        }
    kinds = c.data.get("layer_types")
    if isinstance(kinds, list) and "sliding_attention" in kinds:
        facts["slidingWindow"] = {"size": c.number("sliding_window"), "layers": kinds.count("sliding_attention")}
    return facts


def _weight_dtype(data: Mapping[str, Any]) -> str:
    quantization = data.get("quantization_config")
    if not isinstance(quantization, dict):
        return "bf16"
    method = str(quantization.get("quant_method", ""))
    if method not in _QUANTIZATION:
        raise _refused("quantization_config.quant_method", "is not a known quantization", method, ", ".join(sorted(_QUANTIZATION)))
    return _QUANTIZATION[method]


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
        q, kv, nope, rope, v = m["qLoraRank"], m["kvLoraRank"], m["qkNopeHeadDim"], m["qkRopeHeadDim"], m["vHeadDim"]
        attention = h * q + h * (kv + rope) + q * heads * (nope + rope) + heads * v * h + kv * heads * (nope + v)
    else:
        attention = 2 * h * heads * f["headDim"] + 2 * h * f["kvHeads"] * f["headDim"]
    dense = layers if moe is None else min(moe["denseLayers"], layers)
    total = layers * attention + dense * 3 * h * f["intermediateSize"]
    if moe is not None:
        experts = (moe["expertsPerToken"] if active else moe["experts"]) + moe["sharedExperts"]
        total += (layers - dense) * (3 * h * moe["intermediateSize"] * experts + h * moe["experts"])
    return float(total)
