"""`disagg plan --base`: both revisions by their own code, the base without what the environment holds, and nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import Run
from disagg_serving.comparison import base_plan as base
from disagg_serving.comparison import replacements
from factories import ROOT, environment, model, role
from repositories import Repository, program

ENV = "disagg-serving:environment"
SECRET = {"secure": "v1:MARKEDciphertext"}
pytestmark = pytest.mark.usefixtures("kept")
PROJECT = {"Pulumi.yaml": (ROOT / "Pulumi.yaml").read_text(encoding="utf-8"), "__main__.py": (ROOT / "__main__.py").read_text(encoding="utf-8")}


def stack(**overrides: Any) -> dict[str, Any]:
    """A stack file with a secret."""
    data = environment(model(**overrides), cluster={"endpoint": {"publicAccessCidrs": ["203.0.113.0/24"]}, "protect": False})
    return {"encryptionsalt": "v1:MARKEDsalt", "config": {"aws:region": "us-east-1", "disagg-serving:hfToken": SECRET, ENV: data}}


def changed(text: str) -> dict[str, dict[str, Any]]:
    """Changes of a plan's JSON by name, with the values at their paths."""
    return {c["name"]: {p["path"]: (p["before"], p["after"]) for p in c["paths"]} for c in json.loads(text)["changes"]}


def test_a_change_to_a_stack(tmp_path: Path, disagg: Run, kept: Path) -> None:
    """Changes stand first, then figures and checks; their levels count for the exit code; no secret comes out, and no passphrase is needed."""
    repository = Repository(tmp_path / "repository")
    token = {"weights": {"tokenKey": "hfToken"}}
    repository.commit({**PROJECT, "stacks/Pulumi.test.yaml": stack(**token, decode=role(replicas=3)), "stacks/Pulumi.old.yaml": stack()})
    repository.write({"stacks/Pulumi.test.yaml": stack(**token), "stacks/Pulumi.new.yaml": stack()})
    repository.write({"stacks/Pulumi.old.yaml": None})

    assert disagg("plan", "test", "--base", "main", cwd=repository.project) == 0
    first, printed = disagg.out, disagg.out
    assert first.index("Changes since main") < first.index("warning update  LeaderWorkerSet test-m/m-decode") < first.index("Placement")
    assert "spec.replicas: 3 -> 1" in first
    assert "2 of 3 groups of m-decode end," in first
    assert "Resources (" not in first
    assert disagg("plan", "test", "--base", "HEAD", "--fail-on", "warning", "--format", "json", cwd=repository.project) == 2
    printed += disagg.out
    plan = json.loads(disagg.out)
    assert plan["difference"]["commit"] == repository.git("rev-parse", "HEAD")
    assert {(c["op"], c["severity"], c["name"]) for c in plan["changes"]} >= {("update", "warning", "test-m/m-decode")}

    assert disagg("plan", "--all", "--base", "main", "--format", "json", cwd=repository.project) == 0
    printed += disagg.out
    plans = {p["stack"]: p for p in json.loads(disagg.out)}
    assert {s: {c["op"] for c in p["changes"]} for s, p in plans.items()} == {"test": {"update"}, "new": {"create"}, "old": set()}
    assert [(c["level"], "pulumi destroy --stack old" in c["message"]) for c in plans["old"]["checks"]] == [("warning", True)]
    assert plans["old"]["difference"]["checks"]["new"] == plans["old"]["checks"]
    assert not plans["old"]["difference"]["cost"]
    assert any("has no stack new" in n for n in plans["new"]["difference"]["notes"])
    files = [f for f in kept.rglob("*") if f.is_file()]
    assert len(files) == 2
    assert {f.stat().st_mode & 0o077 for f in files} == {0}
    assert "MARKED" not in printed + "".join(f.read_text(encoding="utf-8") for f in files)
    assert repository.trees() == 1


