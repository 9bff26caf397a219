"""Versions of the API server and of the LeaderWorkerSet controller."""

from __future__ import annotations

from collections.abc import Iterator

from ..manifests.lws import CONTROLLER_LABELS, is_local
from .points import Point, compare, failed, ok, unknown
from .snapshot import Object, Unread
from .view import UnreadError, View, deployments_in, is_true


def check(view: View) -> Iterator[Point]:
    """Three points."""
    wanted, found = view.layout.spec.kubernetes_version, view.snapshot.version
    if isinstance(found, Unread):
        yield unknown("kubernetes-version", "API server", wanted, found.reason)
    else:
        minor = ".".join(found.removeprefix("v").split(".")[:2])
        fix = "change kubernetesVersion in the stack file, or upgrade the cluster"
        yield compare("kubernetes-version", "API server", wanted, minor, fix)
    yield from _lws(view)


def _lws(view: View) -> Iterator[Point]:
    spec = view.layout.spec.lws
    subject = f"Deployment in {spec.namespace}"
    try:
        found = [d for d in view.all(deployments_in(spec.namespace)) if _is_controller(d)]
    except UnreadError as problem:
        yield unknown("lws-ready", subject, "available", problem)
        return
    if not found:
        yield failed("lws-ready", subject, "available", "no controller is there", "install it, or name its namespace in lws.namespace")
        yield unknown("lws-version", subject, spec.version, "no controller is there")
        return
    for deployment in found:
        subject = f"Deployment {spec.namespace}/{deployment['metadata']['name']}"
        if is_true(deployment, "Available"):
            yield ok("lws-ready", subject, "available")
        else:
            why = view.warnings(spec.namespace, "Deployment", [deployment["metadata"]["name"]])
            yield failed("lws-ready", subject, "available", f"not available{why}", "new pods of LeaderWorkerSets are refused until it is")
        if is_local(spec.chart) and spec.install == "chart":
            continue  # a chart in a folder says its version itself
        images = [c["image"] for c in deployment["spec"]["template"]["spec"]["containers"]]
        fix = "`pulumi up` installs the chart of the stack file" if spec.install == "chart" else "state its version in lws.version"
        yield compare("lws-version", subject, spec.version, ", ".join(version_of(i) for i in images), fix)


def version_of(image: str) -> str:
    """The version in an image's tag; `untagged` without one."""
    name, _, tag = image.partition("@")[0].rpartition(":")
    return tag.removeprefix("v") if name and "/" not in tag else "untagged"


def _is_controller(deployment: Object) -> bool:
    has = deployment["spec"]["selector"].get("matchLabels") or {}
    return all(has.get(key) == value for key, value in CONTROLLER_LABELS.items())
