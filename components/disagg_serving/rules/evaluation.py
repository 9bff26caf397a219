"""The one way from raw data to a checked layout; every command and every component goes through it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..catalog import Catalog, load_catalog
from ..credentials import secrets_of
from ..errors import Finding, Level, SpecError, conceal, has_errors, sort_findings
from ..place import Place
from ..planning.layout import build_layout, resolve
from ..planning.pairs import placed
from ..planning.shapes import Layout
from ..spec import EnvironmentSpec
from ..spec.places import pair_of, role_of
from ..spec.stack_file import ENVIRONMENT_KEY, StackFile
from ..spec.validation import Parsed, try_parse
from ..yaml_io import real
from . import NO_STACK, StackContext, Stage, Subject, rules, run_stage, with_layouts
from .acceptance import accept, unused_acceptances

if TYPE_CHECKING:
    from .looked_up import LookedUp


_SHAPES = frozenset(
    {"prefill", "decode", "server", "model", "engine", "maxModelLen", "gpuMemoryUtilization", "kvCacheDtype", "blockSize", "speculative"}
)
"""Keys of a pair whose value decides how large an engine is: without it, the default would be judged."""
_ADOPTS = {"network.existing": {"network"}, "existingCluster": {"network", "cluster"}}
"""Places that adopt a part instead of making it: with a cluster comes the network that it stands in."""


class Question(NamedTuple):
    """What is evaluated: the mapping below `disagg-serving:environment`, the folder that its paths start from, and its stack's context."""

    data: Any
    base: Path
    stack: StackContext = NO_STACK

    @classmethod
    def of_file(cls, file: StackFile, base: Path) -> Question:
        """What a stack file, or a bare environment file, asks."""
        data = file.environment
        if isinstance(data, dict) and file.stack and "name" not in data:
            data = {"name": file.stack, **data}
        return cls(data, base, NO_STACK if file.bare else StackContext.of_keys(file.region, file.secrets, file.config))

    def same_as(self, other: Question) -> bool:
        """Whether both have one answer; a folder may be reached by two paths."""
        return (self.data, real(self.base), self.stack) == (other.data, real(other.base), other.stack)


@dataclass(frozen=True)
class Evaluation:
    """A spec with its findings; `layout` is None where the findings make one impossible."""

    findings: list[Finding]
    spec: EnvironmentSpec | None = None
    layout: Layout | None = None

    @property
    def ok(self) -> bool:
        """Whether it can be deployed."""
        return not has_errors(self.findings)

    def require_layout(self) -> Layout:
        """The layout. Raises SpecError with all findings of level error when there are any."""
        if self.layout is None or not self.ok:
            raise SpecError(f for f in self.findings if f.level is Level.ERROR)
        return self.layout


def evaluate_file(file: StackFile, base: Path) -> Evaluation:
    """Check a stack file or a bare environment file. `base` is the folder that its paths start from."""
    if file.environment is None and not file.bare:
        whole = ENVIRONMENT_KEY in file.secrets
        message = "is encrypted as a whole, so no preview could read it" if whole else "is missing"
        fix = "keep it plain and put secrets under keys of their own" if whole else "add it under config; `disagg schema` prints its keys"
        return Evaluation([Finding("environment", Level.ERROR, ENVIRONMENT_KEY, message, None, "a mapping", fix)])
    question = Question.of_file(file, base)
    found = evaluate(question.data, question.base, question.stack)
    region = file.config.get("aws:region")
    if region is not None and not isinstance(region, str):
        odd = Finding("stack-file", Level.ERROR, "aws:region", "is not a text", region, "the name of a region, for example us-east-1")
        found = replace(found, findings=sort_findings([*found.findings, odd]))
    place = file.path.name if file.bare else ENVIRONMENT_KEY
    named = [replace(f, path=place) if not f.path else f for f in found.findings]
    return replace(found, findings=named)


