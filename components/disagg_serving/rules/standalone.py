"""Checking models that are not part of a whole environment: a component used alone in somebody's own program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..catalog import Catalog
from ..errors import Finding
from ..place import Place
from ..spec import ClusterSpec, EnvironmentSpec, ExistingClusterSpec, NetworkSpec
from ..spec.network import ExistingNetworkSpec, partition_of
from ..spec.validation import LEFT_OUT, by_alias
from . import Subject, findings_of, rules
from .evaluation import Evaluation, evaluate
from .registry import Part

_LATER = "..."
_SCALED = {"prometheusAddress": "http://given"}


def without_models(**fields: Any) -> EnvironmentSpec:
    """An environment of these parts and the defaults of the others, for rules that do not look at models."""
    whole = EnvironmentSpec.model_validate({"models": [{"name": "none", "model": "none"}]})
    return whole.model_copy(update={"models": [], **fields})


def check_network(network: NetworkSpec | None) -> list[Finding]:
    """Findings about a network that is not part of a whole environment; None where nothing can be said about it."""
    if network is None:
        return []
    found = _run(without_models(network=network), "network" if network.existing is None else "existing network")
    existing = Place.parse("network.existing")
    return [f for f in found if not Place.parse(f.path).is_in(existing)]


def check_cluster(cluster: ClusterSpec | None, existing: ExistingClusterSpec | None, vpc_id: object, subnet_ids: object) -> list[Finding]:
    """Findings about a cluster that is not part of a whole environment.

    `vpc_id` and `subnet_ids` are the inputs that a made one stands on; None is nothing; what is no
    text or list, or has a faulty entry, is not known.
    """
    subnets = subnet_ids if isinstance(subnet_ids, list) and LEFT_OUT not in subnet_ids else [] if subnet_ids is None else [_LATER, _LATER]
    stands_on = ExistingNetworkSpec.model_construct(
        vpc_id=None if vpc_id is None else _LATER,
        subnet_ids=[one if isinstance(one, str) else _LATER for one in subnets],
        gpu_subnet_ids=[_LATER],
    )
    network = NetworkSpec.model_construct(_fields_set={"existing"}, existing=stands_on)
    spec = without_models(cluster=cluster, existing_cluster=existing, network=network)
    return _run(spec, "cluster")


def _run(spec: EnvironmentSpec, part: Part) -> list[Finding]:
    return findings_of(Subject(spec, Catalog(), []), (r for r in rules() if part in r.parts))


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
