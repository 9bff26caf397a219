"""The packages of a base revision: installed as its own files say, by a process that sees no credentials."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from command_line import Run
from disagg_serving.comparison import requirements
from disagg_serving.comparison.revision import find_revision
from disagg_serving.errors import ToolError
from repositories import Repository


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `python -m venv` makes."""
    folder = tmp_path_factory.mktemp("empty") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return folder


@pytest.fixture(autouse=True)
def _copied(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without packages takes three seconds and is always the same: it is copied. What pip does with it is not replaced."""
    run = subprocess.run

    def quick(command: list[Any], **options: Any) -> Any:
        if command[1:3] == ["-m", "venv"]:
            shutil.copytree(empty, command[3], symlinks=True, dirs_exist_ok=True)
            command = ["true"]
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", quick)


def interpreter(own: Repository, revision: str, cache: Path) -> tuple[Path, bool]:
    """The interpreter for a revision that is checked out."""
    found = find_revision(own.project, revision)
    with found.checked_out() as tree:
        return requirements.interpreter_of(found, tree, cache)


def test_other_requirements(own: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A revision with other packages gets an interpreter with them, made once; where they cannot be had, one line says what to do."""
    own.commit({"requirements.txt": "# none\n-e .\n"})
    own.git("branch", "none")
    own.commit({"requirements.txt": "-r more.txt\n", "more.txt": "no-such-package-of-disagg==1.0  # pinned\n"})
    own.git("branch", "missing")
    own.commit({"requirements.txt": "pyyaml==6.0.2\n"})
    for name in ("PIP_NO_INDEX", "UV_OFFLINE"):
        monkeypatch.setenv(name, "1")
    python, other = interpreter(own, "none", tmp_path / "kept")
    assert other
    assert subprocess.run([python, "-c", "import yaml"], capture_output=True, check=False).returncode != 0
    made = python.lstat().st_mtime_ns
    assert interpreter(own, "none", tmp_path / "kept")[0].lstat().st_mtime_ns == made
    assert interpreter(own, "HEAD", tmp_path / "kept") == (Path(sys.executable), False)
    with pytest.raises(ToolError, match=r"the requirements of [0-9a-f]{10} differ from those here and cannot be installed: .*no-such-package"):
        interpreter(own, "missing", tmp_path / "kept")
    assert len(list((tmp_path / "kept/python").iterdir())) == 1


def test_packages_that_cannot_be_had(own: Repository, disagg: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of this branch is made all the same, as that of any base that cannot be planned, and who waits is told what for."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("PIP_NO_INDEX", "UV_OFFLINE"):
        monkeypatch.setenv(name, "1")
    own.commit({"requirements.txt": "no-such-package-of-disagg==1.0\n"})
    own.git("branch", "missing")
    own.commit({"requirements.txt": "pyyaml==6.0.2\n"})
    for what in ("test", "--all"):
        assert disagg("plan", what, "--base", "missing", "--format", "json", cwd=own.project) == 2
        (plan,) = data if isinstance(data := json.loads(disagg.out), list) else [data]
        assert [(c["id"], "no-such-package" in c["message"]) for c in plan["checks"]] == [("base-not-compared", True)]
        assert "seen" in {r["name"] for r in plan["resources"]}
        assert disagg.err.startswith("installing the packages of missing (")
    assert own.trees() == 1


def wheel(folder: Path, version: str) -> str:
    """A package of one module that says its version; returns the hash of its file."""
    folder.mkdir(exist_ok=True)
    file, meta = folder / f"tiny-{version}-py3-none-any.whl", f"tiny-{version}.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("tiny.py", f"VERSION = {version!r}\n")
        archive.writestr(f"{meta}/METADATA", f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n")
        archive.writestr(f"{meta}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{meta}/RECORD", "")
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_requirements_are_installed_as_they_stand(own: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes, lines that go on, constraints and included files mean what they mean to the installer, and a change to any of them counts."""
    digests = {version: wheel(tmp_path / "wheels", version) for version in ("1.0", "2.0")}
    for name in ("PIP_FIND_LINKS", "UV_FIND_LINKS"):
        monkeypatch.setenv(name, str(tmp_path / "wheels"))
    for name in ("PIP_NO_INDEX", "UV_NO_INDEX"):
        monkeypatch.setenv(name, "1")
    hashed = "tiny==1.0 \\\n    --hash=sha256:" + digests["1.0"] + "\n"
    own.commit({"requirements.txt": "-r ../shared/all.txt\n", "../shared/all.txt": hashed})
    own.git("branch", "hashed")
    own.commit({"requirements.txt": "-c limits.txt\ntiny\n", "limits.txt": "tiny<2\n"})
    own.git("branch", "limited")
    own.commit({"limits.txt": "tiny<3\n"})
    own.git("branch", "wider")
    own.commit({"requirements.txt": "-r ../shared/all.txt\n", "../shared/all.txt": hashed.replace(digests["1.0"], "0" * 64)})
    own.git("branch", "tampered")
    own.commit({"requirements.txt": "other\n"})
    for revision, version in (("hashed", "1.0"), ("limited", "1.0"), ("wider", "2.0")):
        python, other = interpreter(own, revision, tmp_path / "kept")
        assert other
        assert (
            subprocess.run([python, "-c", "import tiny; print(tiny.VERSION)"], capture_output=True, text=True, check=True).stdout.strip() == version
        )
    with pytest.raises(ToolError, match="cannot be installed"):
        interpreter(own, "tampered", tmp_path / "kept")
    own.commit({"requirements.txt": "-r ../../wheels/secret.txt\n"})
    with pytest.raises(ToolError, match=r"secret\.txt, of the requirements, leads out of the repository"):
        interpreter(own, "HEAD", tmp_path / "kept")


def test_an_installation_sees_no_credentials(own: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages that run code when they are built get the index's settings alone, and do not start in the user's folder."""
    for name in ("AWS_SECRET_ACCESS_KEY", "PULUMI_ACCESS_TOKEN", "GITHUB_TOKEN", "UV_PUBLISH_TOKEN", "PYTHONPATH", "PIP_INDEX_URL"):
        monkeypatch.setenv(name, "MARKED")
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin/uv"
    fake.write_text(f"#!/bin/sh\nenv > {tmp_path}/seen\npwd > {tmp_path}/where\n", encoding="utf-8")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}{os.environ['PATH']}")
    own.commit({"requirements.txt": "one\n"})
    own.git("branch", "one")
    own.commit({"requirements.txt": "two\n"})
    interpreter(own, "one", tmp_path / "kept")
    seen = (tmp_path / "seen").read_text(encoding="utf-8")
    assert [line for line in seen.splitlines() if "MARKED" in line] == ["PIP_INDEX_URL=MARKED"]
    assert "disagg-base-" in (tmp_path / "where").read_text(encoding="utf-8")
