"""What protects a pod, the way in and a folder, said as what must not happen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from disagg_serving import labels
from disagg_serving.errors import SpecError
from disagg_serving.forecast.cost import HOURS_A_MONTH
from disagg_serving.forecast.fit.kv import KvPlan
from disagg_serving.forecast.fit.start_log import parse_log
from disagg_serving.manifests.bundle import build_all
from disagg_serving.manifests.envoy import envoy_config
from disagg_serving.planning.placement import Node, pack
from disagg_serving.planning.shapes import Requests, room_of
from disagg_serving.report.files import INDEX, write_files
from factories import aggregated, environment, layout, model

CERTIFICATE = "arn:aws:acm:us-east-1:123456789012:certificate/11111111-2222-3333-4444-555555555555"
MIRROR = {"revision": "0123456789abcdef0123456789abcdef01234567", "s3": {"bucket": "weights-of-prod"}, "mirror": True}


def objects(*models: dict[str, Any]) -> list[dict[str, Any]]:
    """All generated objects of an environment of these models."""
    return build_all(layout(environment(*models)))


def containers(value: Any) -> list[dict[str, Any]]:
    """Every container of an object, wherever it stands."""
    if isinstance(value, dict):
        own = value.get("containers", []) + value.get("initContainers", []) if isinstance(value.get("containers"), list) else []
        return own + [c for inner in value.values() for c in containers(inner)]
    return [c for inner in value for c in containers(inner)] if isinstance(value, list) else []


def test_no_container_gains_privileges() -> None:
    """No container of an engine, a sidecar or a Job may gain more privileges than its parent process."""
    found = [c for o in objects(model(weights=MIRROR)) for c in containers(o)]
    assert {c["name"] for c in found} >= {"vllm"}
    assert [c["name"] for c in found if c.get("securityContext", {}).get("allowPrivilegeEscalation") is not False] == []


def test_the_mirror_keeps_no_capability() -> None:
    """The Job that downloads needs none, so what it downloads cannot use one."""
    (job,) = [o for o in objects(model(weights=MIRROR)) if o["kind"] == "Job"]
    assert all(c["securityContext"]["capabilities"] == {"drop": ["ALL"]} for c in containers(job))


def test_a_namespace_is_privileged_only_for_efa() -> None:
    """A model on one node without EFA stays within the baseline of pod security; one that moves KV over EFA cannot."""

    def level(one: dict[str, Any]) -> str:
        (namespace,) = [o for o in objects(one) if o["kind"] == "Namespace" and o["metadata"]["name"] == "m"]
        return str(namespace["metadata"]["labels"][labels.POD_SECURITY_ENFORCE])

    assert (level(aggregated()), level(model())) == ("baseline", "privileged")


def test_the_load_balancer_speaks_no_old_tls() -> None:
    """With a certificate the listener takes TLS 1.2 and 1.3 alone: AWS's older policies begin with TLS 1.0."""
    (service,) = [o for o in objects(aggregated(gateway={"certificateArn": CERTIFICATE})) if o.get("spec", {}).get("type") == "LoadBalancer"]
    (policy,) = [v for k, v in service["metadata"]["annotations"].items() if k.endswith("ssl-negotiation-policy")]
    assert policy.startswith("ELBSecurityPolicy-TLS13-1-2-")


def test_envoy_refuses_what_engines_would_read_otherwise() -> None:
    """Paths are made one before they are matched, odd ones refused, and no client chooses the rank that answers."""
    (listener,) = [found for found in envoy_config(60)["static_resources"]["listeners"] if found["name"] == "clients"]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    assert (manager["normalize_path"], manager["merge_slashes"]) == (True, True)
    assert manager["path_with_escaped_slashes_action"] == "REJECT_REQUEST"
    assert manager["common_http_protocol_options"]["headers_with_underscores_action"] == "REJECT_REQUEST"
    removed = manager["http_filters"][0]["typed_config"]["mutations"]["request_mutations"]
    assert {"remove": "x-data-parallel-rank"} in removed


def test_render_removes_nothing_outside_its_folder(tmp_path: Path) -> None:
    """An index that names a file elsewhere, as one from somebody else's branch may, deletes nothing."""
    outside, folder = tmp_path / "keep.yaml", tmp_path / "out"
    outside.write_text("keep\n")
    folder.mkdir()
    (folder / "09-configmap-old.yaml").write_text("old\n")
    (folder / INDEX).write_text(f"../keep.yaml\n{outside}\n09-configmap-old.yaml\n")
    write_files([{"kind": "Namespace", "metadata": {"name": "n"}}], folder)
    assert (outside.exists(), (folder / "09-configmap-old.yaml").exists()) == (True, False)


def test_a_node_without_disk_takes_no_pod() -> None:
    """Local disk is counted like GPUs: the second pod of 60 of 100 GiB goes elsewhere."""
    node, pod = Node(Requests(disk_gib=100)), Requests(disk_gib=60)
    assert node.holds(pod) == 1


def test_of_pods_with_equal_cpu_the_one_with_more_memory_is_placed_first() -> None:
    """Karpenter sorts pods by CPU, then memory, largest first; the plan fills its nodes in the same order."""
    small, large = (
        aggregated(name=name, server={"instanceType": "p5.48xlarge", "tensorParallel": 2, "cpu": 8, "memoryGiB": gib})
        for name, gib in (("a", 64), ("b", 128))
    )
    groups = layout(environment(small, large)).groups
    assert [pod.split("-")[0] for node in pack(groups) for pod in node.pods] == ["b", "a"]


def test_full_nodes_are_passed_over_and_others_filled() -> None:
    """First fit: a later, smaller pod goes to the first node that has room, and no node is opened while one has."""
    wide = aggregated(name="a", server={"instanceType": "p5.48xlarge", "tensorParallel": 4, "replicas": 3})
    narrow = aggregated(name="b", server={"instanceType": "p5.48xlarge", "tensorParallel": 2, "replicas": 3})
    groups = layout(environment(wide, narrow)).groups
    nodes = pack(groups)
    assert [[pod.split("-")[0] for pod in node.pods] for node in nodes] == [["a", "a"], ["a", "b", "b"], ["b"]]
    assert all(node.used.fits(room_of(groups[0].instance)) for node in nodes)


def test_one_block_of_the_pool_is_never_a_requests() -> None:
    """VLLM keeps a block of each pool for itself: of four blocks of 16 tokens one request gets 48."""
    assert KvPlan(16, (1,), (16,)).longest(4, 1000) == 48


def test_a_window_holds_its_last_token_once() -> None:
    """The token that is calculated counts among those in flight, so a window of 17 beside 16 in flight is two blocks of 16, and one to slide into."""
    plan = KvPlan(16, (1,), (16,), full_groups=0, window_groups=1, window=17, window_block=16, in_flight=16)
    assert plan.blocks_of(1000) == 3


def test_ranks_of_one_engine_differ_by_a_tenth_at_most() -> None:
    """A log whose KV caches differ by more is of two engines, and no record."""
    log = "Model loading took 33.88 GiB memory and 41 seconds\nAvailable KV cache memory: 32.00 GiB\n"
    line = "GPU KV cache size: {} tokens\n"
    assert parse_log(log + line.format("100,000") + line.format("109,000")).tokens == 100_000
    with pytest.raises(SpecError, match="of several engines"):
        parse_log(log + line.format("100,000") + line.format("115,000"))


def test_a_month_is_a_twelfth_of_a_year() -> None:
    """Prices a month are of AWS's month: 8,760 hours of a year by 12."""
    assert HOURS_A_MONTH * 12 == 365 * 24
