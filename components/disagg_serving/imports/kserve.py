"""KServe's LLMInferenceService: model, parallelism, and a pod template for each of decode and prefill.

The form is that of https://github.com/kserve/kserve/blob/9db434652687900a817e7005b89ce6f691253cbf/pkg/apis/serving/v1alpha1/llm_inference_service_types.go.
"""

from __future__ import annotations

from .found import Engine, Found, Kind, Role
from .pods import compare_workers, read_container, read_nodes
from .shell import statements
from .source import Part

MORE_ARGUMENTS = "VLLM_ADDITIONAL_ARGS"
"""The variable that KServe's own start scripts put behind `vllm serve`."""


def read_llm_service(document: Part, found: Found) -> None:
    """Put the engines of a service into what was found."""
    spec = document.at("spec")
    if spec is None:
        return
    uri, name = spec.text("model", "uri"), spec.text("model", "name")
    scheme, _, rest = uri.partition("://")
    prefill = spec.at("prefill")
    for base in spec.each("baseRefs"):
        found.note(Kind.UNSAID, base.where, "baseRefs", "KServe's controller merges these settings; put them into the service")
        base.use()
    sides: list[tuple[Part, Role]] = [(spec, "server")]
    if prefill is not None:
        sides = [(spec, "decode"), (prefill, "prefill")]
    for part, role in sides:
        engine = Engine(document.text("metadata", "name") or role, "a KServe LLMInferenceService", part.file, part.line, role)
        engine.model = rest if scheme == "hf" else name
        engine.weights = "" if scheme == "hf" else uri
        engine.namespace = document.text("metadata", "namespace")
        engine.replicas = max(part.number("replicas") or 1, 1)
        if scheme == "hf" and name != rest:
            engine.flag("--served-model-name", name, spec.line)
        _parallelism(engine, part)
        _pods(engine, part, found)
        found.engines.append(engine)


def _pods(engine: Engine, part: Part, found: Found) -> None:
    """Containers of the leader, and of workers over more nodes."""
    template, worker = part.at("template"), part.at("worker")
    if template is not None:
        for container in template.each("containers")[:1]:
            read_container(engine, container)
        read_nodes(engine, template)
    if worker is not None:
        engine.nodes = max(engine.nodes, 2)
        scratch = Engine(engine.name, engine.form, engine.file, worker.line, engine.role)
        for container in worker.each("containers")[:1]:
            read_container(scratch, container)
        compare_workers(engine, scratch, found)
    more = engine.variables.pop(MORE_ARGUMENTS, None)
    if more is not None:
        line = int(more.where.rpartition(":")[2])
        engine.words += [word for one in statements(more.text, line, {}) for word in one.words]


def _parallelism(engine: Engine, part: Part) -> None:
    parallelism = part.at("parallelism")
    if parallelism is None:
        return
    line = parallelism.line
    data, local = parallelism.number("data"), parallelism.number("dataLocal")
    engine.flag("--tensor-parallel-size", parallelism.number("tensor"), line)
    engine.flag("--pipeline-parallel-size", parallelism.number("pipeline"), line)
    engine.flag("--data-parallel-size", data, line)
    engine.flag("--enable-expert-parallel", True if parallelism.yes("expert") else None, line)
    if data and local:
        engine.nodes = max(data // local, 1)
