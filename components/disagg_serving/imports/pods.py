"""Pod templates: the container that runs the engine, its command line, variables, devices and nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from .. import labels
from .found import Engine, Found, Kind, Role, Variable
from .shell import SHELLS, Statement, Word, engine_commands, expand, statements
from .source import Part

_ENGINE_IMAGE = re.compile(r"vllm|llm-d-(cuda|aws|dev)|rhaiis", re.IGNORECASE)
_SIDECAR = re.compile(r"proxy|router|routing|sidecar", re.IGNORECASE)
_OTHER_ENGINE = re.compile(r"sglang|trtllm|tensorrt_llm|text-generation-launcher|lmdeploy|mooncake")
_REFERENCE = re.compile(r"\$[{(]*([A-Za-z_][A-Za-z0-9_]*)")
_READ_BY_ENGINES = ("VLLM_", "NCCL_", "NIXL_", "UCX_", "FI_", "HF_", "TORCH", "PYTORCH_", "CUDA_", "NVSHMEM_", "OMP_", "GLOO_")
GPU_KEYS = (labels.GPU,)
ROLES: tuple[Role, ...] = ("prefill", "decode")


def role_in(*texts: str) -> Role:
    """The role that names or labels tell of: prefill or decode where exactly one of both is in them."""
    text = " ".join(texts).lower()
    named = [role for role in ROLES if role in text]
    return named[0] if len(named) == 1 else ""


def read_container(engine: Engine, container: Part, *, extra: Iterable[tuple[str, Variable]] = ()) -> bool:
    """Put command line, variables, image and devices of a container into an engine; False where it runs none."""
    engine.takes([*extra, *environment(container)])
    _from_secrets(engine, container)
    image = container.text("image")
    container.text("name")
    known = {name: v.text for name, v in engine.variables.items() if not v.source and not v.lacks}
    known |= {"LWS_WORKER_INDEX": "0", "POD_INDEX": "0", **({"LWS_GROUP_SIZE": str(engine.nodes)} if engine.sized else {})}
    command = [word for key in ("command", "args") for word in _words(container, key)]
    shell = command and command[0].text.rsplit("/", 1)[-1] in SHELLS
    found, scripted = None, set[str]()
    if shell:
        scripts = [word for word in command[1:] if not re.fullmatch(r"[-+][a-zA-Z]+|pipefail", word.text)]
        for script in scripts[:1]:
            # a block of YAML begins on the line after its key
            line = script.line + ("\n" in script.text)
            all_found = [c for s in statements(script.text, line, known) for c in engine_commands(s)]
            found = next(iter(all_found), None)
            if found is not None:
                found = found._replace(words=_with_rest(found.words, scripts[2:]))
            scripted |= {name for name in _REFERENCE.findall(script.text) if not name.startswith(_READ_BY_ENGINES)}
    else:
        expanded = [expand(word.text, known, word.line) for word in command]
        found = next(engine_commands(Statement(expanded, {})), None)
        starts = not container.at("command") or expanded[0].text.startswith("-")
        if found is None and starts and (_ENGINE_IMAGE.search(image) or engine.sure):
            # without a command the image's entry point takes the arguments
            words = expanded[1:] if expanded and expanded[0].text == "serve" else expanded
            engine.words += words
            engine.image = image
            _devices(engine, container)
            return True
    if found is None:
        return False
    engine.words += found.words
    engine.dynamo = engine.dynamo or found.dynamo
    engine.image = found.image or image
    engine.takes((name, Variable(word.text, f"{engine.file}:{word.line}", "", word.lacks)) for name, word in found.variables.items())
    for name in scripted & engine.variables.keys():
        # what its script put into the flags
        del engine.variables[name]
    _devices(engine, container)
    return True


def _with_rest(words: list[Word], rest: list[Word]) -> list[Word]:
    """The words with those in place of `$@` that stand behind a script; the first behind it is the script's name."""
    return [inner for word in words for inner in (rest if word.text in {"$@", "$*"} else [word])]


def _words(container: Part, key: str) -> list[Word]:
    part = container.at(key)
    if part is None:
        return []
    if isinstance(part.value, str):
        # a text where Kubernetes wants a list: charts and compose files take it
        return [word for s in statements(part.value, part.line, {}) for word in s.words]
    return [Word(one.value, one.line) for one in part.use().each() if isinstance(one.value, str)]


