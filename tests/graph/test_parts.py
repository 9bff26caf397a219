"""A whole environment built from the separate components is the one that Environment makes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pulumi
import pytest
from disagg_serving.document.resource import COMPUTED, Resource
from disagg_serving.errors import SpecError
from disagg_serving.recording.graph import Graph
from disagg_serving.recording.plan import make_plan
from disagg_serving.spec.stack_file import find_project
from factories import ROOT
from recording import one, program_graph

WHOLE = "disagg-serving:index:Environment"
LWS = "kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet"
STACK = "pulumi:pulumi:Stack"


def own(urn: str) -> str:
    """A URN as its own type and name: which component is its parent by which way is left out."""
    _, types, name = urn.rsplit("::", 2)
    return f"{types.rsplit('$', 1)[-1]}::{name}"


def plain(value: Any) -> Any:
    """A value in which URNs are types and names, too."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return own(value) if isinstance(value, str) and value.startswith("urn:pulumi:") else value


def resources(graph: Graph) -> dict[str, Resource]:
    """Everything but the stack and the component that only groups, with URNs as types and names."""
    found = {}
    for r in graph.resources.values():
        if r.type in (WHOLE, STACK):
            continue
        above = graph.resources[r.parent].type if r.parent and r.parent in graph.resources else STACK
        found[own(r.urn)] = replace(
            r,
            urn=own(r.urn),
            parent=None if above in (WHOLE, STACK) else plain(r.parent),
            provider=plain(r.provider),
            inputs=plain(r.inputs),
            options={key: value for key, value in plain(r.options).items() if key != "aliases"},  # former parents, which parts have none of
            depends_on=(),
            input_dependencies={key: sorted(plain(urns)) for key, urns in r.input_dependencies.items()},
        )
    return found


def order(graph: Graph) -> dict[str, set[str]]:
    """What outlives each resource on destroy; charts are resources, components of ours are not."""
    real = {r.urn for r in graph.resources.values() if r.custom or r.remote}
    return {own(urn): {own(u) for u in graph.requires(urn) & real} for urn in real}


def same(parts: Graph, whole: Graph, later: Collection[str] = ()) -> None:
    """Hold two programs equal, in what they make and in its order; `later` may wait for more in the program of parts."""
    ours, theirs = resources(parts), resources(whole)
    assert sorted(ours) == sorted(theirs)
    assert len(ours) == len(parts.resources) - 1  # no two fell together
    different = [urn for urn in ours if ours[urn] != theirs[urn]]
    assert {urn: ours[urn] for urn in different} == {urn: theirs[urn] for urn in different}
    here, there = order(parts), order(whole)
    assert {urn: there[urn] - here[urn] for urn in there if there[urn] - here[urn]} == {}
    assert {urn for urn in here if here[urn] - there[urn]} == set(later)


def test_the_example_of_parts_makes_what_environment_makes() -> None:
    """Inputs, options, providers and order of the example are those of one Environment with the same values."""
    project = find_project(ROOT / "examples/parts")
    parts = make_plan(project, project.stack_file("prod")).graph

    def program() -> None:
        from disagg_serving.resources import Environment

        llama: Any = {
            "name": "llama-70b",
            "model": "llama-3.3-70b-instruct-fp8",
            "max_model_len": 32768,
            "prefill": {"instance_type": "p5.48xlarge", "replicas": 2, "tensor_parallel": 4},
            "decode": {"instance_type": "p5.48xlarge", "replicas": 4, "tensor_parallel": 2},
        }
        cluster: Any = {"admin_role_arns": ["arn:aws:iam::123456789012:role/platform"], "endpoint": {"public_access_cidrs": ["203.0.113.0/24"]}}
        network: Any = {"cidr": "10.60.0.0/16", "zones": ["us-east-1a", "us-east-1b"]}
        Environment("prod", {"cluster": cluster, "network": network, "network_policy": {"vpc_cidrs": ["10.60.0.0/16"]}, "models": [llama]})

    same(parts, program_graph(program))


