from __future__ import annotations

import io
import random
import re
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import Run
from factories import ROOT, SHIPPED

FORMS = ROOT / "tests/data/imports"
NAMES = sorted(file.name for file in FORMS.iterdir())
MARK = "Zq7MARKEDsecretZq7"
SECRET_KEYS = (
    "token", "hf_token", "hfToken", "HF_TOKEN", "apiKey", "api_key", "vllmApiKey", "password", "dbPassword", "clientSecret", "secretAccessKey",
    "kubeconfig", "privateKey", "credentials", "authorization", "OPENAI_API_KEY", "passphrase",
)  # fmt: skip
"""Keys behind which a secret stands in somebody's files."""
SECRET_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "VLLM_API_KEY", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "DB_PASSWORD", "MY_TOKEN")
SECRET_VALUES = (f"https://user:{MARK}@example.com/x", f"Bearer {MARK}", f"hf_{MARK}", f"a=1&token={MARK}", f"sk-{MARK}123456")
"""Values of innocent variables that are secrets by their form."""


def mappings(value: Any) -> list[dict[str, Any]]:
    """All mappings of a document, from the outside to the inside."""
    inner = [*value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    # names of services are nobody's keys
    named = isinstance(value, dict) and all(isinstance(one, dict) and one.keys() & {"image", "replicas"} for one in inner)
    return ([value] if isinstance(value, dict) and not named else []) + [found for one in inner for found in mappings(one)]


def spoilt(text: str, way: int) -> str:
    """A form with a secret at each of its mappings: plain, nested, in lists and in several lines."""
    documents = deepcopy([*yaml.safe_load_all(text)])
    plain: Any = (MARK, {"a": {"b": MARK}}, [MARK, {"value": MARK}], f"apiVersion: v1\nusers:\n- token: {MARK}\n")[way]
    for place in mappings(documents):
        for key in SECRET_KEYS:
            if key not in place and "secretKeyRef" not in place:
                place[key] = plain
        if isinstance(place.get("env"), list):
            place["env"] += [{"name": name, "value": MARK} for name in SECRET_VARIABLES]
            place["env"] += [{"name": f"INNOCENT_{i}", "value": value} for i, value in enumerate(SECRET_VALUES)]
            place["env"] += [{"name": "COPY", "value": f"x-{MARK}-x"}]
        if isinstance(place.get("args"), list) and len(place["args"]) > 1:
            place["args"] += ["--api-key", MARK, f"--hf-token={MARK}", "--ssl-keyfile-password", MARK, "--seed", f"sk-{MARK}1234"]
    documents.append({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"x": MARK}, "stringData": {"y": f"a {MARK}"}})
    return yaml.safe_dump_all(documents, width=1000)


@pytest.mark.parametrize("way", range(4))
@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".yaml")])
def test_no_secret_is_repeated(name: str, way: int, disagg: Run, tmp_path: Path) -> None:
    """A secret in a form, wherever it stands, is in no output and no file; the stack names the secrets that it needs instead."""
    (tmp_path / "given.yaml").write_text(spoilt((FORMS / name).read_text(encoding="utf-8"), way), encoding="utf-8")
    codes = [disagg("import", "given.yaml", cwd=tmp_path)]
    printed = disagg.out + disagg.err
    codes.append(disagg("import", "given.yaml", "-o", "out.yaml", cwd=tmp_path))
    printed += disagg.out + disagg.err
    assert set(codes) <= {0, 2}
    written = (tmp_path / "out.yaml").read_text(encoding="utf-8") if (tmp_path / "out.yaml").exists() else ""
    assert written
    assert "MARKED" not in printed + written
    if re.search(r"^ *env:", (tmp_path / "given.yaml").read_text(encoding="utf-8"), re.MULTILINE):
        assert "tokenKey: hfToken" in written
        assert "pulumi config set --secret disagg-serving:hfToken" in printed


