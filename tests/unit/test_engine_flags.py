"""Flags against the lists that each engine's own parser gave."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from bad_input.case import OLD_ENGINE
from disagg_serving.catalog import Catalog
from disagg_serving.catalog.flags import flags_of, versions
from disagg_serving.catalog.verdicts import FREE, verdict_of
from disagg_serving.errors import Finding
from disagg_serving.planning.arguments import read
from disagg_serving.planning.command_line import OF_MODEL, OF_ROLE, OWNED, command_args
from disagg_serving.rules import rules
from disagg_serving.rules.checks import flags
from disagg_serving.rules.evaluation import evaluate, evaluate_file
from disagg_serving.spec.stack_file import find_project
from engine_flags import assert_command_line_is_ours
from factories import ROOT, SHIPPED, aggregated, check, environment, role

CATALOG = Catalog()
PROJECTS = [SHIPPED, *sorted(f for f in (ROOT / "examples").iterdir() if (f / "Pulumi.yaml").exists())]


SPELLINGS: dict[str, Callable[[str], str]] = {
    "in full": lambda flag: f"{flag}=7",
    "alone": lambda flag: flag,
    "with underscores": lambda flag: f"--{flag[2:].replace('-', '_')}=7",
    "cut short": lambda flag: f"{flag[:-1]}=7",
    "negated": lambda flag: flag.replace("--", "--no-", 1),
    "a key of it": lambda flag: f"{flag}.key=1",
}


def said(*args: str, base: Path = ROOT, **overrides: Any) -> list[Finding]:
    """What the rule says about extra flags."""
    data = environment(aggregated(extraArgs=list(args), **overrides), catalogDirs=["."] if base != ROOT else [])
    return [f for f in evaluate(data, base).findings if f.id == "engine-flags"]


@pytest.mark.parametrize(
    "args",
    [
        ["--enable-prefix-caching"],
        ["--no-enable-prefix-caching"],
        ["--disable-prefix-caching"],
        ["--enable_prefix_caching"],
        ["--optimization-level=3", "--attention-backend=flashinfer", "--quantization=fp8"],
        ["--compilation-config.cudagraph_mode=FULL", "--compilation-config.mode=3"],
        ['--compilation-config={"mode": 3}'],
        ["--seed=0", "--max-logprobs=-1"],
        ["--moe-backend=flashinfer-cutlass"],
        ["--prefix-cache-retention-interval=None"],
        ["--tool-call-parser=hermes", "--enable-auto-tool-choice"],
        ["--tool-call-parser=mine", "--tool-parser-plugin=/weights/mine.py"],
        ["--middleware=a.b", "--middleware=c.d"],
        ["--allowed-origins=[]"],
        ["--quantization=None", "--tool-call-parser=None"],
        ["--enable-log-outputs", "--enable-log-requests"],
        ["--kv-cache-memory-bytes=20G"],
        ["--kv-cache-memory-bytes=25.6k", "--cudagraph-capture-sizes=1", "--collect-detailed-traces=None"],
        ['--compilation-config={"max_cudagraph_capture_size": 1k}', '--profiler-config={"max_iterations": 2}'],
    ],
)
def test_what_the_parser_takes(args: list[str]) -> None:
    """No spelling and no value that vLLM takes is refused."""
    assert said(*args) == []


@pytest.mark.parametrize(
    ("arg", "engine", "meant"),
    [
        ("--disable-prefix-caching", "vllm-0.27.1-dlc", "--no-enable-prefix-caching"),
        ("--enable-sliding-window", "vllm-0.27.1-dlc", "--no-disable-sliding-window"),
        ("--disable-trust-remote-code", "vllm-0.33.0-efa", "--no-trust-remote-code"),
        ("--no-disable-log-stats", "vllm-0.33.0-efa", None),
        ("--disable-log-stats=false", "vllm-0.33.0-efa", None),
        ("--no-enforce-eager=false", "vllm-0.33.0-efa", "--enforce-eager"),
        ("--trust-remote-code=0", "vllm-0.33.0-efa", "--no-trust-remote-code"),
        ("--max-num-active-seqs=8", "vllm-0.27.1-dlc", None),
        ("--max-num-partial-prefills=2", "vllm-0.33.0-efa", None),
        ("--enable-reasoning", "vllm-0.33.0-efa", None),
        ("--rope-theta=1", "vllm-0.33.0-efa", None),
        ("--max-logpobs=3", "vllm-0.33.0-efa", "--max-logprobs=3"),
        ("--maxlogprobs=3", "vllm-0.33.0-efa", "--max-logprobs=3"),
        ("--SEED=3", "vllm-0.33.0-efa", "--seed=3"),
    ],
)
def test_what_was_meant(arg: str, engine: str, meant: str | None) -> None:
    """A suggestion turns the same thing the same way, and is no other flag that happens to look like it."""
    (found,) = said(arg, engine=engine)
    suggested = [value for correction in found.corrections for value in correction.values() if value is not None]
    assert suggested == ([meant] if meant else [])


@pytest.mark.parametrize("engine", ["vllm-0.33.0-efa", "vllm-0.27.1-dlc"])
@pytest.mark.parametrize("model", sorted(CATALOG.models))
def test_flags_of_the_catalogue(model: str, engine: str) -> None:
    """Flags that an entry brings are flags of every engine that may serve it."""
    facts, version = CATALOG.models[model], CATALOG.engines[engine].version
    known = flags_of(version)
    assert known is not None
    oldest = facts.min_engine_version
    if oldest and [int(n) for n in oldest.split(".")] > [int(n) for n in version.split(".")]:
        pytest.skip(f"{model} needs vLLM {oldest}")
    assert said(*facts.serve_flags, engine=engine, model="qwen3-32b") == []
    assert not [
        f for f in facts.serve_flags for said in read(version, f) if said.option in OWNED or (verdict_of(said.option) or FREE).verdict == "breaks"
    ]


def test_every_engine_was_asked() -> None:
    """There is a list for each engine of the catalogue, made of names in order."""
    assert set(versions()) == {CATALOG.engines[e].version for e in CATALOG.engines}
    for version in versions():
        names = list(flags_of(version) or {})
        assert len(names) > 300
        assert all(a < b for a, b in pairwise(names))


@pytest.mark.parametrize("folder", PROJECTS, ids=lambda f: f.name)
def test_what_is_generated_is_the_project_s_own(folder: Path) -> None:
    """Each flag of each command line is one of the engine's, and none that a person could give a second time."""
    project = find_project(folder)
    for stack in project.stacks():
        file = project.stack_file(stack)
        for group in evaluate_file(file, project.root).require_layout().groups if file.environment else ():
            for worker in (False, True):
                assert_command_line_is_ours(group, command_args(group, worker=worker))


