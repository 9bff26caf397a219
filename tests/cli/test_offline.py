from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from factories import SHIPPED, STACKS

TRY = "import socket; print([name for _, name in socket.if_nameindex()]); socket.create_connection(('192.0.2.1', 443), 3)"


def run(*args: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """A command of this Python, in the project, without credentials in the environment; `before` stands in front of it."""
    environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}
    return subprocess.run([*before, sys.executable, *args], cwd=SHIPPED, capture_output=True, text=True, check=False, env=environment, timeout=120)


@pytest.fixture(scope="module")
def alone() -> tuple[str, ...]:
    """What puts a command into a network namespace of its own, in which not even the loopback is up."""
    tool = shutil.which("unshare")
    if tool is None:
        pytest.skip("unshare is not installed")
    reasons = []
    for option in ("-rn", "-n"):
        tried = subprocess.run([tool, option, "true"], capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            return (tool, option)
        reasons.append(tried.stderr.strip())
    pytest.skip(f"network namespaces are not allowed here: {'; '.join(reasons)}")


def test_the_namespace_has_no_network(alone: tuple[str, ...]) -> None:
    """Nothing can be reached from inside it; else the tests below would prove nothing."""
    tried = run("-c", TRY, before=alone)
    assert tried.stdout.strip() == "['lo']"
    assert tried.returncode == 1
    assert "unreachable" in tried.stderr


def test_commands_need_no_network(alone: tuple[str, ...]) -> None:
    """The plan and the checks are the same without any network, credentials or home folder: nothing is looked up."""
    commands = [["plan", "--all", "--format", "json"], ["plan", "prod"], *(["check", stack] for stack in STACKS)]
    code = f"from disagg_serving.cli.main import main; print([main(args) for args in {commands}])"
    inside, outside = run("-c", code, before=alone), run("-c", code)
    assert (inside.returncode, inside.stderr) == (0, "")
    assert (inside.returncode, inside.stdout, inside.stderr) == (outside.returncode, outside.stdout, outside.stderr)
    assert inside.stdout.splitlines()[-1] == str([0] * len(commands))
    assert len(inside.stdout) > 10_000


def test_render_needs_no_network(alone: tuple[str, ...], tmp_path: Path) -> None:
    """Rendered files and the list of images and charts are the same, too; no chart is fetched."""
    found = []
    for name, before in (("inside", alone), ("outside", ())):
        done = run("-m", "disagg_serving", "render", "prod", "--images", "-o", str(tmp_path / name), before=before)
        assert done.returncode == 0
        files = {f.name: f.read_text(encoding="utf-8") for f in (tmp_path / name).iterdir()}
        found.append((done.stdout.replace(str(tmp_path / name), ""), files))
    assert found[0] == found[1]
    assert len(found[0][1]) > 10
