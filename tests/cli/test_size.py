"""`disagg size`: from a question to a stack file that passes the checks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import Run
from disagg_serving.schemas import json_schema
from jsonschema import Draft202012Validator

BLOCKS = ("--pricing", "capacity-block", "--instances", "p5.48xlarge,p5e.48xlarge,p5en.48xlarge")
ROWS: dict[str, tuple[str, float, float, float, float | None, float | None, tuple[str, ...]]] = {
    "llama": ("llama-3.3-70b-instruct-fp8", 8000, 1000, 20, 2000, 50, ()),
    "llama-blocks": ("llama-3.3-70b-instruct-fp8", 8000, 1000, 20, 2000, 50, BLOCKS),
    "glm": ("glm-5-fp8", 12000, 1500, 2, 5000, 60, ()),
    "deepseek": ("deepseek-v3", 12000, 1500, 4, 4000, 60, ()),
    "gpt-oss": ("gpt-oss-120b", 4000, 1000, 20, 1500, 25, ()),
    "qwen": ("qwen3-235b-a22b-instruct-fp8", 8000, 1000, 5, 3000, 50, ()),
    "small": ("llama-3.1-8b-instruct", 2000, 300, 1, None, None, ()),
}  # fmt: skip
"""Model, prompt, answer, requests/s, limits, and options."""


class Here(Run):
    """`disagg` in a folder of the test's own."""

    folder = Path()

    def __call__(self, *args: str, cwd: Path | None = None) -> int:
        """Run a command there."""
        return super().__call__(*args, cwd=cwd or self.folder)


