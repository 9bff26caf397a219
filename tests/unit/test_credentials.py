"""What may be a secret is shown nowhere, and what is none is not taken for one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bad_input.case import Case
from bad_input.secrets import LEAK, SECRET_CASES
from disagg_serving.catalog.loader import load_catalog
from disagg_serving.cli.main import main
from disagg_serving.credentials import holds_secret, withheld
from disagg_serving.errors import Finding, Level
from factories import ROOT, SHIPPED, check, environment, model


@pytest.mark.parametrize("output", ["text", "json", "sarif"])
@pytest.mark.parametrize("case", SECRET_CASES, ids=lambda c: c.name)
def test_a_refused_secret_is_never_repeated(case: Case, output: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No output of `check` holds any part of a value that is refused because it may be a secret; as data its value is null."""
    file = tmp_path / "env.yaml"
    file.write_text(case.text, encoding="utf-8")
    assert main(["check", str(file), "--format", output]) == 2
    printed = capsys.readouterr()
    assert [word for word in (LEAK, LEAK.lower(), "4242424242") if word in printed.out + printed.err] == []
    if output == "json":
        about = [c for c in json.loads(printed.out)["checks"] if c["level"] == "error" and c["path"] == case.path]
        assert [c["value"] for c in about if c["value"] not in {None, "--otlp"}] == []


NAMES, JOINED = ("--api-key", "-api-key", "--my-credentials"), ("=", " ", "\t", ": ", ":", " = ", " , ")
BEFORE = (" --api-key=", "--x --api-key ", "--x y --my-credentials ", "my-credentials: ", "api_key: ", "\u2014api-key ")
FLAGS = [
    *([f"{name}{between}{LEAK}"] for name in NAMES for between in JOINED),
    *([f"{before}{LEAK}"] for before in BEFORE),
    *([flag, LEAK] for flag in ("--api-key", "--api-key=", "--api-key:", " --api-key")),
]


@pytest.mark.parametrize("args", FLAGS, ids=" ".join)
def test_a_flag_named_like_a_secret_is_shown_without_its_value(args: list[str]) -> None:
    """However somebody joins the two, no finding of any rule repeats what stands behind the name, in words or in data."""
    found = check(environment(model(extraArgs=args))).findings
    assert {f.level for f in found} >= {Level.ERROR}
    assert [f for f in found if LEAK in f.sentence() + repr(f)] == []


@pytest.mark.parametrize("name", ["HF_ENDPOINT", "HF_INFERENCE_ENDPOINT"])
def test_a_variable_of_the_hub_is_no_token(name: str) -> None:
    """Tokens begin with the same letters: `hf_`, small or with digits behind."""
    assert not holds_secret(name)
    assert check(environment(model(extraEnv={name: "https://hub.example"}))).ok
    assert holds_secret(f"hf_{'ABCDEFGHIJ'}")
    assert holds_secret(f"HF_{LEAK}")
    assert holds_secret(f"HF_{LEAK.upper()}")


@pytest.mark.parametrize(
    "text",
    [
        "docker.io/vllm/vllm-openai:v1@sha256:0123456789abcdef",
        "repo:tag@sha256:0123456789abcdef",
        "oci://host.example:5000/charts/x@sha256:0123456789abcdef",
        "https://kedacore.github.io/charts/keda",
        "http://prometheus-operated.monitoring.svc:9090/prometheus",
        "arn:aws:iam::123456789012:role/team/user@example.com",
        "ask platform@example.com before Monday",
        "the token is rotated on Monday",
        "--max-num-batched-tokens=8192",
        "--tokenizer-mode=auto",
        "hfToken",
        "sk-learn-model",
        "risk-accepted-until-2027",
    ],
)
def test_ordinary_texts_are_no_secrets(text: str) -> None:
    """References with digests, addresses with ports, mail addresses and sentences are none."""
    assert not holds_secret(text)


def test_the_catalogue_and_the_stacks_hold_none() -> None:
    """Nothing that the repository ships would be refused."""
    files = [
        *(ROOT / "components/disagg_serving/catalog").rglob("*.yaml"),
        *SHIPPED.rglob("*.yaml"),
        *(ROOT / "examples").rglob("*.yaml"),
    ]
    assert len(files) > 20
    lines = [(f.name, line) for f in files for line in f.read_text(encoding="utf-8").splitlines() if holds_secret(line.strip())]
    assert [found for found in lines if "secure:" not in found[1]] == []
    assert load_catalog([], ROOT).models


def test_a_finding_leaves_out_what_may_be_a_secret() -> None:
    """Wherever a finding comes from, also inside lists that hold themselves."""
    inside: list[Any] = ["x", {"a": f"hf_{LEAK}"}]
    inside.append(inside)
    assert withheld(inside)
    assert Finding("x", Level.ERROR, "p", "is wrong", inside).value is None
    assert Finding("x", Level.ERROR, "p", "is wrong", "p5.48xlarge").value == "p5.48xlarge"
