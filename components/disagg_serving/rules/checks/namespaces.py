"""Rules about whose a namespace is."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import Level
from ...phrases import say
from ...place import Place
from ...planning.observability import EXPORTER_NAMESPACE
from ..documents import KUBERNETES
from ..registry import Fault, Stage, Subject, remove, rule

SYSTEM = ("default", "kube-")
OWN = "a namespace of its own"


@rule("namespaces", Level.ERROR, Stage.FORM, f"{KUBERNETES}concepts/overview/working-with-objects/namespaces/", firm=True)
def namespaces(s: Subject) -> Iterator[Fault]:
    """Each model and each chart that is installed has a namespace of its own, which is made and deleted with it."""
    installed = _of_charts(s)
    owners: dict[str, int] = {}
    for i, model in enumerate(s.spec.models):
        namespace = model.kubernetes_namespace
        owner = owners.setdefault(namespace, i)
        if owner != i and s.spec.models[owner].name != model.name:
            path, ways = f"models[{i}].namespace", [remove(f"models[{i}].namespace")]
            yield Fault(path, say("is that of {}", Place(("models", owner))), namespace, OWN, "choose another", ways=ways)
        others = (s.spec.lws.namespace, s.spec.autoscaling.namespace, *(name for name, _ in installed.values()))
        if namespace.startswith(SYSTEM[1]) or namespace in (SYSTEM[0], *others):
            fix = say("set {models[].namespace}") if model.namespace is None else "choose another"
            yield Fault(f"models[{i}].namespace", "belongs to somebody else", namespace, OWN, fix)
    claimed = {s.spec.network_policy.prometheus_namespace: ("networkPolicy.prometheusNamespace", "Prometheus, which nothing here installs")}
    for path, (namespace, whose) in installed.items():
        other, owner_of_it = claimed.setdefault(namespace, (path, whose))
        ways = [remove(path), *([remove(other)] if other in installed else [])]
        if namespace == SYSTEM[0] or namespace.startswith(SYSTEM[1]):
            yield Fault(path, f"belongs to the system, and {whose} would own it", namespace, OWN, "choose another", ways=ways[:1])
        elif other != path:
            yield Fault(path, f"is that of {owner_of_it}, and is made for {whose}", namespace, OWN, "choose another", ways=ways)


def _of_charts(s: Subject) -> dict[str, tuple[str, str]]:
    """Namespaces that are made for charts, by the place that names them, each with whose it is; the fixed one first."""
    found = {}
    if s.spec.observability.dcgm_exporter == "chart":
        found["observability.dcgmExporter"] = (EXPORTER_NAMESPACE, "the DCGM exporter")
    if s.spec.lws.install == "chart":
        found["lws.namespace"] = (s.spec.lws.namespace, "the LeaderWorkerSet controller")
    if s.spec.autoscaling.install == "chart" and any(role.autoscaling for _, model in s.written() for role in model.roles.values()):
        found["autoscaling.namespace"] = (s.spec.autoscaling.namespace, "KEDA")
    return found
