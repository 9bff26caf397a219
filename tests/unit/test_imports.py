from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from disagg_serving.imports.found import Kind
from disagg_serving.imports.stack import Imported
from disagg_serving.imports.text import account, stack_text
from disagg_serving.manifests.bundle import build_all
from disagg_serving.planning.shapes import Layout
from disagg_serving.rules.evaluation import evaluate_file
from disagg_serving.spec.serving import RoleName
from disagg_serving.spec.stack_file import read_environment_file
from factories import ROOT
from imported import FORMS, form, imported, noted


class Side(NamedTuple):
    """What a role of the generated deployment must be."""

    replicas: int
    pods: int
    instance: str
    flags: dict[str, str]
    variables: dict[str, str]


QWEN, LLAMA, R1 = "Qwen/Qwen3-32B", "meta-llama/Llama-3.1-8B-Instruct", "deepseek-ai/DeepSeek-R1-0528"
LOG = {"VLLM_LOGGING_LEVEL": "DEBUG"}
_OSS = {"--block-size": "128", "--max-model-len": "8192", "--seed": "7"}
_DS = {"--block-size": "128", "--max-model-len": "16384", "--tool-call-parser": "openai"}
_DYNAMO = {
    "--tensor-parallel-size": "4",
    "--block-size": "64",
    "--gpu-memory-utilization": "0.85",
    "--max-model-len": "32768",
    "--async-scheduling": "",
}
_WIDE = {"--data-parallel-size": "16", "--enable-expert-parallel": "", "--all2all-backend": "deepep_v2", "--max-model-len": "32768"}
_STACK = {"--max-model-len": "16384", "--no-enable-prefix-caching": "", "--enforce-eager": ""}
_KSERVE = {"--data-parallel-size": "16", "--enable-expert-parallel": "", "--all2all-backend": "deepep_v2", "--max-model-len": "16384"}

EXPECTED: dict[str, dict[str, dict[RoleName, Side]]] = {
    "llm-d-modelservice.yaml": {
        "openai/gpt-oss-120b": {
            "prefill": Side(2, 1, "p5e.48xlarge", {"--tensor-parallel-size": "1", "--gpu-memory-utilization": "0.85", **_OSS}, LOG),
            "decode": Side(1, 1, "p5e.48xlarge", {"--tensor-parallel-size": "4", **_OSS}, {"UCX_TLS": "rc,cuda_copy", **LOG}),
        }
    },
    "llm-d-wide-ep.yaml": {
        R1: {
            "prefill": Side(2, 2, "p5en.48xlarge", _WIDE, {"VLLM_SKIP_P2P_CHECK": "1"}),
            "decode": Side(1, 2, "p5en.48xlarge", {"--gpu-memory-utilization": "0.88", "--trust-remote-code": "", **_WIDE}, {}),
        }
    },
    "llm-d-disaggregatedset.yaml": {
        "openai/gpt-oss-120b": {
            "prefill": Side(8, 1, "p5.48xlarge", {"--tensor-parallel-size": "1", **_DS}, {}),
            "decode": Side(2, 1, "p5.48xlarge", {"--tensor-parallel-size": "4", "--enable-auto-tool-choice": "", **_DS}, {}),
        }
    },
    "dynamo-v1alpha1.yaml": {
        QWEN: {
            "prefill": Side(2, 1, "p5.48xlarge", _DYNAMO, {"VLLM_LOGGING_LEVEL": "INFO"}),
            "decode": Side(1, 1, "p5.48xlarge", {"--no-enable-prefix-caching": "", **_DYNAMO}, {"VLLM_LOGGING_LEVEL": "INFO"}),
        }
    },
    "dynamo-v1beta1.yaml": {
        QWEN: {
            "prefill": Side(6, 1, "p5.48xlarge", {"--tensor-parallel-size": "2"}, {}),
            "decode": Side(2, 1, "p5.48xlarge", {"--tensor-parallel-size": "2"}, {}),
        }
    },
    "production-stack-pd.yaml": {LLAMA: {"prefill": Side(2, 1, "p5.48xlarge", _STACK, {}), "decode": Side(1, 1, "p5.48xlarge", _STACK, {})}},
    "production-stack-models.yaml": {
        LLAMA: {"server": Side(2, 1, "p5.4xlarge", {"--dtype": "bfloat16", "--gpu-memory-utilization": "0.85"}, {})},
        QWEN: {"server": Side(1, 1, "p5.48xlarge", {"--tensor-parallel-size": "2", "--max-num-seqs": "128"}, {})},
    },
    "kserve-pd.yaml": {
        R1: {
            "prefill": Side(1, 2, "p5e.48xlarge", {"--gpu-memory-utilization": "0.88", **_KSERVE}, {"NVSHMEM_DEBUG": "WARN"}),
            "decode": Side(1, 2, "p5e.48xlarge", {"--gpu-memory-utilization": "0.9", **_KSERVE}, {"NVSHMEM_DEBUG": "WARN"}),
        }
    },
    "deployment.yaml": {
        QWEN: {
            "server": Side(
                3, 1, "p5.48xlarge",
                {"--tensor-parallel-size": "2", "--max-model-len": "32000", "--trust-remote-code": "", "--enable-chunked-prefill": ""},
                {"VLLM_LOGGING_LEVEL": "WARNING"},
            )
        }
    },
    "statefulset-pd.yaml": {
        "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic": {
            "prefill": Side(2, 1, "p5.48xlarge", {"--tensor-parallel-size": "4", "--max-model-len": "32768"}, {}),
            "decode": Side(4, 1, "p5.48xlarge", {"--tensor-parallel-size": "2", "--max-num-seqs": "64"}, {}),
        }
    },
    "compose.yaml": {QWEN: {"server": Side(1, 1, "p5.48xlarge", {"--tensor-parallel-size": "2", "--max-num-seqs": "32"}, LOG)}},
    "serve.sh": {
        QWEN: {
            "prefill": Side(1, 1, "p5.48xlarge", {"--tensor-parallel-size": "4", "--enforce-eager": ""}, {}),
            "decode": Side(1, 1, "p5.48xlarge", {"--tensor-parallel-size": "2", "--max-model-len": "32768"}, {}),
        }
    },
    "docker-run.txt": {LLAMA: {"server": Side(1, 1, "p5.4xlarge", {"--tensor-parallel-size": "1", "--max-model-len": "16384"}, {})}},
    "playbook.yaml": {
        "zai-org/GLM-5-FP8": {
            "server": Side(1, 2, "p5.48xlarge", {"--tensor-parallel-size": "8", "--pipeline-parallel-size": "2"}, {"VLLM_USE_DEEP_GEMM": "1"})
        }
    },
}  # fmt: skip
"""Each form with what it deploys: by repository and role."""


