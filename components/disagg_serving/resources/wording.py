"""Findings in the words of the component that they are about: its own arguments, spelled as in the program's language."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from typing import get_args

import pulumi
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from ..errors import Finding
from ..manifests.node_identity import NodeIdentity
from ..spec import EnvironmentSpec

_ALONE = {"models[0]": "model", "network.gpuZone": "zone", "existingCluster.autoMode": "auto_mode", "existingCluster.serviceCidr": "service_cidr"}
_OWN = {
    "ClusterArgs": {
        "cluster.": "", "existingCluster.serviceCidr": "existing.service_cidr", "existingCluster": "existing", "network.existing.": "",
    },
    "NetworkArgs": {"network.": ""},
    "NodePoolsArgs": {"nodePools": "settings"},
}  # fmt: skip
"""Where the rules' places in a stack file stand among a component's arguments."""
_ELSEWHERE = {
    "network": "Network", "cluster": "Cluster", "existingCluster": "Cluster, there existing", "nodePools": "NodePools, there settings", "lws": "Lws",
    "router": "ModelServing", "autoscaling": "Autoscaling", "networkPolicy": "ModelServing", "observability": "Observability", "name": "Environment",
    "imageSources": "ModelServing",
}  # fmt: skip
"""Components to whose arguments a part of a stack file belongs."""
_WORD = re.compile(
    r"\b(?P<head>secrets|tags|accept|extraEnv|extra_env|nodeSelector|node_selector|imageSources|image_sources)(?P<own>\.[^\s:;,]+)"
    r"|\b[a-z][a-z0-9]*(?:_[a-z0-9]|[A-Z])\w*"
)
"""A word that may be a key of ours; what stands below a mapping with keys of the user's own is not."""
_START = r"(?<![\w.])"
_SENTENCES = {" in YAML": "", "accept it": "accept it (in an Environment)"}


class ChecksFailed(pulumi.RunError):
    """Input that a component refuses; Pulumi shows its text without a traceback."""

    def __init__(self, component: str, findings: list[Finding]) -> None:
        """Keep every finding, and name them all in the text."""
        self.findings = findings
        lines = "\n".join(f"  {f.sentence().removeprefix(f'{component}: ')}" for f in findings)
        super().__init__(f"{component or 'this'} cannot be deployed:\n{lines}")


@dataclass(frozen=True)
class Language:
    """How a program is answered: whether it writes keys as Python does, and what is raised about a component with findings."""

    snake_case: bool
    refusal: Callable[[str, list[Finding]], Exception]


PYTHON = Language(snake_case=True, refusal=ChecksFailed)
language: ContextVar[Language] = ContextVar("language", default=PYTHON)
"""That of the program that runs; a plugin sets its own."""


@dataclass(frozen=True)
class Wording:
    """The arguments of one component for places of a stack file, the keys that are other components', and all names in Python."""

    places: tuple[tuple[re.Pattern[str], str], ...]
    elsewhere: tuple[tuple[re.Pattern[str], str], ...]
    keys: dict[str, str]

    @classmethod
    def of(cls, kind: type) -> Wording:
        """The words of a component whose arguments are `kind`."""
        arguments, whole = kind.__annotations__, kind.__name__ == "EnvironmentArgs"
        own = {place: argument for place, argument in _ALONE.items() if argument in arguments} | _OWN.get(kind.__name__, {})
        others = {} if whole else {k: c for k, c in _ELSEWHERE.items() if not {k, f"{k}."} & own.keys() and snake(k) not in arguments}
        return cls(
            tuple((re.compile(_START + re.escape(p) + (r"(?=[a-z])" if p.endswith(".") else r"(?![\w-])")), a) for p, a in own.items()),
            tuple((re.compile(rf"{_START}({key}\.[a-z]\w*(?:\.\w+)*)"), rf"\1 (of {component})") for key, component in others.items()),
            _keys() | {to_camel(key): key for key in arguments},
        )

    def is_elsewhere(self, path: str) -> bool:
        """Whether a place in a stack file belongs to other components alone."""
        return not any(place.match(path) for place, _ in self.places) and any(place.match(f"{path}.x") for place, _ in self.elsewhere)

    def of_finding(self, finding: Finding) -> Finding:
        """The finding in this component's words."""
        if ".yaml: " in finding.path:  # a file of the catalogue, which has its own keys
            return finding
        path, message, allowed, fix = map(self.of_text, (finding.path, finding.message, finding.allowed, finding.fix))
        if finding.id == "unknown-key":  # as the user spells it: the spelling may be all that is wrong
            above, dot, key = finding.path.rpartition(".")
            path = f"{self.of_text(above)}{dot}{key}"
        return replace(finding, path=path, message=message, allowed=allowed, fix=fix)

    def of_text(self, text: str) -> str:
        """A text with this component's arguments in it, and without what is true of a stack file alone."""
        for place, argument in (*self.places, *self.elsewhere):
            text = place.sub(argument, text)
        for said, instead in _SENTENCES.items():
            text = text.replace(said, instead)
        return _WORD.sub(lambda m: self._spelled(m["head"]) + m["own"] if m["head"] else self._spelled(m[0]), text)

    def _spelled(self, word: str) -> str:
        name = self.keys.get(word, word)
        return name if language.get().snake_case or name not in self.keys.values() else to_camel(name)


def snake(key: str) -> str:
    """A key of a stack file as Python names it."""
    return re.sub(r"[A-Z]", lambda m: f"_{m[0].lower()}", key)


@cache
def _keys() -> dict[str, str]:
    """Every key of a stack file, with its name in Python."""
    found: dict[str, str] = {to_camel(key): key for key in NodeIdentity.__annotations__}
    seen: set[type[BaseModel]] = set()

    def visit(annotations: Sequence[object]) -> None:
        for annotation in annotations:
            if isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation not in seen:
                seen.add(annotation)
                found.update({field.alias or name: name for name, field in annotation.model_fields.items()})
                visit([field.annotation for field in annotation.model_fields.values()])
            visit(get_args(annotation))

    visit([EnvironmentSpec])
    return found
