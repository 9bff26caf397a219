from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import Run, bare, process, write_project
from disagg_serving import __version__
from factories import ROOT, SHIPPED, STACKS, aggregated, environment, model, role

ESCAPE = "\x1b["
PLAN_KEYS = {"version", "project", "stack", "resources", "checks", "capacity", "placement", "cost", "changes", "topology"}
RESOURCE_KEYS = {"urn", "type", "name", "parent", "provider", "remote", "inputs", "dependsOn", "options"}
CHECK_KEYS = {"id", "level", "path", "message", "value", "allowed", "fix", "reference"}


WARNED = environment(model(decode=role(capacity={"type": "spot"})))
WRONG = environment(model(decode=role(pipelineParallel=2)))


@pytest.mark.parametrize("stack", STACKS)
def test_plan_json_keeps_its_contract(disagg: Run, stack: str) -> None:
    """Tools that read the plan find its keys, and URNs that are unique, sorted, of the engine's form and resolved inside the plan."""
    assert disagg("plan", stack, "--format", "json") == 0
    plan = json.loads(disagg.out)
    assert set(plan) >= PLAN_KEYS
    assert (plan["version"], plan["project"], plan["stack"]) == (1, "disagg-serving", stack)
    urns = [r["urn"] for r in plan["resources"]]
    assert urns == sorted(set(urns))
    for r in plan["resources"]:
        assert set(r) >= RESOURCE_KEYS
        form = rf"urn:pulumi:{stack}::disagg-serving::(disagg-serving:index:\w+\$)*{re.escape(r['type'])}::{re.escape(r['name'])}"
        assert re.fullmatch(form, r["urn"])
        assert {r["parent"], r["provider"], *r["dependsOn"]} - {None} <= set(urns)
        assert r["urn"] not in r["dependsOn"]
    roots = [r["type"] for r in plan["resources"] if r["parent"] is None]
    assert roots == ["pulumi:pulumi:Stack"]
    assert all(set(c) >= CHECK_KEYS and c["level"] in ("error", "warning", "info") for c in plan["checks"])
    assert all(set(p) == {"pool", "instanceType", "nodes", "idleNodes"} for p in plan["placement"])
    assert all({"pods", "idleGpus", "idleEfa"} == set(n) for p in plan["placement"] for n in p["nodes"])
    assert {"currency", "perHour", "perMonth", "asOf", "lines"} <= set(plan["cost"])
    assert plan["cost"]["perHour"] == pytest.approx(sum(line["perHour"] or 0 for line in plan["cost"]["lines"]))
    assert plan["topology"].startswith("flowchart")
    assert plan["changes"] == []


def test_plan_declares_what_render_writes(disagg: Run, tmp_path: Path) -> None:
    """The recorded program and the rendered files are the same Kubernetes objects, apart from what only the cluster knows."""
    disagg("plan", "local", "--format", "json")
    recorded = [r["inputs"] for r in json.loads(disagg.out)["resources"] if r["type"].startswith("kubernetes:") and "Chart" not in r["type"]]
    disagg("render", "local", "-o", str(tmp_path / "out"))
    written = [yaml.safe_load(f.read_text(encoding="utf-8")) for f in (tmp_path / "out").glob("*.yaml")]

    def order(objects: list[dict[str, Any]]) -> list[str]:
        return sorted(json.dumps(o, sort_keys=True) for o in objects)

    assert order(recorded) == order(written)


def test_plan_of_all_stacks_is_a_list(disagg: Run, tmp_path: Path) -> None:
    """`--all` gives every stack, also as JSON, where one stack alone is an object; `-o` writes the same and prints nothing.

    Text has the stacks with warnings first.
    """
    file = tmp_path / "new" / "plan.json"
    assert disagg("plan", "--all", "--format", "json", "-o", str(file)) == 0
    assert disagg.out == ""
    plans = json.loads(file.read_text(encoding="utf-8"))
    assert [p["stack"] for p in plans] == sorted(STACKS)
    assert disagg("plan", "prod", "--format", "json") == 0
    assert json.loads(disagg.out) == plans[sorted(STACKS).index("prod")]
    assert disagg("plan", "--all") == 0
    titles = [found[1] for line in disagg.out.splitlines() if (found := re.match(r"([a-z0-9-]+): Can be deployed", line))]
    assert sorted(titles) == sorted(STACKS)
    warned = [any(f["level"] == "warning" for f in plans[sorted(STACKS).index(t)]["checks"]) for t in titles]
    assert warned == sorted(warned, reverse=True)