def test_all_components_together_make_what_environment_makes() -> None:
    """The same with weights in a bucket, an API key, autoscaling and monitoring; nothing of Environment is needed for any of it."""
    network: Any = {"cidr": "10.60.0.0/16", "zones": ["us-east-1a", "us-east-1b"], "nat_gateways": "perZone"}
    settings: Any = {
        "tags": {"team": "ml"},
        "protect": False,
        "endpoint": {"public_access_cidrs": ["203.0.113.0/24"]},
        "service_cidr": "172.20.0.0/16",
    }
    policy: Any = {"vpc_cidrs": ["10.60.0.0/16"], "prometheus_namespace": "metrics"}
    pools: Any = {"tags": {"team": "ml"}, "maintenance_window": {"day": "SUN", "start_utc": "01:00", "hours": 8}}
    scaling: Any = {"prometheus_address": "http://prometheus.metrics.svc:9090"}
    watching: Any = {"pod_monitors": True, "dcgm_exporter": "chart", "alerts": True, "dashboards": True}
    mirrors = {"registry.k8s.io": "mirror.example.com/k8s", "ghcr.io": "mirror.example.com/ghcr"}
    llama: Any = {
        "name": "llama-70b",
        "model": "llama-3.3-70b-instruct-fp8",
        "max_model_len": 32768,
        "weights": {
            "s3": {"bucket": "acme-weights", "create": True},
            "mirror": True,
            "token_key": "hf",
            "revision": "0123456789abcdef0123456789abcdef01234567",
        },
        "gateway": {"api_key_secret": "key"},
        "prefill": {"instance_type": "p5.48xlarge", "replicas": 2, "tensor_parallel": 4},
        "decode": {"instance_type": "p5.48xlarge", "tensor_parallel": 2, "autoscaling": {"min_replica_count": 2, "max_replica_count": 4}},
    }

    def from_parts() -> None:
        from disagg_serving.resources import Autoscaling, Cluster, Gateway, Lws, ModelServing, Network, NodePools, Observability, Weights

        net = Network("all", network | {"cluster_name": "all"})
        args: Any = {**settings, "vpc_id": net.vpc_id, "subnet_ids": net.private_subnet_ids, "node_role_name": "all-us-east-1-gpu-node"}
        cluster = Cluster("all", args | {"node_tags": True}, pulumi.ResourceOptions(depends_on=[net]))

        def after(*resources: pulumi.Resource) -> pulumi.ResourceOptions:
            return pulumi.ResourceOptions(providers=[cluster.provider], depends_on=list(resources))

        given: Any = {"zone": "us-east-1a", "network_policy": policy, "image_sources": mirrors}
        scaled: Any = {"zone": "us-east-1a", "model": llama, "autoscaling": scaling, "image_sources": mirrors, "chart_provider": cluster.adopting}
        watched: Any = {**given, "models": [llama], "observability": watching, "node_pools": pools}
        gpu = NodePools(
            "all", {"models": [llama], "zone": "us-east-1a", "settings": pools, "node_identity": cluster.node_identity}, after(cluster, net)
        )
        lws = Lws("all", {"chart_provider": cluster.adopting, "image_sources": mirrors}, after())
        weights = Weights(
            "all", {"models": [llama], "zone": "us-east-1a", "cluster_name": cluster.cluster_name, "tags": {"team": "ml"}},
            pulumi.ResourceOptions(depends_on=[cluster]),
        )  # fmt: skip
        serving = ModelServing(
            "all-llama-70b",
            given | {"model": llama, "token": "t", "api_key": "k", "service_cidr": "172.20.0.0/16"},
            after(lws, gpu, weights),
        )
        Gateway("all-llama-70b", given | {"model": llama}, after(serving))
        Observability("all", watched, after(cluster, net, serving))
        Autoscaling("all", scaled, after(cluster, net, serving))

    def whole() -> None:
        from disagg_serving.resources import Environment

        Environment(
            "all",
            {
                "cluster": settings, "network": network, "network_policy": policy, "node_pools": pools, "autoscaling": scaling,
                "observability": watching, "image_sources": mirrors, "models": [llama], "secrets": {"hf": "t", "key": "k"},
            },
        )  # fmt: skip

    # one component cannot come half before and half after another
    keda = ("kubernetes:core/v1:Namespace::all/keda", "kubernetes:helm.sh/v4:Chart::all-keda")
    same(program_graph(from_parts), program_graph(whole), keda)


def test_a_cluster_tells_pools_what_is_right_for_it() -> None:
    """A Cluster that is adopted gives pools the role, subnets and security groups that it was told, or that another stack has."""

    def node_class(existing: Any, **rest: Any) -> Any:
        def program() -> None:
            from disagg_serving.resources import Cluster, NodePools

            args: Any = {"existing": existing, **rest}
            cluster = Cluster("own", args)
            model: Any = {"name": "m", "model": "qwen3-32b", "server": {"instance_type": "p5.48xlarge"}}
            args = {"models": [model], "zone": "us-east-1a", "node_identity": cluster.node_identity, **pools}
            NodePools("gpu", args, pulumi.ResourceOptions(providers=[cluster.provider]))

        spec = one(program_graph(program), "kubernetes:eks.amazonaws.com/v1:NodeClass").inputs["spec"]
        return [spec[key] for key in ("role", "subnetSelectorTerms", "securityGroupSelectorTerms")]

    pools: dict[str, Any] = {}
    by_file = {"kubeconfig": "kubeconfig", "node_role": "nodes", "security_group_ids": ["sg-1"]}
    assert node_class(by_file, gpu_subnet_ids=["subnet-1"]) == ["nodes", [{"id": "subnet-1"}], [{"id": "sg-1"}]]
    by_name = [{"tags": {"disagg-serving/gpu-nodes-of": "theirs"}}], [{"tags": {"aws:eks:cluster-name": "theirs"}}]
    assert node_class({"name": "theirs"}) == ["theirs-gpu-node", *by_name]
    assert node_class({"stack_reference": "acme/x/prod"}) == [COMPUTED, COMPUTED, COMPUTED]
    pools["security_group_ids"] = ["sg-2"]
    assert node_class({"name": "theirs"}) == ["theirs-gpu-node", by_name[0], [{"id": "sg-2"}]]


def test_pools_say_what_is_missing_of_an_identity() -> None:
    """Without a Cluster's identity each of its parts is asked for."""
    from disagg_serving.resources import NodePools

    model: Any = {"name": "m", "model": "qwen3-32b", "max_model_len": 16384, "server": {"instance_type": "p5.48xlarge"}}
    with pytest.raises(SpecError, match="is required without node_identity; add it, or node_identity of a Cluster") as refused:
        program_graph(lambda: NodePools("gpu", {"models": [model], "zone": "us-east-1a", "node_role": "r"}))
    assert [f.path for f in refused.value.findings] == ["NodePools gpu: security_group_ids", "NodePools gpu: subnet_ids"]


@pytest.mark.parametrize("zone", ["cn-north-1a", "us-gov-west-1a"])
def test_parts_in_other_partitions(zone: str) -> None:
    """A component used alone knows the partition of its zone."""
    from disagg_serving.resources import ModelServing

    model: Any = {"name": "m", "model": "qwen3-32b", "server": {"instance_type": "p5.48xlarge"}}
    assert program_graph(lambda: ModelServing("m", {"model": model, "zone": zone})).of_type(LWS)
