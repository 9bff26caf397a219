"""The workflows for users and the action that plans pull requests."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import ROOT

WORKFLOWS = ROOT / "examples/github-actions/.github/workflows"
ACTION = ROOT / ".github/actions/plan/action.yml"
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
    command = [str(part) for part in (Path(sys.executable).parent / "zizmor", "--offline", "--no-progress", ACTION, WORKFLOWS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No findings to report" in done.stdout


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
def test_one_comment(tmp_path: Path, pulls: Any, comments: Any, written: tuple[str, str] | None) -> None:
    """The comment goes to the pull request whose newest commit was planned; the second report replaces the first."""
    (tmp_path / "report").mkdir()
    (tmp_path / "report/plan.md").write_text("the plan", encoding="utf-8")
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
        assert (tmp_path / "body.md").read_text().splitlines()[:2] == ["<!-- disagg-plan -->", "the plan"]
