"""What all components share: raw Kubernetes objects, checked input, merged options."""

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pulumi

from ..errors import Finding, Level, SpecError
from ..planning.evaluation import Evaluation
from ..planning.shapes import Layout

NAMESPACED = ("metadata", "namespace")
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

    def __init__(self, manifest: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        """Declare `manifest`; the resource is named `namespace/name` or `name`."""
        group, kind, metadata = manifest["apiVersion"], manifest["kind"], manifest["metadata"]
        token = f"kubernetes:{'core/v1' if group == 'v1' else group}:{kind}"
        name = "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)
        secret = pulumi.ResourceOptions(additional_secret_outputs=["data", "stringData"]) if kind == "Secret" else None
        defaults = pulumi.ResourceOptions(version=kubernetes_sdk_version())
        super().__init__(token, name, dict(manifest), pulumi.ResourceOptions.merge(pulumi.ResourceOptions.merge(defaults, opts), secret))


def declare(
    manifests: Iterable[Mapping[str, Any]],
    parent: pulumi.Resource,
    depends_on: Iterable[pulumi.Resource] = (),
    delete_timeout: str | None = None,
) -> list[KubernetesObject]:
    """Declare objects below `parent`, each after `depends_on`."""
    after = list(depends_on)
    timeouts = pulumi.CustomTimeouts(delete=delete_timeout) if delete_timeout else None
    return [KubernetesObject(m, pulumi.ResourceOptions(parent=parent, depends_on=after, custom_timeouts=timeouts)) for m in manifests]


def project_folder() -> Path:
    """Where relative paths of a program's specs start: the folder that Pulumi runs it in."""
    return Path.cwd()


watched: ContextVar[list[Evaluation] | None] = ContextVar("watched", default=None)
"""Where the offline plan collects what components evaluate; it shows failed checks beside the resources instead of stopping."""


def checked(evaluation: Evaluation) -> Layout:
    """The layout, after warnings have gone to Pulumi's log. Raises pulumi.RunError with every error finding."""
    watch = watched.get()
    if watch is not None:
        watch.append(evaluation)
        if evaluation.layout is not None:
            return evaluation.layout
    for finding in evaluation.findings:
        if finding.level is Level.WARNING:
            pulumi.log.warn(finding.sentence())
    try:
        return evaluation.require_layout()
    except SpecError as problem:
        raise refused(problem) from None


class ChecksFailed(pulumi.RunError):
    """Input that a component refuses; Pulumi shows its text without a traceback."""

    def __init__(self, findings: list[Finding]) -> None:
        """Keep every finding, and name them all in the text."""
        self.findings = findings
        super().__init__("this cannot be deployed:\n" + "\n".join(f"  {f.sentence()}" for f in findings))


def refused(problem: SpecError) -> ChecksFailed:
    """The error that a component raises for `problem`."""
    return ChecksFailed(problem.findings)
