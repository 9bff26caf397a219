"""A git revision to compare with: found, checked out for a moment, and never left behind."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ..errors import ToolError, did_you_mean
from ..yaml_io import real

PROJECT_FILES = ("Pulumi.yaml", "Pulumi.yml")


@dataclass(frozen=True)
class Revision:
    """A commit of the repository that holds a project.

    `asked` is what the user wrote, `commit` the full hash that is recorded: the merge base of that and HEAD, so that only what this branch
    adds is shown. `project` is the project's folder there, below `repository`, `moved_to` that in the work tree where it is another one.
    """

    repository: Path
    project: Path
    asked: str
    commit: str
    notes: tuple[str, ...] = ()
    moved_to: Path | None = None

    def differs(self, path: Path) -> bool:
        """Whether a folder or file is another one in the working tree, with what is not committed or new."""
        tracked = _git(self.repository, "diff", "--quiet", "--no-ext-diff", "--no-textconv", self.commit, "--", str(path)).returncode != 0
        return tracked or bool(_git(self.repository, "ls-files", "--others", "--exclude-standard", "--", str(path)).stdout.strip())

    @contextmanager
    def checked_out(self) -> Iterator[Path]:
        """A temporary work tree of the revision; hooks do not run."""
        with tempfile.TemporaryDirectory(prefix="disagg-base-", ignore_cleanup_errors=True) as name:
            folder = Path(name) / "tree"
            added = _git(self.repository, "worktree", "add", "--detach", "--quiet", str(folder), self.commit)
            if added.returncode:
                raise ToolError(f"{self.asked} cannot be checked out: {_last_line(added.stderr)}")
            try:
                yield folder
            finally:
                _git(self.repository, "worktree", "remove", "--force", "--force", str(folder))


def find_revision(root: Path, asked: str) -> Revision:
    """The revision that a branch, tag or commit stands for.

    Raises ToolError when `root` is in no git repository, when there is no such revision, or when it has no commit in common with HEAD.
    """
    if shutil.which("git") is None:
        raise ToolError("--base needs git, which is not installed")
    top = _git(root, "rev-parse", "--show-toplevel")
    if top.returncode:
        fix = "; trust it with `git config --global --add safe.directory`" if "dubious ownership" in top.stderr else ""
        raise ToolError(f"--base needs a git repository: {_last_line(top.stderr).removeprefix('fatal: ')}{fix}")
    repository = Path(top.stdout.strip())
    shallow = _git(root, "rev-parse", "--is-shallow-repository").stdout.strip() == "true"
    deepen = "; this clone is shallow: fetch its history (fetch-depth: 0 in actions/checkout, or `git fetch --unshallow`)" if shallow else ""
    head, commit = _commit(root, "HEAD"), _commit(root, asked)
    if head is None:
        raise ToolError("--base needs a first commit; HEAD has none")
    if commit is None:
        known = _git(root, "for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags", "refs/remotes").stdout.split()
        hint = did_you_mean(asked, known)
        raise ToolError(f"--base {asked}: no such branch, tag or commit here{'; ' + hint if hint else ''}{deepen}")
    base = _git(root, "merge-base", commit, head)
    if base.returncode:
        raise ToolError(f"--base {asked}: it has no commit in common with HEAD{deepen}")
    merge_base = base.stdout.strip()
    notes: tuple[str, ...] = ()
    if merge_base != commit:
        ahead = _git(root, "rev-list", "--count", f"{merge_base}..{commit}").stdout.strip()
        newer = "1 newer commit" if ahead == "1" else f"{ahead} newer commits"
        notes = (f"compared with {merge_base[:10]}, where this branch left {asked}; {asked} has {newer}, not part of this",)
    return Revision(repository, real(root).relative_to(real(repository)), asked, merge_base, notes)


def located(revision: Revision, name: str) -> Revision:
    """The revision with the folder in which it has the project of this name, and a note, where that lies elsewhere than in the work tree.

    Unchanged where a project lies in the same folder, or where none or several of that name are found.
    """
    listed = _git(revision.repository, "ls-tree", "-r", "--name-only", "-z", revision.commit).stdout.split("\0")
    files = [Path(path) for path in listed if Path(path).name in PROJECT_FILES]
    if revision.project in {file.parent for file in files}:
        return revision
    named = re.compile(rf"^name:[ \t]*([\"']?){re.escape(name)}\1[ \t]*(#.*)?\r?$", re.MULTILINE)
    found = {f.parent for f in files if named.search(_git(revision.repository, "show", f"{revision.commit}:{f.as_posix()}").stdout)}
    if len(found) != 1:
        return revision
    (former,) = found
    note = f"project {name} moved: {revision.asked} has it in {_folder(former)}, this branch in {_folder(revision.project)}"
    return replace(revision, project=former, notes=(*revision.notes, note), moved_to=revision.project)


def _folder(path: Path) -> str:
    return "the root of the repository" if path == Path() else path.as_posix()


def _commit(root: Path, revision: str) -> str | None:
    found = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    return found.stdout.strip() if found.returncode == 0 else None


def _git(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """A git command that asks nothing and runs nothing of the repository."""
    quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_LFS_SKIP_SMUDGE": "1", "LC_ALL": "C"}
    # hooks and monitors are programs that a repository may bring
    options = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "advice.detachedHead=false")
    environment = {k: v for k, v in os.environ.items() if k not in _local_variables()} | quiet
    return subprocess.run(["git", *options, *args], cwd=folder, env=environment, capture_output=True, text=True, errors="replace", check=False)


@cache
def _local_variables() -> frozenset[str]:
    """Variables that bind git to one repository or index, as a hook inherits them; here the folder alone says which repository is meant."""
    listed = subprocess.run(["git", "rev-parse", "--local-env-vars"], capture_output=True, text=True, check=True)
    return frozenset(listed.stdout.split())


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["git said nothing"])[-1]
