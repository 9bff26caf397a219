"""Architecture facts from a Hugging Face config.json, for models that are not in the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..errors import SpecError, show
from ..spec.validation import parse
from .config_file import Config, read_json, refused
from .config_precision import modelopt, weight_block, weight_dtype
from .config_shapes import shapes
from .config_vision import tower
from .entries import Model
from .families import Family, calculated, family_of

_BYTES = {"bf16": 2.0, "fp8": 1.0, "int4": 0.5625, "mxfp4": 0.53, "nvfp4": 0.5625}


def read_model(path: Path, name: str, repository: str, root: Path | None = None) -> Model:
    """The entry for a config.json (or the folder that holds it). No file is read that a link puts outside `root`.

    The checkpoint's size is taken from `model.safetensors.index.json` beside it, else it is computed from the parameters.
    A class that is not known is read as grouped attention, so that a calibration can settle what it holds; nothing calculates with it.
    Raises SpecError when the file is missing, is not JSON, or lacks a number.
    """
    file = path / "config.json" if path.is_dir() else path
    data = read_json(file, root)
    names = data.get("architectures")
    if not (isinstance(names, list) and names and isinstance(names[0], str) and names[0].isidentifier()):
        raise refused("architectures[0]", "is no class of a model", "none" if names is None else show(names), ", ".join(calculated()))
    architecture, inner = names[0], data.get("text_config")
    config = Config(inner if isinstance(inner, dict) else data)
    family = family_of(architecture)
    facts = shapes(config, family or Family(architecture, ""))
    if family and family.vision:
        facts |= tower(data.get("vision_config"), family.vision, config.findings)
    dtype = weight_dtype(config, data)
    beside = file.parent / "hf_quant_config.json"
    if dtype == "bf16" and beside.is_file():
        inside = read_json(beside, root).get("quantization")
        dtype = modelopt(inside if isinstance(inside, dict) else {}, f"{beside.name}: quantization.quant_algo")
    index = file.parent / "model.safetensors.index.json"
    files = Config(read_json(index, root).get("metadata") if index.is_file() else None, index.name)
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
            "weightDtype": dtype,
            "weightBlock": weight_block(data, config.data),
            "checkpointGB": (size or parameters * _BYTES[dtype]) / 1e9,
            "source": [file.name],
            "checked": datetime.fromtimestamp(file.stat().st_mtime, tz=UTC).date(),
        },
    )


def _parameters(f: Mapping[str, Any]) -> float:
    return _layers(f, active=False) + _embeddings(f)


def _active(f: Mapping[str, Any], total: float) -> float:
    return _layers(f, active=True) + _embeddings(f) if "moe" in f else total


def _embeddings(f: Mapping[str, Any]) -> float:
    return float(f["vocabSize"] * f["hiddenSize"] * (1 if f["tiedEmbeddings"] else 2))


def _layers(f: Mapping[str, Any], *, active: bool) -> float:
    """Parameters of all layers; `active` counts the experts that a token visits."""
    h, heads, layers, moe = f["hiddenSize"], f["attentionHeads"], f["layers"], f.get("moe")
    linear, window = f.get("linearAttention"), f.get("slidingWindow")
    if "mla" in f:
        m = f["mla"]
        q, kv, nope, rope, v = m["qLoraRank"] or 0, m["kvLoraRank"], m["qkNopeHeadDim"], m["qkRopeHeadDim"], m["vHeadDim"]
        attention = h * q + h * (kv + rope) + (q or h) * heads * (nope + rope) + heads * v * h + kv * heads * (nope + v)
        attention += h * heads * v if f.get("gatedAttention") else 0
    else:
        attention = h * f["headDim"] * ((3 if f.get("gatedAttention") else 2) * heads + 2 * f["kvHeads"])
    total = (layers - (linear["layers"] if linear else 0)) * attention
    if window and "headDim" in window:
        total += window["layers"] * (2 * h * window["headDim"] * (heads + window["kvHeads"]) - attention)
    if linear:
        keys, values = linear["keyHeads"] * linear["keyHeadDim"], linear["valueHeads"] * linear["valueHeadDim"]
        # beside a latent it is Kimi delta attention, whose two gates go through a narrow layer
        narrow = linear["valueHeadDim"] * (h + values)
        gates = (narrow + (h * values if linear.get("fullGate") else narrow)) if "mla" in f else h * values
        total += linear["layers"] * (h * (2 * keys + 2 * values) + gates)
    dense = layers if moe is None else layers - (layers - moe["denseLayers"]) // moe["everyNth"]
    total += dense * 3 * h * f["intermediateSize"]
    if moe is not None:
        experts = (moe["expertsPerToken"] if active else moe["experts"]) + moe["sharedExperts"]
        total += (layers - dense) * (3 * h * moe["intermediateSize"] * experts + h * moe["experts"])
        if narrower := moe.get("hiddenSize"):
            routed = experts - moe["sharedExperts"]
            total += (layers - dense) * (3 * (narrower - h) * moe["intermediateSize"] * routed + 2 * h * narrower)
    return float(total)
