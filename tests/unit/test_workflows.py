"""The workflows for users and the action that plans pull requests."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from disagg_serving.comparison.revision import find_revision
from factories import ROOT
from repositories import Repository

from scripts.check_package import interpreter, wanted

WORKFLOWS = ROOT / "examples/github-actions/.github/workflows"
ACTION = ROOT / ".github/actions/plan/action.yml"
OWN = ROOT / ".github/workflows"
GH = """#!{python}
import json, sys
calls = json.load(open({calls!r}))
calls.append(sys.argv[1:])
json.dump(calls, open({calls!r}, "w"))
path = next(a for a in sys.argv[1:] if a.startswith("repos/"))
if "--method" in sys.argv and sys.argv[sys.argv.index("--method") + 1] != "GET":
    sys.exit(0)
print(json.dumps({pulls} if path.endswith("/pulls") else {comments}))
"""
MARKER = "<!-- disagg-plan -->\nold"


def load(file: Path) -> Any:
    """A workflow or action as data."""
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def test_auditor_finds_nothing() -> None:
    """zizmor, which knows how workflows are attacked, has nothing to say: pins, permissions, injection, credentials."""
    command = [str(part) for part in (Path(sys.executable).parent / "zizmor", "--offline", "--no-progress", ACTION, WORKFLOWS, OWN)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No findings to report" in done.stdout


def workflows() -> list[Path]:
    """Every workflow and action, the project's own and those for users."""
    return sorted([*OWN.glob("*.yml"), *WORKFLOWS.glob("*.yml"), ACTION])


def steps_of(file: Path) -> list[dict[str, Any]]:
    """The steps of all jobs of a workflow, or those of an action."""
    data = load(file)
    return [step for part in (data["jobs"].values() if "jobs" in data else [data["runs"]]) for step in part["steps"]]


def test_every_action_is_pinned_once() -> None:
    """Whoever moves a tag of an action changes nothing here: each is a whole commit with the release behind it, the same wherever it is used."""
    pins = defaultdict(set)
    for file in workflows():
        lines = re.findall(r"^.*\buses:.*$", file.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(lines) == sum("uses" in step for step in steps_of(file))
        for line in (line for line in lines if "uses: ./" not in line):
            found = re.fullmatch(r"\s+(?:- )?uses: ([\w-]+/[\w-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)", line)
            assert found, f"{file.name}: {line}"
            pins[found[1]].add(found.groups()[1:])
    assert {"actions/checkout", "pypa/gh-action-pypi-publish", "pulumi/actions"} <= pins.keys()
    assert {name: found for name, found in pins.items() if len(found) > 1} == {}


@pytest.mark.parametrize("file", [*workflows(), ROOT / ".ci/run", ROOT / "scripts/lock.sh", ROOT / "policy/disagg-policy"], ids=lambda f: f.name)
def test_shell_is_sound(file: Path) -> None:
    """ShellCheck has nothing to say about a script, or the shell steps of a workflow as GitHub starts them."""
    yml = file.suffix == ".yml"
    for script in [step["run"] for step in steps_of(file) if "run" in step] if yml else [file.read_text(encoding="utf-8")]:
        assert "${{" not in script
        assert shellcheck(script, *(["--shell=bash"] if yml else [])) == ""


def test_shell_that_is_not_sound_is_found() -> None:
    """The program above reads what it is given."""
    assert "SC2086" in shellcheck("rm $1", "--shell=bash")


def shellcheck(script: str, *options: str) -> str:
    """What ShellCheck says, without two matters of taste: backquotes that are meant as such, and several lines appended to a file."""
    command = [str(Path(sys.executable).parent / "shellcheck"), "--norc", "--exclude=SC2016,SC2129", *options, "-"]
    return str(subprocess.run(command, input=script, capture_output=True, text=True, check=False).stdout)


def test_roles_trust_the_environments_of_the_workflow() -> None:
    """The subjects that the page of review tells roles to trust are those that the jobs of deploy.yml have, and none is open to all."""
    page = (ROOT / "docs/review.md").read_text(encoding="utf-8")
    jobs = load(WORKFLOWS / "deploy.yml")["jobs"]
    made = {job["environment"].replace("${{ matrix.stack }}", "prod") for job in jobs.values()}
    assert set(re.findall(r"repo:ORG/REPO:environment:([a-z-]+)", page)) == made
    (trust,) = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]
    (statement,) = trust["Statement"]
    assert statement["Action"] == "sts:AssumeRoleWithWebIdentity"
    assert statement["Condition"]["StringEquals"] == {
        "token.actions.githubusercontent.com:aud": "sts.amazonaws.com",
        "token.actions.githubusercontent.com:sub": "repo:ORG/REPO:environment:prod",
    }


