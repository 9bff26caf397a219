"""What a consumer's type checker sees of the installed package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from factories import ROOT

PROGRAM = ROOT / "tests/consumer/program.py"
LARGE = ("pulumi_aws", "pulumi_eks", "pulumi_kubernetes")


def wrong_lines() -> set[int]:
    """The lines that a type checker must report, and no others."""
    found = {n for n, line in enumerate(PROGRAM.read_text(encoding="utf-8").splitlines(), 1) if line.endswith("# wrong")}
    assert len(found) > 5
    return found


def elsewhere(folder: Path) -> Path:
    """The program in a folder of its own, with settings that do not follow Pulumi's large generated modules."""
    skipped = "".join(f"[mypy-{name}.*]\nfollow_imports = skip\n" for name in LARGE)
    (folder / "mypy.ini").write_text(f"[mypy]\nstrict = true\ncache_dir = {folder / 'cache'}\n{skipped}")
    (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "standard"}))
    return Path(shutil.copy(PROGRAM, folder))


def test_mypy_reports_wrong_args_and_nothing_else(tmp_path: Path) -> None:
    """With py.typed, strict mypy knows every argument and output of a component: wrong ones are reported, right ones are not."""
    program = elsewhere(tmp_path)
    environment = {k: v for k, v in os.environ.items() if k != "MYPYPATH"}
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", program.name],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    reported = {int(line) for line in re.findall(rf"^{program.name}:(\d+): error", done.stdout, re.MULTILINE)}
    assert reported == wrong_lines(), done.stdout + done.stderr


def test_pyright_reports_wrong_args_and_nothing_else(tmp_path: Path) -> None:
    """The same for the type checker of editors, as it was pinned: it asks no registry for another version of itself."""
    program = elsewhere(tmp_path)
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, program.name]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYRIGHT_PYTHON_")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    assert {d["range"]["start"]["line"] + 1 for d in found if d["severity"] == "error"} == wrong_lines(), done.stdout
