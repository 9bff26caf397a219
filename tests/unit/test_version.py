"""What a build says that it is: the tag's version, and never an older one where no tag can be seen."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from factories import ROOT
from packaging.version import Version

PROJECT = ("pyproject.toml", ".git_archival.txt", ".gitattributes", "README.md", "LICENSE")
FALLBACK = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["version"]["fallback-version"]
Archive = Callable[[str], Path]


def test_version_without_a_tag_is_newer_than_any_release() -> None:
    """A shallow clone or copied folder is never taken for something older than what was released, or is about to be."""
    newest = max(Version(f.name) for f in (ROOT / "tests/upgrade/released").iterdir())
    assert Version(FALLBACK) > newest
    assert Version(FALLBACK).is_devrelease


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """What `git archive` makes of a revision of a repository with this project's build: one commit, the tag v0.1.0, another commit."""
    pytest.importorskip("hatch_vcs", reason="builds a version; `make package` installs what that needs, and CI runs it before")
    root = tmp_path / "repository"
    root.mkdir()
    for name in PROJECT:
        shutil.copy(ROOT / name, root / name)

    def git(*command: str) -> None:
        who = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false", "-c", "init.defaultBranch=main")
        subprocess.run(["git", *who, *command], cwd=root, check=True, capture_output=True)  # noqa: S607 (git is found on the path)

    git("init")
    git("add", "-f", *PROJECT)
    git("commit", "-m", "first")
    git("tag", "unrelated")
    git("commit", "--allow-empty", "-m", "release")
    git("tag", "v0.1.0")
    git("commit", "--allow-empty", "-m", "next")

    def made(revision: str) -> Path:
        folder = tmp_path / revision
        git("archive", "-o", str(tmp_path / "archive.tar"), revision)
        with tarfile.open(tmp_path / "archive.tar") as packed:
            packed.extractall(folder, filter="data")
        return folder

    return made


def version_of(folder: Path) -> Version:
    """The version that a build in a folder would give the package."""
    done = subprocess.run([sys.executable, "-m", "hatchling", "version"], cwd=folder, capture_output=True, text=True, check=True)
    return Version(done.stdout.strip())


def test_version_of_a_zip(archive: Archive) -> None:
    """A zip of a tag is that release, of a later commit newer, and of one before any release of ours what the fallback says."""
    assert version_of(archive("v0.1.0")) == Version("0.1.0")
    assert Version("0.1.0") < version_of(archive("main")) < Version("0.2")
    assert version_of(archive("unrelated")) == Version(FALLBACK)


def test_version_of_a_copied_folder(tmp_path: Path) -> None:
    """Without git, and with the file as it stands in the repository, the fallback holds."""
    pytest.importorskip("hatch_vcs", reason="builds a version; `make package` installs what that needs, and CI runs it before")
    for name in PROJECT:
        shutil.copy(ROOT / name, tmp_path / name)
    assert version_of(tmp_path) == Version(FALLBACK)