def test_both_programs_see_the_same_and_no_credentials(own: Repository, disagg: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the environment's credentials nor the home folder reach the program of either revision, so nothing but the code differs."""
    for name in ("AWS_SECRET_ACCESS_KEY", "PULUMI_ACCESS_TOKEN", "GITHUB_TOKEN", "KUBECONFIG", "HF_TOKEN", "PYTHON_REGISTRY_TOKEN", "LC_PASSWORD"):
        monkeypatch.setenv(name, "MARKED")
    assert disagg("plan", "test", "--base", "main", "--format", "json", cwd=own.project) == 0
    assert changed(disagg.out) == {"seen": {"revision": ("base", "head")}}
    (seen,) = [r["inputs"] for r in json.loads(disagg.out)["resources"] if r["name"] == "seen"]
    assert seen["home"] == []
    assert not {n for n in seen["environment"].split(",") if n.startswith(("AWS", "PULUMI", "GITHUB", "KUBE", "HF", "XDG", "PYTHON_", "LC_P"))}
    assert os.environ["KUBECONFIG"] == "MARKED"


def test_what_a_program_prints_is_no_part_of_the_report(own: Repository, disagg: Run) -> None:
    """Words that a program prints go to the standard error, so that JSON, Markdown and HTML on the standard output stay whole."""
    own.commit({"__main__.py": "print('MARKED')\n" + program("head")["__main__.py"]})
    assert disagg("plan", "test", "--base", "main", "--format", "json", cwd=own.project) == 0
    assert changed(disagg.out) == {"seen": {"revision": ("base", "head")}}
    assert "MARKED" in disagg.err
    assert disagg("plan", "--all", "--format", "html", cwd=own.project) == 0
    assert disagg.out.startswith("<!DOCTYPE html>")


def test_the_base_has_no_network(own: Repository, disagg: Run, kept: Path) -> None:
    """Where the system allows a network namespace, the base's code sees none but a loopback that is down; elsewhere a note says so."""
    own.git("switch", "--quiet", "main")
    links = "\nThing('links', {'names': [n for _, n in socket.if_nameindex()]})"
    own.commit({"__main__.py": program("base")["__main__.py"] + links})
    own.git("switch", "--quiet", "-c", "without")
    own.commit({"__main__.py": program("base")["__main__.py"]})
    assert disagg("plan", "test", "--base", "main", "--format", "json", cwd=own.project) == 0
    notes = json.loads(disagg.out)["difference"]["notes"]
    (file,) = (kept / "plans").iterdir()
    names = [r["inputs"]["names"] for r in json.loads(file.read_text(encoding="utf-8"))["plans"]["test"]["resources"] if r["name"] == "links"]
    isolated = base._without_network() != ()
    assert isolated != any("this machine's network" in n for n in notes)
    if isolated:
        assert names == [["lo"]]
        tried = subprocess.run(
            [*base._without_network(), sys.executable, "-c", "import socket; socket.create_connection(('192.0.2.1', 443), 3)"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "unreachable" in tried.stderr


def test_where_the_branch_left(own: Repository, disagg: Run) -> None:
    """What others did on the base branch meanwhile is no change of this branch; the plan says with what it compares."""
    left = own.git("rev-parse", "main")
    own.git("switch", "--quiet", "main")
    own.commit({"Pulumi.other.yaml": "config: {}\n"})
    own.git("switch", "--quiet", "change")
    assert disagg("plan", "--all", "--base", "main", "--format", "json", cwd=own.project) == 0
    (plan,) = json.loads(disagg.out)
    assert plan["difference"]["commit"] == left
    assert f"compared with {left[:10]}, where this branch left main; main has 1 newer commit," in plan["difference"]["notes"][0]


def test_a_kept_plan_is_not_made_again(own: Repository, disagg: Run, monkeypatch: pytest.MonkeyPatch, kept: Path) -> None:
    """The second time the base is read from the cache; a damaged entry is made anew, and without a place for it all works, too."""
    assert disagg("plan", "test", "--base", "main", "--format", "json", cwd=own.project) == 0
    first = disagg.out
    start = base._start

    def refuse(*_: Any) -> None:
        raise AssertionError("the base is recorded again")

    monkeypatch.setattr(base, "_start", refuse)
    assert disagg("plan", "test", "--base", "main", "--format", "json", cwd=own.project) == 0
    assert disagg.out == first
    monkeypatch.setattr(base, "_start", start)
    (file,) = (kept / "plans").iterdir()
    whole = json.loads(file.read_text(encoding="utf-8"))
    for damaged in ("{", "[]", '{"plans": [], "notes": 5}', '{"plans": {"test": []}, "notes": []}', json.dumps(whole | {"plans": {"test": []}})):
        file.write_text(damaged, encoding="utf-8")
        assert disagg("plan", "test", "--base", "main", "--format", "json", cwd=own.project) == 0
        assert disagg.out == first
    assert json.loads(file.read_text(encoding="utf-8"))["plans"]["test"]["project"] == "own"
    shutil.rmtree(kept)
    kept.write_text("", encoding="utf-8")
    assert disagg("plan", "test", "--base", "main", "--format", "json", cwd=own.project) == 0
    assert disagg.out == first


def test_a_plan_of_other_code_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept depends on the library's own files and on the packages that are installed, not on the version that they claim."""
    package = tmp_path / "package"
    (package / "preview").mkdir(parents=True)
    (package / "catalog.yaml").write_text("a: 1\n", encoding="utf-8")
    monkeypatch.setattr(base, "__file__", str(package / "comparison/base_plan.py"))
    first = base._installed()
    assert base._installed() == first
    (package / "catalog.yaml").write_text("a: 2\n", encoding="utf-8")
    second = base._installed()
    assert second != first
    (tmp_path / "site/more-1.0.dist-info").mkdir(parents=True)
    (tmp_path / "site/more-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: more\nVersion: 1.0\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert base._installed() not in {first, second}


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"Pulumi.yaml": None}, "main has no Pulumi project here"),
        ({"Pulumi.test.yaml": None}, "main has no stack test: everything counts as new"),
    ],
)
def test_a_base_without_the_stack(tmp_path: Path, disagg: Run, files: dict[str, Any], says: str) -> None:
    """What the base does not have is new, and the reason is said."""
    repository = Repository(tmp_path / "old")
    repository.write(program("base"))
    repository.commit(files)
    repository.git("switch", "--quiet", "-c", "change")
    repository.commit(program("head"))
    assert disagg("plan", "test", "--base", "main", "--format", "json", cwd=repository.project) == 0
    plan = json.loads(disagg.out)
    assert {c["op"] for c in plan["changes"]} == {"create"}
    assert says in plan["difference"]["notes"]
    assert plan["difference"]["notes"][-1] == "main has no stack test: everything counts as new"
    assert plan["difference"]["compared"]
    assert repository.trees() == 1


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"__main__.py": "raise SystemError('broken')\n"}, "its own code cannot plan it (SystemError: broken, __main__.py:1)"),
        (
            {"__main__.py": "import sys\nsys.exit(0)\n"},
            "its own code cannot plan it (it ended by itself, with exit code 0, before it declared anything)",
        ),
        ({"Pulumi.yaml": "- a\n"}, "its Pulumi.yaml cannot be read"),
        ({"Pulumi.test.yaml": "config: [1]\n"}, "config is not a mapping"),
        ({"Pulumi.test.yaml": f"config: {{'{ENV}': {{catalogDirs: [./submodule], models: []}}}}\n"}, "its own checks stop before any resource"),
    ],
)
def test_a_base_that_cannot_be_planned(tmp_path: Path, disagg: Run, files: dict[str, Any], says: str) -> None:
    """A base whose plan nobody has is an error, also for the exit code; no change is made up."""
    repository = Repository(tmp_path / "old")
    repository.write(program("base"))
    repository.commit(files)
    repository.git("switch", "--quiet", "-c", "change")
    repository.commit(program("head"))
    assert disagg("plan", "test", "--base", "main", "--format", "json", cwd=repository.project) == 2
    plan = json.loads(disagg.out)
    assert not plan["changes"]
    assert not plan["difference"]["compared"]
    assert [(c["id"], c["level"]) for c in plan["checks"]] == [("base-not-compared", "error")]
    assert says in plan["checks"][0]["message"]
    assert repository.trees() == 1


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_what_was_not_compared_is_not_called_unchanged(own: Repository, disagg: Run, form: str) -> None:
    """Whoever reads a report of a base that cannot be planned sees that nothing was compared, and no word that all is well."""
    own.git("switch", "--quiet", "main")
    own.commit({"Pulumi.test.yaml": "config: [1]\n"})
    own.git("switch", "--quiet", "-c", "mended")
    own.commit({"Pulumi.test.yaml": "config: {}\n"})
    assert disagg("plan", "test", "--base", "main", "--format", form, cwd=own.project) == 2
    assert "not compared" in disagg.out
    assert "base-not-compared" in disagg.out
    assert "Can be deployed" not in disagg.out
    assert "unchanged" not in disagg.out


