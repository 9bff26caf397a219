"""Secrets at any place of a stack file, in any form: refused, and repeated by no command in no format."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from disagg_serving.cli.main import main
from disagg_serving.credentials import holds_secret, names_secret, secrets_of, without
from disagg_serving.place import Place
from disagg_serving.spec.stack_file import ENVIRONMENT_KEY
from factories import aggregated, environment
from text_places import PLACES, WHOLE

MARK = "Xq7ZmarkedW9k2"
FORMS = (
    f"hf_{MARK}",
    f"--api-key {MARK}",
    f"https://user:{MARK}@hub.example/x",
    f'{{"token": "{MARK}"}}',
    f"password: {MARK}",
    f"-----BEGIN RSA PRIVATE KEY----- {MARK}",
    f"nvapi-{MARK}",
    f"Basic {MARK}==",
    f"apiVersion: v1\nkind: Config\nusers: [{{name: u, user: {{client-key-data: {MARK}}}}}]\n",
    f"DefaultEndpointsProtocol=https;AccountKey={MARK}",
)


def outputs(folder: Path, data: Any, capsys: pytest.CaptureFixture[str], *commands: tuple[str, ...]) -> str:
    """Everything that commands print and write about a stack with this environment, which each refuses."""
    (folder / "Pulumi.yaml").write_text("name: p\nruntime: python\n", encoding="utf-8")
    (folder / "Pulumi.t.yaml").write_text(yaml.safe_dump({"config": {"aws:region": "us-east-1", ENVIRONMENT_KEY: data}}), encoding="utf-8")
    codes = [main([*command]) for command in commands]
    assert set(codes) == {2}
    printed = capsys.readouterr()
    return printed.out + printed.err


@pytest.mark.parametrize("place", PLACES, ids=lambda steps: str(Place(steps)))
def test_a_secret_at_any_place(
    place: tuple[str | int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each place gets each form in turn; JSON, SARIF, a rendering and a plan are as silent as the text."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "catalog").mkdir()
    for n, form in enumerate(FORMS):
        data = deepcopy(WHOLE)
        Place(place).write(data, form)
        output = ("text", "json", "sarif")[n % 3]
        printed = outputs(tmp_path, data, capsys, ("check", "t", "--format", output))
        assert MARK not in printed, (form, output)


@pytest.mark.parametrize(
    "extra",
    [
        {"extraArgs": [f"--api-key={MARK}"]},
        {"extraArgs": [f"--api-key {MARK}"]},
        {"extraArgs": ["--api-key", MARK]},
        {"extraArgs": [f"--hf-token\t{MARK}"]},
        {"extraArgs": [f'--hf-overrides={{"token": "{MARK}"}}']},
        {"extraArgs": [f"-k={MARK}", f"--password={MARK}"]},
        {"extraEnv": {"DB_PASSWORD": MARK}},
        {"extraEnv": {"MY_TOKEN": MARK, "OTHER": f"x {MARK}"}},
        {"apiKey": MARK},
        {"weights": {"token": MARK}},
        {"weights": {"tokenKey": MARK}},
        {"gateway": {"apiKeySecret": MARK}},
        {"gateway": {"password": {"value": [MARK]}}},
    ],
)
def test_a_secret_by_its_name(extra: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A plain word is a secret where a field, a variable or a flag says so; every command that shows findings leaves it out."""
    monkeypatch.chdir(tmp_path)
    data = environment(aggregated(**extra))
    commands = [("check", "t", "--fail-on", "warning"), ("check", "t", "--format", "json", "--fail-on", "warning")]
    commands += [("check", "t", "--format", "sarif", "--fail-on", "warning"), ("plan", "t", "--format", "json", "--fail-on", "warning")]
    commands += [("plan", "t", "--format", form, "--fail-on", "warning") for form in ("text", "markdown", "html")]
    named = {key for key in ("tokenKey", "apiKeySecret") if key in json.dumps(extra)}
    printed = outputs(tmp_path, data, capsys, *(commands[:3] if named else commands))
    assert MARK not in printed


def test_what_names_a_secret_and_what_does_not() -> None:
    """Keys of counts and of names are none."""
    assert all(map(names_secret, ("HF_TOKEN", "--api-key", "apiKey", "aws_secret_access_key", "dbPassword", "SIGNING_KEY")))
    assert not any(map(names_secret, ("--max-token-count", "maxTokens", "tokenizer", "VLLM_TOKENS", "key", "model")))


def test_texts_are_looked_through_in_linear_time() -> None:
    """No text of a file holds anybody up."""
    import time

    before = time.process_time()
    for piece in ("://a:", "eyJ-", "sk-", "token ", "--api-key ", "a:b@", "Basic ", "password: ", "@sha256:"):
        holds_secret(piece * (19_000 // len(piece)))
    assert time.process_time() - before < 1
    assert holds_secret("x" * 30_000), "what is too long to be looked through is shown nowhere"


def test_texts_without_secrets_are_left_alone() -> None:
    """Words that happen to be a value stay where they are part of another word."""
    assert secrets_of({"A_TOKEN": "true", "B_TOKEN": "abc", "tokenKey": "hfToken"}) == {"abc"}
    assert without("abcdef abc", {"abc"}) == "abcdef (not shown: it may be a secret)"
