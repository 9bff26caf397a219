from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from command_line import Run, write_project
from factories import environment, model

MARK = "v1:MARKEDciphertext"


@pytest.fixture
def secret_project(tmp_path: Path) -> Path:
    """A project whose stack has an encrypted Hugging Face token."""
    data = environment(model(model="llama-3.3-70b-instruct", weights={"tokenKey": "hfToken"}))
    return write_project(tmp_path, {"disagg-serving:hfToken": {"secure": MARK}, "disagg-serving:environment": data})


def test_secrets_are_shown_as_a_word(disagg: Run, secret_project: Path) -> None:
    """Neither ciphertext nor value of a secret stands in any output; a word stands where it will be."""
    printed = ""
    for args in (("plan", "test"), ("plan", "test", "--format", "json"), ("check", "test"), ("check", "test", "--format", "json")):
        assert disagg(*args, cwd=secret_project) == 0
        printed += disagg.out + disagg.err
        if args == ("plan", "test", "--format", "json"):
            recorded = [r["inputs"] for r in json.loads(disagg.out)["resources"] if r["type"] == "kubernetes:core/v1:Secret"]
            assert [r["stringData"] for r in recorded] == [{"token": "<secret>"}]
    assert disagg("render", "test", "--images", "-o", "out", cwd=secret_project) == 0
    written = {f.name: f.read_text(encoding="utf-8") for f in (secret_project / "out").iterdir()}
    (name,) = [n for n in written if "-secret-" in n]
    assert yaml.safe_load(written[name])["stringData"] == {"token": "<secret>"}
    printed += disagg.out + disagg.err + "".join(written.values())
    assert "MARKED" not in printed


def test_a_secret_that_the_stack_lacks_is_missed(disagg: Run, secret_project: Path) -> None:
    """A stack that names a secret which nobody has set is told so before `pulumi up` fails on it."""
    file = secret_project / "stacks/Pulumi.test.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("disagg-serving:hfToken:", "disagg-serving:other:"), encoding="utf-8")
    disagg("check", "test", cwd=secret_project)
    assert "[secret-keys] models[0].weights.tokenKey: hfToken is not a secret of this stack (allowed: other)" in disagg.out
    assert "MARKED" not in disagg.out + disagg.err


def test_secrets_inside_the_environment_do_not_leak(disagg: Run, tmp_path: Path) -> None:
    """A nested secret is refused without being printed, and so is an environment that is encrypted as a whole."""
    nested = environment(model(extraEnv={"KEY": {"secure": MARK}}))
    project = write_project(tmp_path, {"disagg-serving:environment": nested})
    (project / "stacks/Pulumi.whole.yaml").write_text(yaml.safe_dump({"config": {"disagg-serving:environment": {"secure": MARK}}}), encoding="utf-8")
    for stack, words in (("test", "models[0].extraEnv.KEY"), ("whole", "encrypted as a whole")):
        for command in ("check", "plan"):
            assert disagg(command, stack, cwd=project) == 2
            assert words in disagg.out
            assert "MARKED" not in disagg.out + disagg.err
