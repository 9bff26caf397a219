"""Whether the real API server, with the real CRDs and webhooks, takes what the project renders."""

from __future__ import annotations

import json
import re
from collections import Counter
from copy import deepcopy
from typing import Any

import pytest
from disagg_serving.planning.shapes import Layout
from disagg_serving.rules.evaluation import evaluate_file
from disagg_serving.rules.trials import Trials
from disagg_serving.spec.stack_file import find_project
from factories import SHIPPED, STACKS, aggregated, check, environment, layout, model
from generator import Generator
from hypothesis import HealthCheck, assume, given, settings
from live.keda import install_crds
from live.workloads import objects_of

from bench.api import ApiError
from bench.cluster import Cluster

SPECS = 300
VALIDATED = re.compile(r'^apiserver_admission_webhook_request_total\{.*name="vleaderworkerset\.kb\.io".*rejected="false".*\} (\d+)$', re.MULTILINE)


def try_all(cluster: Cluster, layouts: list[Layout]) -> Counter[str]:
    """Make the namespaces, then try every object without keeping it; equal ones once. Kinds with how many of each were tried."""
    rendered = [o for wanted in layouts for o in objects_of(wanted)]
    objects = [json.loads(text) for text in dict.fromkeys(json.dumps(o, sort_keys=True) for o in rendered)]
    if any(o["kind"] == "ScaledObject" for o in objects):
        install_crds(cluster)
    cluster.apply({o["metadata"]["name"]: o for o in objects if o["kind"] == "Namespace"}.values())
    said = cluster.apply(objects, dry_run=True)
    assert [(o["kind"], o["metadata"]["name"]) for o in said] == [(o["kind"], o["metadata"]["name"]) for o in objects]
    return Counter(o["kind"] for o in objects)


def pod_owners(layouts: list[Layout]) -> list[dict[str, Any]]:
    """The StatefulSets that the LWS controller would make: their pod templates are checked field by field, those of a set are not."""
    owners = []
    for manifest in (o for wanted in layouts for o in objects_of(wanted) if o["kind"] == "LeaderWorkerSet"):
        templates = manifest["spec"]["leaderWorkerTemplate"]
        for which in ("leaderTemplate", "workerTemplate"):
            if which in templates:
                template = deepcopy(templates[which])
                template["metadata"]["labels"]["of"] = "bench"
                owners.append(
                    {
                        "apiVersion": "apps/v1",
                        "kind": "StatefulSet",
                        "metadata": {"name": which.lower(), "namespace": "default"},
                        "spec": {"serviceName": "x", "selector": {"matchLabels": {"of": "bench"}}, "template": template},
                    }
                )
    return [json.loads(text) for text in dict.fromkeys(json.dumps(o, sort_keys=True) for o in owners)]


def validations(cluster: Cluster) -> int:
    """How many LeaderWorkerSets the validating webhook has let pass, as the API server counts them."""
    return sum(int(count) for count in VALIDATED.findall(cluster.api.ask("GET", "/metrics", headers={"Accept": "text/plain"})))


def stack_layout(stack: str) -> Layout:
    """The layout of a stack file."""
    return evaluate_file(find_project(SHIPPED).stack_file(stack), SHIPPED).require_layout()


def test_stacks_are_accepted(cluster: Cluster) -> None:
    """Every object of the five stacks passes strict field validation, and each LeaderWorkerSet also the LWS webhook."""
    for stack in STACKS:
        before = validations(cluster)
        kinds = try_all(cluster, [stack_layout(stack)])
        assert validations(cluster) - before == kinds["LeaderWorkerSet"] > 0
        assert {"NodePool", "NodeClass", "Service", "NetworkPolicy", "PodDisruptionBudget", "ServiceAccount", "PriorityClass"} <= set(kinds)


def test_random_specs_are_accepted(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The objects of 300 random valid environments pass strict field validation, the LWS webhook and the checks of pod templates."""
    # how a refused environment could be mended is nothing that this test asks, and trying that out takes most of the time
    monkeypatch.setattr(Trials, "working", lambda *_: [])
    layouts: list[Layout] = []

    @settings(max_examples=SPECS, database=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
    @given(Generator(80).environment())
    def collect(data: dict[str, Any]) -> None:
        result = check(data)
        assume(result.ok)
        layouts.append(result.require_layout())

    collect()
    assert len(layouts) >= SPECS
    sizes = {g.size for wanted in layouts for g in wanted.groups}
    assert {1, 2} <= sizes
    assert {g.role for wanted in layouts for g in wanted.groups} == {"prefill", "decode", "server"}
    before = validations(cluster)
    kinds = try_all(cluster, layouts)
    assert validations(cluster) - before == kinds["LeaderWorkerSet"] > SPECS / 2
    assert min(kinds[k] for k in ("NetworkPolicy", "Service", "Job", "ScaledObject")) > SPECS / 20
    owners = pod_owners(layouts)
    assert len(cluster.apply(owners, dry_run=True)) == len(owners) > SPECS / 2


def test_unknown_fields_are_refused(cluster: Cluster) -> None:
    """The checks above can fail: one unknown field is enough in every kind, but for NodeClass, whose schema is in no public module."""
    wanted = layout(environment(model()))
    objects = {o["kind"]: o for o in objects_of(wanted)}
    cluster.apply(o for o in objects.values() if o["kind"] == "Namespace")
    for kind in sorted(set(objects) - {"NodeClass"}):
        with pytest.raises(ApiError, match=r"(?s)(unknown field|field not declared in schema).*"):
            cluster.apply([{**objects[kind], "surplus": 1}], dry_run=True)
    deep = deepcopy(objects["LeaderWorkerSet"])
    deep["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["resources"]["limit"] = {}
    with pytest.raises(ApiError, match="limit"):
        cluster.apply([deep], dry_run=True)


def test_webhook_refuses(cluster: Cluster) -> None:
    """The LWS webhook is really asked: it refuses a rollout that could never advance, which the CRD's schema lets pass."""
    (manifest,) = [o for o in objects_of(layout(environment(aggregated()))) if o["kind"] == "LeaderWorkerSet"]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": manifest["metadata"]["namespace"]}}
    cluster.apply([namespace])
    cluster.apply([manifest], dry_run=True)
    manifest["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"] = {"maxUnavailable": 0, "maxSurge": 0}
    with pytest.raises(ApiError, match=r'admission webhook "vleaderworkerset.kb.io" denied the request'):
        cluster.apply([manifest], dry_run=True)


def test_bad_pod_templates_are_refused(cluster: Cluster) -> None:
    """A LeaderWorkerSet with a pod that cannot be is accepted, its StatefulSet is not: so templates are tried as StatefulSets above."""
    bad = pod_owners([layout(environment(aggregated()))])
    bad[0]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"][0]["name"] = "missing"
    with pytest.raises(ApiError, match='Not found: "missing"'):
        cluster.apply(bad, dry_run=True)
