"""`disagg verify` and `disagg bench` where there is no cluster: one clear sentence, exit code 1, and nothing started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import Run, process
from factories import SHIPPED, environment, model, role


def kubeconfig(folder: Path, server: str = "https://127.0.0.1:1", **user: Any) -> Path:
    """A kubeconfig of a server that is not there."""
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "u", "user": user or {"token": "a-secret-token"}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip
    file = folder / "kubeconfig"
    file.write_text(json.dumps(config))
    return file


@pytest.mark.parametrize("command", [("verify", "prod"), ("bench", "prod", "--start")])
@pytest.mark.parametrize("text", [None, "", "[]", "{", "kind: Config\n", "\x00"])
def test_no_usable_kubeconfig(disagg: Run, tmp_path: Path, command: tuple[str, ...], text: str | None) -> None:
    """A kubeconfig that is missing or is none is named, with what to do."""
    file = tmp_path / "kubeconfig"
    if text is not None:
        file.write_text(text)
    assert disagg(*command, "--kubeconfig", str(file)) == 1
    assert disagg.out == ""
    assert f"error: kubeconfig {file}: " in disagg.err
    assert ("there is no such file" in disagg.err) is (text is None)
    assert len(disagg.err.strip().splitlines()) == 1


def test_unknown_context(disagg: Run, tmp_path: Path) -> None:
    """A context that the file does not have is named."""
    assert disagg("verify", "prod", "--kubeconfig", str(kubeconfig(tmp_path)), "--context", "elsewhere") == 1
    assert "elsewhere" in disagg.err
    assert "--context" in disagg.err


def test_no_answer(tmp_path: Path) -> None:
    """A server that does not answer is one sentence with its address, and shows no token."""
    for command in (("verify", "prod"), ("bench", "prod", "--start")):
        done = process(*command, "--kubeconfig", str(kubeconfig(tmp_path)))
        assert done.returncode == 1
        assert done.stdout == ""
        assert done.stderr.startswith("error: the API server https://127.0.0.1:1 does not answer: ")
        assert len(done.stderr.strip().splitlines()) == 1
        assert "a-secret-token" not in done.stderr


def test_the_stack_file_names_the_cluster(disagg: Run) -> None:
    """An environment on an existing cluster is looked for where its stack file says, from the project's folder."""
    assert disagg("verify", "local", cwd=SHIPPED / "stacks") == 1
    assert f"kubeconfig {SHIPPED / '.bench/kubeconfig'}" in disagg.err


def test_a_stack_that_fails_its_checks_is_not_looked_at(disagg: Run, tmp_path: Path) -> None:
    """Without a valid layout there is nothing to compare with: the findings come first."""
    file = tmp_path / "environment.yaml"
    file.write_text("models: []\n")
    assert disagg("verify", str(file)) == 2
    assert "models" in disagg.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--write-back",), "it needs --start"),
        (("--run", "decode"), "--tpot-ms"),
        (("--model", "other"), "no model other (known: llama-70b)"),
    ],
)
def test_options_that_do_not_go_together(disagg: Run, options: tuple[str, ...], words: str) -> None:
    """What is missing is named before anything is rendered."""
    assert disagg("bench", "prod", *options) == 1
    assert words in disagg.err


def test_a_stack_without_a_workload(disagg: Run) -> None:
    """A load run sends what the workload says, so without one the place and an example are given."""
    assert disagg("bench", "local") == 2
    assert "models[0].workload: is missing" in disagg.err


def test_a_scaled_role_is_not_measured(disagg: Run, tmp_path: Path) -> None:
    """A rate is refused before a cluster is asked where the number of engines may change; what would run can still be looked at."""
    data = environment(
        model(decode=role(autoscaling={"maxReplicaCount": 4}), workload={"inputTokens": 8000, "outputTokens": 1000, "requestsPerSecond": 2}),
        autoscaling={"prometheusAddress": "http://prometheus.monitoring.svc:9090"},
    )
    file = tmp_path / "environment.yaml"
    file.write_text(json.dumps(data))
    command = ("bench", str(file), "--run", "decode", "--tpot-ms", "30")
    assert disagg(*command) == 0
    for options in (("--start",), ("--start", "--write-back")):
        assert disagg(*command, *options, "--kubeconfig", str(tmp_path / "none")) == 2
        assert "models[0].decode.autoscaling: 1 to 4 lets the autoscaler add engines" in disagg.err


def test_bench_renders(disagg: Run) -> None:
    """Without --start the objects are printed as YAML that kubectl takes, policies once, and no cluster is asked."""
    assert disagg("bench", "prod", "--run", "traffic", "--run", "prefill", "--seed", "5") == 0
    found = [(o["kind"], o["metadata"]["name"]) for o in yaml.safe_load_all(disagg.out)]
    assert found == [
        ("NetworkPolicy", "load-generator"),
        ("NetworkPolicy", "load-generator-target"),
        ("Job", "llama-70b-load-traffic-5"),
        ("Job", "llama-70b-load-prefill-6"),
    ]
    assert "&id" not in disagg.out


@pytest.mark.parametrize("package", ["kubernetes"])
def test_without_the_extra(disagg: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, package: str) -> None:
    """Where the client library is not installed, the message says how to get it."""
    import sys

    monkeypatch.setitem(sys.modules, package, None)
    assert disagg("verify", "prod", "--kubeconfig", str(kubeconfig(tmp_path))) == 1
    assert "pip install 'disagg-serving[cluster]'" in disagg.err


@pytest.mark.parametrize("command", [("check", "prod"), ("bench", "prod", "--seed", "1")])
def test_what_asks_no_cluster_loads_no_client(command: tuple[str, ...]) -> None:
    """Rules and rendered Jobs come without the client library, which takes longer to load than they to run."""
    done = process(*command, options=("-X", "importtime"))
    assert done.returncode == 0
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "disagg_serving.rules" in loaded
    assert not {"kubernetes", "prometheus_client", "ruamel.yaml"} & loaded


@pytest.mark.parametrize("command", [("verify", "prod"), ("bench", "prod")])
def test_only_formats_that_exist_are_offered(disagg: Run, command: tuple[str, ...]) -> None:
    """SARIF is for findings about a stack file; a command that makes none refuses it and names what it has."""
    assert disagg(*command, "--format", "sarif") == 1
    assert "sarif" in disagg.err
    assert "json" in disagg.err


def test_bench_renders_json(disagg: Run) -> None:
    """As JSON the objects are those of the YAML."""
    options = ("bench", "prod", "--run", "traffic", "--seed", "5")
    assert disagg(*options) == 0
    written = list(yaml.safe_load_all(disagg.out))
    assert disagg(*options, "--format", "json") == 0
    assert json.loads(disagg.out) == {"version": 1, "objects": written}
