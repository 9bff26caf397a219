"""`disagg verify` against a running control plane: green where all is as planned, and each fault named exactly, alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import Run
from disagg_serving import labels
from disagg_serving.planning.shapes import Layout
from disagg_serving.verify import Point, Status, verify
from disagg_serving.verify.connection import Connection
from disagg_serving.verify.reader import read_snapshot
from factories import ROOT
from live.conftest import gpu_nodes
from live.standins import CONTROLLER, LWS_SYSTEM, StandIns
from live.test_placement import stack_layout
from live.workloads import deploy, objects_of, settle

from bench.api import ApiError
from bench.cluster import Cluster
from bench.control_plane import ControlPlane
from bench.processes import NotReadyError, wait_for

SPACE = "llama-70b"
P0, P1, D0, D1 = (f"llama-70b-{name}" for name in ("prefill-0", "prefill-1", "decode-0", "decode-1"))
Names = set[tuple[str, str]]


@dataclass
class Stage:
    """Prod on the bench, with stand-ins that answer for its engines."""

    cluster: Cluster
    layout: Layout
    standins: StandIns
    connection: Connection

    def points(self) -> list[Point]:
        """What verify finds now."""
        return verify(self.layout, read_snapshot(self.connection, self.layout))

    def failed(self) -> Names:
        """Ids and subjects of the points that fail now."""
        return {(p.id, p.subject) for p in self.points() if p.status is Status.FAILED}

    def until(self, expected: Names, seconds: float = 40) -> list[Point]:
        """Wait until exactly these points fail, and stay so at a second look; the points then."""
        try:
            wait_for(lambda: self.failed() == expected and self.failed() == expected, "points", seconds)
        except NotReadyError:
            found = [p for p in self.points() if p.status is Status.FAILED]
            assert {(p.id, p.subject) for p in found} == expected, "\n".join(str(p) for p in found)
        return self.points()

    def node_of(self, role: str) -> str:
        """The node of a role's pods."""
        (node,) = gpu_nodes(self.cluster, f"{role}-p5-48xlarge")
        return str(node["metadata"]["name"])

    def made(self, kind: str, name: str) -> dict[str, Any]:
        """A generated object."""
        return next(o for o in objects_of(self.layout) if o["kind"] == kind and o["metadata"]["name"] == name)


