"""Roles that are scaled: what the API server takes, and that `pulumi up` and the autoscaler do not fight over the number of engines."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from disagg_serving.manifests.autoscaling import build_scaled_objects
from factories import aggregated, environment, layout, model, role
from live.keda import SCALED_OBJECTS, chart, install_crds
from live.workloads import is_ready, pods, uids

from bench.api import ApiError
from bench.cluster import Cluster
from bench.control_plane import ControlPlane
from bench.engine import Engine, Step, for_stack

PROMETHEUS = {"prometheusAddress": "http://prometheus-operated.monitoring.svc:9090"}
BOUNDS = {"minReplicaCount": 2, "maxReplicaCount": 4}
RATES = [{"inputTokens": 8000, "tokensPerSecondPerGPU": 5000}]
WORK = {"inputTokens": 8000, "outputTokens": 500, "requestsPerSecond": 2}
GLM = {"model": "glm-5-fp8", "maxModelLen": 131072, "kvCacheDtype": "fp8"}
STREAM = {"s3": {"bucket": "acme"}, "revision": "0123abcdef"}
SCALED: dict[str, dict[str, Any]] = {
    "queue and KV cache": model(prefill=role(autoscaling=BOUNDS), decode=role(autoscaling=BOUNDS)),
    "tokens in flight": model(prefill=role(autoscaling=BOUNDS, measuredRates=RATES), workload=WORK),
    "aggregated on two signals": aggregated(server=role(autoscaling=BOUNDS, measuredRates=RATES)),
    "groups over two nodes, streamed": aggregated(
        **GLM, weights=STREAM, server=role(tensorParallel=8, pipelineParallel=2, autoscaling={"maxReplicaCount": 2})
    ),
    "thresholds and pace of one's own": model(
        decode=role(autoscaling={**BOUNDS, "kvCacheUsage": 0.5, "waitingRequests": 2, "scaleUpPeriodSeconds": 60, "scaleDownWindowSeconds": 0})
    ),
}
LWS_TYPE, SCALED_TYPE = "leaderworkerset.x-k8s.io/v1:LeaderWorkerSet", "keda.sh/v1alpha1:ScaledObject"

pytestmark = pytest.mark.usefixtures("wiped")


def scaled_objects(one: dict[str, Any]) -> list[dict[str, Any]]:
    """What is rendered for the scaled roles of a model."""
    wanted = layout(environment(one, autoscaling=PROMETHEUS))
    return build_scaled_objects(wanted.groups, wanted.spec.autoscaling)


def test_scaled_objects_are_accepted(cluster: Cluster) -> None:
    """KEDA's own schema takes every ScaledObject with strict validation, for each signal, and a misspelt field is refused."""
    install_crds(cluster)
    rendered = {name: scaled_objects(one) for name, one in SCALED.items()}
    objects = [o for found in rendered.values() for o in found]
    assert all(rendered.values())
    assert {t["name"] for o in objects for t in o["spec"]["triggers"]} == {"backlogSeconds", "waitingRequests", "kvCacheUsage"}
    namespaces = sorted({o["metadata"]["namespace"] for o in objects})
    cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}} for n in namespaces])
    for found in rendered.values():
        assert len(cluster.apply(found, dry_run=True)) == len(found)
    wrong = deepcopy(objects[0])
    wrong["spec"]["maxReplicas"] = 3
    with pytest.raises(ApiError, match="maxReplicas"):
        cluster.apply([wrong], dry_run=True)


def replicas(cluster: Cluster) -> dict[str, int]:
    """Engines that each LeaderWorkerSet shall have."""
    return {s["metadata"]["name"]: s["spec"]["replicas"] for s in cluster.items("leaderworkersets")}


def settled(cluster: Cluster, number: int) -> None:
    """Wait until so many pods are there and ready."""
    cluster.until(lambda: len(found := pods(cluster)) == number and all(map(is_ready, found)), f"{number} pods ready", 120)


def changed(steps: list[Step]) -> set[tuple[str, str]]:
    """Operation and name of what an update touched."""
    return {(s.op, s.urn.rsplit("::", 1)[1]) for s in steps if s.op not in ("same", "read") and s.type != "pulumi:pulumi:Stack"}


def unchanged(engine: Engine) -> None:
    """The next `up` has nothing to do."""
    engine.run("up", "--yes", "--skip-preview", "--expect-no-changes", "--stack", "local")


