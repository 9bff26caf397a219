"""NVIDIA's DCGM exporter on the GPU nodes, in the form that Bottlerocket, and so EKS Auto Mode, lets run.

It is not privileged, but has the capability SYS_ADMIN: without it Bottlerocket's container runtime gives no GPU to a container that asked
for none (https://github.com/bottlerocket-os/bottlerocket/issues/3992), and DCGM reads no profiling counters. A folder of the kubelet tells
it which pod holds which GPU. That it starts on Auto Mode is not proven here: see docs/observability.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import labels
from ...pins import DCGM_CHART, DCGM_IMAGE
from ...planning.image_sources import located
from ...planning.observability import EXPORTER_NAMESPACE
from ...planning.shapes import Layout
from ...spec import EnvironmentSpec, ObservabilitySpec
from ..lws import is_local
from .monitors import endpoint, pod_monitor

RELEASE, PORT = "dcgm-exporter", 9400
POD_LABELS = {labels.APP_NAME: RELEASE, labels.APP_INSTANCE: RELEASE}
"""Labels of its pods, as the chart makes them of its name and the release's."""
SCRIPT, ENTRYPOINT = "dcgm-exporter-entrypoint.sh", "/usr/local/dcgm/dcgm-exporter-entrypoint.sh"
FIELDS, FIELDS_FILE = "exporter-metrics-config-map", "/etc/dcgm-exporter/default-counters.csv"
"""The chart's ConfigMap of fields, and where it mounts it: its lists of volumes are replaced by ours, so ours repeat that one."""
START = """#!/bin/sh
# the container runtime of newer Bottlerocket writes the linker's cache anew and leaves DCGM out (NVIDIA/dcgm-exporter#636)
ldconfig
exec /usr/bin/dcgm-exporter "$@"
"""


def exporter_chart(spec: EnvironmentSpec) -> tuple[str, str | None]:
    """Chart and version; a chart in a folder or archive has none."""
    chart = spec.observability.dcgm_chart or DCGM_CHART.location
    return (chart, None) if is_local(chart) else (located(chart, spec.image_sources), DCGM_CHART.version)


def exporter_image(spec: EnvironmentSpec) -> str:
    """The exporter's image, from where it is read."""
    return located(DCGM_IMAGE, spec.image_sources)


def build_exporter_base(layout: Layout) -> list[dict[str, Any]]:
    """What the chart is installed into: a namespace of its own, closed but for Prometheus, and the script that starts it."""
    privileged = {labels.POD_SECURITY_ENFORCE: "privileged"}
    namespace = {"name": EXPORTER_NAMESPACE, "labels": {labels.MANAGED_BY: labels.OWNER, **privileged}}
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": namespace},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata("dcgm-exporter-start"), "data": {SCRIPT: START}},
    ]
    policy = layout.spec.network_policy
    if policy.enabled:
        peers = [
            {
                "namespaceSelector": {"matchLabels": {labels.NAMESPACE_NAME: policy.prometheus_namespace}},
                "podSelector": {"matchLabels": {labels.APP_NAME: labels.PROMETHEUS_NAME}},
            }
        ]
        rule = {"from": peers, "ports": [{"protocol": "TCP", "port": PORT}]}
        objects.append(
            {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "NetworkPolicy",
                "metadata": _metadata("dcgm-exporter"),
                "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [rule]},
            }
        )
    return objects


def build_exporter_monitor(asked: ObservabilitySpec) -> dict[str, Any]:
    """The exporter's PodMonitor. Labels of its series win over those of the target: namespace and pod are of whoever holds the GPU."""
    return pod_monitor(_metadata("dcgm-exporter"), POD_LABELS, [endpoint(PORT, "/metrics", asked, {}, honorLabels=True)], asked)


def exporter_values(layout: Layout) -> dict[str, Any]:
    """Values of the chart: on nodes of the roles alone, tolerating their taints."""
    repository, tag = exporter_image(layout.spec).rsplit(":", 1)
    volume = "start"
    return {
        "fullnameOverride": RELEASE,
        "image": {"repository": repository, "tag": tag},
        "serviceMonitor": {"enabled": False},
        "service": {"enable": False},
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [_nodes(layout)]}]}}
        },
        "tolerations": _tolerations(layout),
        "securityContext": {
            "runAsNonRoot": False,
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "capabilities": {"add": ["SYS_ADMIN"], "drop": ["ALL"]},
        },
        "extraConfigMapVolumes": [
            {"name": "exporter-metrics-volume", "configMap": {"name": FIELDS, "items": [{"key": "metrics", "path": "default-counters.csv"}]}},
            {"name": volume, "configMap": {"name": "dcgm-exporter-start", "defaultMode": 0o755}},
        ],
        "extraVolumeMounts": [
            {"name": "exporter-metrics-volume", "mountPath": FIELDS_FILE, "subPath": "default-counters.csv"},
            {"name": volume, "mountPath": ENTRYPOINT, "subPath": SCRIPT},
        ],
    }


def _nodes(layout: Layout) -> dict[str, Any]:
    """Nodes of the roles: by our label where we make them, else by instance type."""
    if layout.pools:
        return {"key": labels.ROLE, "operator": "Exists"}
    return {"key": labels.INSTANCE_TYPE, "operator": "In", "values": sorted({g.instance.id for g in layout.groups})}


def _tolerations(layout: Layout) -> list[dict[str, Any]]:
    """Every taint that a role's pods tolerate, once."""
    found: list[dict[str, Any]] = []
    for toleration in (dict(t) for g in layout.groups for t in g.tolerations):
        if toleration not in found:
            found.append(toleration)
    return found


def _metadata(name: str) -> Mapping[str, Any]:
    return {"name": name, "namespace": EXPORTER_NAMESPACE, "labels": {labels.MANAGED_BY: labels.OWNER}}
