"""Findings in the words of the component that they are about: its own arguments, spelled as in the program's language."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from typing import get_args, get_origin

import pulumi
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from ..errors import Finding
from ..manifests.node_identity import NodeIdentity
from ..phrases import Phrase, Spelling, spell
from ..place import Place, Step
from ..spec import EnvironmentSpec

_ALONE = {"models[0]": "model", "network.gpuZone": "zone", "existingCluster.autoMode": "auto_mode", "existingCluster.serviceCidr": "service_cidr"}
_OWN = {
    "ClusterArgs": {
        "cluster": "", "existingCluster.serviceCidr": "existing.service_cidr", "existingCluster": "existing", "network.existing": "",
    },
    "NetworkArgs": {"network": ""},
    "NodePoolsArgs": {"nodePools": "settings"},
}  # fmt: skip
"""Where the rules' places in a stack file stand among a component's arguments; an empty text where what is below them does."""
_ELSEWHERE = {
    "network": "Network", "cluster": "Cluster", "existingCluster": "Cluster, there existing", "nodePools": "NodePools, there settings", "lws": "Lws",
    "router": "ModelServing", "autoscaling": "Autoscaling", "networkPolicy": "ModelServing", "observability": "Observability", "name": "Environment",
    "imageSources": "ModelServing",
}  # fmt: skip
"""Components to whose arguments a part of a stack file belongs."""


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
class Wording(Spelling):
    """A stack file's places as the arguments of one component, and keys as the program that runs spells them.

    `own` are the arguments by place, the longest place first, and `elsewhere` the components that other parts belong to. `names` are those of
    Python by key, and `open_keys` the names of mappings with keys of the user's own.
    """

    own: tuple[tuple[Place, Place], ...]
    elsewhere: Mapping[Step, str]
    names: Mapping[Step, str]
    open_keys: frozenset[Step]

    @classmethod
    def of(cls, kind: type) -> Wording:
        """The words of a component whose arguments are `kind`."""
        arguments, whole = kind.__annotations__, kind.__name__ == "EnvironmentArgs"
        own = {place: argument for place, argument in _ALONE.items() if argument in arguments} | _OWN.get(kind.__name__, {})
        others: dict[Step, str] = {} if whole else {key: of for key, of in _ELSEWHERE.items() if key not in own and snake(key) not in arguments}
        places = ((Place.parse(place), Place.parse(argument)) for place, argument in own.items())
        names, open_keys = _keys()
        ordered = tuple(sorted(places, key=lambda one: -len(one[0].steps)))
        return cls(ordered, others, names | {to_camel(key): key for key in arguments}, open_keys | {"secrets"})

    def is_elsewhere(self, path: str) -> bool:
        """Whether a place in a stack file belongs to other components alone."""
        place = Place.parse(path)
        return self._argument(place) is None and self._owner(place) is not None

    def translate(self, finding: Finding) -> Finding:
        """The finding in this component's words."""
        if ".yaml: " in finding.path:  # a file of the catalogue, which has its own keys
            return finding
        place = Place.parse(finding.path)
        # an unknown key stays as it is: the spelling may be all that is wrong
        path = self._write(place, as_given=1 if finding.id == "unknown-key" else 0)
        value = spell(finding.value, self) if isinstance(finding.value, Phrase) else finding.value
        message, allowed, fix = (spell(text, self) for text in (finding.message, finding.allowed, finding.fix))
        return replace(finding, path=path, message=message, value=value, allowed=allowed, fix=fix)

    def key(self, key: Place) -> str:
        """The key as the program spells it."""
        return self._spell(key.steps)

    def place(self, place: Place) -> str:
        """The argument, or the key with the component that it belongs to."""
        return self._write(place)

    def either(self, in_file: str, in_program: str) -> str:  # noqa: ARG002 (the file's are for others)
        """Those for a program."""
        return in_program

    def _argument(self, place: Place) -> Place | None:
        """The argument that a place is or is part of; None where it belongs to no argument of this component under another name."""
        for known, argument in self.own:
            if known.contains(place) and (argument.steps or known != place):
                return Place((*argument.steps, *place.below(known).steps))
        return None

    def _owner(self, place: Place) -> str | None:
        """The component to whose arguments a place of a stack file belongs, if to another one alone."""
        return next((self.elsewhere[key] for key in place.steps[:1] if key in self.elsewhere), None)

    def _write(self, place: Place, *, as_given: int = 0) -> str:
        """A place as the program's reader knows it, its last steps `as_given`."""
        argument = self._argument(place)
        text = self._spell((argument or place).steps, as_given)
        owner = self._owner(place) if argument is None and len(place.steps) > 1 else None
        return f"{text} (of {owner})" if owner else text

    def _spell(self, steps: Sequence[Step], as_given: int = 0) -> str:
        """Steps as the program spells them; what stands below a mapping with keys of the user's own is not a key of ours."""
        ours = next((n for n, step in enumerate(steps, 1) if step in self.open_keys), len(steps) - as_given)
        return str(Place((*map(self._name, steps[:ours]), *steps[ours:])))

    def _name(self, step: Step) -> Step:
        name = self.names.get(step, step)
        return name if isinstance(name, int) or language.get().snake_case or name not in self.names.values() else to_camel(name)


def snake(key: str) -> str:
    """A key of a stack file as Python names it."""
    return re.sub(r"[A-Z]", lambda m: f"_{m[0].lower()}", key)


@cache
def _keys() -> tuple[dict[Step, str], frozenset[Step]]:
    """Every key of a stack file with its name in Python, and those of mappings with keys of the user's own, in both spellings."""
    found: dict[Step, str] = {to_camel(key): key for key in NodeIdentity.__annotations__}
    open_keys: set[Step] = set()
    seen: set[type[BaseModel]] = set()

    def visit(annotations: Iterable[object]) -> None:
        for annotation in annotations:
            if isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation not in seen:
                seen.add(annotation)
                for name, field in annotation.model_fields.items():
                    found[field.alias or name] = name
                    open_keys.update((field.alias or name, name) if get_origin(field.annotation) is dict else ())
                visit(field.annotation for field in annotation.model_fields.values())
            visit(get_args(annotation))

    visit([EnvironmentSpec])
    return found, frozenset(open_keys)
