"""What `disagg plan --base` leaves behind: no process, no work tree, no folder, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import Run
from repositories import Repository

pytestmark = pytest.mark.usefixtures("kept")


def test_nothing_runs_or_stays(own: Repository, disagg: Run, tmp_path: Path) -> None:
    """Hooks of the repository do not run, and a head that is refused leaves no work tree behind."""
    hook = own.folder / ".git/hooks/post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n", encoding="utf-8")
    hook.chmod(0o755)
    own.write({"Pulumi.test.yaml": "config: [1]\n"})
    assert disagg("plan", "test", "--base", "main", cwd=own.project) == 2
    assert disagg("plan", "test", "--base", "main", "--format", "json", cwd=own.project) == 2
    own.write({"Pulumi.test.yaml": "config: {}\n", "__main__.py": "import pulumi\nraise pulumi.RunError('no')\n"})
    assert disagg("plan", "test", "--base", "main", cwd=own.project) == 1
    assert not (tmp_path / "hooked").exists()
    assert own.trees() == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_termination_leaves_nothing(own: Repository, tmp_path: Path, number: signal.Signals) -> None:
    """A cancelled job, or a terminal that is closed, ends the base's process and removes its work tree and folders."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    own.git("switch", "--quiet", "main")
    mark = tmp_path / "started"
    write = f"part = pathlib.Path({str(mark)!r} + '.part')\npart.write_text(str(os.getpid()))\npart.rename({str(mark)!r})"
    own.commit({"__main__.py": f"import os, pathlib, time\n{write}\ntime.sleep(300)\n"})
    command = [sys.executable, "-m", "disagg_serving", "plan", "test", "--base", "main"]
    surroundings = {**os.environ, "TMPDIR": str(temporary)}
    before = signal.signal(number, signal.SIG_DFL)  # a test run may ignore the end of its terminal
    process = subprocess.Popen(command, cwd=own.project, env=surroundings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    signal.signal(number, before)
    until = time.monotonic() + 60
    while not mark.exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert own.trees() == 2
    process.send_signal(number)
    assert process.wait(30) == 128 + number
    assert own.trees() == 1
    assert not list(temporary.iterdir())
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text(encoding="utf-8")), 0)
