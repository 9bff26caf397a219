"""What all components share: raw Kubernetes objects, checked input, merged options."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import pulumi
from pydantic import BaseModel

from ..errors import Finding, Level, SpecError, sort_findings
from ..place import Place, Step
from ..planning.shapes import Layout
from ..rules.evaluation import Evaluation, Question, evaluate
from ..rules.standalone import evaluate_models
from ..spec.validation import by_alias, try_parse
from .arguments import ComponentArgs, name_of_value, parse_args
from .look_ups import looked_up
from .wording import ChecksFailed

S = TypeVar("S", bound=BaseModel)

POOL_DELETE_TIMEOUT = "45m"
"""A NodePool is gone when its nodes are: pods may drain and instances shut down meanwhile."""


@cache
def kubernetes_sdk_version() -> str:
    """Version of the installed pulumi-kubernetes, as its typed classes send it to the engine."""
    return version("pulumi-kubernetes")


class KubernetesObject(pulumi.CustomResource):
    """A Kubernetes object from its manifest, verbatim.

    Its type token is that of pulumi-kubernetes' typed class, so state and diffs are the same as with one.
    """

    def __init__(self, owner: str, manifest: Mapping[str, Any], opts: pulumi.ResourceOptions, outputs: Iterable[str] = ()) -> None:
        """Declare `manifest` as `owner/name`: URNs hold no parent's name, so a component's own name keeps two of them apart.

        `outputs` are fields that only the cluster fills, such as status.
        """
        group, kind, metadata = manifest["apiVersion"], manifest["kind"], manifest["metadata"]
        token = f"kubernetes:{'core/v1' if group == 'v1' else group}:{kind}"
        name = f"{owner}/{metadata['name']}"
        secret = pulumi.ResourceOptions(additional_secret_outputs=["data", "stringData"]) if kind == "Secret" else None
        defaults = pulumi.ResourceOptions(version=kubernetes_sdk_version())
        super().__init__(
            token, name, {**manifest, **dict.fromkeys(outputs)}, pulumi.ResourceOptions.merge(pulumi.ResourceOptions.merge(defaults, opts), secret)
        )


def declare(
    owner: str,
    manifests: Iterable[Mapping[str, Any]],
    parent: pulumi.Resource,
    depends_on: Iterable[pulumi.Resource] = (),
    delete_timeout: str | None = None,
    ignore_changes: list[str] | None = None,
) -> list[KubernetesObject]:
    """Declare objects of the component `parent`, which is called `owner`, each after `depends_on`."""
    after = list(depends_on)
    timeouts = pulumi.CustomTimeouts(delete=delete_timeout) if delete_timeout else None
    opts = pulumi.ResourceOptions(parent=parent, depends_on=after, custom_timeouts=timeouts, ignore_changes=ignore_changes)
    return [KubernetesObject(owner, m, opts) for m in manifests]


def project_folder() -> Path:
    """Where relative paths of a program's specs start: the folder that Pulumi runs it in."""
    return Path.cwd()


def read_args(component: type, name: Any, args: Any, kind: type, opts: Any) -> ComponentArgs:
    """What a component of that name was given; see ComponentArgs. What Pulumi would say of `name` and `opts` by itself is one fault more."""
    given = parse_args(f"{component.__name__} {name}", args, kind)
    options = (pulumi.ResourceOptions, type(None))
    for argument, value, kinds, allowed in (("name", name, (str,), "a text"), ("opts", opts, options, "pulumi.ResourceOptions")):
        if not isinstance(value, kinds) or value == "":
            given.faults.append(Finding("schema", Level.ERROR, argument, f"is {name_of_value(value)}", None, allowed))
    return given


@dataclass(frozen=True)
class Watch:
    """The offline plan, which shows failed checks beside the resources instead of stopping.

    `known` is what it has evaluated before it runs the program, `evaluations` collects what components evaluate.
    """

    known: tuple[Question, Evaluation] | None = None
    evaluations: list[Evaluation] = field(default_factory=list)


watched: ContextVar[Watch | None] = ContextVar("watched", default=None)


def answer(question: Question) -> Evaluation:
    """What the checks say; where the offline plan has asked the same before, its answer."""
    watch = watched.get()
    if watch is not None and watch.known is not None and watch.known[0].same_as(question):
        return watch.known[1]
    return evaluate(question.data, question.base, question.stack)