def test_one_stack_of_the_base_that_cannot_be_planned(own: Repository, disagg: Run) -> None:
    """What is said of one stack does not stand at the others, and a stack that only the base has is not passed over."""
    own.git("switch", "--quiet", "main")
    broken = "config: [1]\n"
    own.commit({"Pulumi.broken.yaml": broken, "Pulumi.lost.yaml": broken})
    own.git("switch", "--quiet", "-c", "mended")
    own.commit({"Pulumi.broken.yaml": "config: {}\n", "Pulumi.lost.yaml": None, "Pulumi.new.yaml": "config: {}\n"})
    assert disagg("plan", "--all", "--base", "main", "--format", "json", cwd=own.project) == 2
    plans = {p["stack"]: p for p in json.loads(disagg.out)}
    assert {s: p["difference"]["compared"] for s, p in plans.items()} == {"test": True, "new": True, "broken": False, "lost": False}
    assert {s: {c["op"] for c in p["changes"]} for s, p in plans.items()} == {"test": set(), "new": {"create"}, "broken": set(), "lost": set()}
    assert all(any(c["id"] == "base-not-compared" for c in p["checks"]) != p["difference"]["compared"] for p in plans.values())
    notes = [set(p["difference"]["notes"]) for s, p in plans.items() if s != "new"]
    assert notes[0] == notes[1] == notes[2]