@pytest.mark.parametrize(
    "line",
    [
        f"HF_TOKEN={MARK} vllm serve Qwen/Qwen3-32B -tp 2",
        f"export HF_TOKEN={MARK}\nvllm serve Qwen/Qwen3-32B -tp 2 --seed $HF_TOKEN",
        f"vllm serve Qwen/Qwen3-32B -tp 2 --api-key {MARK}",
        f"vllm serve Qwen/Qwen3-32B -tp 2 --api_key={MARK} --seed=1",
        f"vllm serve Qwen/Qwen3-32B -tp 2 --hf-token '{MARK}'",
        f"K={MARK}\nMY_TOKEN=$K vllm serve Qwen/Qwen3-32B -tp 2 --served-model-name hf_$K",
        f"docker run -e HF_TOKEN={MARK} --env=VLLM_API_KEY={MARK} vllm/vllm-openai:v0.33.0 --model Qwen/Qwen3-32B -tp 2",
        f"vllm serve https://user:{MARK}@example.com/model -tp 2",
        f"curl -H 'Authorization: Bearer {MARK}' x; vllm serve Qwen/Qwen3-32B -tp 2 --otlp-traces-endpoint http://u:{MARK}@h",
    ],
)  # fmt: skip
def test_no_secret_of_a_command_line_is_repeated(line: str, disagg: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keys and tokens of a command line, from its flags, its variables or its container, are in no output."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(line.encode())))
    assert disagg("import", "-", cwd=tmp_path) in {0, 2}
    assert "MARKED" not in disagg.out + disagg.err
    assert "standard input" in disagg.out + disagg.err


@pytest.mark.parametrize(
    "text",
    [
        f"hf_token: *{MARK}",
        f"hf_token: {MARK}\n  bad: [",
        f"'{MARK}: x",
        f"kind: {MARK}\napiVersion: v1\ntoken: {MARK}",
        f"? [{MARK}]\n: x",
        f"hf_{MARK}: 1\nhf_{MARK}: 2",
        f"token: {MARK}\nx: {{{{ .Values.token }}}}",
        f"!{MARK} a: b",
    ],
)  # fmt: skip
def test_refusals_repeat_no_secret(text: str, disagg: Run, tmp_path: Path) -> None:
    """What is refused is named by its place; a secret in it is not shown, nor what the parser quotes of the line."""
    if text.startswith("kind"):
        text = text.replace(f"kind: {MARK}", f"kind: hf_{MARK}")
    (tmp_path / "given.yaml").write_text(text, encoding="utf-8")
    assert disagg("import", "given.yaml", cwd=tmp_path) == 2
    assert "MARKED" not in disagg.out + disagg.err
    assert "given.yaml" in disagg.err


def test_a_stack_file_alone_goes_to_standard_output(disagg: Run, tmp_path: Path) -> None:
    """The stack file can be piped: what did not come along is told on standard error."""
    assert disagg("import", str(FORMS / "statefulset-pd.yaml"), cwd=tmp_path) == 0
    data = yaml.safe_load(disagg.out)
    assert data["config"]["disagg-serving:environment"]["models"][0]["decode"]["replicas"] == 4
    assert "readinessProbe: three probes are generated" in disagg.err
    assert "the rules find:" in disagg.err


def test_standard_input_is_read(disagg: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A command line can be piped in."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"vllm serve Qwen/Qwen3-32B -tp 2\n")))
    assert disagg("import", "-", "--instance-type", "p5e.48xlarge", cwd=tmp_path) == 0
    assert "server: {instanceType: p5e.48xlarge, tensorParallel: 2}" in disagg.out


def test_errors_of_the_rules_are_the_exit_code(disagg: Run, tmp_path: Path) -> None:
    """A stack file with errors is written all the same, and the command ends as `disagg check` would."""
    (tmp_path / "serve.txt").write_text("vllm serve Qwen/Qwen3-32B -tp 2 --max-model-len 999999\n", encoding="utf-8")
    assert disagg("import", "serve.txt", "-o", "out.yaml", cwd=tmp_path) == 2
    assert "error [max-model-len] models[0].maxModelLen: 999999" in disagg.out
    assert disagg("check", "out.yaml", cwd=tmp_path) == 2


def test_an_existing_file_stays(disagg: Run, tmp_path: Path) -> None:
    """No file is overwritten unless --force says so, in a project and outside of one."""
    form = str(FORMS / "compose.yaml")
    (tmp_path / "out.yaml").write_text("mine", encoding="utf-8")
    assert disagg("import", form, "-o", "out.yaml", cwd=tmp_path) == 1
    assert "out.yaml exists and is left as it is; choose another name, or say --force" in disagg.err
    assert (tmp_path / "out.yaml").read_text(encoding="utf-8") == "mine"
    assert disagg("import", form, "-o", "out.yaml", "--force", cwd=tmp_path) == 0
    assert "wrote out.yaml" in disagg.out
    assert "qwen3-32b" in (tmp_path / "out.yaml").read_text(encoding="utf-8")
    assert disagg("import", form, "--write", "dev", cwd=SHIPPED) == 1
    assert "Pulumi.dev.yaml exists" in disagg.err


def test_options_that_exclude_each_other(disagg: Run, tmp_path: Path) -> None:
    """Wrong calls are told apart from files that cannot be imported."""
    form = str(FORMS / "compose.yaml")
    for args, words in (
        (("--write", "a", "-o", "b"), "not both"),
        (("--write", "No Name"), "is no name of a stack"),
    ):
        assert disagg("import", form, *args, cwd=tmp_path) == 1
        assert words in disagg.err
    assert disagg("import", "nowhere.yaml", cwd=tmp_path) == 1
    assert "nowhere.yaml: no such file" in disagg.err
    assert disagg("import", form, "--instance-type", "p5", cwd=tmp_path) == 2
    assert "--instance-type: p5 is not a known instance" in disagg.err
    assert disagg("import", form, "--region", "nowhere", cwd=tmp_path) == 2
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x81")
    assert disagg("import", "binary", cwd=tmp_path) == 2
    assert "binary: is no text in UTF-8" in disagg.err
    assert disagg("import", str(tmp_path), cwd=tmp_path) == 1


def test_a_new_project_plans_what_was_imported(disagg: Run, tmp_path: Path) -> None:
    """In an empty folder the project comes along, as with `disagg init`; the stack is planned and rendered as it was imported."""
    assert disagg("import", str(FORMS / "statefulset-pd.yaml"), "--write", "moved", cwd=tmp_path) == 0
    assert "next: disagg plan moved" in disagg.out
    assert (tmp_path / "Pulumi.yaml").read_text(encoding="utf-8").startswith("name: disagg-serving\n")
    assert disagg("plan", "moved", cwd=tmp_path) == 0
    assert "prefill" in disagg.out
    assert disagg("render", "moved", "-o", "objects", cwd=tmp_path) == 0
    objects = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in (tmp_path / "objects").iterdir()]
    sets = {o["metadata"]["name"]: o["spec"]["replicas"] for o in objects if isinstance(o, dict) and o["kind"] == "LeaderWorkerSet"}
    assert {re.sub(r".*-", "", name): replicas for name, replicas in sets.items()} == {"prefill": 2, "decode": 4}


ODD: tuple[Any, ...] = (None, 3, -1, True, "", "-", "$X", "{", [], {}, [None], {"name": None}, "9" * 30, "\x85", "--foo=", 10**40)
"""Values that nobody expects."""


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every value of a document by what holds it and its key."""
    keys = [*value] if isinstance(value, dict) else [*range(len(value))] if isinstance(value, list) else []
    return [(value, key) for key in keys] + [found for key in keys for found in places(value[key])]


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".yaml")])
def test_odd_values_end_without_a_traceback(name: str, disagg: Run, tmp_path: Path) -> None:
    """A form with a value of a wrong kind anywhere is imported without it, or refused: never does the command break."""
    draw = random.Random(name)  # noqa: S311 (a draw that repeats)
    for value in ODD:
        documents = [*yaml.safe_load_all((FORMS / name).read_text(encoding="utf-8"))]
        holder, key = draw.choice(places(documents))
        holder[key] = deepcopy(value)
        (tmp_path / "given.yaml").write_text(yaml.safe_dump_all(documents), encoding="utf-8")
        assert disagg("import", "given.yaml", cwd=tmp_path) in {0, 2}, (key, value)
        if disagg.out:
            assert yaml.safe_load(disagg.out)["config"]


@pytest.mark.parametrize(
    "text", ["vllm serve '", 'vllm serve "$(', "vllm serve a -tp $((", "vllm serve ${A:-", "vllm serve a \\", "vllm serve a $((1/0)) $((9**9**9))"]
)
def test_broken_scripts_end_without_a_traceback(text: str, disagg: Run, tmp_path: Path) -> None:
    """A script that no shell would take is read as far as it goes, or refused."""
    (tmp_path / "serve.sh").write_text(text, encoding="utf-8")
    assert disagg("import", "serve.sh", cwd=tmp_path) == 2
