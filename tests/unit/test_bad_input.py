from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from bad_input import CASES, UNTRUSTED
from bad_input.case import Case, decode, one, stack
from disagg_serving.cli.main import main
from disagg_serving.errors import Finding
from disagg_serving.yaml_io import MAX_BYTES
from factories import ROOT, SHIPPED, aggregated, environment, model, role
from slots import loose


@pytest.fixture(autouse=True)
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every finding of every test here has slots for the keys and places that it names; one about broken YAML repeats a word of the file."""
    made: list[Finding] = []
    initialise = Finding.__post_init__

    def keep(finding: Finding) -> None:
        initialise(finding)
        made.append(finding)

    monkeypatch.setattr(Finding, "__post_init__", keep)
    yield
    assert [(f.sentence(), names) for f in made if f.id != "yaml" and (names := loose(f))] == []


def write(case: Case, folder: Path) -> Path:
    """The case's files in `folder`; returns the one to check."""
    for name, data in case.files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    given = folder / "env.yaml"
    given.write_bytes(case.text.encode("utf-8", "surrogateescape"))
    return given


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, list[str]]:
    """Exit code and all printed lines of a command, which must not be a traceback."""
    code = main(list(argv))
    printed = capsys.readouterr()
    assert "Traceback" not in printed.out
    assert "Traceback" not in printed.err
    return code, (printed.out + printed.err).splitlines()


def errors_of(lines: list[str]) -> list[str]:
    """What the lines of level error say, from the path on."""
    found = (re.match(r"error(?: \[[a-z-]+\]|:) (.*)", line) for line in lines)
    return [match[1] for match in found if match]