@pytest.mark.parametrize("spell", SPELLINGS, ids=str)
def test_no_flag_of_the_project_can_be_added(spell: str) -> None:
    """However it is spelt, a flag that may stand on a command line is refused in extraArgs, and in the flags of a model's own entry."""
    args = [SPELLINGS[spell](flag) for flag in OWNED]
    found = check(environment(aggregated(extraArgs=args, weights={"s3": {"bucket": "weights"}}))).findings
    refused = {f.path for f in found if f.id == "extra-args" and f.level == "error"}
    assert refused == {f"models[0].extraArgs[{i}]" for i in range(len(args))}


def test_flags_of_fields_are_the_engine_s() -> None:
    """Each flag that a field names, or that the project sets or refuses, is one of an engine of the catalogue, spelt as its parser spells it."""
    known = {flag for version in versions() for flag in flags_of(version) or {}}
    assert {field.flag.name for field in (*OF_MODEL, *OF_ROLE)} <= OWNED.keys() <= known


@pytest.mark.parametrize(("flag", "field"), [(f.flag.name, f.place) for f in (*OF_MODEL, *OF_ROLE)])
def test_refusals_name_the_field(flag: str, field: str) -> None:
    """Whoever gives the flag of a field as an extra one is told the field."""
    (found,) = [f for f in check(environment(aggregated(extraArgs=[f"{flag}=7"]))).findings if f.id == "extra-args"]
    assert re.fullmatch(rf"set {re.escape(field)} of the (model|role|model or role)", found.fix)


NEVER = (
    "--api-key", "--config", "--data-parallel-backend", "--data-parallel-external-lb", "--data-parallel-hybrid-lb",
    "--data-parallel-multi-port-external-lb", "--data-parallel-rank", "--data-parallel-size-local", "--data-parallel-start-rank",
    "--data-parallel-supervisor-port", "--distributed-executor-backend", "--download-dir", "--host", "--model",
    "--spec-method", "--spec-model", "--spec-tokens",
)  # fmt: skip


@pytest.mark.parametrize("flag", NEVER)
def test_flags_that_nothing_sets_are_refused(flag: str) -> None:
    """What would put a secret or a second source of truth on the command line is refused although no field or pod sets it."""
    assert any(f.id in {"extra-args", "plain-secret"} for f in check(environment(aggregated(extraArgs=[f"{flag}=x"]))).findings)


