"""Dynamo's graph deployments: `services` of nvidia.com/v1alpha1, `components` of v1beta1.

The forms are those of
https://github.com/ai-dynamo/dynamo/blob/d3e91c64b52cee176eb3b9910ae6f34c63587eb6/recipes/qwen3-32b/vllm/cloud-providers/deploy-aws-p5.48xlarge.yaml
and https://github.com/ai-dynamo/dynamo/blob/04521f473b68375705a553f4082fac8254d71a2f/examples/deployments/EKS/manifests/vllm/v1beta1/disagg-p5.yaml.
"""

from __future__ import annotations

from .faults import faults_of_pod
from .found import Engine, Found, Kind, Role
from .pods import environment, other_engine, read_container, read_nodes, read_pod
from .source import Part, refuse

_AROUND = {"frontend", "planner", "epp", "gateway"}
_ROLES: dict[str, Role] = {"prefill": "prefill", "decode": "decode"}


def read_dynamo(document: Part, found: Found) -> None:
    """Put each worker of the graph into what was found; its frontend and planner are the project's router."""
    name = document.text("metadata", "name")
    services = document.pairs("spec", "services") or {part.text("name"): part for part in document.each("spec", "components")}
    shared = [*environment(document, "spec", "envs")]
    before = len(found.engines)
    for service, part in services.items():
        kind = part.text("componentType") or part.text("type")
        if kind in _AROUND or service.lower() in {"frontend", "planner"}:
            found.note(Kind.REPLACED, part.where, service, "router, load balancer and autoscaling are generated")
            part.use()
            continue
        engine = Engine(service or name, "a Dynamo graph deployment", part.file, part.line, sure=False, dynamo=True)
        engine.role = _ROLES.get(part.text("subComponentType"), _ROLES.get(kind, ""))
        engine.replicas = max(part.number("replicas") or 1, 1)
        engine.nodes = max(part.number("multinode", "nodeCount") or 1, 1)
        engine.namespace = document.text("metadata", "namespace")
        if (secret := part.at("envFromSecret")) is not None:
            engine.hf_token = secret.where
        engine.takes([*shared, *environment(part, "envs")])
        _read_worker(engine, part, found)
        found.engines.append(engine)
    if len(found.engines) == before:
        raise refuse(document.where, f"DynamoGraphDeployment {name} has no worker that runs vLLM", allowed="services or components with dynamo.vllm")


def _read_worker(engine: Engine, part: Part, found: Found) -> None:
    template, pod = part.at("podTemplate"), part.at("extraPodSpec")
    container = pod.at("mainContainer") if pod is not None else None
    if template is not None:
        runs = read_pod(engine, template, found)
        if runs is not None:
            faults_of_pod(engine, template, runs, found)
    else:
        runs = container if container is not None and read_container(engine, container) else None
    if runs is None:
        other = other_engine(part)
        raise refuse(
            part.where,
            f"{engine.name} runs {other or 'no engine that is known here'}",
            allowed="dynamo.vllm",
            fix="vLLM is the only engine of this project",
        )
    if pod is not None:
        read_nodes(engine, pod)
        found.tolerations += [(one.text("key"), one.text("value")) for one in pod.each("tolerations")]
    for side in ("limits", "requests"):
        engine.gpus = engine.gpus or part.number("resources", side, "gpu")
