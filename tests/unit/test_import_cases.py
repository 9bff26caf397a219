from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from disagg_serving.imports.forms import Source
from disagg_serving.imports.found import Kind
from imported import FORMS, form, imported, noted, refused

QWEN = "Qwen/Qwen3-32B"


def manifest(container: dict[str, Any], *, kind: str = "Deployment", **spec: Any) -> str:
    """A workload with one container."""
    template = {"spec": {"containers": [{"name": "vllm", "image": "vllm/vllm-openai:v0.33.0", **container}]}}
    inner = {"template": template, **spec} if kind == "Deployment" else {"leaderWorkerTemplate": {"workerTemplate": template, **spec}}
    return yaml.safe_dump({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "d"}, "spec": inner})


def script(text: str, **container: Any) -> dict[str, Any]:
    """A container that runs a script."""
    return {"command": ["/bin/bash", "-c"], "args": [text], **container}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("replicas: {{ .Values.replicas }}", "given:1: is a Helm or Go template"),
        ("a: 1\nargs:\n{{- if .Values.x }}\nb: 2\n{{- end }}", "given:3: is a Helm or Go template"),
        ('a: "{{ include "x" . }}"', "Helm or Go template"),
        ("apiVersion: ray.io/v1\nkind: RayService\n", "given:1: is of kind RayService, which is not known here"),
        ("apiVersion: apps/v1\nkind: Deploymnt\n", "did you mean Deployment?"),
        ("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n", "kubectl kustomize"),
        ("apiVersion: v1\nkind: Service\nmetadata: {name: a}\n", "has no engine"),
        ("foo: bar", "is none of the forms"),
        ("- 1\n- 2", "is no mapping"),
        ("a: 1\na: 2", "has the key a twice"),
        ("x: *y", "is not valid YAML"),
        ("a: &a [*a]", "holds itself"),
        ("servingEngineSpec: {modelSpec: 3}", "has no model"),
        ("services: {web: {image: nginx}}", "has no service that runs vLLM"),
        ("config: {'disagg-serving:environment': {}}", "is a stack file already"),
        ("vllm serve", "names no model"),
        ("vllm serve $MODEL", "names no model"),
        ("decode: {parallelism: {tensor: 2}}", "names no model"),
        ("vllm serve a/b\nvllm serve a/b --port 1", "is one of 2 deployments of a/b: line 1 (given:1), line 2 (given:2)"),
        ("vllm serve a/b --kv-transfer-config '{\"kv_role\":\"kv_producer\"}'", "is prefill of a/b, and nothing is its decode"),
        ("python -m sglang.launch_server --model a/b; vllm/vllm-openai:x", "starts no vLLM"),
    ],
)  # fmt: skip
def test_what_cannot_be_imported_is_named(text: str, words: str) -> None:
    """Templates, unknown kinds, several deployments and broken files are refused by name and place."""
    assert any(words in said for said in refused(text)), refused(text)


def test_other_engines_are_named() -> None:
    """A deployment of another engine is refused as such, not as an unknown form."""
    graph = {"services": {"W": {"componentType": "worker", "extraPodSpec": {"mainContainer": {"command": ["python3", "-m", "dynamo.sglang"]}}}}}
    (said,) = refused(yaml.safe_dump({"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment", "spec": graph}))
    assert "W runs sglang (allowed: dynamo.vllm)" in said
    pod = {"spec": {"containers": [{"name": "a", "command": ["python3", "-m", "sglang.launch_server"]}]}}
    (said,) = refused(yaml.safe_dump({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"template": pod}}))
    assert "Deployment d runs sglang" in said


def test_all_refusals_come_at_once() -> None:
    """Several files and documents with faults are named in one run."""
    said = refused("apiVersion: v1\nkind: Foo\n---\napiVersion: v1\nkind: Bar\n", "x: {{ .Values.x }}")
    assert len(said) == 3


def test_a_file_of_aliases_of_aliases_ends() -> None:
    """A small file that stands for more values than memory holds is refused at once."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    assert "stands for too many values" in refused("\n".join(lines))[0]


def test_two_files_are_one_deployment() -> None:
    """Prefill and decode may be in files of their own, as llm-d's guides have them."""
    text = (FORMS / "llm-d-wide-ep.yaml").read_text(encoding="utf-8")
    first, second = text.split("---\n")
    assert "nothing is its prefill" in refused(first)[0]
    both = imported(Source("decode.yaml", first), Source("prefill.yaml", second))
    assert both.environment == form("llm-d-wide-ep.yaml").environment
    assert re.search(r"prefill 2 engines of 16 GPUs \(prefill.yaml:1\), decode 1 engine of 16 GPUs \(decode.yaml:2\)", both.read[0])


def test_flags_that_the_version_lacks_are_left_out_with_the_rules_reason() -> None:
    """What a rule refuses of flags and variables does not stop the stack: it is left out, or spelt as the rule proposes, and named."""
    found = imported("VLLM_PORT=1 vllm serve Qwen/Qwen3-32B -tp 2 --no-such-flag 3 --enable-log-request --seed=1")
    (model,) = found.environment["models"]
    assert model["extraArgs"] == ["--enable-log-requests", "--seed=1"]
    faults = noted(found, Kind.FAULT)
    assert "is not a flag of vLLM" in faults["--no-such-flag"]
    assert faults["VLLM_PORT"]
    assert not found.failed


def test_what_differs_between_roles_is_said() -> None:
    """A field of the model that prefill and decode give differently takes decode's value, and the account says so."""
    role = 'vllm serve Qwen/Qwen3-32B -tp 2 --max-model-len {} --kv-transfer-config \'{{"kv_connector":"NixlConnector","kv_role":"{}"}}\''
    found = imported("\n".join([role.format(8192, "kv_producer"), role.format(16384, "kv_consumer")]))
    assert found.environment["models"][0]["maxModelLen"] == 16384
    assert "decode's value counts" in noted(found, Kind.UNSAID)["maxModelLen"]


