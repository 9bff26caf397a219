"""`disagg` as tests call it, and projects to call it in."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from disagg_serving.cli.main import main
from factories import SHIPPED


class Run:
    """`disagg` in this process, started in a folder: exit code and what it wrote."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch
        self.code, self.out, self.err = -1, "", ""

    def __call__(self, *args: str, cwd: Path = SHIPPED) -> int:
        """Run a command and return its exit code."""
        self._monkeypatch.chdir(cwd)
        self.code = main(args)
        self.out, self.err = self._capsys.readouterr()
        assert "Traceback" not in self.err
        return self.code


def process(*args: str, cwd: Path = SHIPPED, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """`disagg` in a process of its own."""
    return subprocess.run([sys.executable, *options, "-m", "disagg_serving", *args], cwd=cwd, capture_output=True, text=True, check=False)


def write_project(folder: Path, config: dict[str, Any], stack: str = "test") -> Path:
    """This project with one stack of its own."""
    for name in ("Pulumi.yaml", "__main__.py"):
        shutil.copy(SHIPPED / name, folder / name)
    (folder / "stacks").mkdir()
    (folder / f"stacks/Pulumi.{stack}.yaml").write_text(yaml.safe_dump({"config": config}), encoding="utf-8")
    return folder


def bare(folder: Path, data: Any) -> Path:
    """A file with a bare environment."""
    file = folder / "environment.yaml"
    file.write_text(yaml.safe_dump(data), encoding="utf-8")
    return file
