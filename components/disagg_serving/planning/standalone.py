"""Checking models that are not part of a whole environment: a component used alone in somebody's own program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .evaluation import Evaluation, evaluate

_GIVEN = {"kubeconfig": "given", "nodeRole": "given", "securityGroupIds": ["sg-0"]}
"""What the component gets as inputs of its own; the checks only want to know that it is there."""


def evaluate_models(  # noqa: PLR0913 (the parts of an environment that a component knows)
    models: Sequence[Mapping[str, Any]],
    zone: str | None,
    base: Path,
    *,
    settings: Mapping[str, Any] | None = None,
    catalog_dirs: Sequence[str] = (),
    auto_mode: bool = True,
) -> Evaluation:
    """Check `models` as if they stood in an environment with an existing cluster."""
    environment: dict[str, Any] = {
        "existingCluster": {**_GIVEN, "autoMode": auto_mode},
        "network": {"existing": {"gpuSubnetIds": ["subnet-0"]}},
        "models": [dict(m) for m in models],
        "catalogDirs": list(catalog_dirs),
    }
    if zone is not None:
        environment["network"]["gpuZone"] = zone
    if settings is not None:
        environment["nodePools"] = dict(settings)
    return evaluate(environment, base)