@pytest.mark.parametrize(
    ("revision", "says"),
    [
        ("mian", "--base mian: no such branch, tag or commit here; did you mean main?"),
        ("--output=x", "no such branch, tag or commit here"),
        ("main:deploy", "no such branch, tag or commit here"),
        ("other", "--base other: it has no commit in common with HEAD"),
    ],
)
def test_wrong_revisions(own: Repository, disagg: Run, revision: str, says: str) -> None:
    """A revision that is not there, or that has nothing to do with this branch, is one line and exit code 1."""
    own.git("switch", "--quiet", "--orphan", "other")
    own.commit({"readme": "x"})
    own.git("switch", "--quiet", "change")
    assert disagg("plan", "test", f"--base={revision}", cwd=own.project) == 1
    assert says in disagg.err


def test_a_renamed_project(own: Repository, disagg: Run) -> None:
    """Another project's state is another one: that is one error, and nothing is called deleted."""
    own.write({"Pulumi.yaml": "name: other\nruntime: python\n"})
    assert disagg("plan", "--all", "--base", "main", "--format", "json", cwd=own.project) == 2
    (plan,) = json.loads(disagg.out)
    first, *others = plan["changes"]
    assert (first["op"], first["severity"], first["former"]) == ("rename", "error", "urn:pulumi:test::own::pulumi:pulumi:Stack::own-test")
    assert "nothing of own is deleted" in first["effect"]
    assert "`pulumi stack rename <organization>/other/test`" in first["effect"]
    assert {(c["op"], c["severity"]) for c in others} == {("create", "info")}
    for form in ("text", "markdown", "html"):
        assert disagg("plan", "test", "--base", "main", "--format", form, cwd=own.project) == 2
        assert "has another state" in " ".join(disagg.out.split())


def test_no_repository_and_shallow_clones(own: Repository, tmp_path: Path, disagg: Run) -> None:
    """Without git history there is nothing to compare with: the message says what to do."""
    plain = tmp_path / "plain"
    plain.mkdir()
    for name, text in program("head").items():
        (plain / name).write_text(text, encoding="utf-8")
    assert disagg("plan", "test", "--base", "main", cwd=plain) == 1
    assert "--base needs a git repository: not a git repository" in disagg.err
    own.git("clone", "--quiet", "--depth=1", f"file://{own.folder}", str(tmp_path / "shallow"))
    assert disagg("plan", "test", "--base", "main", cwd=tmp_path / "shallow/deploy") == 1
    assert "no such branch, tag or commit here; this clone is shallow: fetch its history (fetch-depth: 0" in disagg.err


def test_variables_of_a_hook(own: Repository, tmp_path: Path, disagg: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside a hook git is bound to an index and a repository; neither is written to, nor is another repository read."""
    other = Repository(tmp_path / "other")
    other.commit({"readme": "x"})
    index = own.folder / ".git/index"
    before = index.read_bytes()
    with monkeypatch.context() as hook:
        hook.setenv("GIT_INDEX_FILE", str(index))
        hook.setenv("GIT_DIR", str(other.folder / ".git"))
        hook.setenv("GIT_WORK_TREE", str(other.folder))
        hook.setenv("GIT_OBJECT_DIRECTORY", str(other.folder / ".git/objects"))
        assert disagg("plan", "test", "--base", "main", "--format", "json", cwd=own.project) == 0
    assert changed(disagg.out) == {"seen": {"revision": ("base", "head")}}
    assert index.read_bytes() == before
    assert (own.trees(), other.trees()) == (1, 1)


def test_the_base_runs_its_own_code(own: Repository, disagg: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that lies in the repository is imported from the revision that is recorded, also where the tool's path names this one."""
    own.git("switch", "--quiet", "main")
    own.commit(
        {"library/words.py": "WORD = 'base'\n", "__main__.py": "from words import WORD\n" + (program("x")["__main__.py"].replace('"x"', "WORD"))}
    )
    own.git("switch", "--quiet", "change")
    own.git("reset", "--quiet", "--hard", "main")
    own.write({"library/words.py": "WORD = 'head'\n"})
    monkeypatch.syspath_prepend(str(own.project / "library"))
    assert disagg("plan", "test", "--base", "main", "--format", "json", cwd=own.project) == 0
    assert changed(disagg.out) == {"seen": {"revision": ("base", "head")}}


def test_yaml_of_the_table() -> None:
    """The table of replacements is data with a date and a source for each package."""
    table = yaml.safe_load(Path(replacements.__file__).with_name("replacements.yaml").read_text(encoding="utf-8"))
    assert str(table.pop("checked")) >= "2026-11-30"
    assert all(len(part["source"]) > 20 and part["types"] for part in table.values())
