"""Starting programs, waiting until they are ready, and ending them: our own process ids and nobody else's."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

POLL_SECONDS = 0.1
STOP_SECONDS = 10
GO = {"GOGC": "200"}
"""Go programs may use more memory here than they would by themselves: tidying it up takes a fifth of their CPU time."""


class NotReadyError(RuntimeError):
    """A program that ended or did not become ready; the text has the end of its log."""


def free_port() -> int:
    """A TCP port on loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    """Poll until `condition` is true. Raises NotReadyError with `what`; exceptions of the condition count as not yet."""
    end, last = time.monotonic() + seconds, ""
    while time.monotonic() < end:
        try:
            if condition():
                return
            last = ""
        except Exception as problem:  # noqa: BLE001 (connection refused and the like are what we wait out)
            last = f": {problem}"
        time.sleep(POLL_SECONDS)
    raise NotReadyError(f"{what}: not within {seconds:g} s{last}")


@dataclass
class Program:
    """One running program with its log."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]

    def require_alive(self) -> bool:
        """True while it runs. Raises NotReadyError with the end of its log when it has ended."""
        if self.process.poll() is None:
            return True
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
        raise NotReadyError(f"{self.name} ended with {self.process.returncode}:\n{tail}")


@dataclass
class Programs:
    """The programs of one bench, ended in reverse order of their start."""

    folder: Path
    detach: bool = False
    running: list[Program] = field(default_factory=list)

    def start(
        self,
        name: str,
        argv: Sequence[str | Path],
        ready: Callable[[], object],
        env: Mapping[str, str] | None = None,
        *,
        seconds: float = 60,
    ) -> Program:
        """Start a program and wait until it is ready. Raises NotReadyError."""
        log = self.folder / f"{name}.log"
        with log.open("ab") as out:
            process = subprocess.Popen(
                [str(a) for a in argv],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                env={**os.environ, **GO, **(env or {})},
                start_new_session=True,
                preexec_fn=None if self.detach else _end_with_parent,
            )
        program = Program(name, log, process)
        self.running.append(program)
        wait_for(lambda: program.process.poll() is not None or ready(), name, seconds)
        program.require_alive()
        return program

    def stop(self, name: str) -> None:
        """End one program."""
        for program in [p for p in self.running if p.name == name]:
            _end(program.process)
            self.running.remove(program)

    def stop_all(self) -> None:
        """End all programs, the last one first."""
        for program in reversed(self.running):
            _end(program.process)
        self.running.clear()


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_detached(pids: Sequence[int], folder: Path) -> None:
    """End programs of `folder` that an earlier process started, the last one first; an id that another program has by now is left alone.

    Each ends before the next is told to: an API server without its etcd does not end.
    """
    for pid in reversed(pids):
        for sent in (signal.SIGTERM, signal.SIGKILL):
            if not _is_of(pid, folder):
                break
            os.kill(pid, sent)
            end = time.monotonic() + STOP_SECONDS
            while _is_of(pid, folder) and time.monotonic() < end:
                time.sleep(POLL_SECONDS)


def _is_of(pid: int, folder: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").readlink().is_relative_to(folder.resolve())
    except OSError:
        return False


def _end_with_parent() -> None:
    # PR_SET_PDEATHSIG: a bench whose tests were killed leaves nothing behind
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