def evaluate(data: Any, base: Path, stack: StackContext = NO_STACK, *, mend: bool = True) -> Evaluation:
    """Check the mapping below `disagg-serving:environment`; without `mend` no corrections are looked for, which takes most of the time."""
    parsed = try_parse(EnvironmentSpec, data)
    if parsed.spec is None:
        return Evaluation(sort_findings(parsed.findings))
    found = evaluate_spec(parsed.spec, base, stack, mend=mend)
    found = replace(found, findings=conceal(found.findings, secrets_of(data)))
    if not parsed.findings and not parsed.left_out:
        return found
    about_the_rest = _without_guesses([parsed.restore(f) for f in found.findings], parsed)
    return Evaluation(sort_findings([*parsed.findings, *about_the_rest]), parsed.spec)


def evaluate_spec(spec: EnvironmentSpec, base: Path, stack: StackContext = NO_STACK, *, mend: bool = True) -> Evaluation:
    """Check a spec that was built in Python."""
    findings: list[Finding] = []
    try:
        catalog = load_catalog(spec.catalog_dirs, base)
        findings += catalog.unreachable()
    except SpecError as problem:
        findings += problem.findings
        catalog = Catalog()
    served, unknown = resolve(spec, catalog, base)
    findings += unknown
    subject = Subject(spec, catalog, served, stack, mend=mend)
    try:
        findings += accept(run_stage(subject, Stage.FORM), spec.accept)
    except SpecError as problem:  # an entry of the user's catalogue that only a list of alternatives reads
        findings += problem.findings
    if has_errors(findings):
        # what can be laid out by itself is checked in the same run; what it only informs about would be about a part
        whole = with_layouts(served, ((f.id, f.path) for f in findings if f.level is Level.ERROR))
        about = run_stage(subject.with_layout(build_layout(spec, whole)), Stage.LAYOUT) if whole else []
        findings += accept((f for f in about if f.level is not Level.INFO), spec.accept)
        return Evaluation(sort_findings(placed(findings)), spec)
    layout = build_layout(spec, served)
    findings += accept(run_stage(subject.with_layout(layout), Stage.LAYOUT), spec.accept)
    findings += unused_acceptances(findings, spec.accept)
    return Evaluation(sort_findings(placed(findings)), spec, layout)


def judge(layout: Layout, facts: LookedUp) -> list[Finding]:
    """What the rules say about the answers of AWS, beside what they have said about the layout itself."""
    subject = Subject(layout.spec, Catalog(), list(layout.served), layout=layout, looked_up=facts)
    return accept(run_stage(subject, Stage.LOOK_UP), layout.spec.accept)


def _without_guesses(findings: list[Finding], parsed: Parsed[EnvironmentSpec]) -> list[Finding]:
    """Drop what rules say about places whose faulty value was left out, and about the layout of a model that such a value shapes."""
    known = rules()
    gone = [(place, place.index_in("models")) for place in parsed.gone]
    unknown = {model for place, model in gone if _SHAPES & {*place.below(pair_of(place) or place).steps[:1]}}
    of_layouts = {r.id for r in known if r.stage is Stage.LAYOUT} if unknown else set()
    read = {(model, r.id) for r in known for key in r.reads for place, model in gone if model is not None and key in place.steps}
    adopted = {part for place, _ in gone for part in _ADOPTS.get(str(place), ())}
    of_adopted = {r.id for r in known if r.presumes_made in adopted}
    incomplete = {above for place, _ in gone for above in _lacking_role(place)}

    def guessed(finding: Finding) -> bool:
        place = Place.parse(finding.path)
        model = place.index_in("models")
        of_default = place in incomplete or (model in unknown and finding.id in of_layouts) or (model, finding.id) in read
        return of_default or finding.id in of_adopted or parsed.lacks(place)

    return [f for f in findings if not guessed(f)]


def _lacking_role(place: Place) -> tuple[Place, ...]:
    """The role that is not there without a value, and its pair: that these lack something would not be news."""
    role, pair = role_of(place), pair_of(place)
    return (role, pair) if role and pair and place in (role, Place((*role.steps, "instanceType"))) else ()