def test_a_field_without_a_flag_in_this_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field that the engine's version has no flag for is refused where it stands, and only where it is given."""
    without = {name: about for name, about in (flags_of("0.33.0") or {}).items() if name != "--max-num-seqs"}
    monkeypatch.setattr(flags, "flags_of", lambda version: without if version == "0.33.0" else flags_of(version))
    (found,) = said(server=role(maxNumSeqs=64))
    assert found.sentence().startswith(
        "models[0].server.maxNumSeqs: 64 becomes --max-num-seqs, which is not a flag of vLLM 0.33.0 (allowed: vLLM 0.27.1); remove it"
    )
    assert said() == []


def test_values_that_become_no_flag_are_not_judged() -> None:
    """A backend is on the command line only with ranks that share experts; without them, another rule warns that it has no effect."""
    of_role = role(tensorParallel=8, all2allBackend="moonep")
    assert said(model="gpt-oss-120b", engine="vllm-0.27.1-dlc", maxModelLen=4096, server=of_role) == []


@pytest.mark.parametrize("flag", ["--disable-expert-parallel", "--no-enable-expert-parallel", "--disable_expert_parallel", "--disable-expert-par"])
def test_both_negations_are_the_project_s(flag: str) -> None:
    """VLLM turns --enable-x off by --disable-x as well as by --no-enable-x; a field of the role says it here."""
    found = check(environment(aggregated(extraArgs=[flag]))).findings
    assert [f.message for f in found if f.id == "extra-args"] == ["is set by the project"]
    assert not [f for f in found if f.id == "engine-flags"]


def test_an_engine_that_nobody_asked(tmp_path: Path) -> None:
    """Flags of a version without a list are not judged, and that is said."""
    (tmp_path / "engines").mkdir()
    (tmp_path / "engines/old.yaml").write_text(yaml.safe_dump({**OLD_ENGINE, "version": "0.99.0"}))
    (found,) = said("--whatever=1", base=tmp_path, engine="old")
    assert (str(found.level), found.path) == ("info", "models[0].extraArgs")
    assert "vLLM 0.99.0 was not asked" in found.message


def test_lists_say_where_they_come_from() -> None:
    """Each list has its version, source and day."""
    for version in versions():
        head = json.loads((ROOT / f"components/disagg_serving/catalog/engines/flags/vllm-{version}.json").read_text())
        assert head["version"] == version
        assert head["checked"] >= "2026-11-30"
        assert head["source"]
    assert any(r.id == "engine-flags" for r in rules())


@pytest.mark.parametrize(("method", "message"), [("suffix", "needs the package"), ("extract_hidden_states", "is not known here"), ("ngram", "")])
def test_methods_that_the_parser_takes(method: str, message: str) -> None:
    """A method that the engine lists and nobody has tried here is no error."""
    found = check(environment(aggregated(speculative={"method": method, "numSpeculativeTokens": 2}))).findings
    about = [f for f in found if f.id == "speculative-method"]
    assert [str(f.level) for f in about] == (["warning"] if message else [])
    assert all(message in f.message for f in about)


def test_the_example_of_an_option(tmp_path: Path) -> None:
    """The change that CONTRIBUTING shows is all that such an option takes: applied to the package, its own test passes, and its flag is owned."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    of_spec, of_test = re.findall(r"^\+\+\+ (\S+)\n((?:[ +].*\n)+)", page, re.MULTILINE)
    package = shutil.copytree(ROOT / "components/disagg_serving", tmp_path / "disagg_serving", ignore=shutil.ignore_patterns("__pycache__"))
    file, lines = package.parent / of_spec[0].removeprefix("components/"), of_spec[1].splitlines(keepends=True)
    before, after = "".join(line[1:] for line in lines if line[0] == " "), "".join(line[1:] for line in lines)
    text = file.read_text(encoding="utf-8")
    assert text.count(before) == 1
    file.write_text(text.replace(before, after), encoding="utf-8")
    test = re.sub(r"^\+", "", of_test[1], flags=re.MULTILINE)
    code = f"from test_engine_flags import *\n{test}\n{test.split('(')[0].removeprefix('def ')}()\nprint(OWNED['--prefix-caching-hash-algo'])"
    path = os.pathsep.join(map(str, (tmp_path, ROOT / "tests", ROOT / "tests/unit")))
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "set prefixCachingHash of the model\n"), done.stderr
