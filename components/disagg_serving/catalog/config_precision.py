"""Dtype and blocks of quantised weights from a config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import show
from .config_file import Config, refused

_PLAIN = {"fp8": "fp8", "mxfp4": "mxfp4"}
_METHODS = ("awq", "compressed-tensors", "fp8", "gptq", "modelopt", "modelopt_fp4", "mxfp4")
_WIDTHS = (4,)
_ALGORITHMS = {"FP8": "fp8", "FP8_PB_WO": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8", "NVFP4": "nvfp4"}
BLOCK = 128


def weight_dtype(c: Config, data: Mapping[str, Any]) -> str:
    """Dtype of most weights. What is unclear, or has no size here, is refused and never guessed."""
    key = "quantization_config"
    found = next((d[k] for d in (data, c.data) for k in (key, "compression_config") if d.get(k) is not None), None)
    if found is None:
        return "bf16"
    if not isinstance(found, dict):
        raise refused(key, "is not a mapping", found, "a mapping with quant_method, as on Hugging Face")
    method = found.get("quant_method")
    if not isinstance(method, str) or method not in _METHODS:
        raise refused(f"{key}.quant_method", "is not a known quantization", method, ", ".join(_METHODS))
    if method in {"awq", "gptq"}:
        bits = "bits" if found.get("bits") is not None else "w_bit"
        if found.get(bits) not in _WIDTHS:
            raise refused(f"{key}.bits", f"is not a width of {method} whose memory is known here", found.get(bits), "the number 4")
        return "int4"
    if method in {"modelopt", "modelopt_fp4"}:
        return modelopt(found, f"{key}.quant_algo")
    return _PLAIN[method] if method in _PLAIN else _compressed(found, f"{key}.config_groups")


def weight_block(*places: Mapping[str, Any]) -> int | None:
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
        raise refused("quantization_config.weight_block_size", "is no pair of sizes", size, "[128, 128]")
    return int(max(size))


def modelopt(found: Mapping[str, Any], path: str) -> str:
    """Dtype of a checkpoint of NVIDIA's Model Optimizer; `path` names the algorithm in errors."""
    inner = found.get("quantization")
    algorithm = found.get("quant_algo") or (inner.get("quant_algo") if isinstance(inner, dict) else None)
    if algorithm is None and found.get("quant_method") == "modelopt_fp4":
        algorithm = "NVFP4"
    if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
        raise refused(path, "is not an algorithm whose memory is known here", algorithm, ", ".join(_ALGORITHMS))
    return _ALGORITHMS[algorithm]


def _compressed(found: Mapping[str, Any], path: str) -> str:
    """Dtype of compressed tensors: all groups of layers must be of one."""
    groups = found.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        raise refused(path, "is no mapping of groups", groups, "a mapping with weights.num_bits and weights.type")
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
            raise refused(f"{path}.{name}.weights", "is no form of weights whose memory is known here", shown, allowed)
        dtypes.add(dtype)
    if len(dtypes) > 1:
        raise refused(path, "are of several dtypes, whose shares are not known", ", ".join(sorted(dtypes)), "one dtype for all groups")
    return dtypes.pop()
