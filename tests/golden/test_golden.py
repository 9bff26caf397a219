from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from disagg_serving.errors import Level
from disagg_serving.manifests.bundle import build_all
from disagg_serving.recording.plan import make_plan
from disagg_serving.report.files import file_names
from disagg_serving.report.markdown import render_markdown
from disagg_serving.report.text import render_text
from disagg_serving.rules.evaluation import evaluate_file
from disagg_serving.spec.stack_file import find_project
from disagg_serving.yaml_io import to_yaml
from factories import SHIPPED, STACKS, aggregated, check, environment, existing_cluster, model, role
from watched import dashboards, objects, watched

HERE = Path(__file__).resolve().parent
WATCHED = "watched"
"""Folder of what no stack asks for: monitors, alerts and dashboards."""
RESERVED = {"type": "reserved", "reservationIds": ["cr-0123456789abcdef0"], "nodes": 3}

BAD: dict[str, Any] = {
    "misspelt key": environment(model(decode=role(tensorParalel=4))),
    "misspelt catalogue ids": environment(model(model="lama-3.3-70b-instruct-fp8", decode=role(instanceType="p5.48xlarg"))),
    "wrong types": environment(model(maxModelLen="long", prefill=role(replicas=True), decode=role(replicas=0)), name="My Environment"),
    "unquoted version": environment(cluster={"kubernetesVersion": 1.36}),
    "secret inside the environment": environment(model(extraEnv={"HF_TOKEN": {"secure": "v1:ciphertext"}})),
    "no models": {"name": "test", "network": {"zones": ["us-east-1a", "us-east-1b"]}},
    "pipeline parallelism with prefill and decode": environment(model(decode=role(pipelineParallel=2))),
    "tensor parallelism that divides neither node nor heads": environment(model(decode=role(tensorParallel=3))),
    "decode without prefill": environment(model(prefill=None)),
    "both modes": environment(model(server=role())),
    "prefill on a type without GPUDirect RDMA": environment(model(prefill=role(instanceType="p5.4xlarge", tensorParallel=1))),
    "too few reserved nodes for the groups": environment(
        aggregated(model="glm-5-fp8", server=role(tensorParallel=8, pipelineParallel=2, replicas=2, capacity=RESERVED))
    ),
    "pod larger than its node": environment(aggregated(server=role(cpu=500, memoryGiB=4000))),
    "zones of two regions": environment(network={"zones": ["us-east-1a", "eu-west-1a"]}),
    "variables and flags that the project owns": environment(model(extraEnv={"NCCL_ALGO": "Ring"}, extraArgs=["--port=1", "tool"])),
    "existing cluster found in two ways": existing_cluster(name="prod"),
    "an empty file": None,
}


def compare(folder: Path, wanted: dict[str, str], *, rewrite: bool, pattern: str = "**/*") -> None:
    """Compare the files of `folder` with `wanted` by relative path, or make them so."""
    there = {p.relative_to(folder).as_posix(): p for p in folder.glob(pattern) if p.is_file()}
    if rewrite:
        for name, text in wanted.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        for name in there.keys() - wanted.keys():
            there[name].unlink()
        return
    assert sorted(there) == sorted(wanted), "files are missing or stale; `make golden` rewrites them"
    for name, text in wanted.items():
        assert there[name].read_text(encoding="utf-8") == text, f"{name} differs; `make golden` rewrites it"


@pytest.mark.parametrize("stack", STACKS)
def test_manifests_are_as_reviewed(stack: str, rewrite_golden: bool) -> None:  # noqa: FBT001
    """A change of any rendered object of a shipped stack shows up in review as a change of its golden file."""
    project = find_project(SHIPPED)
    objects = build_all(evaluate_file(project.stack_file(stack), project.root).require_layout())
    wanted = {name: to_yaml(o) for name, o in zip(file_names(objects), objects, strict=True)}
    compare(HERE / stack / "manifests", wanted, rewrite=rewrite_golden)


def test_what_is_watched_is_as_reviewed(rewrite_golden: bool) -> None:  # noqa: FBT001
    """A change of a monitor, an alert or a dashboard shows up in review; no shipped stack asks for any, since their kinds may be missing."""
    wanted = watched("prefill and decode")
    monitors, alerts = objects(wanted, "PodMonitor"), objects(wanted, "PrometheusRule")
    files = {f"{o['kind']}-{o['metadata']['name']}.yaml": to_yaml(o) for o in (*monitors, *alerts)}
    files |= {f"{name}.json": json.dumps(d, indent=1, ensure_ascii=False) + "\n" for name, d in dashboards(wanted).items()}
    compare(HERE / WATCHED, files, rewrite=rewrite_golden)


@pytest.mark.parametrize("stack", STACKS)
def test_plan_is_as_reviewed(stack: str, rewrite_golden: bool) -> None:  # noqa: FBT001
    """What a stack's plan says, and how many resources of which type it has, changes only with its golden files."""
    project = find_project(SHIPPED)
    plan = make_plan(project, project.stack_file(stack))
    types = Counter(r.type for r in plan.graph.resources.values())
    wanted = {
        "plan.txt": render_text([plan], color=False),
        "plan.md": render_markdown([plan]),
        "types.json": json.dumps(dict(sorted(types.items())), indent=2) + "\n",
    }
    compare(HERE / stack, wanted, rewrite=rewrite_golden, pattern="*")


def test_error_messages_are_as_reviewed(rewrite_golden: bool) -> None:  # noqa: FBT001
    """The words of typical error messages change only with the golden file, where a reviewer reads them as a user does."""
    parts = []
    for title, data in BAD.items():
        findings = [f for f in check(data).findings if f.level is not Level.INFO]
        assert any(f.level is Level.ERROR for f in findings), f"{title} passes"
        parts.append("\n".join([f"# {title}", *(f"{f.level} [{f.id}] {f.sentence()}" for f in findings)]) + "\n")
    compare(HERE, {"messages.txt": "\n".join(parts)}, rewrite=rewrite_golden, pattern="*.txt")


def test_every_stack_has_golden_files() -> None:
    """A new stack does not go without golden files, and no folder of a removed stack stays behind."""
    folders = sorted(p.name for p in HERE.iterdir() if p.is_dir() and p.name != "__pycache__")
    assert [f for f in folders if f != WATCHED] == sorted(STACKS) == find_project(SHIPPED).stacks()
