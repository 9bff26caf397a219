"""Plain Kubernetes objects: workloads that run vLLM, node pools, and what stands around them."""

from __future__ import annotations

from .. import labels
from .faults import faults_of_group, faults_of_pod, faults_of_pool
from .found import Engine, Found, Kind
from .pods import compare_workers, other_engine, read_pod, read_requirements, role_in
from .source import Part, refuse

WORKLOADS = ("Deployment", "StatefulSet", "ReplicaSet", "Pod", "LeaderWorkerSet", "DisaggregatedSet")
POOLS = ("NodePool", "NodeClass", "EC2NodeClass")
_ROUTER, _RIGHTS = "router and load balancer are generated", "namespaces, service accounts and rights are generated"
AROUND = {
    **dict.fromkeys(("Service", "Ingress", "HTTPRoute", "Gateway", "GatewayClass", "InferencePool", "InferenceModel"), _ROUTER),
    **dict.fromkeys(("InferenceObjective", "DestinationRule", "VirtualService", "GCPBackendPolicy", "HealthCheckPolicy", "EndpointSlice"), _ROUTER),
    **dict.fromkeys(("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "Namespace"), _RIGHTS),
    **dict.fromkeys(("PodMonitor", "ServiceMonitor", "PrometheusRule"), "`observability` says what is scraped"),
    **dict.fromkeys(("NetworkPolicy", "PodDisruptionBudget"), "network policies and disruption budgets are generated"),
    **dict.fromkeys(("PersistentVolume", "PersistentVolumeClaim", "StorageClass"), "`weights` says where weights are kept"),
    "Secret": "Secrets are made from the stack's configuration",
}
"""Kinds that run no engine, and what the project does in their place."""
UNSAID = {
    "ConfigMap": "files in the container have no place in a stack file",
    "ScaledObject": "set `autoscaling` of the role, whose signals are the engine's",
    "HorizontalPodAutoscaler": "set `autoscaling` of the role, whose signals are the engine's",
    "Job": "weights are copied by `weights.mirror`",
    "ResourceClaimTemplate": "GPUs and EFA are asked for as extended resources",
    "ResourceClaim": "GPUs and EFA are asked for as extended resources",
    "PriorityClass": "pods have no priority here",
    "LocalModelCache": "weights are streamed from S3 or kept on the node, with `weights`",
    "LLMInferenceServiceConfig": "its settings are merged by KServe's controller; import the service with them in it",
}
"""Kinds that run no engine and have nothing in their place."""
KINDS = (*WORKLOADS, *POOLS, *AROUND, *UNSAID)


def read_object(document: Part, found: Found) -> None:
    """Put one object into what was found. The caller has seen that its kind is one of KINDS."""
    kind, name = document.text("kind"), document.text("metadata", "name")
    if kind in AROUND or kind in UNSAID:
        what, why = (Kind.REPLACED, AROUND[kind]) if kind in AROUND else (Kind.UNSAID, UNSAID[kind])
        found.note(what, document.where, f"{kind} {name}".strip(), why)
        document.use()
    elif kind in POOLS:
        _read_pool(document, found)
    elif kind == "DisaggregatedSet":
        _read_roles(document, name, found)
    elif kind == "LeaderWorkerSet":
        spec = document.at("spec") or document
        engine = _engine(document, name)
        engine.replicas = _replicas(spec)
        _read_group(engine, spec, found)
    else:
        _read_workload(document, name, found)


def _read_roles(document: Part, name: str, found: Found) -> None:
    slices = document.number("spec", "slices") or 1
    for role in document.each("spec", "roles"):
        spec = role.at("spec") or role
        engine = _engine(document, f"{name}-{role.text('name')}")
        engine.line, engine.role = role.line, role_in(role.text("name"))
        engine.replicas = slices * _replicas(spec)
        _read_group(engine, spec, found)


def _read_workload(document: Part, name: str, found: Found) -> None:
    kind = document.text("kind")
    template = document if kind == "Pod" else document.at("spec", "template")
    if template is None:
        raise refuse(document.where, f"is a {kind} without a pod template", allowed="spec.template")
    engine = _engine(document, name)
    engine.replicas = 1 if kind == "Pod" else _replicas(document.at("spec") or document)
    runs = read_pod(engine, template, found)
    if runs is None:
        _no_engine(document, template, found)
        return
    faults_of_pod(engine, template, runs, found)
    found.engines.append(engine)


def _replicas(spec: Part) -> int:
    return max(spec.number("replicas") or 1, 1)


def _engine(document: Part, name: str) -> Engine:
    document.text("apiVersion")
    engine = Engine(name or "engine", f"a {document.text('kind')}", document.file, document.line, sure=False)
    role = document.pairs("metadata", "labels").get(labels.LLM_D_ROLE)
    engine.role = role_in(str(role.value)) if role is not None else ""
    engine.namespace = document.text("metadata", "namespace")
    return engine


def _no_engine(document: Part, template: Part, found: Found) -> None:
    kind, name = document.text("kind"), document.text("metadata", "name")
    if engine := other_engine(template):
        raise refuse(document.where, f"{kind} {name} runs {engine}", allowed="vLLM", fix="vLLM is the only engine of this project")
    document.use()
    found.note(Kind.REPLACED, document.where, f"{kind} {name}", "it runs no vLLM; router and load balancer are generated")


def _read_group(engine: Engine, spec: Part, found: Found) -> None:
    """A LeaderWorkerSet's spec: the leader runs the engine, workers the same over more nodes."""
    size = spec.number("leaderWorkerTemplate", "size")
    engine.nodes, engine.sized = max(size or 1, 1), size is not None or spec.at("leaderWorkerTemplate", "size") is None
    leader = spec.at("leaderWorkerTemplate", "leaderTemplate")
    worker = spec.at("leaderWorkerTemplate", "workerTemplate")
    template = leader or worker
    if template is None:
        raise refuse(spec.where, f"{engine.name} has no pod template", allowed="leaderWorkerTemplate.workerTemplate")
    runs = read_pod(engine, template, found)
    if runs is None:
        raise refuse(template.where, f"{engine.name} runs no vLLM", allowed="vLLM in one container", fix="give the objects that run the engine")
    faults_of_pod(engine, template, runs, found)
    other = None
    if leader is not None and worker is not None:
        scratch = Engine(engine.name, engine.form, engine.file, worker.line, sure=False, nodes=engine.nodes)
        nobody = Found()
        other = scratch if read_pod(scratch, worker, nobody) is not None else None
    faults_of_group(engine, other, spec, found)
    if other is not None:
        compare_workers(engine, other, found)
    found.engines.append(engine)


def _read_pool(document: Part, found: Found) -> None:
    kind, name = document.text("kind"), document.text("metadata", "name")
    spec = document.at("spec", "template", "spec")
    if spec is not None:
        read_requirements(found.pool_selectors, spec.each("requirements"))
        faults_of_pool(document, spec, found)
        for taint in spec.each("taints"):
            found.taints.append((taint.text("key"), taint.text("value"), taint.where))
    found.note(Kind.REPLACED, document.where, f"{kind} {name}".strip(), "a pool for each role and a class for each instance type are generated")
    document.use()
