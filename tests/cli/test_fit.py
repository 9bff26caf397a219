"""`disagg fit` and the memory part of plans."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from command_line import Run
from disagg_serving.forecast.capacities import capacities
from disagg_serving.records import data_of
from factories import example

GLM = ("fit", "--model", "glm-5-fp8", "--instance", "p5.48xlarge", "--tensor-parallel", "8")
KEYS = {"model", "role", "perGpu", "kvBytesPerTokenPerGpu", "kvTokens", "maxConcurrency", "fits", "longestRequest"}


def test_what_does_not_fit_ends_with_two(disagg: Run) -> None:
    """744B on eight GPUs of 80 GB is refused with the numbers; over two nodes it fits."""
    assert disagg(*GLM) == 2
    assert "does not fit" in disagg.out
    assert "89.1 GiB a GPU" in disagg.out
    assert disagg(*GLM, "--pipeline-parallel", "2") == 0
    assert "50,076 bytes a GPU" in disagg.out
    assert disagg("fit", "--model", "glm-5-fp8", "--instance", "p5en.48xlarge", "--tensor-parallel", "8") == 0


def test_what_is_suggested_was_tried_with_its_memory(disagg: Run) -> None:
    """A way out of a fault of form that does not fit the GPUs is none; what does not fit names ways out, and they fit."""
    assert disagg(*GLM, "--role", "decode", "--pipeline-parallel", "2", "--max-model-len", "32768") == 2
    (refused,) = [line for line in disagg.out.splitlines() if "[nixl-pipeline-parallel]" in line]
    assert "use 1," not in refused
    assert "use tensorParallel 8 with pipelineParallel 1 on p5en.48xlarge" in refused
    assert disagg("fit", "--model", "glm-5-fp8", "--instance", "p5en.48xlarge", *GLM[5:], "--role", "decode", "--max-model-len", "32768") == 0
    assert disagg(*GLM) == 2
    (refused,) = [line for line in disagg.out.splitlines() if "error [memory-fit] --tensor-parallel: 8" in line]
    assert "use tensorParallel 8 with pipelineParallel 2 on p5.48xlarge, or use tensorParallel 8 on p5en.48xlarge" in refused
    assert disagg(*GLM[:3], "--instance", "p5.4xlarge", "--role", "decode", "--tensor-parallel", "1") == 2
    assert "error [gpu-direct-rdma] --instance: p5.4xlarge" in disagg.out


def test_memory_that_must_stay_free_is_said(disagg: Run) -> None:
    """A public run at 0.97 passed its start and ran out of memory at four requests: what fits by the numbers is not all."""
    assert disagg(*GLM, "--pipeline-parallel", "2", "--gpu-memory-utilization", "0.97") == 0
    assert "warning [memory-margin] --gpu-memory-utilization: 0.97" in disagg.out
    assert disagg(*GLM, "--pipeline-parallel", "2", "--gpu-memory-utilization", "0.92") == 0
    assert "memory-margin" not in disagg.out


def test_a_verdict_is_that_of_the_likely_case(disagg: Run) -> None:
    """Where the middle of the estimate has no room, it is not only the worst case that lacks it."""
    tight = ("fit", "--model", "qwen3-32b", "--instance", "p5.48xlarge", "--max-num-batched-tokens", "100")
    assert disagg(*tight) == 0
    assert "requests of 40,960 tokens  0.9 (0.8 to 1.0)" in disagg.out
    assert "\nhardly fits: only in the best case" in disagg.out
    assert disagg(*tight, "--max-model-len", "32768") == 0
    assert "\nmay fit: in the worst case" in disagg.out


def test_roles_of_a_pair_are_those_of_a_plan(disagg: Run) -> None:
    """A role of prefill and decode has the larger blocks that the plan gives it."""
    assert disagg("plan", "prod", "--format", "json") == 0
    planned = {c["role"]: c["kvTokens"] for c in json.loads(disagg.out)["capacity"]}
    pair = ("fit", "--model", "llama-3.3-70b-instruct-fp8", "--instance", "p5.48xlarge", "--max-model-len", "32768", "--format", "json")
    for side, size in (("prefill", "4"), ("decode", "2")):
        assert disagg(*pair, "--role", side, "--tensor-parallel", size) == 0
        assert json.loads(disagg.out)["kvTokens"] == planned[side]


def test_shared_out_copies_are_calculated(disagg: Run) -> None:
    """Decode context parallelism divides the bytes of a latent by its GPUs; more GPUs than hold copies are refused."""
    wide = ("fit", "--model", "deepseek-v3", "--instance", "p5en.48xlarge", "--tensor-parallel", "8", "--format", "json")
    assert disagg(*wide) == 0
    alone = json.loads(disagg.out)
    assert disagg(*wide, "--decode-context-parallel", "4") == 0
    shared = json.loads(disagg.out)
    assert shared["kvBytesPerTokenPerGpu"] * 4 == alone["kvBytesPerTokenPerGpu"] == 70_272
    assert shared["kvTokens"]["mid"] == pytest.approx(4 * alone["kvTokens"]["mid"], rel=0.01)
    assert disagg(*wide, "--decode-context-parallel", "3") != 0
    assert "decodeContextParallel" in disagg.out + disagg.err


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


def test_ranks_are_those_of_a_role(disagg: Run) -> None:
    """The command and the plan calculate the same engine: tokens and requests of all its data-parallel ranks."""
    decode = [data_of(f) for f in capacities(example("glm5-wide-ep", "prod")) if f.role == "decode"]
    options = ("--data-parallel", "2", "--expert-parallel", "--kv-cache-dtype", "fp8", "--max-model-len", "32768", "--role", "decode")
    assert disagg(*GLM, *options, "--max-num-batched-tokens", "4096", "--format", "json") == 0
    data = json.loads(disagg.out)
    assert data.items() <= {**decode[0], "model": "glm-5-fp8"}.items()
    assert disagg(*GLM, *options, "--explain") == 0
    assert "each of 2 data-parallel ranks" in disagg.out
    assert disagg(*GLM, *options, "--all2all-backend", "deepep_low_latency") == 2
    assert "--all2all-backend: deepep_low_latency needs InfiniBand" in disagg.out
    assert disagg(*GLM, "--data-parallel", "3", "--expert-parallel") == 2
    assert "--data-parallel: 3" in disagg.out


def test_nixl_buffers_count(disagg: Run) -> None:
    """A role of prefill and decode has less room than the same engine alone."""
    tokens = {}
    for role in ("aggregated", "decode"):
        assert (
            disagg(*GLM[:1], "--model", "qwen3-32b", "--instance", "p5.48xlarge", "--tensor-parallel", "2", "--role", role, "--format", "json") == 0
        )
        tokens[role] = json.loads(disagg.out)["kvTokens"]["mid"]
    assert tokens["decode"] < tokens["aggregated"]


def test_all_unknown_names_are_told_at_once(disagg: Run) -> None:
    """Who mistypes three names corrects them in one go."""
    assert disagg("fit", "--model", "gpt-oss", "--instance", "p5.48", "--engine", "vllm") == 2
    for option in ("--model", "--instance", "--engine"):
        assert f"{option}: " in disagg.out + disagg.err


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


LLAMA_FP8 = ("fit", "--model", "llama-3.3-70b-instruct-fp8", "--instance", "p5.48xlarge", "--tensor-parallel", "2", "--max-model-len", "16384")
LOG = """\
INFO 11-20 10:00:00 [api_utils.py:339] vLLM API server version 0.33.0
INFO 11-20 10:00:01 [api_utils.py:273] non-default args: {'gpu_memory_utilization': 0.92, 'tensor_parallel_size': 2}
INFO 11-20 10:01:00 [gpu_model_runner.py:5089] Model loading took 33.8765 GiB memory and 41.123456 seconds
INFO 11-20 10:01:30 [gpu_worker.py:773] Available KV cache memory: 32.04 GiB
INFO 11-20 10:01:31 [kv_cache_utils.py:1148] GPU KV cache size: 209,968 tokens, Maximum concurrency for 16,384 tokens per request: 12.82x
"""


def write_log(folder: Path, text: str = LOG) -> str:
    """A log file with this text; returns its path."""
    (folder / "engine.log").write_text(text, encoding="utf-8")
    return str(folder / "engine.log")


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ("llama-3.3-70b-instruct", ("--tensor-parallel", "3"), "error [heads] --tensor-parallel: 3 does not divide the 64 attention heads"),
        ("llama-3.3-70b-instruct", ("--tensor-parallel", "128"), "error [heads] --tensor-parallel: 128"),
        ("llama-3.1-8b-instruct", ("--max-model-len", "200000"), "error [max-model-len] --max-model-len: 200000 is longer than the context"),
        ("qwen3-235b-a22b-instruct-fp8", ("--tensor-parallel", "8", "--max-model-len", "8192"), "error [expert-blocks] --tensor-parallel: 8"),
        ("llama-3.1-8b-instruct", ("--role", "decode", "--pipeline-parallel", "2"), "error [nixl-pipeline-parallel] --pipeline-parallel: 2"),
    ],
)
def test_what_cannot_start_does_not_fit(disagg: Run, model: str, options: tuple[str, ...], words: str) -> None:
    """Memory is not all: a shape that vLLM refuses is refused here, in both formats, with the option's name."""
    command = ("fit", "--model", model, "--instance", "p5.48xlarge", *options)
    assert disagg(*command) == 2
    assert words in disagg.out
    assert "\nfits" not in disagg.out
    assert "\ndoes not start" in disagg.out
    assert disagg(*command, "--format", "json") == 2
    assert [f for f in json.loads(disagg.out)["findings"] if f["level"] == "error" and f"[{f['id']}]" in words]


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ("deepseek-v3", ("--tensor-parallel", "8", "--data-parallel", "3", "--expert-parallel"), "error [experts] --data-parallel: 3"),
        ("deepseek-v3", ("--tensor-parallel", "2", "--data-parallel", "6", "--expert-parallel"), "error [tensor-parallel] --data-parallel: 6"),
        ("llama-3.1-8b-instruct", ("--data-parallel", "2"), "error [data-parallel] --data-parallel: 2 has no use"),
    ],
)
def test_ranks_of_data_parallelism_are_checked(disagg: Run, model: str, options: tuple[str, ...], words: str) -> None:
    """Ranks fill nodes and divide the experts, which a model without any has no use for."""
    assert disagg("fit", "--model", model, "--instance", "p5en.48xlarge", "--max-model-len", "8192", *options) == 2
    assert words in disagg.out


