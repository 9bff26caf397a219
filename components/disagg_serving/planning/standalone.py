"""Checking models that are not part of a whole environment: a component used alone in somebody's own program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..catalog import Catalog
from ..errors import Finding, Level
from ..spec import ClusterSpec, EnvironmentSpec, ExistingClusterSpec, NetworkSpec
from ..spec.network import partition_of
from ..spec.validation import by_alias
from .evaluation import Evaluation, evaluate
from .rules import Subject, rules

_SCALED = {"prometheusAddress": "http://given"}


def without_models(**fields: Any) -> EnvironmentSpec:
    """An environment of these parts and the defaults of the others, for rules that do not look at models."""
    whole = EnvironmentSpec.model_validate({"models": [{"name": "none", "model": "none"}]})
    return whole.model_copy(update={"models": [], **fields})


def check_network(network: NetworkSpec | None) -> list[Finding]:
    """Findings about a network that is not part of a whole environment; None where nothing can be said about it."""
    if network is None:
        return []
    made = network.existing is None
    ids = {"network-zones"} if made else {"network-existing"}
    spec = without_models(network=network)
    return [f for f in _run(spec, ids) if not f.path.startswith("network.existing.")] if not made else _run(spec, ids)


def check_cluster(cluster: ClusterSpec | None, existing: ExistingClusterSpec | None, made_in: Mapping[str, Any]) -> list[Finding]:
    """Findings about a cluster that is not part of a whole environment; `made_in` are the inputs that a made one stands on."""
    spec = without_models(cluster=cluster, existing_cluster=existing)
    findings = _run(spec, {"cluster-source", "creator-admin", "api-endpoint", "kubernetes-version"})
    if existing is None:
        findings += [
            Finding("missing", Level.ERROR, key, "is required to make a cluster", None, "", "add it")
            for key, value in made_in.items()
            if value is None
        ]
    return findings


def _run(spec: EnvironmentSpec, ids: set[str]) -> list[Finding]:
    subject = Subject(spec, Catalog(), [])
    return [finding for r in rules() if r.id in ids for finding in r.run(subject)]


def evaluate_models(  # noqa: PLR0913 (the parts of an environment that a component knows)
    models: Any,
    zone: str | None,
    base: Path,
    *,
    settings: Mapping[str, Any] | None = None,
    catalog_dirs: Sequence[str] = (),
    auto_mode: bool = True,
    service_cidr: str | None = None,
    rest: Mapping[str, Any] | None = None,
) -> Evaluation:
    """Check `models` as if they stood in an environment with an existing cluster that is looked up in AWS.

    `rest` are other fields of the environment that the component takes.
    """
    cluster = {"name": "given", "autoMode": auto_mode, "partition": partition_of(zone) if isinstance(zone, str) else "aws"}
    environment: dict[str, Any] = {
        "existingCluster": cluster | ({"serviceCidr": service_cidr} if service_cidr is not None else {}),
        "network": {"existing": {"gpuSubnetIds": ["subnet-0"]}},
        "models": list(models) if isinstance(models, (list, tuple)) else models,
        "catalogDirs": list(catalog_dirs) if isinstance(catalog_dirs, (list, tuple)) else catalog_dirs,
    }
    if zone is not None:
        environment["network"]["gpuZone"] = zone
    if settings is not None:
        environment["nodePools"] = settings
    if rest is None or "autoscaling" not in rest:
        environment["autoscaling"] = _SCALED
    environment |= rest or {}
    return evaluate(by_alias(EnvironmentSpec, environment), base)