@pytest.fixture(scope="module")
def played(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Prod, deployed once for all faults."""
    layout = stack_layout("prod")
    standins = StandIns(plane.cluster, layout, tmp_path_factory.mktemp("logs"))
    try:
        deploy(plane.cluster, layout)
        settle(plane.cluster, layout)
        standins.start()
        yield Stage(plane.cluster, layout, standins, Connection(plane.kubeconfig, None))
    finally:
        standins.stop()


@pytest.fixture
def disagg(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line."""
    return Run(capsys, monkeypatch)


@pytest.fixture
def stage(played: Stage) -> Stage:
    """Prod as planned."""
    played.standins.reset()
    played.until(set())
    return played


def test_prod_is_green(stage: Stage) -> None:
    """Everything that was deployed as rendered is ok, point by point, and nothing stays unknown."""
    points = stage.points()
    assert [p for p in points if p.status is not Status.OK] == []
    counts = {name: sum(p.id == name for p in points) for name in ("object", "group-ready", "pod-env", "node-efa", "kv-transfers", "nixl-backend")}
    assert counts == {"object": len(objects_of(stage.layout)), "group-ready": 6, "pod-env": 6, "node-efa": 2, "kv-transfers": 4, "nixl-backend": 6}


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong, what verify must say, how it is put right, and a word of what was found."""

    name: str
    inject: Callable[[Stage], Any]
    expected: Callable[[Stage], Names]
    undo: Callable[[Stage], Any] = lambda _: None
    words: str = ""


def node_label(key: str, value: str, role: str) -> Callable[[Stage], Any]:
    """Give a role's node another label."""
    return lambda s: s.cluster.patch("node", s.node_of(role), {"metadata": {"labels": {key: value}}})


def allocatable(key: str, value: str | None, role: str) -> Callable[[Stage], Any]:
    """What a role's node offers."""
    return lambda s: s.cluster.patch("nodes/status", s.node_of(role), {"status": {"allocatable": {key: value}}})


def engine(name: str, **said: Any) -> Callable[[Stage], Any]:
    """What an engine says."""

    def change(s: Stage) -> None:
        for key, value in said.items():
            setattr(s.standins.engines[name], key, value)
        s.standins.engines[name].write_log()

    return change


def decode_only(s: Stage) -> None:
    """All prompts go to decode pods, which calculate them."""
    for e in s.standins.role("prefill"):
        e.prompt = e.local = 0
    for e in s.standins.role("decode"):
        e.transfers, e.local = 0, e.prompt


def without_side_channel(s: Stage) -> None:
    """Somebody takes a variable out of the prefill pods' template."""
    made = s.made("LeaderWorkerSet", "llama-70b-prefill")
    env = made["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["env"]
    env[:] = [e for e in env if e["name"] != "VLLM_NIXL_SIDE_CHANNEL_HOST"]
    s.cluster.apply([made])


def as_made(kind: str, name: str) -> Callable[[Stage], Any]:
    """Put a generated object back."""
    return lambda s: s.cluster.apply([s.made(kind, name)])


def selector(service: str, value: Any) -> Callable[[Stage], Any]:
    """Change what a Service selects."""
    return lambda s: s.cluster.patch("service", service, [{"op": "replace", "path": "/spec/selector", "value": value}], SPACE)


def pod_ready(name: str, status: str) -> Callable[[Stage], Any]:
    """Say whether a pod is ready, as its kubelet would."""
    change = {"status": {"conditions": [{"type": "Ready", "status": status}]}}
    return lambda s: s.cluster.patch("pods/status", name, change, SPACE, strategic=True)


def scaled(kind: str, name: str, replicas: int) -> Callable[[Stage], Any]:
    """Ask for another number of replicas."""
    return lambda s: s.cluster.scale(kind, name, SPACE, replicas)


def deleted(kind: str, name: str) -> Callable[[Stage], Any]:
    """Delete an object and see it gone."""
    return lambda s: s.cluster.delete(kind, name, SPACE)


def labelled(pod: str, key: str, value: str | None) -> Callable[[Stage], Any]:
    """Give a pod a label, or take it away."""
    return lambda s: s.cluster.patch("pod", pod, {"metadata": {"labels": {key: value}}}, SPACE)


def kubectl(*args: str) -> Callable[[Stage], Any]:
    """Run kubectl."""
    return lambda s: s.cluster.kubectl(*args)


def no_room(s: Stage) -> None:
    """A decode pod goes while its node takes no pods, and the pool may have no second one."""
    s.cluster.cordon(s.node_of("decode"))
    s.cluster.delete("pod", D1, SPACE)


def only(*found: tuple[str, str]) -> Callable[[Stage], Names]:
    """Points whose subjects are known before."""
    return lambda _: set(found)


EPP = f"Deployment {SPACE}/llama-70b-epp"
ROUTER = {labels.ROUTER_RELEASE: "llama-70b-epp"}
OLD = {"spec": {"template": {"metadata": {"annotations": {labels.CONFIG_HASH: "old"}}}}}
FAULTS = [
    Fault("a node without EFA", allocatable(labels.EFA, None, "decode"), lambda s: {("node-efa", s.node_of("decode"))},
          allocatable(labels.EFA, "32", "decode"), "no vpc.amazonaws.com/efa"),
    Fault("a node that lost a GPU", allocatable(labels.GPU, "7", "prefill"), lambda s: {("node-gpu", s.node_of("prefill"))},
          allocatable(labels.GPU, "8", "prefill"), "7 nvidia.com/gpu"),
    Fault("another instance type", node_label(labels.INSTANCE_TYPE, "p5e.48xlarge", "prefill"), lambda s: {("node-type", s.node_of("prefill"))},
          node_label(labels.INSTANCE_TYPE, "p5.48xlarge", "prefill"), "p5e.48xlarge"),
    Fault("another zone", node_label(labels.ZONE, "us-east-1b", "decode"), lambda s: {("node-zone", s.node_of("decode"))},
          node_label(labels.ZONE, "us-east-1a", "decode"), "us-east-1b"),
    Fault("a spot node", node_label(labels.CAPACITY_TYPE, "spot", "decode"), lambda s: {("node-capacity", s.node_of("decode"))},
          node_label(labels.CAPACITY_TYPE, "on-demand", "decode"), "spot"),
    Fault("too few replicas", scaled("lws", "llama-70b-decode", 3),
          only(("set-replicas", f"LeaderWorkerSet {SPACE}/llama-70b-decode")), as_made("LeaderWorkerSet", "llama-70b-decode"), "3"),
    Fault("an engine that is not ready", pod_ready(D0, "False"), only(("group-ready", f"{SPACE}/{D0}")), pod_ready(D0, "True"), "0 of 1 ready"),
    Fault("no room for a pod", no_room, only(("group-whole", f"{SPACE}/{D1}")), lambda s: s.cluster.cordon(s.node_of("decode"), on=False),
          "FailedScheduling: "),
    Fault("side-channel host missing", without_side_channel, only(("pod-env", f"{SPACE}/{P0}"), ("pod-env", f"{SPACE}/{P1}")),
          as_made("LeaderWorkerSet", "llama-70b-prefill"), "VLLM_NIXL_SIDE_CHANNEL_HOST] is missing"),
    Fault("another image", kubectl("set", "image", f"pod/{D1}", "-n", SPACE, "vllm=vllm/vllm-openai:v0.33.0"), only(("pod-image", f"{SPACE}/{D1}")),
          deleted("pod", D1), "v0.33.0 instead of"),
    Fault("a role label gone", labelled(D1, labels.LLM_D_ROLE, None), only(("pod-spec", f"{SPACE}/{D1}")),
          labelled(D1, labels.LLM_D_ROLE, "decode"), "llm-d.ai/role is missing"),
    Fault("decode-only traffic", decode_only, only(("prefill-used", SPACE)), words="0, while decode pods took prompts of 8,000 tokens"),
    Fault("failed transfers", engine(D1, failed=3), only(("kv-failures", f"{SPACE}/{D1}")), words="3"),
    Fault("no transfer to one pod", engine(D0, transfers=0), only(("kv-transfers", f"{SPACE}/{D0}")), words="0, for prompts of 2,000 tokens"),
    Fault("decode calculates half", engine(D0, local=2000), only(("decode-local", SPACE)), words="25%"),
    Fault("UCX instead of LIBFABRIC", engine(P1, backend="UCX"), only(("nixl-backend", f"{SPACE}/{P1}")), words="UCX"),
    Fault("another vLLM", engine(D1, version="0.32.0"), only(("engine-version", f"{SPACE}/{D1}")), words="0.32.0"),
    Fault("a router without endpoints", selector("llama-70b-epp", {labels.ROUTER_RELEASE: "other"}),
          only(("service-endpoints", f"Service {SPACE}/llama-70b-epp")), selector("llama-70b-epp", ROUTER), "does not lead to llama-70b-epp-"),
    Fault("a Service that selects workers", selector("llama-70b-decode-api", {labels.LWS_NAME: "llama-70b-decode"}),
          only(("object", f"Service {SPACE}/llama-70b-decode-api")), as_made("Service", "llama-70b-decode-api"), "worker-index is missing"),
    Fault("no router", scaled("deployment", "llama-70b-epp", 0), only(("router-ready", EPP)),
          lambda s: s.standins.redeploy(), "0 of 0"),
    Fault("a router with an old configuration", lambda s: s.cluster.patch("deployment", "llama-70b-epp", OLD, SPACE),
          only(("router-config", EPP)), lambda s: s.standins.redeploy(), "hash old"),
    Fault("another LeaderWorkerSet controller",
          kubectl("set", "image", f"deployment/{CONTROLLER}", "-n", LWS_SYSTEM, "manager=registry.k8s.io/lws/lws:v0.10.0"),
          only(("lws-version", f"Deployment {LWS_SYSTEM}/{CONTROLLER}")), lambda s: s.standins.redeploy(), "0.10.0"),
    Fault("a policy gone", deleted("networkpolicy", "default-deny"), only(("object", f"NetworkPolicy {SPACE}/default-deny")),
          as_made("NetworkPolicy", "default-deny"), "it is not there"),
    Fault("a policy opened", lambda s: s.cluster.patch("networkpolicy", "leaders", {"spec": {"ingress": [{}]}}, SPACE),
          only(("object", f"NetworkPolicy {SPACE}/leaders")), as_made("NetworkPolicy", "leaders"), "spec.ingress[0].from"),
    Fault("a pool that may grow", lambda s: s.cluster.patch("nodepool", "decode-p5-48xlarge", {"spec": {"limits": {labels.GPU: "80"}}}),
          only(("object", "NodePool decode-p5-48xlarge")), as_made("NodePool", "decode-p5-48xlarge"), "80 instead of 8"),
]  # fmt: skip
"""Faults by what an operator would call them."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_a_fault_is_named_alone(stage: Stage, fault: Fault) -> None:
    """Each fault fails the points about itself and no other, with what was found and what to do; put right, all is green again."""
    fault.inject(stage)
    try:
        expected = fault.expected(stage)
        points = stage.until(expected)
    finally:
        fault.undo(stage)
    found = [p for p in points if p.status is Status.FAILED]
    assert {(p.id, p.subject) for p in found} == expected
    assert [p for p in found if fault.words not in p.found] == []
    assert [p for p in found if not p.fix] == []
    stage.standins.reset()
    stage.until(set())


def test_another_kubernetes_version(stage: Stage) -> None:
    """A cluster of another minor version than the stack file says fails that point alone."""
    cluster = stage.layout.spec.cluster
    assert cluster
    other = replace(stage.layout, spec=stage.layout.spec.model_copy(update={"cluster": cluster.model_copy(update={"kubernetes_version": "1.35"})}))
    assert replace(stage, layout=other).failed() == {("kubernetes-version", "API server")}


def test_the_command(stage: Stage, plane: ControlPlane, disagg: Run) -> None:
    """The command ends with 0 where all is ok and with 2 where a point failed, and its JSON has every point with its fields."""
    where = ("--kubeconfig", str(plane.kubeconfig))
    assert disagg("verify", "prod", *where) == 0
    assert "ok" in disagg.out
    assert disagg("verify", "prod", *where, "--format", "json") == 0
    data = json.loads(disagg.out)
    assert {tuple(p) for p in data["points"]} == {("id", "status", "subject", "expected", "found", "fix", "meaning")}
    stage.standins.engines[D1].failed = 1
    assert disagg("verify", "prod", *where, "--format", "json") == 2
    assert [(p["id"], p["subject"]) for p in json.loads(disagg.out)["points"] if p["status"] == "failed"] == [("kv-failures", f"{SPACE}/{D1}")]


def test_the_canary(stage: Stage, plane: ControlPlane, disagg: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request through the router shows that prefill and decode took part, with the key of the environment; an error is told as such."""
    monkeypatch.setenv("DISAGG_API_KEY", "a-key-of-the-environment")
    canary = ("verify", "prod", "--canary", "--format", "json", "--kubeconfig", str(plane.kubeconfig))
    assert disagg(*canary) == 0
    assert "a-key-of-the-environment" not in disagg.out + disagg.err
    assert stage.standins.keys == ["Bearer a-key-of-the-environment"]
    found = {p["id"]: p["found"] for p in json.loads(disagg.out)["points"] if p["id"].startswith("canary")}
    assert found["canary-split"] == "20 prompt tokens on prefill, 1 transfers, 0 failures"

    stage.standins.split = False
    assert disagg(*canary) == 2
    assert _failed(disagg) == [("canary-split", SPACE)]
    stage.standins.router_status = 503
    assert disagg(*canary) == 2
    assert _failed(disagg) == [("canary-answer", SPACE)]


def _failed(run: Run) -> list[tuple[str, str]]:
    return [(p["id"], p["subject"]) for p in json.loads(run.out)["points"] if p["status"] == "failed"]


def documented_role() -> dict[str, Any]:
    """The ClusterRole of docs/verify.md."""
    text = (ROOT / "docs/verify.md").read_text(encoding="utf-8")
    role: dict[str, Any] = yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])
    return role


