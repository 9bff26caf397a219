"""Programs of components for the rules across a whole program, and what the rules find in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
from disagg_serving.recording.graph import declared
from disagg_serving.resources import Environment, ModelServing, NodePools
from disagg_serving.rules import Stage, check_objects, rules
from recording import program_graph

RULES = {r.id for r in rules() if r.stage is Stage.OBJECTS and r.check.__module__.endswith(".programs")}
NETWORK: Any = {"zones": ["us-east-1a", "us-east-1b"]}


def model(name: str = "m", **fields: Any) -> Any:
    """A model on one node of eight GPUs."""
    return {"name": name, "model": "qwen3-32b", "server": {"instance_type": "p5.48xlarge", "tensor_parallel": 4, "replicas": 2}, **fields}


def inside(name: str = "cluster") -> pulumi.ResourceOptions:
    """Options that lead into a cluster."""
    return pulumi.ResourceOptions(providers=[k8s.Provider(name, kubeconfig=name)])


def serve(component: str, opts: pulumi.ResourceOptions | None, zone: str = "us-east-1a", **fields: Any) -> ModelServing:
    """A model that is served."""
    return ModelServing(component, {"model": model(**fields), "zone": zone}, opts)


def pools(name: str, opts: pulumi.ResourceOptions, *models: Any) -> NodePools:
    """Pools for models."""
    ids: Any = {"node_role": "r", "subnet_ids": ["subnet-1"], "security_group_ids": ["sg-1"]}
    return NodePools(name, ids | {"models": list(models) or [model()], "zone": "us-east-1a"}, opts)


def environment(component: str, **fields: Any) -> Environment:
    """A whole environment."""
    spec: Any = {"network": NETWORK, "models": [model()]}
    return Environment(component, spec | fields)


def found(program: Callable[[], object], *config: str) -> list[tuple[str, str]]:
    """The findings of these rules about a program with configuration keys: rule, and all that is said."""
    return [(f.id, f.sentence()) for f in check_objects(declared(program_graph(program), config)) if f.id in RULES]
