"""`disagg fit` and the memory part of plans."""

from __future__ import annotations

import json
from pathlib import Path

from command_line import Run

GLM = ("fit", "--model", "glm-5-fp8", "--instance", "p5.48xlarge", "--tensor-parallel", "8")
KEYS = {"model", "role", "perGpu", "kvBytesPerTokenPerGpu", "kvTokens", "maxConcurrency", "fits", "longestRequest"}


def test_what_does_not_fit_ends_with_two(disagg: Run) -> None:
    """744B on eight GPUs of 80 GB is refused with the numbers; over two nodes it fits."""
    assert disagg(*GLM) == 2
    assert "does not fit" in disagg.out
    assert "89.0 GiB a GPU" in disagg.out
    assert disagg(*GLM, "--pipeline-parallel", "2") == 0
    assert "50,076 bytes a GPU" in disagg.out
    assert disagg("fit", "--model", "glm-5-fp8", "--instance", "p5en.48xlarge", "--tensor-parallel", "8") == 0


def test_json_is_one_capacity_entry(disagg: Run) -> None:
    """The data has the keys of a plan's capacity, numbers as low, mid and high; the formulas only when asked for."""
    assert disagg(*GLM, "--pipeline-parallel", "2", "--kv-cache-dtype", "fp8", "--role", "aggregated", "--format", "json") == 0
    data = json.loads(disagg.out)
    assert set(data) == KEYS
    assert set(data["perGpu"]) == {"budgetGiB", "weightsGiB", "overheadGiB", "kvGiB"}
    assert data["kvBytesPerTokenPerGpu"] == 30_732
    assert data["kvTokens"]["low"] <= data["kvTokens"]["mid"] <= data["kvTokens"]["high"]
    assert disagg(*GLM, "--pipeline-parallel", "2", "--explain", "--format", "json") == 0
    assert "39 layers x 1,152 B" in json.dumps(json.loads(disagg.out)["steps"])


def test_nixl_buffers_count(disagg: Run) -> None:
    """A role of prefill and decode has less room than the same engine alone."""
    tokens = {}
    for role in ("aggregated", "decode"):
        assert (
            disagg(*GLM[:1], "--model", "qwen3-32b", "--instance", "p5.48xlarge", "--tensor-parallel", "2", "--role", role, "--format", "json") == 0
        )
        tokens[role] = json.loads(disagg.out)["kvTokens"]["mid"]
    assert tokens["decode"] < tokens["aggregated"]


def test_bad_input_is_explained(disagg: Run, tmp_path: Path) -> None:
    """Unknown ids, impossible numbers and files that are no log end with a sentence and no traceback."""
    log = tmp_path / "engine.log"
    log.write_text("hello", encoding="utf-8")
    for args, words in (
        (("--model", "glm-5-fp9"), "did you mean glm-5-fp8?"),
        (("--instance", "p5.48xlage"), "did you mean p5.48xlarge?"),
        (("--engine", "vllm"), "is not a known engine"),
        (("--pipeline-parallel", "100"), "stages without layers"),
        (("--kv-cache-dtype", "fp4"), "KV dtype"),
        (("--gpu-memory-utilization", "1.5"), "is no share"),
        (("--log", str(log)), "engine.log"),
        (("--model", "./nothing"), "nothing"),
    ):
        assert disagg(*GLM, *args) != 0
        assert words in disagg.out + disagg.err, (args, disagg.out + disagg.err)
        assert "Traceback" not in disagg.out + disagg.err


def test_a_local_config_is_calculated(disagg: Run, tmp_path: Path) -> None:
    """The path of a config.json works like a catalogue id; an architecture that is not known is refused and never guessed."""
    config = {
        "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
        "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert disagg("fit", "--model", str(tmp_path), "--instance", "p5.4xlarge", "--format", "json") == 0
    assert json.loads(disagg.out)["kvBytesPerTokenPerGpu"] == 131_072
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["MambaForCausalLM"]}), encoding="utf-8")
    assert disagg("fit", "--model", str(tmp_path), "--instance", "p5.4xlarge") != 0
    assert "MambaForCausalLM" in disagg.out + disagg.err


def test_plans_show_memory_and_traffic(disagg: Run) -> None:
    """A plan has an entry a role, in its data and in its text."""
    assert disagg("plan", "prod", "--format", "json") == 0
    data = json.loads(disagg.out)
    assert [(c["model"], c["role"]) for c in data["capacity"]] == [("llama-70b", "prefill"), ("llama-70b", "decode")]
    assert all(set(c) == {*KEYS, "workloadConcurrency"} for c in data["capacity"])
    assert all(c["workloadConcurrency"]["mid"] > c["maxConcurrency"]["mid"] for c in data["capacity"])
    assert data["forecast"][0]["better"] == "aggregated"
    assert disagg("plan", "prod") == 0
    assert "llama-70b decode" in disagg.out
    assert "no measured rates" in disagg.out
