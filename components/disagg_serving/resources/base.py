"""What all components share: raw Kubernetes objects, checked input, merged options."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import pulumi
from pydantic import BaseModel

from ..errors import Finding, Level, SpecError, sort_findings
from ..planning.evaluation import Evaluation
from ..planning.shapes import Layout
from ..planning.standalone import evaluate_models
from ..spec.validation import LEFT_OUT, try_parse
from .arguments import ChecksFailed, taken

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


def take(args: Mapping[str, Any], kind: type) -> tuple[dict[str, Any], list[Finding]]:
    """The arguments of a component as a dict, and what is wrong with them; see `taken`.

    Raises ChecksFailed when they are no mapping.
    """
    if not isinstance(args, Mapping):
        raise ChecksFailed([Finding("schema", Level.ERROR, "args", "is not a mapping", type(args).__name__, kind.__name__)])
    return taken(args, kind)


watched: ContextVar[list[Evaluation] | None] = ContextVar("watched", default=None)
"""Where the offline plan collects what components evaluate; it shows failed checks beside the resources instead of stopping."""


def checked(evaluation: Evaluation, faults: Sequence[Finding] = ()) -> Layout:
    """The layout, after warnings have gone to Pulumi's log.

    `faults` are what is wrong with the arguments themselves. Raises pulumi.RunError with them and every error finding.
    """
    if faults:
        evaluation = replace(evaluation, findings=sort_findings([*faults, *evaluation.findings]), layout=None)
    watch = watched.get()
    if watch is not None:
        watch.append(evaluation)
        if evaluation.layout is not None:
            return evaluation.layout
    elif evaluation.spec is not None and evaluation.spec.look_ups:
        from .look_ups import looked_up  # noqa: PLC0415 (off in most stacks)

        evaluation = looked_up(evaluation)
    for finding in evaluation.findings:
        if finding.level is Level.WARNING:
            pulumi.log.warn(finding.sentence())
    try:
        return evaluation.require_layout()
    except SpecError as problem:
        raise ChecksFailed(problem.findings) from None


def checked_model(given: Mapping[str, Any], faults: Sequence[Finding]) -> Layout:
    """The layout of the one model of a component that is used alone, from its inputs. Raises pulumi.RunError with every error finding."""
    evaluation = evaluate_models(
        [given["model"]],
        given.get("zone"),
        project_folder(),
        catalog_dirs=given.get("catalog_dirs", ()),
        auto_mode=given.get("auto_mode", True),
        service_cidr=given.get("service_cidr"),
        rest={key: given[key] for key in ("router", "network_policy", "image_sources", "autoscaling") if key in given},
    )
    return checked(evaluation, faults)


def form(kind: type[S], data: Any, faults: list[Finding]) -> S | None:
    """The spec of a part; None where nothing is given, or where something is wrong with it, which `faults` then holds."""
    if data is None or data is LEFT_OUT:
        return None
    parsed = try_parse(kind, data)
    faults += parsed.findings
    return parsed.spec if not parsed.findings and not parsed.left_out else None


def checked_form(kind: type[S], data: Any, faults: list[Finding], rules: Callable[[S], list[Finding]]) -> S:
    """The spec of a part that `rules` have judged. Raises ChecksFailed with `faults`, those of its form, and what the rules find."""
    spec = form(kind, data, faults)
    checked_part([*faults, *(rules(spec) if spec is not None else [])])
    if spec is None:
        raise AssertionError("a part without a spec has faults")
    return spec


def checked_part(findings: list[Finding]) -> None:
    """Log warnings about a part. Raises ChecksFailed when there are errors."""
    for finding in findings:
        if finding.level is Level.WARNING:
            pulumi.log.warn(finding.sentence())
    errors = [f for f in findings if f.level is Level.ERROR]
    if errors:
        raise ChecksFailed(errors)


def id_terms(ids: Any) -> Any:
    """Selector terms of a NodeClass by id; the list, or its entries, may be Outputs."""
    if isinstance(ids, (list, tuple)):
        return [{"id": i} for i in ids]
    return pulumi.Output.from_input(ids).apply(lambda known: [{"id": i} for i in known])
