"""What Prometheus is told to read: ports that pods have, which policies let it reach, and which answer with metrics."""

from __future__ import annotations

import json
from typing import Any

import pytest
from disagg_serving import labels
from disagg_serving.manifests.bundle import charts, images
from disagg_serving.manifests.gateway import router_values
from disagg_serving.manifests.names import router_labels
from disagg_serving.manifests.network_policy import PROXY_READY_PORT
from disagg_serving.manifests.observability.dcgm import exporter_values
from disagg_serving.planning.shapes import Layout
from factories import environment, layout, model, role
from network_policies import Network, Place
from watched import ALL, ENVIRONMENTS, OLD, objects, pair, watched

PROMETHEUS = Place("prometheus-0", "10.0.9.9", "monitoring", {labels.APP_NAME: "prometheus"})
STRANGER = Place("shell", "10.0.9.10", "default", {labels.APP_NAME: "prometheus"})
ROUTER_PORTS = {9090, 8081, 19001}
"""Ports that the router's chart declares on its pod (llm-d-router v0.10.0: routerlib/templates/_deployment.yaml, standalone values)."""
CHART_VALUES = {
    "affinity", "extraConfigMapVolumes", "extraVolumeMounts", "fullnameOverride", "image.repository", "image.tag", "securityContext",
    "service.enable", "serviceMonitor.enabled", "tolerations",
}  # fmt: skip
"""Values that we set and that the DCGM exporter's chart 4.8.2 reads (NVIDIA/dcgm-exporter, tag 4.5.3-4.8.2: deployment/values.yaml)."""


def pods_of(wanted: Layout) -> list[tuple[Place, set[int]]]:
    """Every kind of pod of an environment with the ports that it declares: leaders, workers, routers, exporters."""
    found: list[tuple[Place, set[int]]] = []
    for lws in objects(wanted, "LeaderWorkerSet"):
        spec, name, namespace = lws["spec"]["leaderWorkerTemplate"], lws["metadata"]["name"], lws["metadata"]["namespace"]
        templates = {"0": spec.get("leaderTemplate", spec["workerTemplate"])}
        if spec["size"] > 1:
            templates["1"] = spec["workerTemplate"]
        for index, template in templates.items():
            carried = {**template["metadata"]["labels"], labels.LWS_NAME: name, labels.LWS_WORKER_INDEX: index}
            containers = [*template["spec"].get("initContainers", []), *template["spec"]["containers"]]
            ports = {p["containerPort"] for c in containers for p in c.get("ports", [])}
            found.append((Place(f"{name}-0-{index}", f"10.0.1.{len(found) + 1}", namespace, carried), ports))
    for served in wanted.served:
        if served.spec.gateway.enabled:
            place = Place("router", f"10.0.1.{len(found) + 1}", served.spec.kubernetes_namespace, router_labels(served))
            found.append((place, ROUTER_PORTS))
    if wanted.spec.observability.dcgm_exporter == "chart":
        carried = {labels.APP_NAME: "dcgm-exporter", labels.APP_INSTANCE: "dcgm-exporter"}
        found.append((Place("exporter", "10.0.1.99", "dcgm-exporter", carried), {9400}))
    return found


def targets(wanted: Layout) -> list[tuple[str, Place, int, set[int], dict[str, Any]]]:
    """What each PodMonitor selects: its name, the pod, the port, the pod's ports, and the endpoint."""
    found = []
    for monitor in objects(wanted, "PodMonitor"):
        selector = monitor["spec"]["selector"]["matchLabels"].items()
        for place, ports in pods_of(wanted):
            if place.namespace == monitor["metadata"]["namespace"] and selector <= place.labels.items():
                found += [(monitor["metadata"]["name"], place, e["portNumber"], ports, e) for e in monitor["spec"]["podMetricsEndpoints"]]
    return found


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_target_has_its_port_and_is_open_to_prometheus_alone(name: str) -> None:
    """A port that the pod does not declare is dropped by Prometheus, and one that the policy closes is a target that is always down."""
    wanted = watched(name)
    namespaces = {o["metadata"]["name"]: o["metadata"].get("labels", {}) for o in objects(wanted, "Namespace")}
    network = Network(objects(wanted, "NetworkPolicy"), {**namespaces, "monitoring": {}, "default": {}})
    seen = targets(wanted)
    assert {t[0] for t in seen} == {o["metadata"]["name"] for o in objects(wanted, "PodMonitor")}, "a monitor selects nothing"
    for monitor, place, port, ports, _ in seen:
        assert port in ports, monitor
        assert network.allows(PROMETHEUS, place, port), monitor
        if port != PROXY_READY_PORT:  # readiness, which addresses of the VPC may ask for (docs/security.md)
            assert not network.allows(STRANGER, place, port), monitor


def test_leaders_are_read_and_workers_are_not() -> None:
    """Workers of a group have no HTTP server, so they would be targets that are always down."""
    seen = [place.name for monitor, place, *_ in targets(watched("groups")) if monitor == "big"]
    assert seen == ["big-0-0"]


def test_decode_is_read_through_its_sidecar_once() -> None:
    """The engine's own port behind the sidecar is closed to Prometheus; both containers name their port alike, so monitors go by number."""
    seen = [(port, e) for monitor, _, port, _, e in targets(watched("prefill and decode")) if monitor == "m-decode"]
    assert [port for port, _ in seen] == [8000]
    assert seen[0][1]["relabelings"] == [{"targetLabel": "model", "replacement": "m"}, {"targetLabel": "role", "replacement": "decode"}]


