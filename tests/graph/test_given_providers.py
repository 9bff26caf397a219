"""A provider that a program gives to a component is that of everything the component makes, or it would lie in another account."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import disagg_serving.resources
import pulumi
import pytest
from recording import program_graph

NETWORK: dict[str, Any] = {"zones": ["us-east-1a", "us-east-1b"]}
CLUSTER: dict[str, Any] = {"vpc_id": "vpc-0123456789abcdef0", "subnet_ids": ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]}
PRIVATE: dict[str, Any] = {"private_access_cidrs": ["10.8.0.0/16"], "public_access_cidrs": ["203.0.113.0/24"]}
MODEL: dict[str, Any] = {
    "name": "m",
    "model": "qwen3-32b",
    "weights": {"revision": "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d", "s3": {"bucket": "example-weights", "create": True}, "mirror": True},
    "gateway": {"certificate_arn": "arn:aws:acm:us-east-1:123456789012:certificate/1", "dns": {"zone_id": "Z1", "name": "m.example.com"}},
    "server": {"instance_type": "p5.48xlarge", "tensor_parallel": 4},
}
COMPONENTS: dict[str, dict[str, Any]] = {
    "Network": NETWORK,
    "Cluster": {**CLUSTER, "endpoint": PRIVATE, "admin_role_arns": ["arn:aws:iam::123456789012:role/platform"]},
    "Cluster by name": {"existing": {"name": "platform"}},
    "Weights": {"models": [MODEL], "zone": "us-east-1a", "cluster_name": "platform"},
    "Gateway": {"model": MODEL, "zone": "us-east-1a"},
    "Environment": {"network": NETWORK, "cluster": {"endpoint": PRIVATE}, "models": [MODEL]},
}


def options(form: str, provider: Any) -> pulumi.ResourceOptions:
    """The three ways to give a provider."""
    if form == "provider":
        return pulumi.ResourceOptions(provider=provider)
    return pulumi.ResourceOptions(providers=[provider] if form == "list" else {"aws": provider})


@pytest.mark.parametrize("form", ["provider", "list", "map"])
@pytest.mark.parametrize("what", COMPONENTS)
def test_a_given_provider_reaches_everything(what: str, form: str) -> None:
    """All of a component's resources at AWS are made by the provider that it was given, those inside components of pulumi-eks too."""
    make: Callable[..., object] = getattr(disagg_serving.resources, what.partition(" ")[0])

    def program() -> None:
        import pulumi_aws as aws

        make("own", COMPONENTS[what], options(form, aws.Provider("given", region="us-east-1", profile="one")))

    graph = program_graph(program)
    (given,) = [r.urn for r in graph.of_type("pulumi:providers:aws")]
    at_aws = [r for r in graph.resources.values() if r.type.startswith("aws:")]
    assert at_aws
    assert {r.urn: r.provider for r in at_aws if not (r.provider or "").startswith(given)} == {}
    remote = [r for r in graph.resources.values() if r.type.startswith("eks:")]
    assert bool(remote) == (what in ("Cluster", "Environment"))
    assert all(given in str(r.options.get("providers")) for r in remote)


def attributes(source: str) -> set[str]:
    """The attributes that the classes of a source keep."""
    return {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }


def test_no_attribute_of_ours_is_one_of_pulumi() -> None:
    """A component overwrites nothing that Pulumi's own resources keep: `_providers`, for one, is what children inherit."""
    theirs = {name for kind in (pulumi.Resource, pulumi.ComponentResource) for name in attributes(inspect.getsource(kind))}
    assert "_providers" in theirs
    files = sorted(Path(disagg_serving.resources.__file__).parent.glob("*.py"))
    found = {f.name: attributes(f.read_text(encoding="utf-8")) & theirs for f in files}
    assert {name: both for name, both in found.items() if both} == {}
