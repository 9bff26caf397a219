"""Names and labels that several kinds of a model's objects share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import labels
from ..planning.shapes import Group, Served

RELEASE_NAME_LIMIT = 40
"""The router chart cuts release names in the names and labels that it makes."""
MIRROR_LABELS = {labels.APP_NAME: "weights-mirror"}
LOAD_LABELS = {labels.APP_NAME: "load-generator"}


def pair_name(served: Served) -> str:
    """The model's name, and of a candidate that waits that of its sets without the role: nothing about it is taken for what serves."""
    return served.spec.name if served.live else f"{served.spec.name}-{served.spec.generation}"


def owned(served: Served) -> Mapping[str, str]:
    """Labels of a model's objects."""
    return {labels.MANAGED_BY: labels.OWNER, labels.PART_OF: served.spec.name}


def managed(name: str, served: Served) -> dict[str, Any]:
    """Metadata of an object in a model's namespace."""
    return {"name": name, "namespace": served.spec.kubernetes_namespace, "labels": owned(served)}


def leader_selector(group: Group) -> dict[str, str]:
    """Labels of the pods of a role that answer HTTP, of one identity."""
    return {labels.LWS_NAME: group.name, **pair_selector(group)}


def pair_selector(group: Group) -> dict[str, str]:
    """Labels of the pods of a group's pair that answer HTTP: of all its roles, and never of another pair or revision of the model."""
    return {labels.IDENTITY: group.labels[labels.IDENTITY], labels.LWS_WORKER_INDEX: labels.LEADER}


def service_name(group: Group) -> str:
    """Name of a role's Service, the same for every generation that serves; LWS gives its own headless one the set's name."""
    return serving_service(group.served.spec.name, group.role) if group.served.live else f"{group.name}-api"


def serving_service(model: str, role: str) -> str:
    """Name of the Service of a role that gets requests."""
    return f"{model if role == 'server' else f'{model}-{role}'}-api"


def mirror_account(served: Served) -> str:
    """ServiceAccount of the Job that fills the bucket; only it may write there."""
    return f"{served.spec.name}-mirror"


def picker_name(served: Served) -> str:
    """Name of the endpoint picker's Deployment, as the chart makes it of the release's name."""
    return f"{served.spec.name[:RELEASE_NAME_LIMIT]}-epp"


def router_labels(served: Served) -> dict[str, str]:
    """Labels of the router's pods."""
    return {labels.ROUTER_RELEASE: picker_name(served)}


def pull_secrets(served: Served) -> dict[str, Any]:
    """Part of a pod's spec that names what its registries ask for."""
    named = served.spec.image_pull_secrets
    return {"imagePullSecrets": [{"name": name} for name in named]} if named else {}


def priority_class(served: Served) -> str:
    """Name of a model's PriorityClass, which is not in a namespace."""
    return f"{served.spec.name}-serving"
