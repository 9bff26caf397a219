"""Git repositories that tests make."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

PROGRAM = """
import json, os, socket
import pulumi

class Thing(pulumi.CustomResource):
    def __init__(self, name, props, opts=None):
        super().__init__("acme:index:Thing", name, props, opts)

names = sorted(os.environ.keys() - {"PYTHONPATH", "PYDANTIC_DISABLE_PLUGINS"})
Thing("seen", {"revision": "%s", "environment": ",".join(names), "home": sorted(os.listdir(os.environ["HOME"]))})
"""
"""A program of a user's own that tells what it sees."""


class Repository:
    """A git repository with a Pulumi project in it."""

    def __init__(self, folder: Path, project: str = ".") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.project = folder, folder / project
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *args: str) -> str:
        """A git command with settings of its own."""
        identity = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
        for role in ("AUTHOR", "COMMITTER"):
            identity |= {f"GIT_{role}_NAME": "test", f"GIT_{role}_EMAIL": "test@example.com", f"GIT_{role}_DATE": "2026-11-30T00:00:00Z"}
        done = subprocess.run(["git", *args], cwd=self.folder, env={**os.environ, **identity}, capture_output=True, text=True, check=True)  # noqa: S607
        return done.stdout.strip()

    def write(self, files: Mapping[str, Any]) -> None:
        """Files of the project; data becomes YAML, None removes one."""
        for name, data in files.items():
            file = self.project / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if data is None:
                file.unlink()
            else:
                file.write_text(data if isinstance(data, str) else yaml.safe_dump(data), encoding="utf-8")

    def commit(self, files: Mapping[str, Any]) -> str:
        """Commit files; returns the hash."""
        self.write(files)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", "change")
        return self.git("rev-parse", "HEAD")

    def trees(self) -> int:
        """How many work trees git knows."""
        return len(self.git("worktree", "list").splitlines())


def program(revision: str) -> dict[str, str]:
    """A project whose program tells what it sees, with an empty stack."""
    return {"Pulumi.yaml": "name: own\nruntime: python\n", "__main__.py": PROGRAM % revision, "Pulumi.test.yaml": "config: {}\n"}
