"""Nodes that somebody else made: what pools hold by construction is made by affinity, or warned of."""

from __future__ import annotations

from typing import Any

import pytest
from disagg_serving import labels
from disagg_serving.errors import Finding
from disagg_serving.manifests.bundle import build_all
from factories import aggregated, check, environment, layout, model, role

ZONE = {labels.ZONE: "us-east-1a"}


def existing(*models: dict[str, Any]) -> dict[str, Any]:
    """An environment on nodes that exist."""
    data = environment(*models, cluster=None, network=None, existingCluster={"kubeconfig": "kubeconfig", "autoMode": False})
    for one in data["models"]:
        one.setdefault("gateway", {"enabled": False})
    return data


def on(**overrides: Any) -> dict[str, Any]:
    """A role on nodes chosen by labels of one zone."""
    return role(tensorParallel=4, **{"nodeSelector": {"gpu": "p5", **ZONE}, **overrides})


def pods(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The pod of each LeaderWorkerSet."""
    sets = [o for o in build_all(layout(data)) if o["kind"] == "LeaderWorkerSet"]
    return {o["metadata"]["name"]: o["spec"]["leaderWorkerTemplate"]["workerTemplate"] for o in sets}


def said(data: dict[str, Any]) -> list[Finding]:
    """What the rule says."""
    return [f for f in check(data).findings if f.id == "existing-nodes"]


def matches(term: dict[str, Any], given: dict[str, str]) -> bool:
    """Whether a term's selector takes a pod."""
    selector = term["labelSelector"]
    return selector["matchLabels"].items() <= given.items() and all(given.get(e["key"]) in e["values"] for e in selector["matchExpressions"])


def test_roles_keep_off_each_others_nodes() -> None:
    """Four and four GPUs fit one p5, where KV could not move: each role repels the other, and neither itself nor another model."""
    found = pods(existing(model(prefill=on(), decode=on()), model(name="n", prefill=on(), decode=on())))
    for name, other in (("m-prefill", "m-decode"), ("m-decode", "m-prefill")):
        (term,) = found[name]["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["topologyKey"] == "kubernetes.io/hostname"
        repelled = {n for n, pod in found.items() if matches(term, pod["metadata"]["labels"])}
        assert repelled == {other}


def test_pools_and_servers_need_no_affinity() -> None:
    """Roles have nodes of their own by their pools, and a server moves no KV."""
    assert all("affinity" not in pod["spec"] for pod in pods(environment(model())).values())
    assert all("affinity" not in pod["spec"] for pod in pods(existing(aggregated(server=on()))).values())


@pytest.mark.parametrize(
    ("prefill", "decode", "words"),
    [
        ({}, {}, ""),
        ({"gpu": "p5"}, {"gpu": "p5"}, "no zone"),
        ({"gpu": "p5", labels.ZONE: "us-east-1a"}, {"gpu": "p5", labels.ZONE: "us-east-1b"}, "several zones"),
    ],
)
def test_one_zone_for_pods_that_talk_over_efa(prefill: dict[str, str], decode: dict[str, str], words: str) -> None:
    """EFA does not cross zones, so a selector that spans them is warned of."""
    sides = {"prefill": on(**({"nodeSelector": prefill} if prefill else {})), "decode": on(**({"nodeSelector": decode} if decode else {}))}
    found = said(existing(model(**sides)))
    assert [f.level.value for f in found] == (["warning"] if words else [])
    assert all(words in f.message for f in found)
    assert not said(existing(aggregated(server=on(nodeSelector={"gpu": "p5"}))))


def test_tolerations_of_ones_own_keep_that_of_gpus() -> None:
    """A list replaces the default, so a list without nvidia.com/gpu leaves pods Pending on usual GPU nodes."""
    other = {"key": "team", "operator": "Exists"}
    (finding,) = said(existing(aggregated(server=on(tolerations=[other]))))
    assert finding.path == "models[0].server.tolerations"
    assert not said(existing(aggregated(server=on(tolerations=[other, {"key": "nvidia.com/gpu", "operator": "Exists"}]))))


def test_pull_secrets_reach_every_pod_of_the_model() -> None:
    """Engines and the mirror's Job pull from registries that ask for a login."""
    weights = {"revision": "0" * 40, "s3": {"bucket": "b-123"}, "mirror": True}
    found = [
        o for o in build_all(layout(environment(aggregated(imagePullSecrets=["hub"], weights=weights)))) if o["kind"] in {"LeaderWorkerSet", "Job"}
    ]
    specs = [o["spec"]["template"]["spec"] if o["kind"] == "Job" else o["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"] for o in found]
    assert [s["imagePullSecrets"] for s in specs] == [[{"name": "hub"}]] * 2