def require_layout(evaluation: Evaluation, given: ComponentArgs | None = None) -> Layout:
    """The layout, after warnings have gone to Pulumi's log; of a component that was `given` arguments, or of a stack file.

    Raises what the program's language has for errors, with all of them, and those in the arguments.
    """
    watch = watched.get()
    if watch is None and evaluation.spec is not None and evaluation.spec.look_ups and not (given and given.faults):
        evaluation = looked_up(evaluation)
    if given is not None:
        found = given.translate([*given.faults, *_unseen(evaluation, given)])
        evaluation = replace(evaluation, findings=sort_findings(found), layout=None if given.faults else evaluation.layout)
    if watch is not None:
        watch.evaluations.append(evaluation)
        if evaluation.layout is not None:
            return evaluation.layout
    for finding in evaluation.findings:
        if finding.level is Level.WARNING:
            pulumi.log.warn(finding.sentence())
    try:
        return evaluation.require_layout()
    except SpecError as problem:
        raise (given.refusal(problem.findings) if given else ChecksFailed("", problem.findings)) from None


_seen: ContextVar[set[tuple[str, tuple[Step, ...], str]] | None] = ContextVar("seen", default=None)
"""What the components of this program have said so far that is no error."""


def _unseen(evaluation: Evaluation, given: ComponentArgs) -> Iterator[Finding]:
    """Errors, and what is this component's matter besides and no other one has said: all components of a model look at the whole of it."""
    seen = _seen.get()
    if seen is None:
        _seen.set(seen := set())
    names = [model.name for model in evaluation.spec.models] if evaluation.spec else []
    for finding in evaluation.findings:
        place = Place.parse(finding.path)
        model = place.index_in("models")
        about = place.steps if model is None or model >= len(names) else (names[model], *place.steps[2:])
        key = (finding.id, about, finding.message)
        if finding.level is Level.ERROR or (given.concerns(finding.path) and key not in seen):
            yield finding
            seen.add(key)


def evaluate_args(given: ComponentArgs, *, settings: str = "", rest: Sequence[str] | None = None) -> Evaluation:
    """What is found about the models of a component that is used alone.

    `settings` is the argument about nodes, `rest` are those that an environment has under the same name.
    """
    models = [given.get("model")] if "model" in given.values else given.get("models")
    return evaluate_models(
        models,
        given.get("zone"),
        project_folder(),
        settings=given.get(settings),
        catalog_dirs=given.get("catalog_dirs", ()),
        auto_mode=given.get("auto_mode", True),
        service_cidr=given.get("service_cidr"),
        rest=None if rest is None else {key: given.get(key) for key in rest if key in given.values},
    )


def require_model_layout(given: ComponentArgs) -> Layout:
    """The layout of the one model of a component that is used alone. Raises as `require_layout` does."""
    return require_layout(evaluate_args(given, rest=("router", "network_policy", "image_sources", "autoscaling")), given)


def require_spec(given: ComponentArgs, kind: type[S], rules: Callable[[S | None], list[Finding]] = lambda _: []) -> S:
    """The spec of a part, of the arguments that are its fields, which `rules` have judged as far as its form is right.

    Warnings go to Pulumi's log. Raises what the program's language has for errors, with all of them.
    """
    parsed = try_parse(kind, by_alias(kind, given.of_spec))
    places = [(f, Place.parse(f.path)) for f in rules(parsed.spec)]
    found = [f for f, place in places if not parsed.lacks(place, at=Place(place.steps[:1]))]
    findings = sort_findings(given.translate([*given.faults, *parsed.findings, *found]))
    for finding in findings:
        if finding.level is Level.WARNING:
            pulumi.log.warn(finding.sentence())
    errors = [f for f in findings if f.level is Level.ERROR]
    if errors or parsed.spec is None:
        raise given.refusal(errors)
    return parsed.spec


def id_terms(ids: Any) -> Any:
    """Selector terms of a NodeClass by id; the list, or its entries, may be Outputs."""
    if isinstance(ids, (list, tuple)):
        return [{"id": i} for i in ids]
    return pulumi.Output.from_input(ids).apply(lambda known: [{"id": i} for i in known])
