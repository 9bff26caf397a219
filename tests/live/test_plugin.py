"""The component plugin through the real engine: its schema, and TypeScript and Go programs that make what a Python program makes."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from disagg_serving import __version__, labels
from factories import ROOT
from live.conftest import gpu_nodes

from bench.build import UNREACHABLE
from bench.control_plane import ControlPlane
from bench.engine import Engine, PulumiError

PLUGIN = ROOT / "components"
PYTHON = """\
import pulumi
import pulumi_kubernetes as k8s
from disagg_serving.resources import ModelServing, NodePools

config = pulumi.Config()
cluster = pulumi.ResourceOptions(providers=[k8s.Provider("cluster", kubeconfig=config.require("kubeconfig"))])
role = {"instance_type": "p5.48xlarge"}
llama = {
    "name": "llama-70b",
    "model": "llama-3.3-70b-instruct-fp8",
    "max_model_len": 32768,
    "prefill": {**role, "replicas": 2, "tensor_parallel": 4},
    "decode": {**role, "replicas": 4, "tensor_parallel": 2},
}
ids = {"subnet_ids": [config.require("subnetId")], "security_group_ids": [config.require("securityGroupId")]}
pools = NodePools("gpu", {"models": [llama], "zone": config.require("zone"), "node_role": "platform-gpu-node", **ids}, cluster)
after = pulumi.ResourceOptions.merge(cluster, pulumi.ResourceOptions(depends_on=[pools]))
ModelServing("llama-70b", {"model": llama, "zone": config.require("zone")}, after)
"""
"""What the examples in other languages say, in Python."""
LANGUAGES = {"typescript": ("node", "npm"), "go": ("go",)}
KINDS = (
    "namespaces", "serviceaccounts", "secrets", "configmaps", "services", "networkpolicies", "poddisruptionbudgets", "priorityclasses", "jobs",
    "leaderworkersets", "nodepools", "nodeclasses",
)  # fmt: skip
NPM_UNREACHABLE = re.compile("ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ECONNRESET|ENETUNREACH")


def engine_of(program: Path, folder: Path, plane: ControlPlane) -> Engine:
    """A stack of a program, with the bench's cluster and the plugin of this repository."""
    engine = Engine(folder, "dev", plane.kubeconfig, program=program)
    project = engine.project / "Pulumi.yaml"
    project.write_text(project.read_text().replace("../../components", str(PLUGIN)))
    engine.run("config", "set", "kubeconfig", str(plane.kubeconfig), "--stack", "dev")
    return engine


def python_program(folder: Path) -> Path:
    """The Python program, with the settings of the TypeScript example."""
    folder.mkdir()
    (folder / "__main__.py").write_text(PYTHON)
    for name in ("Pulumi.yaml", "Pulumi.dev.yaml"):
        text = (ROOT / "examples/typescript" / name).read_text()
        (folder / name).write_text(re.sub(r"(?m)^packages:\n.*\n", "", text).replace("nodejs", "python"))
    return folder


def objects(plane: ControlPlane) -> dict[str, Any]:
    """What of ours stands in the API server, without what the server and controllers say about it."""
    found = {}
    for item in (one for kind in KINDS for one in plane.cluster.items(kind, selector=f"{labels.MANAGED_BY}=disagg-serving")):
        item.pop("status", None)
        meta = item["metadata"]
        notes = {k: v for k, v in meta.get("annotations", {}).items() if "nodepool-hash" not in k}
        item["metadata"] = {"labels": meta.get("labels"), "annotations": notes}
        if item["kind"] == "Service":
            item["spec"] = {k: v for k, v in item["spec"].items() if k not in ("clusterIP", "clusterIPs")}
        found[f"{item['kind']} {meta.get('namespace', '')}/{meta['name']}"] = item
    return found


def life(engine: Engine, plane: ControlPlane) -> dict[str, Any]:
    """Preview, up, an update that changes nothing, and destroy; the objects that stood there meanwhile."""
    previewed = {s.urn for s in engine.preview() if s.op == "create"}
    made = {s.urn for s in engine.up() if s.op == "create"}
    assert previewed == made
    engine.run("up", "--yes", "--skip-preview", "--expect-no-changes", "--stack", "dev")
    found = objects(plane)
    engine.destroy()
    assert not objects(plane)
    # a pool goes before its last node has ended
    plane.cluster.until(lambda: not gpu_nodes(plane.cluster), "no GPU node")
    return found


@pytest.fixture(scope="module")
def expected(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The objects of the Python program."""
    folder = tmp_path_factory.mktemp("python")
    found = life(engine_of(python_program(folder / "program"), folder, plane), plane)
    assert {name.split()[0] for name in found} >= {"NodeClass", "NodePool", "LeaderWorkerSet", "Service", "NetworkPolicy", "Namespace"}
    return found


@pytest.mark.usefixtures("wiped")
@pytest.mark.parametrize("language", LANGUAGES)
def test_programs_in_other_languages(plane: ControlPlane, tmp_path: Path, expected: dict[str, Any], language: str) -> None:
    """SDK by the command line, preview, up, no change and destroy; the API server holds the Python program's objects, every field equal."""
    if missing := [tool for tool in LANGUAGES[language] if shutil.which(tool) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    engine = engine_of(ROOT / "examples" / language, tmp_path, plane)
    install(engine)
    assert life(engine, plane) == expected

    refused(engine, language)


def install(engine: Engine) -> None:
    """Generate the SDK and fetch the program's packages."""
    try:
        engine.run("install", seconds=600)
    except PulumiError as error:
        if UNREACHABLE.search(str(error)) or NPM_UNREACHABLE.search(str(error)):
            pytest.skip(f"packages cannot be downloaded here: {str(error).splitlines()[-1]}")
        raise


def refused(engine: Engine, language: str) -> None:
    """What a component refuses is a message with path and fix in every language, without a traceback of the plugin."""
    program = engine.project / {"typescript": "index.ts", "go": "main.go"}[language]
    program.write_text(program.read_text().replace("p5.48xlarge", "p5.84xlarge"))
    with pytest.raises(PulumiError) as stopped:
        engine.preview()
    said = str(stopped.value)
    assert "models[0].prefill.instanceType" in said
    assert "p5.48xlarge" in said
    assert "Traceback" not in said
    assert 'File "' not in said


def test_schema_of_the_real_host(tmp_path: Path) -> None:
    """What the command line gets from the running plugin is the schema that the repository keeps, and the version of what is installed."""
    engine = Engine(tmp_path, "dev", tmp_path / "kubeconfig", program=python_program(tmp_path / "program"))
    kept = json.loads((PLUGIN / "schema.json").read_text(encoding="utf-8"))
    found = json.loads(engine.run("package", "get-schema", str(PLUGIN)))
    assert __version__.startswith(found.pop("version"))
    assert bare(found) == bare(kept)


def bare(value: Any, *, inner: bool = False) -> Any:
    """A schema without empty parts and descriptions of elements, which the command line leaves out when it prints one."""
    if not isinstance(value, dict):
        return value
    parts = {k: bare(v, inner=k in ("items", "additionalProperties")) for k, v in value.items() if not (inner and k == "description")}
    return {k: v for k, v in parts.items() if v not in ({}, [])}