def assert_says(case: Case, errors: list[str]) -> None:
    """One error is about the case's place and holds all that a person needs."""
    wanted = [text for text in (case.value, case.says, case.allowed, case.fix) if text]
    about = [e for e in errors if not case.path or e.startswith(f"{case.path}:")]
    assert about, f"nothing is said about {case.path}: {errors}"
    assert any(all(text in error for text in wanted) for error in about), f"{wanted} not together in one of {about}"


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_bad_input_is_explained(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bad input ends with exit code 2 and one line with place, value, allowed values and fix; never with a traceback."""
    code, lines = run(capsys, "check", str(write(case, tmp_path)))
    errors = errors_of(lines)

    assert code == 2
    assert_says(case, errors)
    assert [e for e in errors if "(allowed: " not in e and "; " not in e] == [], "says neither what is allowed nor what to do"


@pytest.mark.parametrize("case", UNTRUSTED, ids=lambda c: c.name)
def test_hostile_input_is_refused(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Values that overflow, refer to themselves or are of another type are refused at their place like any other bad input."""
    code, lines = run(capsys, "check", str(write(case, tmp_path)))

    assert code == 2
    assert_says(case, errors_of(lines))


RENDERED = [c for c in CASES if c.name in {"empty file", "broken YAML", "misspelt instance type", "three GPUs of eight", "disk beyond the node"}]


@pytest.mark.parametrize("case", RENDERED, ids=lambda c: c.name)
def test_render_refuses_bad_input(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`render` writes nothing for input that `check` refuses, and says the same."""
    given, output = write(case, tmp_path), tmp_path / "out"
    code, lines = run(capsys, "render", str(given), "-o", str(output))

    assert code == 2
    assert_says(case, errors_of(lines))
    assert not output.exists()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one stack, as the current folder."""
    (tmp_path / "Pulumi.yaml").write_text("name: disagg-serving\nruntime: python\nstackConfigDir: stacks\n", encoding="utf-8")
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "Pulumi.prod.yaml").write_text(yaml.safe_dump(stack(decode(tensorParallel=3))), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_plan_shows_findings_of_a_refused_stack(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`plan` shows the same findings as `check` for a stack that is refused, and ends with exit code 2."""
    code, lines = run(capsys, "plan", "prod")
    checked, by_check = run(capsys, "check", "prod")

    assert (code, checked) == (2, 2)
    text = " ".join(" ".join(lines).split())
    assert "models[0].decode.tensorParallel" in text
    assert "does not divide the 8 GPUs of p5.48xlarge" in text
    assert "models[0].decode.tensorParallel" in " ".join(by_check)
    assert project.is_dir()


@pytest.mark.parametrize("key", ["disagg-serving:environment", "environment"])
def test_stack_file_that_is_no_mapping(project: Path, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A stack whose file or environment is something else than a mapping is refused and says what belongs there."""
    (project / "stacks" / "Pulumi.text.yaml").write_text("hello\n", encoding="utf-8")
    (project / "stacks" / "Pulumi.five.yaml").write_text(f"config:\n  {key}: 5\n", encoding="utf-8")
    code, lines = run(capsys, "check", "text")
    assert (code, "config: " in errors_of(lines)[0], "a mapping with disagg-serving:environment" in errors_of(lines)[0]) == (2, True, True)

    code, lines = run(capsys, "check", "five")
    assert code == 2
    assert errors_of(lines)[0].startswith("disagg-serving:environment: 5 is not a mapping (allowed: a mapping of keys to values)")


def test_every_error_is_shown_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One run shows the errors of the form and those of the rules together, sorted by path, so that nobody repairs one by one."""
    data = {
        **environment(
            model(extraEnv={"NCCL_ALGO": "Ring"}, gpuMemoryUtilization=1.5, prefill=role(tensorParallel=3), decode=role(replicas=0)),
            aggregated(name="b", engine="vllm-0.33.1", maxModelLen=10**9, server=role(instanceType="p5.48xlage", tensorParalel=2)),
            network={"zones": ["us-east-1a", "us-east-1b"], "gpuZone": "us-east-1c"},
            cluster={"kubernetesVersion": "1.30", "protect": "maybe"},
            nodePools={"expireAfterHours": 600},
        ),
        "modles": [],
    }
    file = tmp_path / "env.yaml"
    file.write_text(yaml.safe_dump(data), encoding="utf-8")
    code, lines = run(capsys, "check", str(file))
    paths = [e.split(": ", 1)[0] for e in errors_of(lines)]

    assert code == 2
    assert set(paths) >= {
        "cluster.kubernetesVersion",
        "cluster.protect",
        "models[0].decode.replicas",
        "models[0].extraEnv.NCCL_ALGO",
        "models[0].gpuMemoryUtilization",
        "models[0].prefill.tensorParallel",
        "models[1].engine",
        "models[1].server.instanceType",
        "models[1].server.tensorParalel",
        "modles",
        "network.gpuZone",
        "nodePools.expireAfterHours",
    }
    assert paths == sorted(paths)
    assert lines[-1].startswith(f"{len(paths)} errors, ")


def test_one_model_does_not_hide_the_faults_of_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model without a usable name or model is left out of the rules, and the others keep the indices of the file."""
    other = aggregated(model="llama-3.3-70b-instruct-fp9", extraArgs=["--api-key=x"], server=role(instanceType="p5.48xlarg", tensorParallel=3))
    nameless = {**aggregated(), "name": 3}
    modelless = {key: value for key, value in aggregated(name="c").items() if key != "model"}
    file = tmp_path / "env.yaml"
    file.write_text(yaml.safe_dump(environment(nameless, modelless, other)), encoding="utf-8")
    code, lines = run(capsys, "check", str(file))

    assert code == 2
    text = "\n".join(errors_of(lines))
    for path in (
        "models[0].name: 3",
        "models[1].model: is required",
        "models[2].model: llama",
        "models[2].extraArgs[0]",
        "models[2].server.instanceType",
    ):
        assert path in text


@pytest.mark.parametrize("content", ["name: p\nruntime: python\nconfig: 3\n", "runtime: python\n", "[]\n"])
def test_project_file_that_is_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: str) -> None:
    """A Pulumi.yaml with odd content is refused with its name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Pulumi.yaml").write_text(content, encoding="utf-8")
    code, lines = run(capsys, "check", "dev")
    assert code == 2
    assert "Pulumi.yaml: " in lines[0]


def test_program_of_another_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Only Python programs can be recorded, and the message says so."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: nodejs\n", encoding="utf-8")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {}\n", encoding="utf-8")
    code, lines = run(capsys, "plan", "dev")
    assert (code, "nodejs" in lines[0]) == (1, True)


def test_one_stack_does_not_hide_another(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`plan --all` shows the good stacks beside one that is no YAML."""
    (project / "stacks" / "Pulumi.bad.yaml").write_text("config: [\n", encoding="utf-8")
    (project / "stacks" / "Pulumi.good.yaml").write_bytes((SHIPPED / "stacks" / "Pulumi.dev.yaml").read_bytes())
    (project / "__main__.py").write_bytes((ROOT / "__main__.py").read_bytes())
    code, lines = run(capsys, "plan", "--all")
    text = "\n".join(lines)
    assert code == 2
    assert "is not valid YAML" in " ".join(text.split())
    assert "Placement" in text


def test_a_file_without_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A device is not read, and a huge file only up to a bound."""
    code, lines = run(capsys, "check", "/dev/zero")
    assert (code, "is no regular file" in lines[0]) == (1, True)
    file = tmp_path / "huge.yaml"
    file.write_text("#" * (MAX_BYTES + 1), encoding="utf-8")
    code, lines = run(capsys, "check", str(file))
    assert (code, "huge.yaml:1:1: is larger than" in lines[0]) == (2, True)


def test_json_holds_what_the_text_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON output of bad input has path, value, allowed values and fix as fields of their own, with the value's type."""
    file = tmp_path / "env.yaml"
    file.write_text(yaml.safe_dump(decode(tensorParallel=3)), encoding="utf-8")
    assert main(["check", str(file), "--format", "json"]) == 2
    checks = json.loads(capsys.readouterr().out)["checks"]

    found = next(c for c in checks if c["id"] == "tensor-parallel")
    assert (found["level"], found["path"], found["value"]) == ("error", "models[0].decode.tensorParallel", 3)
    assert (found["allowed"], found["fix"]) == ("1, 2, 4, 8, or a multiple of 8", "use 2")


def _largest(key: str, role_name: str, asked: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    file = tmp_path / "env.yaml"
    given = {"server": None, "prefill": role(), "decode": role()} if role_name != "server" else {"server": role(), "prefill": None, "decode": None}
    file.write_text(yaml.safe_dump(one(**{**given, role_name: role(**{key: asked})})), encoding="utf-8")
    _, lines = run(capsys, "check", str(file))
    return next(m[1] for e in errors_of(lines) if (m := re.match(rf"models\[0\]\.{role_name}\.{key}: .*at most ([0-9.]+)", e)))


@pytest.mark.parametrize("role_name", ["prefill", "decode", "server"])
@pytest.mark.parametrize(("key", "asked"), [("cpu", 999), ("memoryGiB", 9999), ("ephemeralStorageGiB", 99999)])
def test_the_largest_value_named_is_accepted(role_name: str, key: str, asked: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The limit that an error names can be written into the file, and is then accepted."""
    largest = float(_largest(key, role_name, asked, tmp_path, capsys))
    value = largest if key == "cpu" else int(largest)
    file = tmp_path / "env.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace(f"{key}: {asked}", f"{key}: {value}"), encoding="utf-8")
    code, lines = run(capsys, "check", str(file))

    assert (code, errors_of(lines)) == (0, [])


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "VLLM_LOGGING_LEVEL", "FI_EFA_USE_HUGE_PAGE"])
def test_harmless_variables_are_accepted(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Common variables that are no secrets and break nothing can be set, also where their name resembles a secret's."""
    file = tmp_path / "env.yaml"
    file.write_text(yaml.safe_dump(one(extraEnv={name: "0"})), encoding="utf-8")
    code, lines = run(capsys, "check", str(file))

    assert (code, errors_of(lines)) == (0, [])


@pytest.mark.parametrize("command", ["check", "plan"])
def test_absent_stack(project: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt stack is a wrong call: exit code 1 and one line that names the stacks that exist and the likely one."""
    code, lines = run(capsys, command, "prodd")

    assert code == 1
    assert lines == ["error: no stack prodd in stacks (known: prod); did you mean prod?"]
    assert project.is_dir()


def test_absent_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that does not exist, a folder and a file outside a project are wrong calls: exit code 1 and one line that names it."""
    for argv in (["check", "gone.yaml"], ["render", "gone.yaml", "-o", "out"], ["plan", "gone.yaml"], ["check", str(project / "gone.yaml")]):
        code, lines = run(capsys, *argv)
        assert (code, lines) == (1, ["error: gone.yaml: no such file or directory"]), argv

    code, lines = run(capsys, "check", "./stacks")
    assert (code, lines) == (1, ["error: stacks: is a directory"])


def test_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A stack's name outside a project ends with exit code 1 and says how to go on."""
    monkeypatch.chdir(tmp_path)
    for argv in (["check", "prod"], ["plan", "prod"], ["plan", "--all"]):
        code, lines = run(capsys, *argv)
        assert code == 1
        assert len(lines) == 1
        assert "no Pulumi.yaml here or in a folder above" in lines[0]


def test_plan_of_a_bare_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`plan` needs a stack; a bare environment gives exit code 1 and names the commands that take it."""
    (project / "env.yaml").write_text(yaml.safe_dump(one()), encoding="utf-8")
    code, lines = run(capsys, "plan", "env.yaml")

    assert code == 1
    assert len(lines) == 1
    assert "`disagg check` and `disagg render` take a bare environment file" in lines[0]


WRONG_CALLS = {
    "unknown option": (["check", "prod", "--strict"], "--strict"),
    "no argument": (["check"], "STACK|FILE"),
    "too many arguments": (["check", "prod", "dev"], "dev"),
    "unknown command": (["chekc", "prod"], "chekc"),
    "unknown format": (["check", "prod", "--format", "xml"], "xml"),
    "unknown level": (["check", "prod", "--fail-on", "never"], "never"),
    "stack and --all": (["plan", "prod", "--all"], "--all"),
    "neither stack nor --all": (["plan"], "--all"),
    "render without a folder": (["render", "prod"], "-o"),
}


@pytest.mark.parametrize(("argv", "named"), WRONG_CALLS.values(), ids=WRONG_CALLS.keys())
def test_wrong_calls(project: Path, argv: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong call ends with exit code 1, not with 2 as failed checks do, and names the part that is wrong."""
    code, lines = run(capsys, *argv)

    assert code == 1
    assert named in " ".join(lines)
    assert project.is_dir()