@pytest.mark.parametrize(("name", "beginning"), [("markdown", "## Plan of `prod`\n"), ("html", "<!DOCTYPE html>\n")])
def test_plan_for_reviewers(disagg: Run, tmp_path: Path, name: str, beginning: str) -> None:
    """Markdown and HTML are printed or written to a file, for one stack and for all, with the exit code of the checks."""
    assert disagg("plan", "prod", "--format", name) == 0
    assert disagg.out.startswith(beginning)
    printed = disagg.out
    assert disagg("plan", "prod", "--format", name, "-o", str(tmp_path / "plan")) == 0
    assert (tmp_path / "plan").read_text(encoding="utf-8") == printed
    assert disagg("plan", "--all", "--format", name) == 0
    assert all(s in disagg.out for s in STACKS)
    project = write_project(tmp_path, {"disagg-serving:environment": WRONG})
    assert disagg("plan", "test", "--format", name, cwd=project) == 2
    assert "nixl-pipeline-parallel" in disagg.out


def test_plan_text_goes_to_a_file(disagg: Run, tmp_path: Path) -> None:
    """`-o` holds what would be printed, without colours."""
    assert disagg("plan", "dev") == 0
    printed = disagg.out
    assert disagg("plan", "dev", "-o", str(tmp_path / "plan.txt")) == 0
    assert (tmp_path / "plan.txt").read_text(encoding="utf-8") == printed
    assert ESCAPE not in printed


@pytest.mark.parametrize("command", ["plan", "check"])
def test_fail_on_warning(disagg: Run, tmp_path: Path, command: str) -> None:
    """Warnings end with exit code 2 only when asked for; errors always do; a clean stack never does."""
    project = write_project(tmp_path, {"disagg-serving:environment": WARNED})
    assert disagg(command, "test", cwd=project) == 0
    assert "spot-serving" in disagg.out
    assert disagg(command, "test", "--fail-on", "warning", cwd=project) == 2
    assert disagg(command, "glm5-pp", "--fail-on", "warning") == 0
    assert disagg(command, "test", "--fail-on", "never", cwd=project) == 1


@pytest.mark.parametrize("command", ["plan", "check", "render"])
def test_failed_checks_end_with_two(disagg: Run, tmp_path: Path, command: str) -> None:
    """A stack that cannot work is exit code 2 in every command, with the finding in the output, and nothing is written."""
    project = write_project(tmp_path, {"disagg-serving:environment": WRONG})
    assert disagg(command, "test", *(["-o", "out"] if command == "render" else []), cwd=project) == 2
    assert "models[0].decode.pipelineParallel" in disagg.out + disagg.err
    assert not (project / "out").exists()


def test_a_plan_with_failed_checks_is_still_json(disagg: Run, tmp_path: Path) -> None:
    """A program that reads the plan gets the failed checks in it, not a text."""
    project = write_project(tmp_path, {"disagg-serving:environment": WRONG})
    assert disagg("plan", "test", "--format", "json", cwd=project) == 2
    plan = json.loads(disagg.out)
    assert set(plan) >= PLAN_KEYS
    assert [c["id"] for c in plan["checks"] if c["level"] == "error"] == ["nixl-pipeline-parallel"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["plan", "prd"], "did you mean prod?"),
        (["plan"], "--all"),
        (["plan", "prod", "--all"], "--all"),
        (["check", "missing.yaml"], "missing.yaml"),
        (["render", "prod"], "-o"),
        (["explain", "pod-fits-nod"], "did you mean pod-fits-node?"),
        (["schema", "stck"], "environment"),
        (["catalog", "models", "--format", "xml"], "xml"),
        (["catalog", "gpus"], "gpus"),
        (["nonsense"], "nonsense"),
        (["check", "prod", "--fast"], "--fast"),
        (["check"], "STACK"),
    ],
)
def test_wrong_calls_end_with_one(disagg: Run, args: list[str], words: str) -> None:
    """A call that is wrong is exit code 1, told apart from failed checks, with a word about what would be right."""
    assert disagg(*args) == 1
    assert words in disagg.err
    assert disagg.out == ""


def test_a_folder_without_a_project_is_a_wrong_call(disagg: Run, tmp_path: Path) -> None:
    """Outside a project a stack's name means nothing; the message says what to do."""
    assert disagg("check", "prod", cwd=tmp_path) == 1
    assert "Pulumi.yaml" in disagg.err


@pytest.mark.parametrize("text", ["models: [\n", "a: 1\na: 2\n", "", "- 1\n", "just text\n", "\x00"])
@pytest.mark.parametrize("command", ["check", "render"])
def test_bad_files_never_end_in_a_traceback(disagg: Run, tmp_path: Path, command: str, text: str) -> None:
    """A file that is not an environment fails the checks with a sentence."""
    file = tmp_path / "bad.yaml"
    file.write_text(text, encoding="utf-8")
    assert disagg(command, str(file), *(["--images"] if command == "render" else [])) == 2
    assert len(disagg.out + disagg.err) > 20


