"""Autoscaling in the recorded program: what comes before what, and what a program of one's own gets."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest
from disagg_serving.errors import SpecError
from disagg_serving.recording.graph import Graph
from factories import environment, existing_cluster, model, role
from recording import environment_graph, one, program_graph

CHART = "kubernetes:helm.sh/v4:Chart"
LWS = "kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet"
SCALED = "kubernetes:keda.sh/v1alpha1:ScaledObject"
PROVIDER = "pulumi:providers:kubernetes"
PROMETHEUS = {"prometheusAddress": "http://prometheus-operated.monitoring.svc:9090"}
BOUNDS = {"maxReplicaCount": 4}


def graph_of(**overrides: Any) -> Graph:
    """The program of an environment with a scaled decode."""
    return environment_graph(environment(model(decode=role(autoscaling=BOUNDS)), autoscaling={**PROMETHEUS, **overrides}))


def test_scaled_objects_come_after_keda_and_their_sets() -> None:
    """Up makes KEDA and the LeaderWorkerSet first; so destroy removes the ScaledObject first, while KEDA still takes off its finalizer."""
    graph = graph_of()
    before = graph.requires(one(graph, SCALED).urn)
    assert {one(graph, CHART, "test-keda").urn, one(graph, LWS, "test-m/m-decode").urn} <= before
    assert not [r for r in graph.resources.values() if r.type == LWS and one(graph, SCALED).urn in graph.requires(r.urn)]


def test_keda_takes_over_its_own_crds() -> None:
    """Its CRDs stay on destroy, so the chart has the provider that may take over what is there."""
    graph = graph_of()
    chart = one(graph, CHART, "test-keda")
    assert chart.options["providers"]["kubernetes"] == one(graph, PROVIDER, "test-adopting").urn
    assert chart.options["transforms"] == 1
    assert (chart.inputs["chart"], chart.inputs["repositoryOpts"]) == ("keda", {"repo": "https://kedacore.github.io/charts"})


def test_only_scaled_sets_hand_their_number_over() -> None:
    """Changes of replicas are ignored on scaled LeaderWorkerSets alone; what stood there before stays until the autoscaler decides."""
    graph = graph_of()
    ignored = {r.name: r.options.get("ignoreChanges") for r in graph.of_type(LWS)}
    assert ignored == {"test-m/m-decode": ["spec.replicas"], "test-m/m-prefill": None}


def test_off_by_default() -> None:
    """Without a scaled role there is neither KEDA nor a ScaledObject; where KEDA exists only the ScaledObjects are made."""
    plain = environment_graph(environment(model(), autoscaling=PROMETHEUS))
    assert not plain.of_type(SCALED)
    assert not plain.of_type("disagg-serving:index:Autoscaling")
    adopted = graph_of(install="existing")
    assert [r.name for r in adopted.of_type(SCALED)] == ["test/m-decode"]
    assert not [r for r in adopted.of_type(CHART) if "keda" in r.name]


def test_without_lws_chart_and_policies_there_is_a_provider_for_keda() -> None:
    """On an existing cluster where nothing else is adopted KEDA's chart still has the provider that takes over CRDs."""
    data = existing_cluster(model(decode=role(autoscaling=BOUNDS)))
    graph = environment_graph({**data, "lws": {"install": "existing"}, "autoscaling": PROMETHEUS})
    assert one(graph, CHART, "test-keda").options["providers"]["kubernetes"] == one(graph, PROVIDER, "test-adopting").urn


def test_alone() -> None:
    """The component scales a model that a program of one's own has made, and refuses it without a Prometheus."""
    scaled: Any = {"name": "m", "model": "qwen3-32b", "server": {"instance_type": "p5.48xlarge", "autoscaling": {"max_replica_count": 3}}}

    def program(**autoscaling: Any) -> Any:
        def declare() -> None:
            from disagg_serving.resources import Autoscaling, ModelServing

            served = ModelServing("m", {"model": scaled, "zone": "us-east-1a"})
            Autoscaling("m", {"model": scaled, "zone": "us-east-1a", "autoscaling": autoscaling}, pulumi.ResourceOptions(depends_on=[served]))  # type: ignore[typeddict-item]

        return declare

    graph = program_graph(program(prometheus_address="http://prometheus:9090"))
    assert one(graph, SCALED).inputs["spec"]["maxReplicaCount"] == 3
    assert one(graph, LWS).urn in graph.requires(one(graph, SCALED).urn)
    assert one(graph, CHART).name == "m-keda"
    with pytest.raises(SpecError, match=r"autoscaling\.prometheus_address"):
        program_graph(program())