def deployed(found: Imported, folder: Path) -> Layout:
    """The layout of the stack file, read again as every command reads it."""
    file = folder / "stack.yaml"
    file.write_text(stack_text(found, ["given"], None), encoding="utf-8")
    read = read_environment_file(file)
    assert read.region == found.region
    return evaluate_file(read, ROOT).require_layout()


def arguments_of(manifest: dict[str, Any]) -> tuple[str, dict[str, str], dict[str, str]]:
    """Model, flags and plain variables of a LeaderWorkerSet's engine."""
    template = manifest["spec"]["leaderWorkerTemplate"]
    spec = (template.get("leaderTemplate") or template["workerTemplate"])["spec"]
    (engine,) = [c for c in spec["containers"] if c["name"] == "vllm"]
    flags = {arg.split("=", 1)[0]: arg.partition("=")[2] for arg in engine["args"][1:]}
    return engine["args"][0], flags, {e["name"]: e["value"] for e in engine["env"] if "value" in e}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_form_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    """What a peer's form deploys is deployed by the stack file that it becomes: model, roles, numbers, parallelism, flags and variables."""
    layout = deployed(form(name), tmp_path)
    objects = build_all(layout)
    sets = {o["metadata"]["name"]: o for o in objects if o["kind"] == "LeaderWorkerSet"}
    assert {s.repository for s in layout.served} == EXPECTED[name].keys()
    for served in layout.served:
        sides = EXPECTED[name][served.repository]
        assert served.spec.roles.keys() == sides.keys()
        for role, side in sides.items():
            manifest = sets[served.spec.name if role == "server" else f"{served.spec.name}-{role}"]
            model, flags, variables = arguments_of(manifest)
            assert model == served.repository
            assert (manifest["spec"]["replicas"], manifest["spec"]["leaderWorkerTemplate"]["size"]) == (side.replicas, side.pods)
            assert served.spec.roles[role].instance_type == side.instance
            assert {flag: flags.get(flag) for flag in side.flags} == side.flags
            assert {key: variables.get(key) for key in side.variables} == side.variables
            connector = json.loads(flags["--kv-transfer-config"])["kv_role"] if "--kv-transfer-config" in flags else None
            assert connector == {"prefill": "kv_producer", "decode": "kv_consumer", "server": None}[role]


def test_every_form_is_tried() -> None:
    """A fixture without an expectation would be no test."""
    assert {file.name for file in FORMS.iterdir()} == EXPECTED.keys()
    assert len({form(name).found.engines[0].form for name in EXPECTED}) >= 9


