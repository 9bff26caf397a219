"""`disagg fit`."""

from __future__ import annotations

import json
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..catalog import Catalog, Model, is_path
from ..catalog.entries import Engine, Instance
from ..catalog.hf_config import read_model
from ..errors import Finding, Level, SpecError, has_errors, sort_findings
from ..forecast.capacities import engine_capacity, shape_of
from ..forecast.fit import Bars, Calibration, Capacity, EngineShape, Fit, capacity, unknown_architecture
from ..forecast.fit.capacity import calibration_doubts, calibration_faults
from ..forecast.fit.start_log import read_log
from ..pins import DEFAULT_ENGINE
from ..place import Place
from ..planning.layout import build_layout
from ..planning.shapes import Served, build_group
from ..records import data_of
from ..rules import Subject, findings_of, rules, with_layouts
from ..rules.standalone import without_models
from ..spec import ModelSpec, NetworkSpec
from ..spec.measured import CalibrationSpec
from ..spec.places import role_of
from ..spec.serving import All2AllBackend, RoleName, SpeculativeSpec
from .common import CatalogDirs, DataFormat, catalog_with, emit
from .complete import ENGINES, INSTANCES, MODELS

BAR_WIDTH = 64
VERDICTS = {
    Fit.FITS: "fits: one request of the longest length has room even in the worst case",
    Fit.TIGHT: "may fit: in the worst case one request of the longest length has no room",
    Fit.NO: "does not fit: even in the best case one request of the longest length has no room",
}
UNLIKELY = "hardly fits: only in the best case one request of the longest length has room"
MEASURED = {Fit.FITS: "fits: one request of the longest length has room", Fit.NO: "does not fit: one request of the longest length has no room"}
"""Verdicts from the log of a start, which have no better and no worse case."""
OPTIONS = {
    "instanceType": "--instance",
    "tensorParallel": "--tensor-parallel",
    "pipelineParallel": "--pipeline-parallel",
    "dataParallel": "--data-parallel",
    "expertParallel": "--expert-parallel",
    "all2allBackend": "--all2all-backend",
    "maxModelLen": "--max-model-len",
    "maxNumBatchedTokens": "--max-num-batched-tokens",
    "maxNumSeqs": "--max-num-seqs",
    "method": "--speculative-tokens",
    "numSpeculativeTokens": "--speculative-tokens",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
    "kvCacheDtype": "--kv-cache-dtype",
    "engine": "--engine",
}


class Role(StrEnum):
    """What the engine is for."""

    AGGREGATED = "aggregated"
    PREFILL = "prefill"
    DECODE = "decode"


ROLES: dict[Role, RoleName] = {Role.AGGREGATED: "server", Role.PREFILL: "prefill", Role.DECODE: "decode"}


