"""Architecture facts from a Hugging Face config.json, for models that are not in the catalogue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..errors import Finding, Level, SpecError
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
_BYTES = {"bf16": 2.0, "fp8": 1.0, "int4": 0.5625, "mxfp4": 0.53, "nvfp4": 0.5625}


def read_model(path: Path, name: str, repository: str) -> Model:
    """The entry for a config.json (or the folder that holds it).

    The checkpoint's size is taken from `model.safetensors.index.json` beside it, else it is computed from the parameters.
    Raises SpecError when the file is missing, is not JSON, lacks a key, or is of an architecture whose memory is not known here.
    """
    file = path / "config.json" if path.is_dir() else path
    data = _read_json(file)
    architecture = str((data.get("architectures") or ["none"])[0])
    if architecture not in SUPPORTED:
        raise _refused("architectures[0]", "is an architecture whose memory is not known here", architecture, ", ".join(sorted(SUPPORTED)))
    inner = data.get("text_config")
    text: dict[str, Any] = inner if isinstance(inner, dict) else data
    facts = _facts(text, architecture)
    weight_dtype = _weight_dtype(data)
    parameters = _parameters(facts)
    index = file.parent / "model.safetensors.index.json"
    size = _read_json(index).get("metadata", {}).get("total_size") if index.is_file() else None
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


def _read_json(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise _refused("", f"cannot be read: {(problem.strerror or 'no such file').lower()}", file.name, "a config.json or its folder") from None
    except (ValueError, RecursionError):
        raise _refused("", "is not JSON", file.name, "a config.json as on Hugging Face") from None
    if not isinstance(data, dict):
        raise _refused("", "is not a JSON object", file.name, "a config.json as on Hugging Face")
    return data


def _refused(path: str, message: str, value: Any, allowed: str) -> SpecError:
    return SpecError([Finding("model-config", Level.ERROR, path, message, value, allowed)])


def _facts(data: Mapping[str, Any], architecture: str) -> dict[str, Any]:
    missing = [k for k in ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size") if not _whole(data.get(k))]
    mla = architecture in MLA
    if mla:
        missing += [k for k in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "q_lora_rank") if not _whole(data.get(k))]
    if not _whole(data.get("max_position_embeddings")):
        missing.append("max_position_embeddings")
    if missing:
        raise SpecError([Finding("model-config", Level.ERROR, key, "is missing or not a positive whole number", data.get(key)) for key in missing])
    heads = data["num_attention_heads"]
    facts: dict[str, Any] = {
        "layers": data["num_hidden_layers"],
        "hiddenSize": data["hidden_size"],
        "attentionHeads": heads,
        "kvHeads": heads if mla else data.get("num_key_value_heads") or heads,
        "headDim": data["qk_nope_head_dim"] + data["qk_rope_head_dim"] if mla else data.get("head_dim") or data["hidden_size"] // heads,
        "intermediateSize": data["intermediate_size"],
        "vocabSize": data["vocab_size"],
        "contextLength": data["max_position_embeddings"],
        "mtpLayers": data.get("num_nextn_predict_layers") or 0,
        "tiedEmbeddings": bool(data.get("tie_word_embeddings", False)),
    }
    if mla:
        facts["mla"] = {
            "qLoraRank": data["q_lora_rank"], "kvLoraRank": data["kv_lora_rank"], "qkNopeHeadDim": data["qk_nope_head_dim"],
            "qkRopeHeadDim": data["qk_rope_head_dim"], "vHeadDim": data["v_head_dim"],
        }  # fmt: skip
    if data.get("index_n_heads"):
        kinds = data.get("indexer_types")
        layers = sum(kind == "full" for kind in kinds) if isinstance(kinds, list) else data["num_hidden_layers"]
        facts["indexer"] = {"heads": data["index_n_heads"], "headDim": data["index_head_dim"], "topK": data["index_topk"], "layers": layers}
    experts = data.get("n_routed_experts") or data.get("num_experts") or data.get("num_local_experts")
    if experts:
        facts["moe"] = {
            "experts": experts,
            "expertsPerToken": data.get("num_experts_per_tok") or data.get("experts_per_token") or 1,
            "sharedExperts": data.get("n_shared_experts") or 0,
            "intermediateSize": data.get("moe_intermediate_size") or data["intermediate_size"],
            "denseLayers": data.get("first_k_dense_replace") or 0,
        }
    kinds = data.get("layer_types")
    if isinstance(kinds, list) and data.get("sliding_window") and "sliding_attention" in kinds:
        facts["slidingWindow"] = {"size": data["sliding_window"], "layers": kinds.count("sliding_attention")}
    return facts


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _weight_dtype(data: Mapping[str, Any]) -> str:
    quantization = data.get("quantization_config")
    if not isinstance(quantization, dict):
        return "bf16"
    method = str(quantization.get("quant_method", ""))
    if method not in _QUANTIZATION:
        raise _refused("quantization_config.quant_method", "is not a known quantization", method, ", ".join(sorted(_QUANTIZATION)))
    return _QUANTIZATION[method]


def _parameters(f: Mapping[str, Any]) -> float:
    return sum(_layer(f, i, active=False) for i in range(f["layers"])) + _embeddings(f)


def _active(f: Mapping[str, Any], total: float) -> float:
    if "moe" not in f:
        return total
    return sum(_layer(f, i, active=True) for i in range(f["layers"])) + _embeddings(f)


def _embeddings(f: Mapping[str, Any]) -> float:
    return float(f["vocabSize"] * f["hiddenSize"] * (1 if f["tiedEmbeddings"] else 2))


def _layer(f: Mapping[str, Any], index: int, *, active: bool) -> float:
    h, heads = f["hiddenSize"], f["attentionHeads"]
    if "mla" in f:
        m = f["mla"]
        q, kv, nope, rope, v = m["qLoraRank"], m["kvLoraRank"], m["qkNopeHeadDim"], m["qkRopeHeadDim"], m["vHeadDim"]
        attention = h * q + h * (kv + rope) + q * heads * (nope + rope) + heads * v * h + kv * heads * (nope + v)
    else:
        attention = 2 * h * heads * f["headDim"] + 2 * h * f["kvHeads"] * f["headDim"]
    moe = f.get("moe")
    if moe is None or index < moe["denseLayers"]:
        return float(attention + 3 * h * f["intermediateSize"])
    experts = (moe["expertsPerToken"] if active else moe["experts"]) + moe["sharedExperts"]
    return float(attention + 3 * h * moe["intermediateSize"] * experts + h * moe["experts"])
