"""What is watched, in the recorded program: after the namespaces, from one component, and alone."""

from __future__ import annotations

from typing import Any

from disagg_serving.recording.graph import Graph
from factories import environment
from recording import environment_graph, one, program_graph
from watched import ALL, pair

MONITOR, RULE, COMPONENT = (
    "kubernetes:monitoring.coreos.com/v1:PodMonitor",
    "kubernetes:monitoring.coreos.com/v1:PrometheusRule",
    "disagg-serving:index:Observability",
)
CHART, CONFIG, NAMESPACE = "kubernetes:helm.sh/v4:Chart", "kubernetes:core/v1:ConfigMap", "kubernetes:core/v1:Namespace"


def watched_graph(**asked: Any) -> Graph:
    """The recorded program of one pair with this block."""
    return environment_graph(environment(pair(), name="test", observability=asked))


def test_everything_comes_after_the_models() -> None:
    """A PodMonitor is made in a namespace that a model's component makes, and read by nobody before the pods are declared."""
    graph = watched_graph(**ALL)
    component = one(graph, COMPONENT)
    made = [*graph.of_type(MONITOR), *graph.of_type(RULE), *(r for r in graph.of_type(CONFIG) if r.parent == component.urn)]
    assert len(made) == 4 + 1 + 3 + 1
    assert {r.parent for r in made} == {component.urn}
    namespaces = {r.inputs["metadata"]["name"]: r for r in graph.of_type(NAMESPACE)}
    for r in made:
        assert namespaces[r.inputs["metadata"]["namespace"]].urn in graph.requires(r.urn)


def test_the_exporters_chart_is_pinned_and_comes_after_its_namespace() -> None:
    """The chart of NVIDIA's repository, by exact version, into a namespace that is there."""
    graph = watched_graph(dcgmExporter="chart")
    (chart,) = [r for r in graph.of_type(CHART) if "dcgm" in r.name]
    assert (chart.inputs["chart"], chart.inputs["version"]) == ("dcgm-exporter", "4.8.2")
    assert chart.inputs["repositoryOpts"]["repo"] == "https://nvidia.github.io/dcgm-exporter/helm-charts"
    (own,) = [r for r in graph.of_type(NAMESPACE) if r.inputs["metadata"]["name"] == "dcgm-exporter"]
    assert own.urn in graph.requires(chart.urn)


def test_a_chart_of_a_mirror_has_no_repository() -> None:
    """An OCI reference is read as it is."""
    graph = watched_graph(dcgmExporter="chart", dcgmChart="oci://mirror.example.com/charts/dcgm-exporter")
    (chart,) = [r for r in graph.of_type(CHART) if "dcgm" in r.name]
    assert chart.inputs["chart"] == "oci://mirror.example.com/charts/dcgm-exporter"
    assert not chart.inputs.get("repositoryOpts")


def test_nothing_is_declared_unasked() -> None:
    """Without the block there is not even a component."""
    assert environment_graph(environment(pair(), name="test")).of_type(COMPONENT) == []


def test_alone() -> None:
    """In a program of one's own the component watches models that others have made."""

    def program() -> None:
        from disagg_serving.resources import Observability

        Observability(
            "watch",
            {
                "models": [{"name": "m", "model": "qwen3-32b", "server": {"instance_type": "p5.48xlarge"}}],
                "zone": "us-east-1a",
                "observability": {"pod_monitors": True, "alerts": True, "labels": {"release": "stack"}},
                "node_pools": {"expire_after_hours": 100},
            },
        )

    graph = program_graph(program)
    assert {r.inputs["metadata"]["name"] for r in graph.of_type(MONITOR)} == {"m", "m-router"}
    alerts = {r["alert"]: r["expr"] for r in one(graph, RULE).inputs["spec"]["groups"][0]["rules"]}
    assert f"+ {100 * 3600 - 600} " in alerts["NodeExpiresSoon"]