def fit(  # noqa: PLR0913, PLR0917 (the contract's options)
    model: Annotated[
        str,
        typer.Option("--model", help="Catalogue id, Hugging Face name or config.json.", autocompletion=MODELS, show_default=False),
    ],
    instance: Annotated[str, typer.Option("--instance", help="Catalogue id of the instance type.", autocompletion=INSTANCES, show_default=False)],
    tensor_parallel: Annotated[int, typer.Option("--tensor-parallel", min=1, help="GPUs that share each layer.")] = 1,
    pipeline_parallel: Annotated[int, typer.Option("--pipeline-parallel", min=1, help="Stages of layers.")] = 1,
    data_parallel: Annotated[int, typer.Option("--data-parallel", min=1, help="Copies of attention that share experts.")] = 1,
    expert_parallel: Annotated[bool, typer.Option("--expert-parallel", help="Give each GPU whole experts.")] = False,
    all2all_backend: Annotated[
        All2AllBackend | None,
        typer.Option("--all2all-backend", help="Default: allgather_reducescatter.", show_default=False),
    ] = None,
    decode_context_parallel: Annotated[
        int,
        typer.Option("--decode-context-parallel", min=1, help="GPUs with copies of the same KV that share it out (--decode-context-parallel-size)."),
    ] = 1,
    max_model_len: Annotated[int | None, typer.Option("--max-model-len", min=1, help="Longest sequence. Default: the model's context.")] = None,
    gpu_memory_utilization: Annotated[float, typer.Option("--gpu-memory-utilization", help="Share of GPU memory that vLLM may use.")] = 0.9,
    kv_cache_dtype: Annotated[str, typer.Option("--kv-cache-dtype", help="Dtype of the KV cache.")] = "auto",
    max_num_batched_tokens: Annotated[int | None, typer.Option("--max-num-batched-tokens", min=1, help="Tokens in one engine step.")] = None,
    max_num_seqs: Annotated[int | None, typer.Option("--max-num-seqs", min=1, help="Sequences in one engine step.")] = None,
    eager: Annotated[bool, typer.Option("--eager", help="Capture no CUDA graphs (--enforce-eager in extraArgs).")] = False,
    speculative_tokens: Annotated[
        int | None,
        typer.Option("--speculative-tokens", min=1, max=32, help="Tokens that the model's draft layers guess ahead (mtp).", show_default=False),
    ] = None,
    kv_offload: Annotated[
        float | None,
        typer.Option("--kv-offload", min=0, help="GiB of host memory for KV cache (--kv-offloading-size in extraArgs).", show_default=False),
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help="Catalogue id of the vLLM image.", autocompletion=ENGINES)] = DEFAULT_ENGINE,
    role: Annotated[Role, typer.Option("--role", help="prefill and decode keep buffers for NIXL.")] = Role.AGGREGATED,
    log: Annotated[Path | None, typer.Option("--log", help="Log of a start of this engine; makes the figures exact.", show_default=False)] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show each formula with its numbers.")] = False,
    output_format: Annotated[DataFormat, typer.Option("--format", help="Output format.")] = DataFormat.TEXT,
    catalog_dir: CatalogDirs = None,
) -> int:
    """Say whether a model fits the GPUs of one engine.

    If it fits, say how many tokens and requests it then holds.
    """
    known = catalog_with(catalog_dir)
    facts, node, image = _named(known, model, instance, engine)
    cut = {
        "tensor_parallel": tensor_parallel,
        "pipeline_parallel": pipeline_parallel,
        "data_parallel": data_parallel,
        "expert_parallel": expert_parallel,
        "all2all_backend": all2all_backend,
        "gpu_memory_utilization": gpu_memory_utilization,
        "max_num_batched_tokens": max_num_batched_tokens,
        "max_num_seqs": max_num_seqs,
    }
    record = _calibration(log)
    _refuse_unknown(facts, record)
    settings = {
        "max_model_len": max_model_len,
        "kv_cache_dtype": kv_cache_dtype,
        "speculative": SpeculativeSpec(method="mtp", num_speculative_tokens=speculative_tokens) if speculative_tokens else None,
        "extra_args": [*(["--enforce-eager"] if eager else []), *([f"--kv-offloading-size={kv_offload:g}"] if kv_offload else [])],
    }
    served = _served(known, (model, facts), (node, image), role, cut, settings)
    whole = shape_of(build_group(served, ROLES[role], served.spec.roles[ROLES[role]], None, pools_made=False))
    shape = replace(whole, decode_context_parallel=decode_context_parallel, calibration=record)
    result = capacity(shape)
    of_log = _log_findings(shape, log)
    unsaid = has_errors(of_log) or decode_context_parallel > 1  # of memory, where the rules would look at another engine
    findings = sort_findings([*_shape_findings(known, served, ROLES[role], None if unsaid else shape), *of_log])
    world, gpu = tensor_parallel * pipeline_parallel * data_parallel, node.gpu
    if output_format is DataFormat.JSON:
        figures = data_of(engine_capacity(model, role.value, result))
        emit(json.dumps(_data(shape, result, findings, figures, explain=explain), indent=2, ensure_ascii=False), None)
    else:
        head = f"{model} on {world} x {gpu.name} of {instance}, {image.id}"
        emit("\n".join(_text(shape, result, findings, head, explain=explain)), None)
    return 2 if result.fits is Fit.NO or has_errors(findings) else 0


def _model(known: Catalog, model: str) -> Model:
    if (entry := known.known_model(model)) is not None:
        return entry
    if is_path(model, Path.cwd()):
        return read_model(Path(model), "local", model)
    raise SpecError([known.unknown_model("--model", model)])


def _refuse_unknown(facts: Model, record: Calibration | None) -> None:
    """Raise SpecError for a model whose memory is not known, unless a log says it."""
    refused = unknown_architecture(facts)
    if refused is not None and (record is None or record.tokens is None):
        raise SpecError([refused.below("--model: ")])


