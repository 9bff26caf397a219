"""Values of llm-d's modelservice chart, alone or below the chart's name: `modelArtifacts`, `decode` and `prefill`.

The form is that of https://github.com/llm-d-incubation/llm-d-modelservice/blob/b5d214f57c01aef72275ac3a0ed77b14eaab73e1/charts/llm-d-modelservice/values.yaml.
"""

from __future__ import annotations

from .found import Engine, Found, Kind, Role, Variable
from .pods import read_container, read_nodes
from .source import Part, refuse

_SIDES: tuple[Role, ...] = ("prefill", "decode")


def is_modelservice(document: Part) -> bool:
    """Whether a mapping has the chart's keys."""
    sides = [side for side in _SIDES if document.at(side, "containers") or document.at(side, "parallelism") or document.at(side, "replicas")]
    return isinstance(document.value, dict) and ("modelArtifacts" in document.value or bool(sides))


def read_modelservice(document: Part, found: Found) -> None:
    """Put the engines of both sides into what was found; `decode` alone serves without prefill."""
    uri, name = document.text("modelArtifacts", "uri"), document.text("modelArtifacts", "name")
    scheme, _, rest = uri.partition("://")
    model = name or (rest if scheme == "hf" else "")
    artifacts = document.at("modelArtifacts", "authSecretName")
    sides = [side for side in _SIDES if (part := document.at(side)) and part.text("create") != "false" and part.text("replicas") != "0"]
    document.text("multinodeEnableLeader")
    for side in sides:
        part = document.at(side)
        if part is None:
            continue
        engine = Engine(side, "values of llm-d's modelservice", part.file, part.line, side if len(sides) > 1 else "server")
        engine.model = model if not rest.count("/") > 1 or name else "/".join(rest.split("/")[:2])
        engine.weights = uri if scheme != "hf" else ""
        engine.hf_token = artifacts.where if artifacts is not None else ""
        engine.replicas = part.number("replicas") or 1
        _read_side(engine, part, multinode=document.yes("multinode"), found=found)
        found.engines.append(engine)
    if not sides:
        raise refuse(
            document.where, "has no engine", allowed="decode or prefill with containers", fix="give the values that say how models are served"
        )


def _read_side(engine: Engine, part: Part, *, multinode: bool, found: Found) -> None:
    tensor, data, local, workers = (part.number("parallelism", key) for key in ("tensor", "data", "dataLocal", "workers"))
    engine.nodes = workers or ((data or 1) // (local or data or 1) if multinode else 1) or 1
    engine.gpus = (tensor or 1) * (local or (data or 1) // engine.nodes or 1)
    parallelism = part.at("parallelism")
    line = parallelism.line if parallelism is not None else part.line
    engine.flag("--tensor-parallel-size", tensor, line)
    engine.flag("--data-parallel-size", data if data and data > 1 else None, line)
    set_by_chart = {"TP_SIZE": tensor, "DP_SIZE": data, "DP_SIZE_LOCAL": local or data}
    extra = [(name, Variable(str(value or 1), f"{engine.file}:{line}")) for name, value in set_by_chart.items()]
    containers = part.each("containers")
    if not containers and part.value is not None:
        return
    for container in containers[:1]:
        command = container.text("modelCommand")
        engine.sure = command in {"vllmServe", "imageDefault", "custom", ""}
        if not read_container(engine, container, extra=extra) and command not in {"vllmServe", "imageDefault"}:
            raise refuse(
                container.where, f"{engine.name} runs no vLLM", allowed="modelCommand vllmServe or imageDefault, or a command with `vllm serve`"
            )
        container.yes("mountModelVolume")
        engine.image = engine.image or container.text("image")
    if (workers_of_leader := part.at("workerTemplate")) is not None:
        found.note(Kind.REPLACED, workers_of_leader.use().where, "workerTemplate", "the nodes of an engine start by vLLM's own way, without Ray")
    for name in set_by_chart:
        engine.variables.pop(name, None)
    for other in containers[1:]:
        found.note(Kind.UNSAID, other.where, f"container {other.text('name')}", "pods have the engine alone")
        other.use()
    read_nodes(engine, part)
    accelerator = part.at("acceleratorTypes")
    if accelerator is not None and accelerator.text("labelKey"):
        engine.selectors.setdefault(accelerator.text("labelKey"), [str(v.value) for v in accelerator.use().each("labelValues")])