def kubeconfig_of(plane: ControlPlane, role: dict[str, Any], path: Path) -> Path:
    """A kubeconfig of somebody who has this role and nothing else."""
    name = path.stem
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}
    role = {**role, "metadata": {"name": name}}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    }
    plane.cluster.apply([account, role, binding])
    config = json.loads(plane.kubeconfig.read_text())
    asked = plane.cluster.api.call("POST", f"/api/v1/namespaces/default/serviceaccounts/{name}/token", body={"spec": {}})
    config["users"][0]["user"] = {"token": asked["status"]["token"]}
    path.write_text(json.dumps(config))
    return path


@pytest.mark.usefixtures("stage")
def test_the_documented_rights_are_enough(plane: ControlPlane, disagg: Run, tmp_path: Path) -> None:
    """With the ClusterRole of the documentation, which writes nothing, everything is seen."""
    file = kubeconfig_of(plane, documented_role(), tmp_path / "reader.json")
    assert disagg("verify", "prod", "--kubeconfig", str(file)) == 0
    with pytest.raises(ApiError, match=r"Forbidden.*cannot delete resource"):
        Cluster(file).delete("pod", D0, SPACE, wait=False)


@pytest.mark.usefixtures("stage")
def test_what_may_not_be_seen_is_unknown(plane: ControlPlane, disagg: Run, tmp_path: Path) -> None:
    """Without the right to ask pods, what engines say is unknown and never ok; without any right there is one clear sentence."""
    role = documented_role()
    role["rules"] = [r for r in role["rules"] if not any("/" in resource for resource in r["resources"])]
    file = kubeconfig_of(plane, role, tmp_path / "half.json")
    assert disagg("verify", "prod", "--format", "json", "--kubeconfig", str(file)) == 1
    points = json.loads(disagg.out)["points"]
    unknown = {p["id"] for p in points if p["status"] == "unknown"}
    assert unknown == {"engine-version", "nixl-backend", "kv-transfers", "kv-failures", "prefill-used", "decode-local"}
    assert {p["status"] for p in points} == {"ok", "unknown"}
    said = {p["found"] for p in points if p["status"] == "unknown"}
    assert [s for s in said if "not allowed" not in s and "forbidden" not in s.lower()] == []

    nothing = kubeconfig_of(plane, {**role, "rules": []}, tmp_path / "nothing.json")
    assert disagg("verify", "prod", "--kubeconfig", str(nothing)) == 1
    assert "lets nothing be read" in disagg.err
    assert len(disagg.err.splitlines()) == 1
