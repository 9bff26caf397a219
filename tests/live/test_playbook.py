"""The playbook's faults on the real parts: what each does there, and so why the project renders something else."""

from __future__ import annotations

import json
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import pytest
from disagg_serving import labels
from disagg_serving.planning.shapes import Layout
from factories import aggregated, environment, layout, role
from live.conftest import gpu_nodes
from live.workloads import FIRST, is_ready, messages, objects_of, pods

from bench.api import ApiError
from bench.cluster import Cluster, KubectlError

NAME = "m"
FAMILY = "eks.amazonaws.com/instance-family"
SMALL = {"tensorParallel": 1, "cpu": 4, "memoryGiB": 100}
"""A pod of one GPU that a p5.4xlarge can hold as well."""


def rendered(**overrides: Any) -> list[dict[str, Any]]:
    """Objects of one model in one small pod."""
    wanted: Layout = layout(environment(aggregated(model="qwen3-32b", maxModelLen=16384, server=role(**SMALL, **overrides))))
    return objects_of(wanted)


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The one object of a kind."""
    (found,) = [o for o in objects if o["kind"] == kind]
    return found


def pod_template(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """The pod template, to be spoilt in place."""
    template: dict[str, Any] = of_kind(objects, "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    return template


def apply(cluster: Cluster, objects: list[dict[str, Any]], without: Iterable[str] = ()) -> None:
    """Apply in two steps, without some kinds."""
    wanted = [o for o in objects if o["kind"] not in without]
    cluster.apply(o for o in wanted if o["kind"] in FIRST)
    cluster.apply(o for o in wanted if o["kind"] not in FIRST)


def test_gpu_requests_without_limits(cluster: Cluster) -> None:
    """Fault (b): GPUs requested and not limited. The set is accepted, and no pod ever comes: only an event tells why.

    So the project writes one mapping of devices into requests and limits.
    """
    objects = rendered()
    (engine,) = pod_template(objects)["spec"]["containers"]
    assert engine["resources"].pop("limits") == {labels.GPU: "1"}
    apply(cluster, objects, without=["NodePool", "NodeClass"])
    cluster.until(
        lambda: any("Limit must be set for non overcommitable resources" in m for m in messages(cluster, "FailedCreate", NAME)), "the refusal"
    )
    assert pods(cluster) == []


def test_role_taint_not_tolerated(cluster: Cluster) -> None:
    """Fault (a): role taints on the nodes that no pod tolerates. The pod stays Pending, its event names the taint, and no node is made.

    The admission plugin of EKS tolerates GPU taints by itself, never a role's: so the project makes taints and tolerations from one list.
    """
    objects = rendered()
    template = pod_template(objects)
    template["spec"]["tolerations"] = [t for t in template["spec"]["tolerations"] if t["key"] != labels.ROLE]
    apply(cluster, objects)
    cluster.until(lambda: any("did not tolerate taint" in m for m in messages(cluster, "FailedScheduling", NAME)), "Karpenter's reason")
    reason = next(m for m in messages(cluster, "FailedScheduling", NAME) if "did not tolerate taint" in m)
    assert f"taint={labels.ROLE}=server:NoSchedule" in reason
    (pod,) = pods(cluster)
    assert pod["status"]["phase"] == "Pending"
    assert "nodeName" not in pod["spec"]
    assert gpu_nodes(cluster) == cluster.items("nodeclaims") == []
    of_kind(objects, "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"]["workerTemplate"] = pod_template(rendered())
    apply(cluster, objects)
    cluster.until(lambda: all(map(is_ready, pods(cluster))) and len(gpu_nodes(cluster)) == 1, "with the toleration the pod runs")


@pytest.mark.parametrize("which", ["leaderTemplate", "workerTemplate"])
def test_volumes_beside_the_pod_spec(cluster: Cluster, which: str) -> None:
    """Fault (d): `volumes` beside `spec`. Strict validation refuses it; without it the volumes are dropped in silence.

    So the project applies with strict validation here, and puts volumes into the pod's spec.
    """
    wide = aggregated(model="glm-5-fp8", maxModelLen=65536, server=role(tensorParallel=8, pipelineParallel=2))
    objects = objects_of(layout(environment(wide)))
    manifest = of_kind(objects, "LeaderWorkerSet")
    template = manifest["spec"]["leaderWorkerTemplate"][which]
    template["volumes"] = template["spec"].pop("volumes")
    cluster.apply(o for o in objects if o["kind"] == "Namespace")
    with pytest.raises(KubectlError, match=rf'unknown field "?spec.leaderWorkerTemplate.{which}.volumes'):
        cluster.kubectl("create", "--validate=strict", "--dry-run=server", "-f", "-", stdin=json.dumps(manifest))
    with pytest.raises(ApiError, match=rf"{which}.*volumes"):
        cluster.apply([manifest], dry_run=True)
    loose = cluster.kubectl("create", "--validate=ignore", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(manifest))
    kept = json.loads(loose)["spec"]["leaderWorkerTemplate"][which]
    assert "volumes" not in kept
    assert "volumes" not in kept["spec"]


def test_instance_family_takes_the_small_type(cluster: Cluster) -> None:
    """Fault (g): a pool of the family p5. A small pod gets the cheaper p5.4xlarge, with one GPU and no GPUDirect RDMA; pinned, the type asked for.

    So the project's pools require the exact instance type.
    """
    objects = rendered()
    apply(cluster, objects)
    cluster.until(lambda: pods(cluster) and all(map(is_ready, pods(cluster))), "the pod on our pool")
    assert instance_types(cluster) == ["p5.48xlarge"]

    loose = deepcopy(of_kind(objects, "NodePool"))
    requirements = loose["spec"]["template"]["spec"]["requirements"]
    (exact,) = [r for r in requirements if r["key"] == labels.INSTANCE_TYPE]
    exact.update({"key": FAMILY, "values": ["p5"]})
    loose["metadata"]["name"] = "by-family"
    loose["spec"]["template"]["metadata"]["labels"][labels.POOL] = "by-family"
    pod_template(objects)["spec"]["nodeSelector"][labels.POOL] = "by-family"
    cluster.apply([loose, of_kind(objects, "LeaderWorkerSet")])

    def moved() -> bool:
        """Whether the new pod is there alone and ready: one more may start before the old one ends, and goes when the first is new."""
        (only,) = pods(cluster)
        place = only["spec"]["nodeSelector"][labels.POOL]
        return only["metadata"]["name"] == f"{NAME}-0" and place == "by-family" and is_ready(only)

    cluster.until(lambda: moved() and gpu_nodes(cluster, "by-family"), "the pod on the family's pool")
    (pod,) = pods(cluster)
    assert pod["spec"]["nodeSelector"][labels.POOL] == "by-family"
    assert set(instance_types(cluster, "by-family")) == {"p5.4xlarge"}


def instance_types(cluster: Cluster, pool: str | None = None) -> list[str]:
    """Instance types of the nodes that Karpenter made."""
    return [n["metadata"]["labels"][labels.INSTANCE_TYPE] for n in gpu_nodes(cluster, pool)]
