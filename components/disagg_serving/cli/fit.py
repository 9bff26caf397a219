"""`disagg fit`."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from ..catalog import Catalog, Model, load_catalog
from ..catalog.entries import Entry
from ..catalog.hf_config import read_model
from ..catalog.loader import Shelf
from ..errors import SpecError
from ..pins import DEFAULT_ENGINE
from ..planning.fit import Bars, Calibration, Capacity, EngineShape, Fit, capacity, read_log, unknown_architecture
from ..planning.report import entry
from .check import CheckFormat
from .common import emit

E = TypeVar("E", bound=Entry)
BAR_WIDTH = 64
VERDICTS = {
    Fit.FITS: "fits: one request of the longest length has room even in the worst case",
    Fit.TIGHT: "may fit: in the worst case one request of the longest length has no room",
    Fit.NO: "does not fit: even in the best case one request of the longest length has no room",
}


class Role(StrEnum):
    """What the engine is for."""

    AGGREGATED = "aggregated"
    PREFILL = "prefill"
    DECODE = "decode"


def fit(  # noqa: PLR0913, PLR0917 (the contract's options)
    model: Annotated[str, typer.Option("--model", help="Catalogue id, or the path of a config.json or of its folder.", show_default=False)],
    instance: Annotated[str, typer.Option("--instance", help="Catalogue id of the instance type.", show_default=False)],
    tensor_parallel: Annotated[int, typer.Option("--tensor-parallel", min=1, help="GPUs that share each layer.")] = 1,
    pipeline_parallel: Annotated[int, typer.Option("--pipeline-parallel", min=1, help="Stages of layers.")] = 1,
    data_parallel: Annotated[int, typer.Option("--data-parallel", min=1, help="Engines that share experts.")] = 1,
    expert_parallel: Annotated[bool, typer.Option("--expert-parallel", help="Give each GPU whole experts.")] = False,
    max_model_len: Annotated[int | None, typer.Option("--max-model-len", min=1, help="Longest sequence. Default: the model's context.")] = None,
    gpu_memory_utilization: Annotated[float, typer.Option("--gpu-memory-utilization", help="Share of GPU memory that vLLM may use.")] = 0.9,
    kv_cache_dtype: Annotated[str, typer.Option("--kv-cache-dtype", help="Dtype of the KV cache.")] = "auto",
    max_num_batched_tokens: Annotated[int | None, typer.Option("--max-num-batched-tokens", min=1, help="Tokens in one engine step.")] = None,
    engine: Annotated[str, typer.Option("--engine", help="Catalogue id of the vLLM image.")] = DEFAULT_ENGINE,
    role: Annotated[Role, typer.Option("--role", help="prefill and decode keep buffers for NIXL.")] = Role.AGGREGATED,
    log: Annotated[Path | None, typer.Option("--log", help="Log of a start of this engine; makes the figures exact.", show_default=False)] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show each formula with its numbers.")] = False,
    output_format: Annotated[CheckFormat, typer.Option("--format", help="Output format.")] = CheckFormat.TEXT,
    catalog_dir: Annotated[
        list[str] | None, typer.Option("--catalog-dir", help="A folder that adds entries; may be repeated.", show_default=False)
    ] = None,
) -> int:
    """Say whether a model fits the GPUs of one engine, and how many tokens and requests it then holds."""
    known = load_catalog(catalog_dir or (), Path.cwd())
    facts = _model(known, model)
    gpu = _found(known.instances, instance, "instance").gpu
    image = _found(known.engines, engine, "engine")
    world = tensor_parallel * pipeline_parallel
    shape = EngineShape(
        facts=facts,
        engine_version=image.version,
        gpu_memory_gib=gpu.memory_gib_torch,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        data_parallel=data_parallel,
        expert_parallel=expert_parallel,
        nodes=max(1, -(-world * data_parallel // gpu.count)),
        max_model_len=max_model_len,
        gpu_memory_utilization=gpu_memory_utilization,
        kv_cache_dtype=kv_cache_dtype,
        max_num_batched_tokens=max_num_batched_tokens,
        nixl=role is not Role.AGGREGATED,
        calibration=_calibration(log),
    )
    result = capacity(shape)
    if output_format is CheckFormat.JSON:
        steps = [{"name": s.name, "formula": s.formula, "result": s.result} for s in result.steps] if explain else None
        data = {**entry(model, role.value, result), **({"steps": steps} if steps else {})}
        emit(json.dumps(data, indent=2, ensure_ascii=False), None)
    else:
        emit("\n".join(_text(shape, result, f"{model} on {world * data_parallel} x {gpu.name} of {instance}, {image.id}", explain=explain)), None)
    return 2 if result.fits is Fit.NO else 0


def _model(known: Catalog, model: str) -> Model:
    if model in known.models:
        facts = known.models[model]
    elif "/" in model or model.endswith(".json") or model.startswith("."):
        facts = read_model(Path(model), "local", model)
    else:
        raise SpecError([known.models.missing("--model", model)])
    refused = unknown_architecture(facts)
    if refused is not None:
        raise SpecError([refused.below("--model: ")])
    return facts


def _found(shelf: Shelf[E], name: str, option: str) -> E:
    if name not in shelf:
        raise SpecError([shelf.missing(f"--{option}", name)])
    return shelf[name]


def _calibration(log: Path | None) -> Calibration | None:
    if log is None:
        return None
    try:
        return read_log(log)
    except SpecError as problem:
        raise SpecError([f.below(f"{log}: ") for f in problem.findings]) from None


def _text(shape: EngineShape, result: Capacity, head: str, *, explain: bool) -> list[str]:
    rows = [
        ("budget", f"{result.budget_gib:.1f} GiB a GPU, {shape.gpu_memory_utilization:g} of {shape.gpu_memory_gib:g}"),
        ("weights", _bars(result.weights_gib)),
        ("overhead", _bars(result.overhead_gib)),
        ("KV cache", _bars(result.kv_gib)),
        ("KV of a token", f"{result.kv_bytes_per_token_per_gpu:,} bytes a GPU"),
        ("tokens", _counts(result.kv_tokens)),
        (f"requests of {shape.model_len:,} tokens", _counts(result.max_concurrency, digits=1)),
        ("longest request", f"{result.longest_fitting:,} tokens"),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [head, "", *(f"{name.ljust(width)}  {value}" for name, value in rows), "", _bar(shape, result), "", VERDICTS[result.fits]]
    if shape.calibration is not None:
        lines.append("calibrated with the log of a start")
    if explain:
        lines += ["", *(f"{s.name}: {s.formula} = {s.result}" for s in result.steps)]
    return lines


def _bar(shape: EngineShape, result: Capacity) -> str:
    total = shape.gpu_memory_gib
    parts = (("weights", "#", result.weights_gib.mid), ("overhead", "+", result.overhead_gib.mid), ("KV", "=", max(0.0, result.kv_gib.mid)))
    drawn = "".join(mark * round(BAR_WIDTH * gib / total) for _, mark, gib in parts)[:BAR_WIDTH]
    legend = ", ".join(f"{mark} {name} {gib:.1f}" for name, mark, gib in parts)
    return f"[{drawn.ljust(BAR_WIDTH, '.')}]\n {legend}, . free; GiB of {total:g}"


def _bars(bars: Bars) -> str:
    return f"{bars.mid:.1f} GiB a GPU ({bars.low:.1f} to {bars.high:.1f})"


def _counts(bars: Bars, digits: int = 0) -> str:
    return f"{bars.mid:,.{digits}f} ({bars.low:,.{digits}f} to {bars.high:,.{digits}f})"