def test_the_engine_leaves_the_number_of_engines_alone(plane: ControlPlane, tmp_path: Path) -> None:
    """From fixed numbers to scaled roles, through changes of the spec while the autoscaler moves the number, and back: no engine is lost."""
    engine, cluster = for_stack("local", plane.kubeconfig, tmp_path, {"install": "existing"}), plane.cluster
    install_crds(cluster)
    engine.up()
    settled(cluster, 6)
    before = uids(cluster)

    def scale(e: dict[str, Any]) -> None:
        e["autoscaling"] = {**PROMETHEUS, "install": "existing"}
        for side, most in (("prefill", 4), ("decode", 8)):
            e["models"][0][side].pop("replicas")
            e["models"][0][side]["autoscaling"] = {"minReplicaCount": 1, "maxReplicaCount": most}

    engine.edit(scale)
    engine.up()
    assert replicas(cluster) == {"qwen3-32b-prefill": 2, "qwen3-32b-decode": 4}, "turning autoscaling on resets nothing"
    assert uids(cluster) == before
    unchanged(engine)

    # what a HorizontalPodAutoscaler does
    for name, number in (("qwen3-32b-prefill", 3), ("qwen3-32b-decode", 6)):
        cluster.scale("leaderworkersets", name, "qwen3-32b", number)
    settled(cluster, 9)
    unchanged(engine)
    engine.run("refresh", "--yes", "--skip-preview", "--stack", "local")
    unchanged(engine)
    assert replicas(cluster) == {"qwen3-32b-prefill": 3, "qwen3-32b-decode": 6}

    engine.edit(lambda e: e["models"][0].update(drainSeconds=61))
    steps = changed(engine.up())
    assert ("update", "local-qwen3-32b/qwen3-32b-decode") in steps
    assert replicas(cluster) == {"qwen3-32b-prefill": 3, "qwen3-32b-decode": 6}, "a change of the pods resets nothing"

    def fix(e: dict[str, Any]) -> None:
        for side in ("prefill", "decode"):
            del e["models"][0][side]["autoscaling"]
            e["models"][0][side]["replicas"] = 2

    engine.edit(fix)
    engine.up()
    assert replicas(cluster) == {"qwen3-32b-prefill": 2, "qwen3-32b-decode": 2}
    assert not cluster.items(SCALED_OBJECTS)
    unchanged(engine)
    engine.destroy()
    assert not cluster.items("leaderworkersets")


def test_keda_comes_first_and_goes_last(plane: ControlPlane, tmp_path: Path) -> None:
    """ScaledObjects come after KEDA and their LeaderWorkerSets and go before both; the CRDs stay, and the next installation takes them over."""
    engine, cluster = for_stack("local", plane.kubeconfig, tmp_path, {"install": "existing"}), plane.cluster

    def scale(e: dict[str, Any]) -> None:
        e["autoscaling"] = {**PROMETHEUS, "chart": str(chart(tmp_path))}
        e["models"][0]["decode"].pop("replicas")
        e["models"][0]["decode"]["autoscaling"] = {"minReplicaCount": 1, "maxReplicaCount": 8}

    engine.edit(scale)
    assert {s.op for s in engine.preview()} == {"create"}
    steps = engine.up()
    assert replicas(cluster)["qwen3-32b-decode"] == 1
    unchanged(engine)
    position = {s.urn: i for i, s in enumerate(steps)}

    def of(kind: str, suffix: str = "") -> list[int]:
        found = [i for urn, i in position.items() if kind in urn.split("::")[2] and urn.endswith(suffix)]
        assert found, kind
        return found

    operator = "index:Autoscaling$kubernetes:helm.sh/v4:Chart$kubernetes:apps/v1:Deployment"
    assert min(of(SCALED_TYPE)) > max(*of(operator), *of(LWS_TYPE))
    position = {s.urn: i for i, s in enumerate(s for s in engine.destroy() if s.op == "delete")}
    assert max(of(SCALED_TYPE)) < min(*of(operator), *of(LWS_TYPE))
    assert SCALED_OBJECTS in {c["metadata"]["name"] for c in cluster.items("crd")}
    assert not cluster.items(SCALED_OBJECTS)
    assert "create" in {s.op for s in engine.up()}
    engine.destroy()
