"""Pulumi reads stack files with a parser of its own: what the unit tests hold our reader to is what it answers."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from disagg_serving.yaml_io import dates_as_text
from yaml_values import OURS, READ, REFUSED

from bench.build import OUT


class Project:
    """A project with one stack, on a backend of files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "state").mkdir()
        (folder / "Pulumi.yaml").write_text("name: p\nruntime: python\n", encoding="utf-8")
        self.run("stack", "init", "t")
        self.salt = (folder / "Pulumi.t.yaml").read_text(encoding="utf-8")

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        """A command of Pulumi's."""
        environment = {
            **os.environ,
            "PULUMI_BACKEND_URL": f"file://{self.folder}/state",
            "PULUMI_CONFIG_PASSPHRASE": "of a test",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_HOME": str(self.folder / "home"),
        }
        command = [str(OUT / "bin/pulumi"), *args, "--non-interactive"]
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=60, check=False)

    def config(self, written: dict[str, str]) -> Any:
        """What a program gets as configuration `environment`; the error's text where the file is refused."""
        values = "\n".join(f"    {key}: {value}" for key, value in written.items())
        (self.folder / "Pulumi.t.yaml").write_text(f"config:\n  p:environment:\n{values}\n{self.salt}", encoding="utf-8")
        done = self.run("config", "--json", "--stack", "t")
        return json.loads(done.stdout)["p:environment"]["objectValue"] if done.returncode == 0 else done.stderr


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The project, made once."""
    return Project(tmp_path_factory.mktemp("pulumi"))


def as_ours(value: Any) -> Any:
    """A value with times as we write them: Pulumi hands over what Go prints of them."""
    if isinstance(value, dict):
        return {key: as_ours(one) for key, one in value.items()}
    return [as_ours(one) for one in value] if isinstance(value, list) else dates_as_text(value)


def same(read: Any, wanted: Any) -> bool:
    """Whether values are equal, and of one kind."""
    number = isinstance(wanted, (int, float)) and not isinstance(wanted, bool)
    return bool(math.isclose(read, wanted, rel_tol=1e-15)) if number else type(read) is type(wanted) and bool(read == wanted)


def test_values(project: Project) -> None:
    """All plain values, merges and tags of the table, in one file. `config --json` rounds numbers to a float's precision."""
    names = {f"k{i}": written for i, written in enumerate(READ)}
    read = as_ours(project.config(names))
    assert read.keys() == names.keys()
    different = {written: (read[name], READ[written]) for name, written in names.items() if not same(read[name], READ[written])}
    assert different == {}


@pytest.mark.parametrize("written", REFUSED)
def test_refusals(project: Project, written: str) -> None:
    """What we refuse is refused there as well."""
    said = project.config({"k": written})
    assert isinstance(said, str)
    assert re.search("yaml|YAML|unmarshal", said)


@pytest.mark.parametrize("written", OURS)
def test_our_own_limits(project: Project, written: str) -> None:
    """Only this is read there and refused here; a row that Pulumi begins to refuse belongs into the other table."""
    assert isinstance(project.config({"k": written}), dict)