def test_check_takes_a_stack_a_stack_file_and_a_bare_file(disagg: Run, tmp_path: Path) -> None:
    """The same stack by name, from a folder below the project, and by path give the same findings; a bare file needs no project."""
    assert disagg("check", "glm5", "--format", "json") == 0
    by_name = json.loads(disagg.out)
    assert {"open-reservations", "template-outage"} <= {c["id"] for c in by_name["checks"]}
    for args, cwd in (
        (["glm5"], SHIPPED / "stacks"),
        (["Pulumi.glm5.yaml"], SHIPPED / "stacks"),
        (["stacks/Pulumi.glm5.yaml"], SHIPPED),
        ([str(SHIPPED / "stacks/Pulumi.glm5.yaml")], tmp_path),
    ):
        assert disagg("check", *args, "--format", "json", cwd=cwd) == 0
        assert json.loads(disagg.out) == by_name
    assert disagg("check", str(bare(tmp_path, WRONG)), cwd=tmp_path) == 2
    assert disagg.out.splitlines()[0].startswith("error [nixl-pipeline-parallel] models[0].decode.pipelineParallel: 2 is not possible")
    assert disagg.out.splitlines()[-1] == "1 error, 0 warnings"


def test_paths_of_a_bare_file_start_beside_it(disagg: Run, tmp_path: Path) -> None:
    """A bare environment's catalogue folder is looked for beside the file, wherever the command is started."""
    (tmp_path / "extra").mkdir()
    file = bare(tmp_path, environment(aggregated(), catalogDirs=["extra"]))
    assert disagg("check", str(file), cwd=ROOT) == 0
    (tmp_path / "extra").rmdir()
    assert disagg("check", str(file), cwd=ROOT) == 2


def test_check_json_has_stable_keys(disagg: Run, tmp_path: Path) -> None:
    """Findings as JSON have the documented keys and come sorted: errors first, then by path."""
    data = environment(model(decode=role(pipelineParallel=2, capacity={"type": "spot"}), maxModelLen=10**9))
    assert disagg("check", str(bare(tmp_path, data)), "--format", "json") == 2
    found = json.loads(disagg.out)
    assert found["version"] == 1
    assert all(set(c) - {"corrections"} == CHECK_KEYS for c in found["checks"])
    order = [(["error", "warning", "info"].index(c["level"]), c["path"]) for c in found["checks"]]
    assert order == sorted(order)
    assert len({c["level"] for c in found["checks"]}) == 3


def test_render_writes_files_in_apply_order(disagg: Run, tmp_path: Path) -> None:
    """Files sort so that `kubectl apply -f` makes namespaces before what is in them, and classes before pools before pods."""
    out = tmp_path / "deep" / "out"
    assert disagg("render", "prod", "-o", str(out)) == 0
    objects = [yaml.safe_load(f.read_text(encoding="utf-8")) for f in sorted(out.glob("*.yaml"))]
    kinds = [o["kind"] for o in objects]
    seen: set[str] = set()
    for o in objects:
        seen |= {o["metadata"]["name"]} if o["kind"] == "Namespace" else set()
        assert o["metadata"].get("namespace") in {None, "kube-system", *seen}
    before = ("NodeClass", "NodePool", "PriorityClass", "ServiceAccount", "NetworkPolicy", "PodDisruptionBudget")
    last = [len(kinds) - 1 - kinds[::-1].index(k) for k in before]
    assert last == sorted(last)
    assert last[-1] < kinds.index("LeaderWorkerSet")
    assert disagg("render", "prod", "-o", str(out)) == 0
    assert disagg.out == f"{len(objects)} objects in {out}\n"


def test_render_replaces_what_it_wrote_before(disagg: Run, tmp_path: Path) -> None:
    """A folder holds the objects of the last run and none of an earlier one; a person's own files stay."""
    disagg("render", "prod", "-o", str(tmp_path))
    (tmp_path / "README.md").write_text("mine", encoding="utf-8")
    (tmp_path / "kustomization.yaml").write_text("mine", encoding="utf-8")
    (tmp_path / "10-service-mine.yaml").write_text("mine", encoding="utf-8")
    disagg("render", "glm5", "-o", str(tmp_path))
    names = {f.name for f in tmp_path.iterdir()}
    assert {"README.md", "kustomization.yaml", "10-service-mine.yaml"} <= names
    assert not [n for n in names if "llama" in n]
    disagg("render", "glm5", "-o", str(tmp_path / "fresh"))
    assert {f.name for f in (tmp_path / "fresh").iterdir()} == names - {"README.md", "kustomization.yaml", "10-service-mine.yaml", "fresh"}


@pytest.mark.parametrize("name", ["01-foo.yaml", "2024-notes.yaml"])
def test_render_keeps_files_that_it_did_not_write(disagg: Run, tmp_path: Path, name: str) -> None:
    """Only rendered objects are replaced: a person's own file stays, even if its name begins with digits like theirs."""
    (tmp_path / name).write_text("mine", encoding="utf-8")
    assert disagg("render", "prod", "-o", str(tmp_path)) == 0
    assert (tmp_path / name).is_file()