def _named(known: Catalog, model: str, instance: str, engine: str) -> tuple[Model, Instance, Engine]:
    """The entries of all three names. Raises SpecError with every one that is not known."""
    faults: list[Finding] = [] if instance in known.instances else [known.instances.missing("--instance", instance)]
    faults += [] if engine in known.engines else [known.engines.missing("--engine", engine)]
    try:
        facts = _model(known, model)
    except SpecError as problem:
        raise SpecError([*problem.findings, *faults]) from None
    if faults:
        raise SpecError(faults)
    return facts, known.instances[instance], known.engines[engine]


def _calibration(log: Path | None) -> Calibration | None:
    if log is None:
        return None
    try:
        return read_log(log)
    except SpecError as problem:
        raise SpecError([replace(f, path=str(log)) if f.path == log.name else f.below(f"{log}: ") for f in problem.findings]) from None


def _served(  # noqa: PLR0913, PLR0917 (what a model of an environment is made of)
    known: Catalog, model: tuple[str, Model], on: tuple[Instance, Engine], role: Role, cut: dict[str, Any], settings: dict[str, Any]
) -> Served:
    """The engine as a model of an environment; prefill and decode as a pair of it, since neither serves alone."""
    (name, facts), (node, image) = model, on
    sides: tuple[RoleName, ...] = ("server",) if role is Role.AGGREGATED else ("prefill", "decode")
    written: dict[str, Any] = {"name": "model", "model": name, "engine": image.id}
    spec = ModelSpec.model_validate({**written, **{side: {"instanceType": node.id} for side in sides}})
    # copied, not parsed: what an environment would not even take as a number is for the rules to explain
    roles: dict[str, Any] = {side: spec.roles[side].model_copy(update=cut) for side in sides}
    return Served(0, spec.model_copy(update={**settings, **roles}), facts, image, dict.fromkeys(sides, node), known.routers, "", {})


def _shape_findings(known: Catalog, served: Served, name: RoleName, shape: EngineShape | None) -> list[Finding]:
    """What the checks of an environment say about this engine alone; paths are the command's options.

    Without `shape` nothing is said about memory.
    """
    record = shape.calibration if shape else None
    if record is not None:
        noted = CalibrationSpec.model_validate(_record(record))
        roles: dict[str, Any] = {side: role.model_copy(update={"calibration": noted}) for side, role in served.spec.roles.items()}
        served = replace(served, spec=served.spec.model_copy(update=roles))
    network = NetworkSpec.model_validate({"zones": ["us-east-1a", "us-east-1b"]})
    subject = Subject(without_models(network=network, models=[served.spec]), known, [served])
    found = findings_of(subject, (r for r in rules() if r.judges == "engine"))
    if shape is not None and with_layouts([served], ((f.id, f.path) for f in found if f.level is Level.ERROR)):
        layout = build_layout(subject.spec, [served])
        alone = subject.with_layout(replace(layout, groups=[g for g in layout.groups if g.role == name]))
        found += findings_of(alone, (r for r in rules() if r.judges == "memory"))
    places = [(f, Place.parse(f.path)) for f in found]
    mine = [(f, place) for f, place in places if (role := role_of(place)) in {None, place} or role.steps[-1] == name]
    return [replace(f, path=OPTIONS.get(str(place.steps[-1]), f.path), corrections=()) for f, place in mine]


def _log_findings(shape: EngineShape, log: Path | None) -> list[Finding]:
    """Where the log of a start is not of this engine."""
    record = shape.calibration
    if record is None:
        return []
    values = {"weightsGiB": record.weights_gib, "kvCacheGiB": record.kv_gib, "kvCacheTokens": record.tokens}
    fix = "give the options of the start that wrote the log"
    found = [Finding("calibration", Level.ERROR, f"{log}: {name}", text, values[name], "", fix) for name, text in calibration_faults(shape)]
    doubt = "see that it is of this engine, at this share of memory, on GPUs of its own"
    found += [Finding("calibration", Level.WARNING, f"{log}: {name}", text, values[name], "", doubt) for name, text in calibration_doubts(shape)]
    version = record.engine_version
    if version and version.split(".")[:2] != shape.engine_version.split(".")[:2]:
        message = f"is the vLLM of the log, but this engine is {shape.engine_version}: another version needs another amount of memory"
        found.append(Finding("calibration", Level.WARNING, f"{log}", message, version, shape.engine_version, "take a log of this engine"))
    return found


