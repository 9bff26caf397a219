"""`disagg bench` against a running control plane: the Job is admitted and ends, its log is read, and a rate lands in the stack file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Run
from disagg_serving.load.measure import measure
from disagg_serving.load.results import Result
from disagg_serving.load.runs import RunKind, first_runs
from disagg_serving.load.start import Loader
from disagg_serving.verify.connection import Connection
from factories import SHIPPED
from live.standins import StandIns
from live.test_placement import stack_layout
from live.workloads import deploy, settle

from bench.cluster import Cluster
from bench.control_plane import CPU_NODE, ControlPlane

SPACE = "llama-70b"
RESULT = {
    "duration": 100.0, "completed": 256, "failed": 0, "total_input_tokens": 256 * 8000, "total_output_tokens": 256, "request_throughput": 2.56,
    **{f"{name}_{metric}_ms": 21.5 for metric in ("ttft", "tpot", "itl") for name in ("mean", "median", "std", "p50", "p90", "p99")},
}  # fmt: skip


@pytest.fixture(scope="module")
def standins(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIns]:
    """Prod with engines that answer, and a kubelet that gives the Jobs' log."""
    folder = tmp_path_factory.mktemp("load")
    (folder / "result.log").write_text(f"2026-11-30T00:00:00.000000000Z stdout F {json.dumps(RESULT)}\n")
    log = {"containers": ["result"], "logsFile": str(folder / "result.log")}
    logs = {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "ClusterLogs", "metadata": {"name": "load"}, "spec": {"logs": [log]}}
    found = StandIns(plane.cluster, stack_layout("prod"), folder)
    try:
        deploy(plane.cluster, found.layout)
        settle(plane.cluster, found.layout)
        found.start()
        plane.cluster.apply([logs])
        yield found
    finally:
        found.stop()
        plane.cluster.delete_all("clusterlogs")


@pytest.fixture
def disagg(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line."""
    return Run(capsys, monkeypatch)


def policies(cluster: Cluster) -> set[str]:
    """Policies of load runs that are there."""
    return {p["metadata"]["name"] for p in cluster.items("networkpolicies", SPACE) if p["metadata"]["name"].startswith("load")}


def test_a_traffic_run(standins: StandIns, plane: ControlPlane, disagg: Run) -> None:
    """The command starts the Job, reads its result from the log and takes its policies away again."""
    assert disagg("bench", "prod", "--start", "--seed", "11", "--format", "json", "--kubeconfig", str(plane.kubeconfig)) == 0
    (run,) = json.loads(disagg.out)["runs"]
    assert (run["run"], run["result"]["requestsPerSecond"], run["result"]["milliseconds"]["ttft"]["p99"]) == ("traffic", 2.56, 21.5)
    assert policies(standins.cluster) == set()
    assert [j["metadata"]["name"] for j in standins.cluster.items("jobs", SPACE)] == ["llama-70b-load-traffic-11"]
    assert disagg("bench", "prod", "--start", "--seed", "11", "--kubeconfig", str(plane.kubeconfig)) == 1
    assert "cannot be made" in disagg.err
    assert policies(standins.cluster) == set()


def test_a_rate_is_measured_and_written(standins: StandIns, plane: ControlPlane, disagg: Run, tmp_path: Path) -> None:
    """While the Job runs the engines' queues are looked at; full ones make a rate, which the command writes into the stack file."""
    for engine in standins.role("prefill"):
        engine.waiting = 3
    standins.cluster.cordon(CPU_NODE)
    said: list[str] = []

    def tell(line: str) -> None:
        said.append(line)
        if len(said) == 10:
            standins.cluster.cordon(CPU_NODE, on=False)

    layout = standins.layout
    served = layout.served[0]
    loader = Loader(Connection(plane.kubeconfig, None), layout, served, 60, tell, poll=0.1)
    try:
        (run,) = first_runs(layout, served, [RunKind.PREFILL], 12)
        (found,) = measure(layout, served, run, 0, loader.run)
    finally:
        standins.cluster.cordon(CPU_NODE, on=False)
        standins.reset()
    assert isinstance(found.finished.result, Result)
    assert len(found.finished.samples) >= 10
    assert found.verdict
    assert (found.verdict.rate, found.verdict.input_tokens) == (2560, 8000)

    for part in ("stacks", "Pulumi.yaml"):
        (shutil.copytree if (SHIPPED / part).is_dir() else shutil.copy)(SHIPPED / part, tmp_path / part)
    options = ("--run", "prefill", "--start", "--write-back", "--seed", "13", "--kubeconfig", str(plane.kubeconfig))
    # this Job ends at once, so nobody can know what was busy: no rate, and nothing written
    assert disagg("bench", "prod", *options, cwd=tmp_path) == 2
    assert "not measured: the engines' metrics could be read" in disagg.out
    assert (tmp_path / "stacks/Pulumi.prod.yaml").read_text() == (SHIPPED / "stacks/Pulumi.prod.yaml").read_text()


def test_a_job_that_does_not_end(standins: StandIns, plane: ControlPlane) -> None:
    """A run that takes too long is removed with its policies, and the message says what to do."""
    standins.cluster.cordon(CPU_NODE)
    layout = standins.layout
    loader = Loader(Connection(plane.kubeconfig, None), layout, layout.served[0], 2, lambda _: None, poll=0.2)
    try:
        (run,) = first_runs(layout, layout.served[0], [RunKind.TRAFFIC], 14)
        with pytest.raises(Exception, match=r"did not end within 2 s and was removed; give it more with --timeout"):
            loader.run(run)
    finally:
        standins.cluster.cordon(CPU_NODE, on=False)
    assert policies(standins.cluster) == set()
    standins.cluster.until(lambda: "llama-70b-load-traffic-14" not in {j["metadata"]["name"] for j in standins.cluster.items("jobs")}, "Job gone")