def test_a_candidate_is_read_and_taken_for_nothing_else() -> None:
    """Its leaders are targets once, under a model of their own, which no dashboard and no alert reads; activated it is the model."""
    wanted = watched("scaled, with a candidate")
    seen = {monitor: (place.name, e["relabelings"]) for monitor, place, _, _, e in targets(wanted) if monitor.startswith("m-b-")}
    assert {name: place for name, (place, _) in seen.items()} == {"m-b-prefill": "m-b-prefill-0-0", "m-b-decode": "m-b-decode-0-0"}
    assert {r["replacement"] for _, added in seen.values() for r in added if r["targetLabel"] == "model"} == {"m-b"}
    read = [o for kind in ("ConfigMap", "PrometheusRule", "ScaledObject") for o in objects(wanted, kind)]
    assert len(read) > 4
    assert "m-b" not in json.dumps(read)
    active = pair(decode=role(replicas=4), candidate={"generation": "b", "engine": OLD, "activate": True})
    found = {o["metadata"]["name"]: json.dumps(o) for o in objects(layout(environment(active, observability=ALL)), "PodMonitor")}
    assert '"replacement": "m-b"' not in "".join(found.values())
    assert '{"targetLabel": "model", "replacement": "m"}' in found["m-b-prefill"]


def test_the_router_is_read_at_picker_and_envoy() -> None:
    """Two processes answer in the router's pod, each with a path of its own; the picker asks for no token."""
    wanted = watched("prefill and decode")
    seen = {port: e["path"] for monitor, _, port, _, e in targets(wanted) if monitor == "m-router"}
    assert seen == {9090: "/metrics", 19001: "/stats/prometheus"}
    values = router_values(wanted.served[0], wanted.groups)
    assert values["router"]["monitoring"] == {"prometheus": {"auth": {"enabled": False}}}


def test_gpu_metrics_keep_the_labels_of_whoever_holds_the_gpu() -> None:
    """The exporter says which pod uses a GPU; with the target's labels winning, every GPU would belong to the exporter."""
    (monitor,) = [o for o in objects(watched("groups"), "PodMonitor") if o["metadata"]["name"] == "dcgm-exporter"]
    assert [e["honorLabels"] for e in monitor["spec"]["podMetricsEndpoints"]] == [True]


def test_the_exporter_has_the_one_right_that_it_needs() -> None:
    """SYS_ADMIN and nothing else; it runs in a namespace of its own that says so, and no other namespace changes for it."""
    wanted = watched("prefill and decode")
    assert exporter_values(wanted)["securityContext"]["capabilities"] == {"add": ["SYS_ADMIN"], "drop": ["ALL"]}
    assert not exporter_values(wanted)["securityContext"].get("privileged", False)
    (own,) = [o for o in objects(wanted, "Namespace") if o["metadata"]["name"] == "dcgm-exporter"]
    assert own["metadata"]["labels"][labels.POD_SECURITY_ENFORCE] == "privileged"
    before = {o["metadata"]["name"]: o for o in objects(layout(environment(model(), observability={})), "Namespace")}
    assert before["m"] == next(o for o in objects(layout(environment(model(), observability=ALL)), "Namespace") if o["metadata"]["name"] == "m")


@pytest.mark.parametrize("name", ["prefill and decode", "without Auto Mode"])
def test_the_exporter_runs_on_the_roles_nodes(name: str) -> None:
    """It tolerates every taint of the pools, and goes nowhere else."""
    wanted = watched(name)
    values = exporter_values(wanted)
    assert [dict(t) for t in values["tolerations"]] == [dict(t) for g in wanted.groups for t in g.tolerations if t in values["tolerations"]][
        : len(values["tolerations"])
    ]
    for group in wanted.groups:
        assert all(dict(t) in values["tolerations"] for t in group.tolerations)
    (term,) = values["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    key = term["matchExpressions"][0]["key"]
    assert key == (labels.ROLE if wanted.pools else labels.INSTANCE_TYPE)


def test_the_exporters_chart_reads_what_it_is_given() -> None:
    """Helm ignores values that a chart does not know, so a misspelt one would change nothing."""
    values = exporter_values(watched("groups"))
    flat = {
        f"{k}.{inner}" if k in ("image", "service", "serviceMonitor") else k
        for k, v in values.items()
        for inner in (v if isinstance(v, dict) else [""])
    }
    assert flat == CHART_VALUES


def test_the_exporter_starts_by_a_script_that_lies_over_its_own() -> None:
    """The mounted file is the one that the ConfigMap has, and it can be executed."""
    wanted = watched("groups")
    values = exporter_values(wanted)
    (volume,) = [v for v in values["extraConfigMapVolumes"] if v["name"] == "start"]
    (mount,) = [m for m in values["extraVolumeMounts"] if m["name"] == "start"]
    (script,) = [o for o in objects(wanted, "ConfigMap") if o["metadata"]["name"] == volume["configMap"]["name"]]
    assert script["data"][mount["subPath"]].startswith("#!/bin/sh\n")
    assert volume["configMap"]["defaultMode"] == 0o755


def test_mirrors_and_lists_know_the_exporter() -> None:
    """Its image and chart are listed for an air gap, and read from the mirror."""
    asked = {**ALL, "dcgmChart": "oci://mirror.example.com/charts/dcgm-exporter"}
    wanted = layout(environment(model(), observability=asked, imageSources={"nvcr.io/nvidia": "mirror.example.com/nvidia"}))
    assert "mirror.example.com/nvidia/k8s/dcgm-exporter:4.5.3-4.8.2-ubuntu22.04" in images(wanted)
    assert "oci://mirror.example.com/charts/dcgm-exporter:4.8.2" in charts(wanted)
    assert exporter_values(wanted)["image"]["repository"] == "mirror.example.com/nvidia/k8s/dcgm-exporter"