def _record(record: Calibration) -> dict[str, float]:
    """The role's `calibration` in the stack file, as the log has it."""
    noted = {
        "weightsGiB": record.weights_gib,
        "kvCacheGiB": record.kv_gib,
        "kvCacheTokens": record.tokens,
        "gpuMemoryUtilization": record.gpu_memory_utilization,
    }
    return {name: value for name, value in noted.items() if value is not None}


def _data(shape: EngineShape, result: Capacity, findings: list[Finding], figures: dict[str, Any], *, explain: bool) -> dict[str, Any]:
    if shape.calibration is not None:
        figures["calibration"] = _record(shape.calibration)
    if findings:
        figures["findings"] = data_of(findings)
    if explain:
        figures["steps"] = data_of(result.steps)
    return figures


def _text(shape: EngineShape, result: Capacity, findings: list[Finding], head: str, *, explain: bool) -> list[str]:
    rows = [
        ("budget", f"{result.budget_gib:.1f} GiB a GPU, {shape.gpu_memory_utilization:g} of {shape.gpu_memory_gib:g}"),
        ("weights", _bars(result.weights_gib)),
        ("overhead", _bars(result.overhead_gib)),
        ("KV cache", _bars(result.kv_gib)),
        ("KV of a token", f"{result.kv_bytes_per_token_per_gpu:,} bytes a GPU"),
        ("tokens", _counts(result.engine_tokens)),
        *([("tokens of a rank", f"{_counts(result.kv_tokens)}, each of {result.ranks} data-parallel ranks")] if result.ranks > 1 else []),
        (f"requests of {shape.model_len:,} tokens", _counts(result.engine_concurrency, digits=1)),
        *([("in host memory", f"{result.offloaded_tokens:,} tokens more in {shape.kv_offload_gib:g} GiB")] if shape.kv_offload_gib else []),
        ("longest request", f"{result.longest_fitting:,} tokens"),
    ]
    if result.fits is not Fit.FITS:
        rows.append(("missing", _bars(result.missing_gib(shape.model_len))))
    width = max(len(name) for name, _ in rows)
    lines = [head, "", *(f"{name.ljust(width)}  {value}" for name, value in rows), "", _bar(shape, result), ""]
    lines += [f"{f.level} [{f.id}] {f.sentence()}" for f in findings]
    lines.append(_verdict(shape, result, findings))
    if shape.calibration is not None:
        record = ", ".join(f"{name}: {value!r}" for name, value in _record(shape.calibration).items())
        lines += ["calibrated with the log of a start; for the role in the stack file:", f"calibration: {{{record}}}"]
    if explain:
        lines += ["", *(f"{s.name}: {s.formula} = {s.result}" for s in result.steps)]
    return lines


def _verdict(shape: EngineShape, result: Capacity, findings: list[Finding]) -> str:
    errors = {f.id for f in findings if f.level is Level.ERROR}
    if "calibration" in errors:
        return "no answer: the log is of another engine, see the errors"
    if errors and result.fits is not Fit.NO:
        return "does not start: see the errors"
    if result.fits is Fit.TIGHT and result.longest_fitting < shape.model_len:
        return UNLIKELY
    return VERDICTS[result.fits] if shape.calibration is None else MEASURED[result.fits]


def _bar(shape: EngineShape, result: Capacity) -> str:
    total = shape.gpu_memory_gib
    parts = (("weights", "#", result.weights_gib.mid), ("overhead", "+", result.overhead_gib.mid), ("KV", "=", max(0.0, result.kv_gib.mid)))
    drawn = "".join(mark * round(BAR_WIDTH * gib / total) for _, mark, gib in parts)[:BAR_WIDTH]
    legend = ", ".join(f"{mark} {name} {gib:.1f}" for name, mark, gib in parts)
    return f"[{drawn.ljust(BAR_WIDTH, '.')}]\n {legend}, . free; GiB of {total:g}"


def _bars(bars: Bars) -> str:
    return f"{bars.mid:.1f} GiB a GPU" + ("" if bars.low == bars.high else f" ({bars.low:.1f} to {bars.high:.1f})")


def _counts(bars: Bars, digits: int = 0) -> str:
    return f"{bars.mid:,.{digits}f}" + ("" if bars.low == bars.high else f" ({bars.low:,.{digits}f} to {bars.high:,.{digits}f})")
