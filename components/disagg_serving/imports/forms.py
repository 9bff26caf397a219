"""Which form each file has, and everything that the files say together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..credentials import holds_secret
from ..errors import Finding, SpecError, did_you_mean, visible
from ..spec.stack_file import ENVIRONMENT_KEY
from .commands import is_command, read_commands, secrets_of
from .compose import read_compose
from .dynamo import read_dynamo
from .faults import untolerated
from .found import Found, Kind
from .kserve import read_llm_service
from .kubernetes import KINDS, read_object
from .leftovers import left_over
from .llm_d import is_modelservice, read_modelservice
from .production_stack import read_production_stack
from .source import SHORTEST_SECRET, Part, read_documents, refuse, secrets_in

FORMS = (
    "llm-d modelservice values, vLLM production-stack values, DynamoGraphDeployment, LLMInferenceService, Deployment, StatefulSet, LeaderWorkerSet, "
    "DisaggregatedSet, a Docker Compose file, or `vllm serve` command lines"
)
"""What can be imported, for people."""
_KINDS = {"DynamoGraphDeployment": read_dynamo, "LLMInferenceService": read_llm_service}
_NO_SECRETS = {"secret", "<secret>", "changeme"}
_ROUTER = ("inferenceExtension", "inferencePool", "inferenceObjectives", "router", "provider", "epp")


@dataclass(frozen=True)
class Source:
    """A file by its name, and its text."""

    name: str
    text: str


def read_sources(sources: Sequence[Source]) -> tuple[Found, frozenset[str]]:
    """What the files say, and the secrets in them, which nobody may print.

    Raises SpecError with everything that is of no known form, is a template, or is no YAML.
    """
    found, secrets, findings = Found(), set[str](), list[Finding]()
    for source in sources:
        try:
            _read_source(source, found, secrets, findings)
        except SpecError as problem:
            findings += problem.findings
    if not found.engines and not findings:
        names = ", ".join(source.name for source in sources)
        findings += refuse(names, "has no engine", allowed=FORMS, fix="give the file that says how vLLM is started").findings
    if findings:
        raise SpecError(findings)
    for key, where in untolerated(found, found.tolerations):
        found.note(Kind.FAULT, where, f"taint {key}", "no pod of the files tolerates it, so none lands on this pool")
    return found, frozenset(text for text in secrets if len(text) >= SHORTEST_SECRET and text not in _NO_SECRETS)


def _read_source(source: Source, found: Found, secrets: set[str], findings: list[Finding]) -> None:
    if is_command(source.text):
        secrets |= secrets_of(source.text)
        read_commands(source.text, source.name, found)
        return
    documents = [inner for one in read_documents(source.text, source.name) for inner in _listed(one)]
    if not documents:
        raise refuse(source.name, "is empty", allowed=FORMS)
    for document in documents:
        secrets |= {*secrets_in(document), *_in_scripts(document)}
    for document in documents:
        try:
            _read(document, found)
        except SpecError as problem:
            findings += problem.findings
    found.notes += [note for document in documents for note in left_over(document)]


def _listed(document: Part) -> list[Part]:
    """The objects of a List, or the document."""
    return document.each("items") if document.text("kind") == "List" else [document]


def _read(document: Part, found: Found) -> None:
    if not isinstance(document.value, dict):
        raise refuse(document.where, "is no mapping", allowed=FORMS)
    if "kind" in document.value and "apiVersion" in document.value:
        _read_kind(document, found)
        return
    reader = next((reader for has, reader in _VALUES if has(document)), None)
    if reader is not None:
        reader(document, found)
        return
    # a chart that takes another one in has its values below the other's name
    below = next((one for one in document.value.values() if any(has(one) for has, _ in _VALUES[:2])), None)
    if below is None:
        raise refuse(document.where, "is none of the forms that can be imported", allowed=FORMS)
    document.seen = True
    _read(below, found)


def _read_kind(document: Part, found: Found) -> None:
    kind = visible(document.text("kind"))
    document.text("apiVersion")
    if kind in _KINDS:
        _KINDS[kind](document, found)
    elif kind in KINDS:
        read_object(document, found)
    elif kind == "Kustomization":
        raise refuse(document.where, "is a Kustomization", allowed="plain objects", fix="run `kubectl kustomize` and import what comes out")
    else:
        known = sorted({*KINDS, *_KINDS})
        shown = f"is of kind {kind}, which is not known here" if kind.isalnum() and not holds_secret(kind) else "is of a kind that is not known here"
        raise refuse(document.where, shown, allowed=FORMS, fix=did_you_mean(kind, known))


def _has_models(document: Part) -> bool:
    return isinstance(document.value, dict) and "servingEngineSpec" in document.value


def _has_services(document: Part) -> bool:
    services = document.at("services")
    return services is not None and isinstance(services.value, dict) and all(isinstance(one.value, dict) for one in services.value.values())


def _is_stack(document: Part) -> bool:
    return document.at("config", ENVIRONMENT_KEY) is not None


def _refuse_stack(document: Part, found: Found) -> None:
    del found
    raise refuse(document.where, "is a stack file already", allowed=FORMS, fix="`disagg check` reads it")


def _is_router(document: Part) -> bool:
    return isinstance(document.value, dict) and any(key in document.value for key in _ROUTER)


def _note_router(document: Part, found: Found) -> None:
    document.use()
    found.note(Kind.REPLACED, document.where, "values of a router", "router and load balancer are generated")


_VALUES: tuple[tuple[Callable[[Part], bool], Callable[[Part, Found], None]], ...] = (
    (_has_models, read_production_stack),
    (is_modelservice, read_modelservice),
    (_has_services, read_compose),
    (_is_stack, _refuse_stack),
    (_is_router, _note_router),
)
"""Forms without a kind: how each is recognised, and who reads it."""


def _in_scripts(part: Part) -> set[str]:
    """Secrets in scripts and lists of arguments."""
    found: set[str] = set()
    for one in part.walk():
        if isinstance(one.value, str) and any(c in one.value for c in " =\n"):
            found |= secrets_of(one.value)
        elif isinstance(one.value, list):
            words = [entry.value for entry in one.value if isinstance(entry.value, str)]
            found |= secrets_of(" ".join("'" + word.replace("'", "'\\''") + "'" for word in words))
    return found
