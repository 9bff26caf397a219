"""What live tests do with environments: apply what they render, wait, and read where the pods are."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from disagg_serving import labels
from disagg_serving.manifests.bundle import build_all
from disagg_serving.manifests.names import service_name
from disagg_serving.planning.placement import place
from disagg_serving.planning.shapes import Group, Layout

from bench.cluster import Cluster

FIRST = ("Namespace", "NodeClass", "PriorityClass")
"""Kinds that others refer to."""


def objects_of(layout: Layout) -> list[dict[str, Any]]:
    """Everything that an environment renders, without Pulumi's placeholder for a secret."""
    return [o for o in build_all(layout) if o["kind"] != "Secret"]


def deploy(cluster: Cluster, layout: Layout) -> None:
    """Apply an environment with strict validation, and see its pools ready."""
    objects = objects_of(layout)
    cluster.apply(o for o in objects if o["kind"] in FIRST)
    cluster.apply(o for o in objects if o["kind"] not in FIRST)
    cluster.until(lambda: all(_is(p, "Ready") for p in cluster.items("nodepools")), "pools ready", 30)


def settle(cluster: Cluster, layout: Layout, seconds: float = 90) -> None:
    """Wait until every pod that the layout counts is ready."""
    expected = {p for g in layout.groups for names in g.pods() for p in names}
    cluster.until(lambda: {p["metadata"]["name"] for p in pods(cluster) if _is(p, "Ready")} == expected, "all pods ready", seconds)


def pods(cluster: Cluster, set_name: str | None = None) -> list[dict[str, Any]]:
    """Pods of LeaderWorkerSets, of one or of all."""
    return cluster.items("pods", selector=labels.LWS_NAME if set_name is None else f"{labels.LWS_NAME}={set_name}")


def planned(layout: Layout) -> dict[str, list[list[str]]]:
    """Pods by node by pool, as the plan says, nodes in a fixed order."""
    return {pool: sorted(sorted(n.pods) for n in nodes) for pool, _, nodes in place(layout)}


def actual(cluster: Cluster) -> dict[str, list[list[str]]]:
    """Pods by node by pool, as scheduler and Karpenter placed them."""
    pool_of = {n["metadata"]["name"]: n["metadata"]["labels"].get("karpenter.sh/nodepool", "") for n in cluster.items("nodes")}
    by_node: dict[str, list[str]] = defaultdict(list)
    for pod in pods(cluster):
        by_node[pod["spec"].get("nodeName", "")].append(pod["metadata"]["name"])
    by_pool: dict[str, list[list[str]]] = defaultdict(list)
    for node, names in by_node.items():
        by_pool[pool_of.get(node, "")].append(sorted(names))
    return {pool: sorted(nodes) for pool, nodes in by_pool.items()}


def is_ready(pod: dict[str, Any]) -> bool:
    """Whether a pod is ready."""
    return _is(pod, "Ready")


def _is(thing: dict[str, Any], condition: str) -> bool:
    return any(c["type"] == condition and c["status"] == "True" for c in thing.get("status", {}).get("conditions") or [])


def uids(cluster: Cluster, set_name: str | None = None) -> dict[str, str]:
    """Identity of each pod by its name: a pod that was made again has another."""
    return {p["metadata"]["name"]: p["metadata"]["uid"] for p in pods(cluster, set_name)}


def messages(cluster: Cluster, reason: str, about: str = "") -> list[str]:
    """Messages of the events with a reason, of objects whose name starts with `about`."""
    found = [e for e in cluster.items("events") if e["reason"] == reason]
    return [e["message"] for e in found if e["involvedObject"].get("name", "").startswith(about)]


def set_status(cluster: Cluster, set_name: str) -> dict[str, Any]:
    """Status of a LeaderWorkerSet."""
    (found,) = [s for s in cluster.items("leaderworkersets") if s["metadata"]["name"] == set_name]
    status: dict[str, Any] = found.get("status", {})
    return status


def is_available(cluster: Cluster, set_name: str) -> bool:
    """Whether a LeaderWorkerSet says that it serves, which is what the stack waits for."""
    return _is({"status": set_status(cluster, set_name)}, "Available")


def endpoints_of(cluster: Cluster, group: Group, wanted: set[str]) -> dict[str, dict[str, Any]]:
    """Endpoints of a role's Service, once they are these pods."""
    cluster.until(lambda: set(endpoints(cluster, group)) == wanted, f"endpoints of {service_name(group)}")
    return endpoints(cluster, group)


def endpoints(cluster: Cluster, group: Group) -> dict[str, dict[str, Any]]:
    """Endpoints of a role's Service by pod."""
    slices = cluster.items("endpointslices", group.namespace, f"kubernetes.io/service-name={service_name(group)}")
    return {e["targetRef"]["name"]: e for s in slices for e in s.get("endpoints") or []}