def environment(container: Part, *keys: str) -> Iterator[tuple[str, Variable]]:
    """The variables of a list of names and values, of a mapping, or of a list of `NAME=value`."""
    part = container.at(*(keys or ("env",)))
    if part is None:
        return
    if isinstance(part.value, dict):
        for name, value in part.pairs().items():
            value.seen = True
            yield name, Variable(value.value if isinstance(value.value, str) else "", value.where, "" if isinstance(value.value, str) else "other")
        return
    for entry in part.each():
        if isinstance(entry.value, str):
            entry.seen = True
            name, _, text = entry.value.partition("=")
            yield name, Variable(text, entry.where)
        elif name := entry.text("name"):
            given = entry.at("value")
            if entry.at("valueFrom") is not None:
                entry.use()
                yield name, Variable("", entry.where, "secret" if entry.at("valueFrom", "secretKeyRef") else "other")
            else:
                yield name, Variable(given.value if given is not None and isinstance(given.value, str) else "", entry.where)


def _from_secrets(engine: Engine, container: Part) -> None:
    """Variables of whole Secrets: by its name one is a token of Hugging Face."""
    for entry in container.each("envFrom"):
        name = entry.text("secretRef", "name")
        if name and re.search(r"hf|hugging|token", name, re.IGNORECASE):
            entry.use()
            engine.hf_token = engine.hf_token or entry.where


def _devices(engine: Engine, container: Part) -> None:
    for side in ("limits", "requests"):
        for key in GPU_KEYS:
            count = container.number("resources", side, key)
            engine.gpus = engine.gpus or count


def read_pod(engine: Engine, template: Part, found: Found) -> Part | None:
    """Put a pod template into an engine. The container that runs it, None where none does; other engines than vLLM are named."""
    spec = template.at("spec")
    if spec is None:
        return None
    known = template.pairs("metadata", "labels")
    role = known.get(labels.LLM_D_ROLE)
    if role is not None and role.value in ROLES:
        role.seen = True
        engine.role = engine.role or role_in(str(role.value))
    containers = spec.each("containers")
    runs = next((one for one in containers if read_container(engine, one)), None)
    if runs is None:
        return None
    for one in [*containers, *spec.each("initContainers")]:
        if one is not runs:
            name = one.text("name") or "a container"
            one.use()
            kind, why = (Kind.REPLACED, "sidecar and router are generated") if _SIDECAR.search(name) else (Kind.UNSAID, "a pod has the engine alone")
            found.note(kind, one.where, f"container {name}", why)
    found.tolerations += [(one.text("key"), one.text("value")) for one in spec.each("tolerations")]
    read_nodes(engine, spec)
    return runs


def compare_workers(engine: Engine, worker: Engine, found: Found) -> None:
    """Name the variables that only the workers of an engine have, or have otherwise: here all its pods have the same."""
    for name, variable in worker.variables.items():
        own = engine.variables.get(name)
        if own is None or (own.text, own.source) != (variable.text, variable.source):
            found.note(Kind.UNSAID, variable.where, name, "differs between leader and workers; all pods of an engine have the same variables here")


def other_engine(template: Part) -> str:
    """The engine other than vLLM that a pod runs, or an empty text."""
    texts = " ".join(p.value for p in template.walk() if isinstance(p.value, str) and p.path[-1:] != ("name",))
    return found[0] if (found := _OTHER_ENGINE.search(texts)) else ""


def read_nodes(engine: Engine, spec: Part) -> None:
    """The labels of the nodes that a pod wants: a selector, or required affinity with In."""
    for key, value in spec.pairs("nodeSelector").items():
        value.seen = True
        if isinstance(value.value, str):
            engine.selectors.setdefault(key, [value.value])
    affinity = spec.at("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    for term in (*(affinity.each("nodeSelectorTerms") if affinity else ()), *spec.each("nodeSelectorTerms")):
        read_requirements(engine.selectors, term.each("matchExpressions"))


def read_requirements(selectors: dict[str, list[str]], requirements: list[Part]) -> None:
    """Labels with their values of requirements with the operator In."""
    for one in requirements:
        values = [str(v.value) for v in one.each("values") if isinstance(v.value, str)]
        if one.text("operator") in {"In", ""} and one.text("key") and values:
            one.use()
            selectors.setdefault(one.text("key"), values)
