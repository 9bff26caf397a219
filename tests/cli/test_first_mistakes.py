"""What a new user writes first, and the answer: the one thing that is wrong, and the word that was meant."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command_line import Run
from disagg_serving.cli.main import COMMANDS, build_app
from disagg_serving.cli.progress import CLEAR, Progress
from disagg_serving.guesses import likely
from factories import SHIPPED

PROD = (SHIPPED / "stacks/Pulumi.prod.yaml").read_text(encoding="utf-8")


def errors(disagg: Run, tmp_path: Path, before: str, after: str) -> list[str]:
    """What `check` says of prod with one change, without warnings and notes."""
    assert PROD.count(before) >= 1
    file = tmp_path / "Pulumi.mine.yaml"
    file.write_text(PROD.replace(before, after, 1), encoding="utf-8")
    disagg("check", str(file), "--quiet")
    return [line for line in disagg.out.splitlines() if line.startswith("error")]


@pytest.mark.parametrize(
    ("before", "after", "path", "meant"),
    [
        ("tensorParallel: 4", "tp: 4", "models[0].prefill.tp", "did you mean tensorParallel?"),
        ("tensorParallel: 4", "tensor_paralel: 4", "models[0].prefill.tensor_paralel", "did you mean tensorParallel?"),
        ("replicas: 4", "replica: 4", "models[0].decode.replica", "did you mean replicas?"),
        ("model: llama-3.3-70b-instruct-fp8", "model: llama-3.3", "models[0].model", "llama-3.3-70b-instruct or llama-3.3-70b-instruct-fp8?"),
        ("model: llama-3.3-70b-instruct-fp8", "model: redhatai/llama-3.3-70b-instruct-fp8", "models[0].model", "RedHatAI/Llama-3.3-70B-Instruct"),
        ("instanceType: p5.48xlarge", "instanceType: p5en", "models[0].prefill.instanceType", "did you mean p5en.48xlarge?"),
        ("instanceType: p5.48xlarge", "instanceType: P5.48xlarge", "models[0].prefill.instanceType", "did you mean p5.48xlarge?"),
        ("        workload:", "        weights: {s3: s3://mine/a/b}\n        workload:", "models[0].weights.s3", "use {bucket: mine, prefix: a/b}"),
        ("        workload:", "        weights: {s3: s3://mine/}\n        workload:", "models[0].weights.s3", "use {bucket: mine}"),
    ],
)
def test_one_mistake_is_one_finding(  # noqa: PLR0913, PLR0917 (a change and its answer)
    disagg: Run, tmp_path: Path, before: str, after: str, path: str, meant: str
) -> None:
    """A slip is answered once, at its place and line, with what was meant, and nothing is found fault with that follows from it."""
    (line,) = errors(disagg, tmp_path, before, after)
    assert line.split("] ", 1)[1].startswith(f"{path}: ")
    assert meant in line
    assert "(Pulumi.mine.yaml:" in line


def test_two_misspelt_keys_are_two_findings(disagg: Run, tmp_path: Path) -> None:
    """Keys that are required count as given when their names are misspelt."""
    found = errors(disagg, tmp_path, "replicas: 2,", "autoscaling: {min: 1, max: 4},")
    assert [line.split("] ", 1)[1].split(":")[0] for line in found if "unknown-key" in line] == [
        "models[0].prefill.autoscaling.max",
        "models[0].prefill.autoscaling.min",
    ]
    assert not any("missing" in line for line in found)


def test_another_family_is_no_slip(disagg: Run, tmp_path: Path) -> None:
    """No type of the catalogue is near to a g5: the answer is how to add it."""
    (line,) = errors(disagg, tmp_path, "instanceType: p5.48xlarge", "instanceType: g5.xlarge")
    assert "did you mean" not in line
    assert "add `instances/g5.xlarge.yaml`" in line


def test_a_model_may_be_named_as_on_hugging_face(disagg: Run, tmp_path: Path) -> None:
    """The repository of an entry means the entry, in a stack file, for `fit` and for `init`."""
    assert errors(disagg, tmp_path, "model: llama-3.3-70b-instruct-fp8", "model: RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic") == []
    assert disagg("fit", "--model", "Qwen/Qwen3-32B", "--instance", "p5.48xlarge", "--tensor-parallel", "2", cwd=tmp_path) == 0
    assert disagg("init", "new", "--model", "Qwen/Qwen3-32B", "--yes", cwd=tmp_path) == 0
    assert "model: qwen3-32b " in (tmp_path / "stacks/Pulumi.new.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("catalog", "modls"), "Did you mean models?"),
        (("plan", "prod", "--format", "htm"), "Did you mean html?"),
        (("check", "prod", "--only", "memory-fi"), "did you mean memory-fit?"),
        (("check", "prod", "--format", "json", "--only", "memory-fit"), "--format text"),
    ],
)
def test_wrong_words_of_a_call(disagg: Run, args: tuple[str, ...], words: str) -> None:
    """A wrong choice names the likely one, without the words of a library."""
    assert disagg(*args) == 1
    assert words in disagg.err
    assert "Value error" not in disagg.err


def test_outside_of_a_project_the_way_in_is_named(disagg: Run, tmp_path: Path) -> None:
    """Whoever starts in an empty folder is told how to begin."""
    assert disagg("plan", "prod", cwd=tmp_path) == 1
    assert "disagg init" in disagg.err


def test_a_view_changes_no_exit_code(disagg: Run, tmp_path: Path) -> None:
    """Options that leave findings out leave the exit code, and count what they left out."""
    assert disagg("check", "prod", "--fail-on", "warning", "--hide", "warning", "--hide", "info") == 2
    assert disagg.out.splitlines()[-1].startswith("0 errors, 1 warning; ")
    assert disagg.out.splitlines()[-1].endswith(" not shown")
    file = tmp_path / "found.txt"
    assert disagg("check", "prod", "--only", "quota", "-o", str(file)) == 0
    assert disagg.out == ""
    assert [line.split("]")[0] for line in file.read_text(encoding="utf-8").splitlines()[:-1]] == ["info [quota"]


def test_the_last_line_is_the_reason_of_the_exit_code(disagg: Run) -> None:
    """The end of a plan says why a pipeline goes on or stops."""
    assert disagg("plan", "prod") == 0
    assert disagg.out.splitlines()[-1] == "exit 0: no errors"
    assert disagg("plan", "prod", "--fail-on", "warning", "-q") == 2
    assert disagg.out.splitlines()[-1] == "exit 2: 1 warning (--fail-on warning)"


@pytest.mark.parametrize(
    ("word", "known", "found"),
    [
        ("qwen3-235b", ["qwen3-32b", "qwen3-235b-a22b", "qwen3-235b-a22b-fp8"], ["qwen3-235b-a22b", "qwen3-235b-a22b-fp8"]),
        ("QWEN3_32B", ["qwen3-32b", "qwen3-32b-fp8"], ["qwen3-32b"]),
        ("ep", ["expertParallel", "dataParallel"], ["expertParallel"]),
        ("s", ["server", "spot"], []),
        ("", ["server"], []),
        ("--", ["server"], []),
        ("dcode", ["decode", "encode"], ["decode"]),
        (5, ["server"], []),
    ],
)
def test_what_a_word_may_stand_for(word: object, known: list[str], found: list[str]) -> None:
    """The same word first, then what it begins, then what it abbreviates, then what is spelt like it."""
    assert likely(word, known) == found


def complete(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str) -> list[str]:
    """What bash offers at the end of a line."""
    monkeypatch.setenv("_DISAGG_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
    with pytest.raises(SystemExit):
        build_app()(prog_name="disagg")
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("disagg pl", "plan"),
        ("disagg plan pro", "prod"),
        ("disagg explain memory-", "memory-fit"),
        ("disagg fit --model qwen3-3", "qwen3-32b"),
        ("disagg fit --instance p5en", "p5en.48xlarge"),
        ("disagg check prod --only quo", "quota"),
    ],
)
def test_a_shell_completes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str, offered: str) -> None:
    """TAB finishes commands, stacks, rules, models and instance types."""
    monkeypatch.chdir(SHIPPED)
    assert offered in complete(capsys, monkeypatch, line)


def test_a_shell_gets_no_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Outside of a project TAB offers no stack, and says nothing."""
    monkeypatch.chdir(tmp_path)
    assert complete(capsys, monkeypatch, "disagg plan ") == []


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_whole_at_80_columns(disagg: Run, name: str) -> None:
    """The list of commands cuts no text, and each command answers -h."""
    assert disagg("-h") == 0
    (line,) = [line for line in disagg.out.splitlines() if line.startswith(f"  {name} ")]
    assert line.endswith(".")
    assert not line.endswith("...")
    assert disagg(name, "-h") == 0


def test_progress_is_for_terminals(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A line about what is done comes after a second on a terminal, and goes again; nothing is written to a pipe."""
    monkeypatch.setattr("disagg_serving.cli.progress.AFTER", 0.0)
    with Progress(shown=True) as progress:
        progress("planning 1/2 dev")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Progress(shown=True) as progress:
        progress._timer.join()
        progress("planning 1/2 dev")
        progress("planning 2/2 \x1b[2Jprod")
    written = capsys.readouterr().err
    assert written == f"{CLEAR}{CLEAR}planning 1/2 dev{CLEAR}planning 2/2 \\x1b[2Jprod{CLEAR}"
    with Progress(shown=False) as progress:
        progress("planning 1/2 dev")
    assert capsys.readouterr().err == ""
