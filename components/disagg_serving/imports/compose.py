"""Docker Compose files: each service that runs vLLM (https://docs.docker.com/reference/compose-file/)."""

from __future__ import annotations

from .found import Engine, Found, Kind
from .pods import environment, read_container, role_in
from .source import Part, refuse


def read_compose(document: Part, found: Found) -> None:
    """Put each service that runs vLLM into what was found."""
    before = len(found.engines)
    for name, part in document.pairs("services").items():
        engine = Engine(name, "a Docker Compose file", part.file, part.line, sure="vllm" in part.text("image"))
        engine.takes(environment(part, "environment"))
        entry = part.at("entrypoint")
        shell = _as_container(part, entry)
        if not read_container(engine, shell):
            found.note(Kind.REPLACED, part.where, f"service {name}", "it runs no vLLM; router and load balancer are generated")
            part.use()
            continue
        engine.role = role_in(name)
        engine.replicas = part.number("deploy", "replicas") or 1
        for device in part.each("deploy", "resources", "reservations", "devices"):
            engine.gpus = device.number("count") or len(device.each("device_ids")) or None
            device.use()
        found.engines.append(engine)
    if len(found.engines) == before:
        raise refuse(document.where, "has no service that runs vLLM", allowed="services with `vllm serve` or an image of vLLM")


def _as_container(part: Part, entry: Part | None) -> Part:
    """The service with Kubernetes' names: its entrypoint is the command, its command the args."""
    inner = dict(part.value) if isinstance(part.value, dict) else {}
    inner.pop("env", None)
    args, _ = inner.pop("command", None), inner.pop("entrypoint", None)
    renamed = {**inner, **({"args": args} if args is not None else {}), **({"command": entry} if entry is not None else {})}
    for one in (args, entry):
        if one is not None:
            one.use()
    return Part(part.file, part.line, part.path, renamed)