def test_only_publishing_may_do_anything() -> None:
    """What runs tests or a pull request's code reads the repository and no more; a release has no secret, and an environment that approves it."""
    assert load(OWN / "ci.yml")["permissions"] == {"contents": "read"}
    assert "permissions" not in load(OWN / "ci.yml")["jobs"]["run"]
    workflow = load(OWN / "release.yml")
    assert workflow["permissions"] == {}
    jobs = workflow["jobs"]
    assert {name: set(job["permissions"].items()) for name, job in jobs.items()} == {
        "build": {("contents", "read")},
        "test": {("contents", "read")},
        "publish": {("id-token", "write"), ("attestations", "write")},
        "announce": {("contents", "write")},
    }
    assert jobs["publish"]["environment"] == "pypi"
    assert not any("checkout" in step.get("uses", "") for name in ("publish", "announce") for step in jobs[name]["steps"])
    assert "secrets." not in "".join(file.read_text(encoding="utf-8") for file in OWN.iterdir())


def test_one_wheel_on_every_python() -> None:
    """The wheel that is published was built once, and tested on each version of the classifiers before."""
    jobs = load(OWN / "release.yml")["jobs"]
    built = [step["run"] for job in jobs.values() for step in job["steps"] if "check_package.py" in step.get("run", "")]
    assert [run for run in built if "--wheel" not in run] == [".venv/bin/python scripts/check_package.py --python 3.11 --dist dist"]
    assert sorted(["3.11", *jobs["test"]["strategy"]["matrix"]["python"]]) == sorted(wanted())
    assert jobs["publish"]["needs"] == ["build", "test"]


def release_step(name: str, folder: Path, tag: str, **given: str) -> subprocess.CompletedProcess[str]:
    """A shell step of the release, by its name, run in a folder as GitHub runs it."""
    (script,) = (step["run"] for step in steps_of(OWN / "release.yml") if step.get("name") == name)
    env = {"PATH": f"{folder / 'bin'}:/usr/local/bin:/usr/bin:/bin", "GITHUB_REF_NAME": tag, "GITHUB_OUTPUT": str(folder / "output"), **given}
    command = ["/bin/bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_a_release_is_what_its_tag_says(tmp_path: Path) -> None:
    """A tag is released where its version was kept and described, and where the wheel that was built is of that version."""
    version = "1.2.0"
    for name, made in (
        ("Is it described", [f"docs/upgrade/{version}.md"]),
        ("Is it the tag's version", [f"dist/disagg_serving-{version}-py3-none-any.whl"]),
    ):
        for file in made:
            assert release_step(name, tmp_path, f"v{version}").returncode == 1
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).touch()
        assert release_step(name, tmp_path, f"v{version}").returncode == 0
        assert release_step(name, tmp_path, "v1.2.1").returncode == 1
    assert release_step("Is it described", ROOT, "v0.1.0").returncode == 0
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/bash\necho "$@"; exit 3\n')
    python.chmod(0o755)
    asked = release_step("Is it kept, as this very code makes it", tmp_path, f"v{version}")
    assert (asked.returncode, asked.stdout) == (3, f"scripts/release.py check {version}\n")