@pytest.mark.parametrize("stack", STACKS)
def test_images_are_listed_and_pinned(disagg: Run, tmp_path: Path, stack: str) -> None:
    """A mirror can copy every image and chart from the list; none floats, in no object and no plan."""
    assert disagg("render", stack, "--images", "-o", str(tmp_path)) == 0
    lines = disagg.out.splitlines()[:-1]
    files = "".join(f.read_text(encoding="utf-8") for f in tmp_path.iterdir())
    used = set(re.findall(r"^\s*(?:- )?image: (\S+)$", files, re.MULTILINE))
    charts = [line for line in lines if line.startswith("oci://")]
    in_charts = {
        "docker.io/envoyproxy/envoy:distroless-v1.33.2",
        "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.10.0",
        "registry.k8s.io/lws/lws:v0.11.1",
    }
    assert set(lines) - set(charts) == used | in_charts
    assert charts == ["oci://ghcr.io/llm-d/charts/llm-d-router-standalone:v0.10.0", "oci://registry.k8s.io/lws/charts/lws:0.11.1"]
    assert all(re.fullmatch(r"\S+:(distroless-)?v?\d+\.\d+\.\d+\S*", line) for line in lines)
    assert disagg("plan", stack, "--format", "json") == 0
    printed = re.sub(r"https://\S+", "", files + disagg.out)  # addresses of documentation
    assert "latest" not in printed


def on_terminal(*args: str) -> str:
    """What `disagg` writes to a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-m", "disagg_serving", *args], cwd=SHIPPED, stdout=theirs, env=os.environ | {"TERM": "xterm"}) as running:
        os.close(theirs)
        text = b""
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:
                break
            if not chunk:
                break
            text += chunk
    os.close(ours)
    assert running.returncode == 0
    return text.decode()


@pytest.mark.parametrize("command", ["check", "plan"])
def test_colours_are_for_terminals_only(disagg: Run, command: str) -> None:
    """A terminal gets colours; a pipe and a file get plain text with the same words."""
    coloured = on_terminal(command, "glm5")
    assert ESCAPE in coloured
    assert disagg(command, "glm5") == 0
    assert ESCAPE not in disagg.out + disagg.err
    for words in ("template-outage", "image-unverified"):
        assert words in coloured
        assert words in disagg.out


@pytest.mark.parametrize(("args", "code"), [(("check", "prod"), 0), (("check", "prd"), 1), (("check", "bad.yaml"), 2)])
def test_the_process_has_the_exit_code(tmp_path: Path, args: tuple[str, ...], code: int) -> None:
    """CI sees the codes 0, 1 and 2 from the real process."""
    write_project(tmp_path, {"disagg-serving:environment": environment()}, "prod")
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(WRONG), encoding="utf-8")
    done = process(*args, cwd=tmp_path)
    assert done.returncode == code
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("args", [("check", "prod"), ("render", "prod", "--images"), ("catalog", "models"), ("rules",), ("schema",)])
def test_most_commands_do_not_load_pulumi(args: tuple[str, ...]) -> None:
    """Checking and rendering stay fast: Pulumi, its providers and gRPC are not even imported."""
    done = process(*args, options=("-X", "importtime"))
    assert done.returncode == 0
    loaded = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "disagg_serving" in loaded
    assert {m for m in loaded if m.startswith(("pulumi", "grpc"))} == set()


def test_version_and_help(disagg: Run) -> None:
    """`--version` prints the package's version, and help names every command."""
    assert disagg("--version") == 0
    assert disagg.out.strip() == f"disagg-serving {__version__}"
    assert disagg("--help") == 0
    assert all(command in disagg.out for command in ("plan", "check", "render", "catalog", "rules", "explain", "schema"))
    assert "Exit codes: 0 clean" in disagg.out


@pytest.mark.parametrize("text", ["config: [1]\n", "config: {a: [\n"])
@pytest.mark.parametrize("form", ["text", "json", "markdown", "html"])
def test_a_stack_that_cannot_be_read_has_a_report(disagg: Run, tmp_path: Path, form: str, text: str) -> None:
    """A workflow finds its file whatever the stack file holds: the reasons stand in it, as with --all."""
    project = write_project(tmp_path, {})
    (project / "stacks/Pulumi.test.yaml").write_text(text, encoding="utf-8")
    report = tmp_path / "out/report"
    assert disagg("plan", "test", "--format", form, "-o", str(report), cwd=project) == 2
    assert ("is not a mapping" if "1" in text else "YAML") in report.read_text(encoding="utf-8")
    assert disagg("plan", "test", cwd=project) == 2
    assert disagg.err.startswith("error: ")
