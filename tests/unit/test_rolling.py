"""What becomes of a pool's nodes when they drift."""

from __future__ import annotations

from disagg_serving.planning.rolling import rolling
from factories import aggregated, environment, existing_cluster, layout, model, role

WINDOW = {"maintenanceWindow": {"day": "SAT", "startUtc": "03:00", "hours": 4}, "expireAfterHours": 300}


def test_a_full_pool_waits_for_expiry() -> None:
    """Without a spare node no successor can start, so the window does not help, and the sentence says when and what it costs."""
    full = model(prefill=role(tensorParallel=4, replicas=2), decode=role(tensorParallel=2, replicas=4))
    told = rolling(layout(environment(full, nodePools=WINDOW)))
    assert set(told) == {"prefill-p5-48xlarge", "decode-p5-48xlarge"}
    decode = told["decode-p5-48xlarge"]
    assert decode.startswith("1 x p5.48xlarge of decode-p5-48xlarge drift and are replaced not in the maintenance window")
    assert "300 h after they were made" in decode
    assert "4 of 4 engines of m-decode, an outage of up to " in decode


def test_a_spare_node_lets_the_window_hold() -> None:
    """With one node more the new one starts first, in the window that the stack file names."""
    roomy = model(decode=role(tensorParallel=8, replicas=2, capacity={"nodes": 3}))
    decode = rolling(layout(environment(roomy, nodePools=WINDOW)))["decode-p5-48xlarge"]
    assert "2 x p5.48xlarge" in decode
    assert "one at a time from SAT 03:00 UTC within 4 h" in decode
    assert decode.endswith("a node takes with it 1 of 2 engines of m-decode")


def test_engines_over_nodes_go_whole() -> None:
    """One node of a group takes the engine with it."""
    wide = aggregated(model="glm-5-fp8", maxModelLen=65536, server=role(tensorParallel=8, pipelineParallel=2, replicas=2, capacity={"nodes": 4}))
    (told,) = rolling(layout(environment(wide))).values()
    assert "1 of 2 engines of m" in told


def test_scaled_roles_are_told_at_their_worst() -> None:
    """Two nodes are no spare for four engines that fill them, and one engine that is left after scaling in is an outage."""
    bounds = {"minReplicaCount": 1, "maxReplicaCount": 8}
    scaled = model(decode=role(tensorParallel=2, autoscaling=bounds, capacity={"nodes": 2}))
    data = environment(scaled, nodePools=WINDOW, autoscaling={"prometheusAddress": "http://prometheus.monitoring.svc:9090"})
    decode = rolling(layout(data))["decode-p5-48xlarge"]
    assert decode.startswith("1 to 2 x p5.48xlarge")
    assert "not in the maintenance window, since the bound of 2 leaves no node" in decode
    assert "a node takes with it 4 of 8 or 1 of 1 engines of m-decode, an outage of up to " in decode


def test_nodes_of_others_are_not_judged() -> None:
    """Where no pools are made nothing is known of nodes."""
    nodes = {"nodeSelector": {"node.kubernetes.io/instance-type": "p5.48xlarge"}}
    assert rolling(layout(existing_cluster(model(prefill=role(**nodes), decode=role(**nodes)), autoMode=False))) == {}