def test_a_release_is_announced_with_all_that_was_built(tmp_path: Path) -> None:
    """The SBOM is found by its ending; the release is of the pushed tag, leads to the page of its version, and has every file."""
    for name in ("sbom/disagg_serving-1.2.0.cdx.json", "release/a.whl", "release/a.tar.gz", "release/a.cdx.json", "bin/gh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert release_step("Name the SBOM", tmp_path, "v1.2.0").returncode == 0
    assert (tmp_path / "output").read_text() == "path=sbom/disagg_serving-1.2.0.cdx.json\n"
    gh = tmp_path / "bin/gh"
    gh.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    gh.chmod(0o755)
    done = release_step("Make the release", tmp_path, "v1.2.0", REPOSITORY="o/r")
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[:3] == ["release", "create", "v1.2.0"]
    assert "--verify-tag" in said
    assert said[said.index("--notes") + 1] == "https://github.com/o/r/blob/v1.2.0/docs/upgrade/1.2.0.md"
    assert said[-3:] == ["release/a.cdx.json", "release/a.tar.gz", "release/a.whl"]


def test_pull_requests_get_nothing() -> None:
    """The workflow that runs a pull request's code has a read-only token and names no secret, no role and no environment."""
    plan = load(WORKFLOWS / "plan.yml")
    assert plan["permissions"] == {"contents": "read"}
    assert plan[True] == "pull_request"
    text = (WORKFLOWS / "plan.yml").read_text() + ACTION.read_text()
    assert not [word for word in ("secrets.", "id-token", "environment:", "pull_request_target", "write") if word in text]


def test_the_commenter_runs_nothing_of_the_pull_request() -> None:
    """The workflow with a token that writes checks nothing out."""
    steps = load(WORKFLOWS / "comment.yml")["jobs"]["comment"]["steps"]
    assert [s.get("uses", "").split("@")[0] for s in steps] == ["actions/download-artifact", ""]


def test_interpreters_are_what_they_are_called() -> None:
    """A Python is taken by what it says of itself; one that is not here is none."""
    here = "{}.{}".format(*sys.version_info)
    assert wanted()[0] == here
    assert interpreter(here) == Path(sys.executable)
    assert interpreter("3.99") is None


def group(job: dict[str, Any], values: dict[str, str]) -> str:
    """A concurrency group for an event."""
    text: str = job["concurrency"]["group"]
    for name, value in values.items():
        text = text.replace("${{ " + name + " }}", value)
    assert "${{" not in text
    return text


def test_what_runs_at_the_same_time() -> None:
    """Previews of two pull requests or stacks leave each other alone; an update is never cut off; one comment is written at a time."""
    jobs = load(WORKFLOWS / "deploy.yml")["jobs"]
    number, stack = "github.event.pull_request.number", "matrix.stack"
    assert len({group(jobs["preview"], {number: n, stack: s}) for n in ("1", "2") for s in ("staging", "prod")}) == 4
    assert len({group(jobs["up"], {stack: s}) for s in ("staging", "prod")}) == 2
    assert jobs["up"]["concurrency"]["cancel-in-progress"] is False
    run = "github.event.workflow_run."
    comment = load(WORKFLOWS / "comment.yml")
    assert len({group(comment, {f"{run}head_repository.full_name": r, f"{run}head_branch": "b"}) for r in ("o/r", "fork/r")}) == 2
    assert comment["concurrency"]["cancel-in-progress"] is False


def test_base_of_a_merge(tmp_path: Path) -> None:
    """What the workflow compares with is the base that GitHub merged into, also when it is newer than the event's, in as shallow a clone."""
    steps = load(WORKFLOWS / "plan.yml")["jobs"]["plan"]["steps"]

    origin = Repository(tmp_path / "origin")
    origin.commit({"Pulumi.yaml": {"name": "x", "runtime": "python"}})
    origin.git("checkout", "--quiet", "-b", "change")
    origin.commit({"a": "1"})
    origin.git("checkout", "--quiet", "main")
    newest = origin.commit({"b": "1"})
    origin.git("merge", "--quiet", "--no-ff", "-m", "merge", "change")
    depth = f"--depth={steps[0]['with']['fetch-depth']}"
    origin.git("clone", "--quiet", depth, origin.folder.as_uri(), str(tmp_path / "clone"))
    assert find_revision(tmp_path / "clone", steps[1]["with"]["base"]).commit == newest


DISAGG = """#!/bin/bash
while [ $# -gt 0 ]; do
  case "$1" in
    --format) kind=$2 ;;
    -o) file=$2 ;;
    --base) echo "$2" >> "$RUNNER_TEMP/bases" ;;
  esac
  shift
done
echo "  message about $kind" >&2
if [ "$kind" = html ]; then code=$HTML; else code=$MARKDOWN; fi
if [ "$code" != 1 ]; then echo "the $kind" > "$file"; fi
exit "$code"
"""


@pytest.fixture
def action(tmp_path: Path) -> Callable[..., tuple[int, Path, str]]:
    """The action's own shell steps with a disagg that ends with given codes: exit code, folder of the report, and what was printed."""
    stub = tmp_path / "disagg/bin/disagg"
    stub.parent.mkdir(parents=True)
    stub.write_text(DISAGG)
    stub.chmod(0o755)

    def run(markdown: int = 0, html: int = 0, *, steps: tuple[str, ...] = ("Begin the report", "Plan")) -> tuple[int, Path, str]:
        code, printed, outputs = 0, "", dict[str, str]()
        for step in (s for s in load(ACTION)["runs"]["steps"] if s.get("name") in steps):
            given = {"BASE": "HEAD^1", "FAIL_ON": "error", "REPORT": outputs.get("folder", "")}
            ours = {"RUNNER_TEMP": str(tmp_path), "MARKDOWN": str(markdown), "HTML": str(html)}
            files = {name: str(tmp_path / name.lower()) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
            env = {"PATH": "/usr/local/bin:/usr/bin:/bin", **ours, **files, **{name: given[name] for name in step.get("env", {})}}
            command = ["/bin/bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
            outputs |= dict(line.split("=", 1) for line in (tmp_path / "github_output").read_text().splitlines())
            code, printed = done.returncode, printed + done.stdout + done.stderr
        assert Path(outputs["markdown"]).parent == Path(outputs["html"]).parent == Path(outputs["folder"])
        return code, Path(outputs["folder"]), printed

    return run


@pytest.mark.parametrize("code", [0, 2])
def test_action_keeps_the_report(action: Callable[..., tuple[int, Path, str]], tmp_path: Path, code: int) -> None:
    """Report, page and summary are there when all is well and when checks failed; the job ends as the checks did."""
    ended, report, printed = action(code, code)
    assert ended == code
    assert (report / "plan.md").read_text() == (tmp_path / "github_step_summary").read_text() == "the markdown\n"
    assert (report / "plan.html").read_text() == "the html\n"
    assert "::error" not in printed
    assert (tmp_path / "bases").read_text() == "HEAD^1\n" * 2


def test_action_reports_its_own_failure(action: Callable[..., tuple[int, Path, str]], tmp_path: Path) -> None:
    """When the tool fails there is a report that says so with its message, which is code and never markup."""
    ended, report, printed = action(1)
    assert ended == 1
    assert (report / "plan.md").read_text() == "### This could not be planned\n\n      message about markdown\n"
    assert (tmp_path / "github_step_summary").read_text() == (report / "plan.md").read_text()
    assert "message about markdown" in printed
    assert not (report / "plan.html").exists()


def test_action_reports_what_was_not_installed(action: Callable[..., tuple[int, Path, str]]) -> None:
    """Before anything is installed there is already a report, for the case that it goes no further."""
    _, report, _ = action(steps=("Begin the report",))
    assert "could not be installed" in (report / "plan.md").read_text()


@pytest.mark.parametrize("code", [0, 2])
def test_action_reports_a_missing_page(action: Callable[..., tuple[int, Path, str]], code: int) -> None:
    """A page that could not be written fails the job and is told in the report."""
    ended, report, printed = action(code, 1)
    assert ended == (code or 1)
    assert "::error title=disagg plan::" in printed
    assert (report / "plan.md").read_text().startswith("the markdown\n\nThe page for a browser could not be written")


def test_action_used_twice(action: Callable[..., tuple[int, Path, str]]) -> None:
    """A second use in one job has a folder of its own, so a failure never shows the first one's report."""
    _, first, _ = action()
    _, second, _ = action(1)
    assert first != second
    assert not (second / "plan.html").exists()


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq, which GitHub's runners have, is not installed")
@pytest.mark.parametrize(
    ("pulls", "comments", "written"),
    [
        ([], [], None),
        ([{"number": 7, "head": {"sha": "other"}}], [], None),
        ([{"number": 7, "head": {"sha": "abc"}}], [], ("POST", "repos/o/r/issues/7/comments")),
        (
            [{"number": 7, "head": {"sha": "abc"}}],
            [{"id": 1, "user": {"type": "User"}, "body": MARKER}, {"id": 2, "user": {"type": "Bot"}, "body": MARKER}],
            ("PATCH", "repos/o/r/issues/comments/2"),
        ),
    ],
)
@pytest.mark.parametrize("report", ["the plan", None])
def test_one_comment(tmp_path: Path, pulls: Any, comments: Any, written: tuple[str, str] | None, report: str | None) -> None:
    """The comment goes to the pull request whose newest commit was planned; the second report replaces the first, also when there is none."""
    if report:
        (tmp_path / "report").mkdir()
        (tmp_path / "report/plan.md").write_text(report, encoding="utf-8")
    (tmp_path / "calls.json").write_text("[]")
    gh = tmp_path / "bin/gh"
    gh.parent.mkdir()
    gh.write_text(GH.format(python=sys.executable, calls=str(tmp_path / "calls.json"), pulls=pulls, comments=comments))
    gh.chmod(0o755)
    script = load(WORKFLOWS / "comment.yml")["jobs"]["comment"]["steps"][-1]["run"]
    env = {"PATH": f"{gh.parent}:/usr/local/bin:/usr/bin:/bin", "REPOSITORY": "o/r", "OWNER": "o", "BRANCH": "b", "COMMIT": "abc", "RUN_URL": "url"}
    done = subprocess.run(["/bin/bash", "-eo", "pipefail", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    calls = json.loads((tmp_path / "calls.json").read_text())
    writes = [c for c in calls if "--method" in c and c[c.index("--method") + 1] != "GET"]
    assert [(c[2], c[3]) for c in writes] == ([written] if written else [])
    if written:
        assert (tmp_path / "body.md").read_text().splitlines()[:2] == ["<!-- disagg-plan -->", report or "### This could not be planned"]