def test_other_connectors_are_named() -> None:
    """A connector that has no field is named; its settings are not taken for NIXL's."""
    found = imported('vllm serve Qwen/Qwen3-32B -tp 2 --kv-transfer-config \'{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}\'')
    assert any("LMCacheConnectorV1" in what for what in noted(found, Kind.UNSAID))


def test_words_behind_a_script_are_its_arguments() -> None:
    """`bash -c 'exec vllm serve "$@"' name ARGS` starts what AWS's samples start: the words behind the script are the engine's."""
    container = {"name": "a", "image": "vllm/vllm-openai:v0.33.0", "command": ["bash", "-c"]}
    container["args"] = [
        'sleep 5 &\nexec vllm serve "$@"\n',
        "vllm",
        QWEN,
        "--tensor-parallel-size=2",
        "--served-model-name",
        "a",
        "b",
        "--dtype",
        "half",
    ]
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    found = imported(yaml.safe_dump(deployment))
    (model,) = found.environment["models"]
    assert (model["model"], model["server"]["tensorParallel"], model["name"], model["dtype"]) == ("qwen3-32b", 2, "a", "float16")
    assert "the first is taken" in noted(found, Kind.UNSAID)["--served-model-name"]


def test_one_engine_without_a_connector_serves_alone() -> None:
    """llm-d labels what serves alone as decode: without a connector it is a server."""
    labels = {"llm-d.ai/role": "decode"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "vllm", "command": ["vllm", "serve", QWEN, "-tp", "2"]}]}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "labels": labels}, "spec": {"template": pod}}
    assert "server" in imported(yaml.safe_dump(deployment)).environment["models"][0]
    pod["spec"]["containers"][0]["command"].append('--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"kv_both"}')  # type: ignore[index]
    assert "nothing is its prefill" in refused(yaml.safe_dump(deployment))[0]


def test_variables_are_put_in_as_a_shell_does() -> None:
    """Outside of quotes a variable parts into words and an empty one vanishes; defaults and sums are taken; quotes keep JSON whole."""
    text = """
    ARGS="--max-num-seqs 64 --seed=3"
    EMPTY=""
    vllm serve $EMPTY Qwen/Qwen3-32B $ARGS -tp $((TP * 2)) --max-model-len ${LEN:-8192} ${MORE:+--foo} \\
      --compilation-config '{"level": 3}' --served-model-name "$NAME" > log 2>&1 &
    """
    (model,) = imported(manifest(script(text, env=[{"name": "TP", "value": "2"}, {"name": "NAME", "value": "my-name"}]))).environment["models"]
    assert model["server"] == {"instanceType": "p5.48xlarge", "tensorParallel": 4, "maxNumSeqs": 64}
    assert (model["name"], model["maxModelLen"]) == ("my-name", 8192)
    assert model["extraArgs"][0] == "--seed=3"
    assert json.loads(model["extraArgs"][1].partition("=")[2]) == {"level": 3}


def test_what_no_file_settles_is_not_guessed() -> None:
    """A value that depends on a condition, on a variable from elsewhere or on a group of unknown size is listed instead of taken."""
    text = """
    if [ "$FAST" = 1 ]; then
      SHARE=0.80
    else
      SHARE=0.95
    fi
    vllm serve Qwen/Qwen3-32B -tp 2 --gpu-memory-utilization $SHARE --max-num-seqs $SEQS $EXTRA --seed 1
    """
    found = imported(manifest(script(text), replicas="${REPLICAS}"))
    unsaid = noted(found, Kind.UNSAID)
    assert "SHARE" in unsaid["--gpu-memory-utilization"]
    assert "SEQS" in unsaid["--max-num-seqs"]
    assert "EXTRA" in unsaid["a word of the command line"]
    assert "put in later" in unsaid["spec.replicas"]
    assert found.environment["models"][0]["extraArgs"] == ["--seed=1"]
    group = script("vllm serve Qwen/Qwen3-32B -tp 2 --data-parallel-size $((LWS_GROUP_SIZE * 4))")
    found = imported(manifest(group, kind="LeaderWorkerSet", size="${SIZE}"))
    assert "LWS_GROUP_SIZE" in noted(found, Kind.UNSAID)["--data-parallel-size"]
    assert "dataParallel" not in found.environment["models"][0]["server"]


def test_weights_in_a_folder_are_known_by_their_served_name() -> None:
    """Dynamo's recipes load from a mounted folder and serve under the repository's name, which is the model."""
    found = imported(manifest({"args": ["--model", "/model-cache/qwen", "--served-model-name", QWEN, "--tensor-parallel-size", "2"]}))
    assert found.environment["models"][0]["model"] == "qwen3-32b"
    assert "repository" not in found.environment["models"][0]


def test_models_of_one_namespace_get_one_each() -> None:
    """Two models of one namespace come to two of their own, and the account says so; one model keeps its namespace."""
    one = manifest({"args": ["--model", QWEN, "--tensor-parallel-size=2"]}).replace("name: d", "name: d\n  namespace: shared", 1)
    other = one.replace(QWEN, "meta-llama/Llama-3.1-8B-Instruct")
    assert imported(one).environment["models"][0]["namespace"] == "shared"
    both = imported(one, other)
    assert [model.get("namespace") for model in both.environment["models"]] == [None, None]
    assert "a namespace of its own" in noted(both, Kind.UNSAID)["namespace"]
    assert not both.failed