def test_what_is_missing_is_said(disagg: Run) -> None:
    """A model that does not fit lacks so many GiB a GPU; one that fits lacks nothing."""
    assert disagg(*GLM) == 2
    assert "missing                     44" in disagg.out
    assert disagg(*GLM, "--pipeline-parallel", "2") == 0
    assert "missing" not in disagg.out


def test_a_log_gives_the_calibration(disagg: Run, tmp_path: Path) -> None:
    """The figures of the log are printed as they stand there, ready for the role; results are single numbers without a worst case."""
    command = (*LLAMA_FP8, "--gpu-memory-utilization", "0.92", "--log", write_log(tmp_path))
    expected = {"weightsGiB": 33.8765, "kvCacheGiB": 32.04, "kvCacheTokens": 209968, "gpuMemoryUtilization": 0.92}
    assert disagg(*command) == 0, disagg.out + disagg.err
    assert yaml.safe_load(disagg.out.splitlines()[-1]) == {"calibration": expected}
    assert "weights                    33.9 GiB a GPU\n" in disagg.out
    assert " to 33.9" not in disagg.out
    assert "worst case" not in disagg.out
    assert disagg(*command, "--format", "json") == 0
    assert json.loads(disagg.out)["calibration"] == expected


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        (LOG, ("--tensor-parallel", "4"), "kvCacheTokens: 209968 are not what 32.04 GiB hold"),
        (LOG.replace("32.04", "42.04").replace("209,968", "275,504"), (), "kvCacheGiB: 42.04 and weightsGiB are 75.9 GiB together"),
        (LOG.replace("33.8765", "20.5"), (), "weightsGiB: 20.5 is more than 10% outside"),
    ],
)
def test_a_log_of_another_engine_is_refused(disagg: Run, tmp_path: Path, text: str, options: tuple[str, ...], words: str) -> None:
    """Tokens, budget and weights have to go with the options."""
    assert disagg(*LLAMA_FP8, *options, "--log", write_log(tmp_path, text)) == 2
    assert words in disagg.out
    assert "\nno answer: the log is of another engine" in disagg.out