@pytest.fixture
def disagg(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Here:
    """The command line."""
    run = Here(capsys, monkeypatch)
    run.folder = tmp_path
    return run


def options(row: str, **changed: object) -> list[str]:
    """The command line of a row."""
    model, prompt, reply, rate, ttft, tpot, more = ROWS[row]
    given = {"model": model, "input-tokens": prompt, "output-tokens": reply, "requests-per-second": rate, "ttft-ms": ttft, "tpot-ms": tpot} | changed
    return ["size", *(text for key, value in given.items() if value is not None for text in (f"--{key}", str(value))), *more]


def sized(disagg: Run, *arguments: str) -> dict[str, Any]:
    """The answer as JSON."""
    assert disagg(*arguments, "--format", "json") == 0, disagg.err
    found: dict[str, Any] = json.loads(disagg.out)
    return found


@pytest.mark.parametrize("row", ROWS)
def test_questions_are_answered_with_a_stack_file_that_passes(disagg: Run, tmp_path: Path, row: str) -> None:
    """What is written passes `disagg check`, holds the question with its limits, says its forecast, and claims no measurement."""
    answer = sized(disagg, *options(row), "--write", "sized.yaml")
    assert disagg("check", "sized.yaml", "--format", "json") == 0
    text = (tmp_path / "sized.yaml").read_text()
    (model,) = yaml.safe_load(text)["config"]["disagg-serving:environment"]["models"]
    _, prompt, reply, rate, ttft, tpot, _ = ROWS[row]
    limits = {"ttftMs": ttft, "tpotMs": tpot, "percentile": 90} if ttft else {}
    assert model["workload"] == {"inputTokens": prompt, "outputTokens": reply, "requestsPerSecond": rate, **limits}
    assert answer["answer"] in text
    assert "measuredRates" not in str(model)
    assert answer["chosen"]["usdPerHour"] <= 1.15 * answer["cheapest"]["usdPerHour"]
    for role in answer["chosen"]["roles"]:
        assert {key: model[role["role"]].get(key) for key in ("instanceType", "replicas")} == {key: role[key] for key in ("instanceType", "replicas")}
    Draft202012Validator(json_schema("size")).validate(answer)


def test_cost_is_that_of_the_plan(disagg: Run, tmp_path: Path) -> None:
    """The plan of what was written has the same nodes at the same price."""
    answer = sized(disagg, *options("llama"), "--write", "stacks/Pulumi.sized.yaml")
    from disagg_serving.forecast.cost import FIXED, cost_of
    from disagg_serving.rules.evaluation import evaluate_file
    from disagg_serving.spec.stack_file import read_environment_file

    layout = evaluate_file(read_environment_file(tmp_path / "stacks/Pulumi.sized.yaml"), tmp_path).require_layout()
    nodes = [line for line in cost_of(layout).lines if line.name not in FIXED]
    assert sum(line.per_hour or 0 for line in nodes) == pytest.approx(answer["chosen"]["usdPerHour"])
    assert sum(line.quantity for line in nodes) == answer["chosen"]["nodes"]


def test_it_is_quick_and_needs_no_pulumi() -> None:
    """An answer takes less than two seconds of CPU, and loads neither Pulumi nor a client of anything."""
    code = (
        "import sys, time; from disagg_serving.cli.main import main; code = main(sys.argv[1:]);"
        "print(time.process_time(), sorted(m for m in sys.modules if m.split('.')[0] in {'pulumi', 'boto3', 'kubernetes'}), code, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *options("qwen")], capture_output=True, text=True, check=True)
    seconds, modules, code = done.stderr.split()
    assert (modules, code) == ("[]", "0")
    assert float(seconds) < 2


def test_a_file_that_exists_is_left(disagg: Run, tmp_path: Path) -> None:
    """A stack file is never written over, unless it is said."""
    (tmp_path / "sized.yaml").write_text("mine")
    assert disagg(*options("small"), "--write", "sized.yaml") == 1
    assert "exists and is left as it is" in disagg.err
    assert (tmp_path / "sized.yaml").read_text() == "mine"
    assert disagg(*options("small"), "--write", "sized.yaml", "--force") == 0
    assert "llama-3.1-8b-instruct" in (tmp_path / "sized.yaml").read_text()


def test_all_faults_of_a_question_are_said_at_once(disagg: Run) -> None:
    """Nonsense of every option is refused in one go, each with value and what is allowed."""
    wrong = {
        "model": "lama-3.3-70b", "input-tokens": "-1", "output-tokens": "many", "requests-per-second": "nan", "ttft-ms": "0", "tpot-ms": "inf",
        "percentile": "99",
        "prefix-hit": "1",
        "instances": "p9.48xlarge,p5e.48xlarge", "mode": "both", "pricing": "spot", "nodes": "0", "plan": "fast",
        "kv-cache-dtype": "fp4", "top": "0",
        "region": "moon",
    }  # fmt: skip
    assert disagg(*options("llama", **wrong)) == 2
    for option, value in wrong.items():
        (line,) = [one for one in disagg.err.splitlines() if f"--{option}:" in one and value.partition(",")[0] in one]
        assert "allowed:" in line
    assert "p5e.48xlarge has no on-demand price" in disagg.err


@pytest.mark.parametrize(
    ("row", "changed", "says"),
    [
        ("llama", {"model": "somebody/Else-7B"}, ["--model: somebody/Else-7B is no model with step data", "disagg bench"]),
        ("llama", {"ttft-ms": "100"}, ["--ttft-ms: 100.0 is less than one request alone takes", "or more"]),
        ("llama", {"tpot-ms": "1"}, ["--tpot-ms: 1.0 is less than one request alone takes", "or more"]),
        ("llama", {"nodes": "2"}, ["--requests-per-second: 20.0 is more than 2 nodes hold", "at most"]),
        ("glm", {"instances": "p5.48xlarge"}, ["does not fit any of the instance types", "GiB a GPU are missing"]),
        ("llama", {"instances": "p5e.48xlarge"}, ["p5e.48xlarge has no on-demand price"]),
        ("llama", {"input-tokens": "200000"}, ["--input-tokens: 200000 is beyond the tables", "at most 131072"]),
        ("qwen", {"output-tokens": "130000"}, ["--output-tokens: 130000 with 8000 tokens of prompt is beyond the tables"]),
        ("llama", {"max-model-len": "100"}, ["--max-model-len: 100 is not possible", "9000"]),
    ],
)
def test_what_cannot_be_is_said_with_the_way_out(disagg: Run, row: str, changed: dict[str, str], says: list[str]) -> None:
    """Each question without an answer ends with 2 and says what would have one."""
    assert disagg(*options(row, **changed)) == 2
    for words in says:
        assert words in disagg.err
    assert "Traceback" not in disagg.err


def test_the_rate_that_holds_holds(disagg: Run) -> None:
    """The rate that is named where nodes are too few is one that they carry."""
    assert disagg(*options("llama", nodes=2)) == 2
    rate = disagg.err.partition("allowed: at most ")[2].partition(")")[0]
    assert disagg(*options("llama", nodes=2, **{"requests-per-second": float(rate) * 0.99})) == 0


def test_names_and_paths_lead_to_the_same_model(disagg: Run, tmp_path: Path) -> None:
    """A name on Hugging Face and a config.json of the same shape are the catalogue's model."""
    by_id = sized(disagg, *options("gpt-oss"))
    assert sized(disagg, *options("gpt-oss", model="openai/gpt-oss-120b")) == by_id
    config = {
        "architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 64, "hidden_size": 5120, "num_attention_heads": 64, "num_key_value_heads": 8,
        "head_dim": 128, "intermediate_size": 25600, "vocab_size": 151936, "max_position_embeddings": 40960, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/config.json").write_text(json.dumps(config))
    found, same = sized(disagg, *options("small", model="mine"), "--write", "mine.yaml"), sized(disagg, *options("small", model="qwen3-32b"))
    assert found["chosen"]["usdPerHour"] == same["chosen"]["usdPerHour"]
    assert disagg("check", "mine.yaml") == 0


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_every_format_tells_the_answer(disagg: Run, form: str) -> None:
    """The answer, both costs, the front and what was left out are in every format."""
    answer = sized(disagg, *options("gpt-oss"))
    assert disagg(*options("gpt-oss"), "--format", form) == 0
    for words in (answer["chosen"]["name"], f"{answer['chosen']['usdPerHour']:,.2f}", "left out", "Cost against time per token", "aisimulate"):
        assert words in disagg.out
    assert ("<svg" in disagg.out) == (form == "html")
    assert any(0x2800 < ord(sign) <= 0x28FF for sign in disagg.out) == (form == "text")
    assert "\\u" not in disagg.out, "a sign that is written out"


def test_refused_winners_are_named_with_their_rule(disagg: Run) -> None:
    """A layout that a rule refuses is no answer: it is named with the rule, and the next one is taken."""
    answer = sized(disagg, *options("deepseek"))
    names = {one["name"] for one in answer["refused"]}
    assert names
    assert all(one["rule"] for one in answer["refused"])
    assert not names & {layout["name"] for layout in (answer["chosen"], answer["cheapest"], *answer["top"], *answer["front"])}


def test_mode_is_kept(disagg: Run) -> None:
    """Who asks for one way gets that one."""
    one = sized(disagg, *options("qwen"), "--mode", "aggregated")
    two = sized(disagg, *options("qwen"), "--mode", "disaggregated")
    assert {r["role"] for layout in one["top"] for r in layout["roles"]} == {"server"}
    assert {r["role"] for layout in two["top"] for r in layout["roles"]} == {"prefill", "decode"}


def test_own_measurements_scale_the_tables(disagg: Run, tmp_path: Path) -> None:
    """With rates of half what the tables say, steps are taken as twice as slow, and the answer says so."""
    plain = sized(disagg, *options("llama"), "--mode", "disaggregated", "--instances", "p5.48xlarge", "--write", "sized.yaml")
    data = yaml.safe_load((tmp_path / "sized.yaml").read_text())
    (model,) = data["config"]["disagg-serving:environment"]["models"]
    model["prefill"]["measuredRates"] = [{"inputTokens": 8000, "tokensPerSecondPerGPU": 2500}]
    (tmp_path / "sized.yaml").write_text(yaml.safe_dump(data))
    scaled = sized(disagg, *options("llama"), "--mode", "disaggregated", "--instances", "p5.48xlarge", "--calibrate", "sized.yaml")
    (factor,) = {r["corrected"] for r in scaled["chosen"]["roles"] if r["role"] == "prefill"}
    assert factor > 1.5
    assert scaled["cheapest"]["usdPerHour"] > plain["cheapest"]["usdPerHour"]
    assert disagg(*options("llama"), "--mode", "disaggregated", "--instances", "p5.48xlarge", "--calibrate", "sized.yaml") == 0
    assert "scaled by own measurements: prefill" in disagg.out
