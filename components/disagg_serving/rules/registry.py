"""The one list of checks: a pure function a rule, from spec, catalogue and layout to findings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..catalog import Catalog
from ..corrections import Correction
from ..credentials import AWS_KEYS
from ..errors import Level, closest
from ..place import Place
from ..planning.pairs import pairs_of
from ..planning.shapes import Layout, Served
from ..spec import EnvironmentSpec, ModelSpec, RoleSpec
from ..spec.places import pair_of, pair_path
from ..spec.serving import RoleName
from ..spec.stack_file import ENVIRONMENT_KEY, NAMESPACE

if TYPE_CHECKING:
    from .declared import Declared
    from .looked_up import LookedUp


class Stage(StrEnum):
    """When a rule runs: on the form (before a layout can be built), on the layout, on declared objects, or on what AWS said."""

    FORM = "form"
    LAYOUT = "layout"
    OBJECTS = "objects"
    LOOK_UP = "look-up"


@dataclass(frozen=True)
class StackContext:
    """What a stack file says outside the environment: the region, and the names of encrypted and of plain keys (None: no file)."""

    region: str | None = None
    secrets: frozenset[str] | None = None
    plain: frozenset[str] = frozenset()

    @classmethod
    def of_keys(cls, region: str | None, secrets: Iterable[str], plain: Iterable[str]) -> StackContext:
        """The context of a stack with these configuration keys; only those of ours, and of an account, are anybody's matter."""
        found = [frozenset(k for k in keys if k.startswith(f"{NAMESPACE}:") or k in AWS_KEYS) - {ENVIRONMENT_KEY} for keys in (secrets, plain)]
        return cls(region, *found)

    def as_dict(self) -> dict[str, Any]:
        """Plain data without what is not known; names alone, no values."""
        secrets = {} if self.secrets is None else {"secrets": sorted(self.secrets), "plain": sorted(self.plain)}
        return {**({"region": self.region} if self.region else {}), **secrets}

    @classmethod
    def of_dict(cls, data: Mapping[str, Any]) -> StackContext:
        """What as_dict wrote."""
        secrets = data.get("secrets")
        return cls(data.get("region"), None if secrets is None else frozenset(secrets), frozenset(data.get("plain", ())))


NO_STACK = StackContext()


@dataclass(frozen=True)
class Subject:
    """What the rules look at. `layout` is there from the layout stage on, `objects` and `looked_up` only in the stages about them."""

    spec: EnvironmentSpec
    catalog: Catalog
    served: list[Served]
    stack: StackContext = NO_STACK
    layout: Layout | None = None
    objects: Sequence[Declared] = ()
    looked_up: LookedUp | None = None
    mend: bool = True
    """Whether corrections are looked for; who only asks if something passes goes without."""

    def roles(self) -> Iterator[tuple[Served, RoleName, RoleSpec, str]]:
        """Every role of every model whose names are known, with its path."""
        for served in self.served:
            for name, role in served.spec.roles.items():
                yield served, name, role, f"{served.path}.{name}"

    def written(self) -> Iterator[tuple[str, ModelSpec]]:
        """Every pair of every model as its fields say, with its path; their names need not be known."""
        for i, model in enumerate(self.spec.models):
            for pair, candidate in pairs_of(model):
                yield pair_path(i, candidate=candidate), pair

    def with_layout(self, layout: Layout) -> Subject:
        """The same subject for the layout stage."""
        return replace(self, layout=layout)

    def seen_in(self, stage: Stage) -> Subject:
        """What the rules of a stage look at: those about a layout see only the pairs that are in it."""
        if stage is not Stage.LAYOUT or self.layout is None or len(self.layout.served) + len(self.layout.candidates) == len(self.served):
            return self
        return replace(self, served=[*self.layout.served, *self.layout.candidates])


class Fault(NamedTuple):
    """What a rule's function returns: a finding without what the rule itself knows. `level` only where it differs.

    What names a value belongs into `ways`: each way lists corrections, the best one first. Of each way the first correction is shown that
    was tried and ends the fault without a new error (see trials.py). `advice` is what else a person can do, without a value, and `otherwise`
    stands there when no way works.
    """

    path: str
    message: str
    value: Any = None
    allowed: str = ""
    advice: str = ""
    level: Level | None = None
    ways: Sequence[Iterable[Correction]] = ()
    otherwise: str = ""


Judged = Literal["engine", "memory", "nodes"]
"""What a rule can say of one engine: whether it starts at all, whether it fits the GPUs' memory, and whether its pods fit the nodes."""
Part = Literal["network", "existing network", "cluster"]
"""What a program may make without an environment around it."""


