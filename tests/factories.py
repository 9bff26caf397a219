"""Valid data by default; a test overrides the one thing that it is about."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

from disagg_serving.planning.shapes import Layout
from disagg_serving.rules.evaluation import Evaluation, evaluate, evaluate_file
from disagg_serving.spec.stack_file import find_project

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ROOT / "tests/data/shipped"
"""The project as it is shipped, with frozen copies of its stacks: whoever edits stacks/ breaks no test but those of test_own_stacks.py."""
STACKS = ("dev", "glm5", "glm5-pp", "local", "prod", "staging")
RESERVED = {"type": "reserved", "reservationIds": ["cr-0123456789abcdef0"]}


def role(**overrides: Any) -> dict[str, Any]:
    """A role on p5.48xlarge with two GPUs an engine."""
    return {"instanceType": "p5.48xlarge", "tensorParallel": 2, **overrides}


def model(**overrides: Any) -> dict[str, Any]:
    """A model with prefill and decode; `None` removes a key."""
    data = {"name": "m", "model": "llama-3.3-70b-instruct-fp8", "prefill": role(), "decode": role(), **overrides}
    return {key: value for key, value in data.items() if value is not None}


def aggregated(**overrides: Any) -> dict[str, Any]:
    """A model with one role."""
    return model(**{"prefill": None, "decode": None, "server": role(), **overrides})


def environment(*models: dict[str, Any], **overrides: Any) -> dict[str, Any]:
    """An environment with its own cluster in two zones; `None` removes a key."""
    data: dict[str, Any] = {
        "name": "test",
        "cluster": {"endpoint": {"publicAccessCidrs": ["203.0.113.0/24"]}},
        "network": {"zones": ["us-east-1a", "us-east-1b"]},
        "models": list(models) or [model()],
        **overrides,
    }
    return deepcopy({key: value for key, value in data.items() if value is not None})


def existing_cluster(*models: dict[str, Any], **overrides: Any) -> dict[str, Any]:
    """An environment on a cluster that exists, with Auto Mode; overrides are fields of existingCluster."""
    existing = {"kubeconfig": "kubeconfig", "nodeRole": "nodes", "securityGroupIds": ["sg-1"], **overrides}
    return environment(
        *models,
        cluster=None,
        existingCluster={key: value for key, value in existing.items() if value is not None},
        network={"gpuZone": "us-east-1a", "existing": {"gpuSubnetIds": ["subnet-1"]}},
    )


def check(data: Any, **context: Any) -> Evaluation:
    """The evaluation of an environment, with paths relative to the repository."""
    return evaluate(data, ROOT, **context)


def layout(data: Any) -> Layout:
    """The layout of an environment that must pass."""
    return check(data).require_layout()


def example(name: str, stack: str) -> Layout:
    """The layout of a stack of an example."""
    project = find_project(ROOT / "examples" / name)
    return evaluate_file(project.stack_file(stack), project.root).require_layout()
