"""Values of the vLLM production stack's chart: `servingEngineSpec.modelSpec`, an entry a deployment.

The form is that of https://github.com/vllm-project/production-stack/blob/1aa1feb2e82e3918c484ef217f0f3bebb1c14ddc/tutorials/assets/values-16-disagg-prefill.yaml.
"""

from __future__ import annotations

from .arguments import flag_like
from .found import Engine, Found, Kind
from .pods import environment, read_nodes, role_in
from .shell import Word
from .source import Part, refuse

_KV_ROLES = {"kv_producer": "prefill", "kv_consumer": "decode", "sender": "prefill", "receiver": "decode"}


def read_production_stack(document: Part, found: Found) -> None:
    """Put each model of the values into what was found."""
    specs = document.each("servingEngineSpec", "modelSpec")
    if not specs:
        raise refuse(document.where, "has no model", allowed="entries of servingEngineSpec.modelSpec")
    shared = document.at("servingEngineSpec", "vllmApiKey")
    for spec in specs:
        engine = Engine(spec.text("name") or "engine", "values of the vLLM production stack", spec.file, spec.line)
        engine.model = spec.text("modelURL")
        engine.image = ":".join(part for part in (spec.text("repository"), spec.text("tag")) if part)
        engine.replicas = max(spec.number("replicaCount") or 1, 1)
        engine.gpus = spec.number("requestGPU") or 1
        _flags(engine, spec, found)
        _read_lmcache(engine, spec, found)
        if (token := spec.at("hf_token")) is not None:
            engine.hf_token = token.use().where
        if (clients := spec.at("vllmApiKey") or shared) is not None:
            engine.api_key = clients.use().where
        engine.takes(environment(spec))
        if (ray := spec.at("raySpec")) is not None:
            found.note(Kind.REPLACED, ray.where, "raySpec", "several nodes start by vLLM's own way, without Ray")
            engine.nodes = 1 + engine.replicas if ray.use().at("headNode") else 1
            engine.replicas = 1
        read_nodes(engine, spec)
        engine.role = engine.role or (role_in(engine.name) if _moves_kv(engine) else "server")
        found.engines.append(engine)


def _flags(engine: Engine, spec: Part, found: Found) -> None:
    """Keys that the chart makes flags of."""
    for key, part in spec.pairs("vllmConfig").items():
        if (flag := flag_like(key)) and isinstance(part.value, str):
            part.seen = True
            _flag_of_config(engine, flag, part)
    _extra_arguments(engine, spec)
    if (template := spec.at("chatTemplate")) is not None:
        found.note(Kind.UNSAID, template.use().where, "chatTemplate", "a file in the container has no place in a stack file")
    if spec.yes("enableTool"):
        engine.flag("--enable-auto-tool-choice", True)
        engine.flag("--tool-call-parser", spec.text("toolCallParser"))
    engine.flag("--reasoning-parser", spec.text("reasoningParser"))


def _flag_of_config(engine: Engine, flag: str, part: Part) -> None:
    text = str(part.value)
    if text.lower() in {"true", "false"}:
        name = flag if text.lower() == "true" else flag.replace("--", "--no-", 1)
        engine.words.append(Word(name, part.line))
    elif text:
        engine.words.append(Word(f"{flag}={text}", part.line))


def _extra_arguments(engine: Engine, spec: Part) -> None:
    for one in spec.each("vllmConfig", "extraArgs"):
        one.seen = True
        if isinstance(one.value, str):
            engine.words.append(Word(one.value, one.line))


def _read_lmcache(engine: Engine, spec: Part, found: Found) -> None:
    part = spec.at("lmcacheConfig")
    if part is None:
        return
    enabled = part.yes("enabled")
    role = _KV_ROLES.get(part.text("kvRole")) or _KV_ROLES.get(part.text("nixlRole"))
    engine.role = role if role in {"prefill", "decode"} and enabled else ""  # type: ignore[assignment]
    if enabled and engine.role:
        found.note(Kind.REPLACED, part.where, "lmcacheConfig", "KV moves from prefill to decode by NIXL's own connector, over LIBFABRIC")
    elif enabled:
        found.note(Kind.UNSAID, part.where, "lmcacheConfig", "KV is not offloaded by LMCache here")
    part.use()


def _moves_kv(engine: Engine) -> bool:
    return bool(engine.role) or any("kv-transfer-config" in word.text.replace("_", "-") for word in engine.words)