def engines_in(value: Any) -> Iterator[dict[str, Any]]:
    """The mappings of a form that describe how an engine runs: containers, pods, sets of them, and entries of values."""
    if isinstance(value, dict):
        around = re.search(r"nginx|frontend|sidecar", str(value.get("image", "")) + str(value.get("componentType", value.get("type", ""))))
        if value.get("kind") in {"Secret", "Service", "PersistentVolumeClaim", "NodePool"} or around:
            return
        if value.keys() & {"image", "containers", "modelURL", "replicas", "modelCommand"}:
            yield value
        for one in value.values():
            yield from engines_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from engines_in(one)


@pytest.mark.parametrize("name", [name for name in EXPECTED if name.endswith(".yaml")])
def test_nothing_gets_lost_in_silence(name: str) -> None:
    """A key that nobody reads is named with its line, wherever it stands beside what runs an engine."""
    text = (FORMS / name).read_text(encoding="utf-8")
    count = sum(1 for document in yaml.safe_load_all(text) for _ in engines_in(document))
    assert count
    for i in range(count):
        documents = deepcopy([*yaml.safe_load_all(text)])
        place = [mapping for document in documents for mapping in engines_in(document)][i]
        place["notKnownAnywhere"] = {"a": 1}
        said = account(imported(yaml.safe_dump_all(documents)), frozenset())
        assert re.search(r"given:\d+.*notKnownAnywhere: is no key that is read here", said), (sorted(place), said)


def test_the_playbooks_faults_are_named() -> None:
    """Each fault of docs/playbook.md that stands in its manifest is named where it stands; what it comes to has none of them."""
    found = form("playbook.yaml")
    faults = noted(found, Kind.FAULT)
    assert faults.keys() == {
        "instance-family", "nodeClassRef default", "taint llm-d-role", "volumes", "volumeMounts", "resources.requests nvidia.com/gpu", "resources",
        "startupProbe", "restartPolicy RecreateGroupOnPodRestart", "args", "image", "NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_NCHANNELS",
    }  # fmt: skip
    assert "--nnodes" in faults["args"]
    assert "no libfabric" in faults["image"]
    assert "rule `extra-env`" in faults["NCCL_ALGO"]
    lines = {note.what: note.where for note in found.found.notes if note.kind is Kind.FAULT}
    text = (FORMS / "playbook.yaml").read_text(encoding="utf-8").split("\n")
    for what, word in (
        ("NCCL_ALGO", "NCCL_ALGO"),
        ("taint llm-d-role", "llm-d-role"),
        ("volumes", "volumes:"),
        ("instance-family", "instance-family"),
    ):
        assert word in text[int(lines[what].rpartition(":")[2]) - 1]
    assert not found.failed


def test_faults_are_not_named_where_there_are_none() -> None:
    """A manifest without the playbook's faults is not accused of them."""
    for name in ("statefulset-pd.yaml", "deployment.yaml", "llm-d-disaggregatedset.yaml"):
        assert noted(form(name), Kind.FAULT) == {}, name


def test_places_are_those_of_the_file() -> None:
    """A note leads to the line of the flag, also inside a script of several lines."""
    text = (FORMS / "llm-d-wide-ep.yaml").read_text(encoding="utf-8").split("\n")
    for note in form("llm-d-wide-ep.yaml").found.notes:
        if note.what.startswith("--"):
            line = text[int(note.where.rpartition(":")[2]) - 1]
            assert note.what in line.replace("_", "-"), note


def test_what_is_not_said_is_asked_for_in_a_comment(tmp_path: Path) -> None:
    """The stack file says which values are guesses: region and instance type."""
    text = stack_text(form("compose.yaml"), ["compose.yaml"], None)
    assert "aws:region: us-east-1 # the files name no region" in text
    assert "# the file names no GPU: the cheapest type of the catalogue that holds it" in text
    assert "names no" not in stack_text(form("statefulset-pd.yaml"), ["x"], None)
    assert deployed(form("compose.yaml", instance_type="p5en.48xlarge", region="eu-west-1"), tmp_path).spec.network.zones[0] == "eu-west-1a"


def test_an_unknown_model_is_kept_by_name() -> None:
    """A model that the catalogue does not have stays in the file, with how to add it, and the rules say that it is missing."""
    found = imported("vllm serve mistralai/Mistral-Large-3 -tp 8")
    (model,) = found.environment["models"]
    assert (model["model"], model["repository"], model["server"]["tensorParallel"]) == ("mistral-large-3", "mistralai/Mistral-Large-3", 8)
    assert "add models/mistral-large-3.yaml to a folder of catalogDirs" in stack_text(found, ["x"], None)
    assert [f.id for f in found.findings if f.level == "error"] == ["catalog"]