def test_a_log_of_another_version_is_a_warning(disagg: Run, tmp_path: Path) -> None:
    """Another vLLM needs another amount of memory, so its log is no more than a hint."""
    assert disagg(*LLAMA_FP8, "--log", write_log(tmp_path, LOG.replace("0.33.0", "0.31.1"))) == 0
    assert "warning [calibration]" in disagg.out
    assert "0.31.1 is the vLLM of the log" in disagg.out


def test_a_file_is_named_once(disagg: Run, tmp_path: Path) -> None:
    """The finding about a log has the path that was given, and not the file's name behind it."""
    for path in (write_log(tmp_path, "hello"), write_log(tmp_path, LOG + "ERROR Engine core initialization failed. See root cause above.")):
        assert disagg(*LLAMA_FP8, "--log", path) == 2
        assert disagg.err.count("engine.log") == 1
        assert disagg.err.startswith(f"error: {path}: is ")


def test_what_a_stack_file_can_say_is_an_option(disagg: Run) -> None:
    """Fewer sequences and no graphs leave more for KV, draft layers leave less, and what overflows to the host is counted beside."""
    engine = ("fit", "--model", "glm-5-fp8", "--instance", "p5en.48xlarge", "--tensor-parallel", "8", "--format", "json")

    def kept(*options: str) -> float:
        assert disagg(*engine, *options) == 0
        return float(json.loads(disagg.out)["perGpu"]["kvGiB"]["mid"])

    plain, few, eager, drafts = kept(), kept("--max-num-seqs", "128"), kept("--eager"), kept("--speculative-tokens", "2")
    assert few > plain + 1
    assert eager > plain + 2
    assert drafts < plain - 1
    assert disagg(*engine[:-2], "--kv-offload", "500") == 0
    assert "in host memory" in disagg.out
    assert "tokens more in 500 GiB" in disagg.out
    assert disagg(*engine, "--model", "qwen3-32b", "--speculative-tokens", "2") == 2
    assert "--speculative-tokens" in disagg.out


def test_a_log_settles_a_model_of_another_class(tmp_path: Path, disagg: Run) -> None:
    """Without its log a class that is not known is refused by name; with it tokens and requests are those of the start."""
    config = {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 14336, "vocab_size": 32000}
    (tmp_path / "config.json").write_text(
        json.dumps({"architectures": ["OddForCausalLM"], "max_position_embeddings": 32768, **config}), encoding="utf-8"
    )
    log = tmp_path / "engine.log"
    log.write_text(
        "Model loading took 20.0 GiB memory and 9 seconds\nAvailable KV cache memory: 40.0 GiB\nGPU KV cache size: 327,680 tokens\n", encoding="utf-8"
    )
    odd = ("fit", "--model", str(tmp_path), "--instance", "p5.48xlarge")
    assert disagg(*odd) == 2
    assert "OddForCausalLM" in disagg.err
    assert "disagg fit --log" in disagg.err
    assert disagg(*odd, "--log", str(log)) == 0
    assert "requests of 32,768 tokens  10.0" in disagg.out