def _nothing(_subject: Subject) -> Iterable[Fault]:
    return ()


@dataclass(frozen=True)
class Rule:
    """A check, and the decorator that registers the function that does it; the function's docstring is the summary.

    `id` and `level` are those of its findings, `reference` is where a reader finds the fact: addresses, or files of this project. Whatever else
    the package has to know about a rule is an argument here, so that no table elsewhere names rules.
    """

    id: str
    level: Level
    stage: Stage
    reference: str
    _: KW_ONLY
    firm: bool = False
    """No stack file can accept its errors: it guards secrets, or what must hold before anything can be rendered."""
    blocks_layout: bool = False
    """After an error of it no layout of the pair would mean anything, so rules about layouts leave that pair out."""
    reads: tuple[str, ...] = ()
    """Keys of a model or role that it reads while its findings are about another key. Where such a value is faulty, it would judge the default."""
    presumes_made: Literal["network", "cluster"] | None = None
    """What it takes for made by the stack when the stack file adopts none. A faulty `existingCluster` or `network.existing` looks like none."""
    judges: Judged | None = None
    """What it says of one engine by itself: `disagg fit` runs these rules, and no parser of vLLM can answer for memory and nodes."""
    parts: tuple[Part, ...] = ()
    """The parts that it also judges where a program makes one alone."""
    check: Callable[[Subject], Iterable[Fault]] = field(default=_nothing, repr=False)

    @property
    def url(self) -> str | None:
        """The first address of the reference; None where it names a file of the project alone."""
        found = re.search(r"https://\S+", self.reference)
        return found[0] if found else None

    def __call__(self, check: Callable[[Subject], Iterable[Fault]]) -> Callable[[Subject], Iterable[Fault]]:
        """Register the function. Raises ValueError for an id that is taken."""
        if self.id in _RULES:
            raise ValueError(f"rule {self.id} is registered twice")
        _RULES[self.id] = replace(self, check=check)
        return check

    @property
    def summary(self) -> str:
        """What it asks for, in one line."""
        return " ".join((self.check.__doc__ or "").split())


rule = Rule
"""The decorator's name where rules are written."""


_RULES: dict[str, Rule] = {}
_ALWAYS = (
    "autoscaling",
    "balance",
    "limits",
    "calibration",
    "capacity",
    "charts",
    "connector",
    "cross_checks",
    "engine_arguments",
    "engine_bugs",
    "environment",
    "existing_nodes",
    "experts",
    "extra_arguments",
    "flags",
    "gateway",
    "memory",
    "namespaces",
    "observability",
    "pairing",
    "parallel",
    "reservations",
    "roles",
    "rollout",
    "speculation",
    "weights",
)
_SELDOM = {Stage.OBJECTS: ("declared_objects", "programs"), Stage.LOOK_UP: ("look_ups",)}
"""The modules of `checks` whose rules run in every check, and those that are loaded for a stage that few runs come to."""


def rules() -> list[Rule]:
    """All rules, by id."""
    return _loaded(*_ALWAYS, *(module for modules in _SELDOM.values() for module in modules))


def _loaded(*modules: str) -> list[Rule]:
    """The rules that are registered, by id, once these modules are loaded."""
    for module in modules:
        import_module(f".checks.{module}", __package__)
    return [_RULES[rule_id] for rule_id in sorted(_RULES)]


def of_stage(stage: Stage) -> list[Rule]:
    """The rules of one stage, by id."""
    known = _loaded(*_SELDOM[stage]) if stage in _SELDOM else _loaded(*_ALWAYS)
    return [r for r in known if r.stage is stage]


def with_layouts(served: Iterable[Served], errors: Iterable[tuple[str, str]]) -> list[Served]:
    """The pairs that can be laid out in spite of errors of their form, which are given as rule and place."""
    blocking = {r.id for r in of_stage(Stage.FORM) if r.blocks_layout}
    faulty = {pair_of(Place.parse(path)) for rule_id, path in errors if rule_id in blocking}
    return [v for v in served if v.spec.roles and Place.parse(v.path) not in faulty]


def remove(path: str) -> list[Correction]:
    """The way that takes a key out."""
    return [{path: None}]


def use(path: str, *values: Any) -> list[Correction]:
    """The way that puts the first of these values that works into a place."""
    return [{path: value} for value in values]


def meant(path: str, word: object, known: Sequence[str]) -> list[Correction]:
    """The way that spells a value like the known one that is closest to it."""
    close = closest(word, known)
    return use(path, close) if close else []
