"""Real `vllm serve` on a CPU, started with generated command lines, asked over HTTP, and ended as a kubelet ends it."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from disagg_serving.catalog import Model

from bench.processes import NotReadyError

from .build import HERE, SERVING
from .configs import write_config
from .serving_pods import Pod
from .serving_replacements import Change, replaced

START_SECONDS = 600
"""Until a server is ready; on two idle cores it takes one, on busy ones five minutes."""
PROBE_SECONDS = 0.5
TAIL_LINES = 40
CACHE = SERVING.folder.with_name(f"{SERVING.folder.name}-cache")
# its input ends with its parent, even one that was killed; vLLM's own processes would go on for ever
_GUARD = ("/bin/sh", "-c", 'read -r _ || kill -s KILL -- "-$1"', "guard")
_KV_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")


@dataclass(frozen=True)
class Ending:
    """How a deleted pod ended: seconds from its deletion, and whether no SIGKILL was needed."""

    seconds: float
    by_itself: bool


@dataclass
class Server:
    """One running pod: its process, its log, and what was changed of its command line."""

    pod: Pod
    changes: Sequence[Change]
    log: Path
    process: subprocess.Popen[bytes]
    guard: subprocess.Popen[bytes]
    """Ends the process group when whoever started it is gone."""
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    """From its start until it was ready."""
    terminated: Event = field(default_factory=Event)
    """Set once it got SIGTERM."""

    @property
    def url(self) -> str:
        """Where it answers; only pods with an HTTP probe do."""
        return f"http://{self.pod.address}:{self.pod.probe['httpGet']['port']}"

    @property
    def served_name(self) -> str:
        """The model's name in its API."""
        return flags(self.pod)["--served-model-name"]

    @property
    def text(self) -> str:
        """Its log."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    @property
    def tail(self) -> str:
        """The end of its log, for a person."""
        return f"--- {self.pod.name}: {' '.join(self.pod.command)}\n" + "\n".join(self.text.splitlines()[-TAIL_LINES:])

    @property
    def kv_tokens(self) -> int:
        """Tokens that its KV cache holds, as it logs them."""
        (found,) = _KV_TOKENS.findall(self.text)
        return int(found.replace(",", ""))

    def is_ready(self) -> bool:
        """What the kubelet's readiness probe says. Raises NotReadyError when it has ended."""
        if self.process.poll() is not None:
            raise NotReadyError(f"{self.pod.name} ended with {self.process.returncode}:\n{self.tail}")
        if "exec" in self.pod.probe:
            python, *arguments = self.pod.probe["exec"]["command"]
            seen = subprocess.run([SERVING.folder / "bin" / python, *arguments], env=dict(self.pod.env), capture_output=True, check=False)
            return seen.returncode == 0
        try:
            with urllib.request.urlopen(self.url + self.pod.probe["httpGet"]["path"], timeout=self.pod.probe["timeoutSeconds"]) as answer:
                return bool(answer.status == 200)  # noqa: PLR2004 (HTTP)
        except (urllib.error.URLError, OSError):
            return False

    def wait(self) -> None:
        """Until it is ready, or has ended, which is a NotReadyError with the end of its log."""
        end = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if time.monotonic() > end:
                raise NotReadyError(f"{self.pod.name} is not ready after {START_SECONDS} s:\n{self.tail}")
            time.sleep(PROBE_SECONDS)
        self.seconds = time.monotonic() - self.started

    def delete(self) -> Ending:
        """What a kubelet does to a deleted pod: the preStop sleep, SIGTERM to the container's first process, SIGKILL after the grace period."""
        deleted = time.monotonic()
        time.sleep(self.pod.pre_stop_seconds)
        self.process.send_signal(signal.SIGTERM)
        self.terminated.set()
        try:
            self.process.wait(deleted + self.pod.grace_seconds - time.monotonic())
        except subprocess.TimeoutExpired:
            self.end()
            return Ending(time.monotonic() - deleted, by_itself=False)
        return Ending(time.monotonic() - deleted, by_itself=True)

    def end(self) -> None:
        """End it and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.guard.communicate(b"\n")


def write_model(facts: Model, folder: Path) -> Path:
    """The folder of a model with random weights, made of a catalogue entry."""
    place = write_config(facts, folder)
    subprocess.run([SERVING.python, HERE / "inside/tiny_model.py", place], check=True, capture_output=True, env=_image(folder))
    return place


@contextlib.contextmanager
def logged(*servers: Server) -> Iterator[None]:
    """Whatever goes wrong inside is shown with the ends of the logs."""
    try:
        yield
    except BaseException as problem:
        for server in servers:
            problem.add_note(server.tail)
        raise


@contextlib.contextmanager
def serving(pods: Sequence[Pod], folder: Path, *, models: Path | None = None, first_core: int = 0) -> Iterator[list[Server]]:
    """Start pods and wait until all are ready; in the end nothing of them is left.

    `folder` takes a folder with the log of each pod; the folders of models are there too, or in `models`. Raises NotReadyError with the
    end of the log.
    """
    servers: list[Server] = []
    try:
        for pod in pods:
            servers.append(start(pod, models or folder, folder, first_core))
            first_core += ranks(pod)
        for server in servers:
            server.wait()
        yield servers
    finally:
        for server in reversed(servers):
            server.end()


def start(pod: Pod, models: Path, folder: Path, core: int) -> Server:
    """Start one pod, its first rank on the given core; whoever calls it ends it."""
    place = folder / pod.name
    place.mkdir(parents=True, exist_ok=True)
    mine = sorted(os.sched_getaffinity(0))
    cores = "|".join(str(mine[n % len(mine)]) for n in range(core, core + ranks(pod)))
    machine = {"models": str(models), "cache": str(CACHE), "folder": str(place), "address": pod.address, "cores": cores}
    here, changes = replaced(pod, machine)
    log = place / "log.txt"
    with log.open("wb") as out:
        process = subprocess.Popen(
            here.command,
            executable=SERVING.folder / "bin" / here.command[0],
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            cwd=place,
            env={**_image(place), **here.env},
            start_new_session=True,
            preexec_fn=_no_core,
        )
    guard = subprocess.Popen([*_GUARD, str(process.pid)], stdin=subprocess.PIPE, start_new_session=True)
    return Server(here, changes, log, process, guard)


def ranks(pod: Pod) -> int:
    """Processes with a core of their own: the engine's ranks in this pod."""
    given = flags(pod)
    tensor, pipeline, nodes = (int(given.get(name, 1)) for name in ("--tensor-parallel-size", "--pipeline-parallel-size", "--nnodes"))
    return tensor * pipeline // nodes


def flags(pod: Pod) -> dict[str, str]:
    """Its flags that have a value."""
    return dict(argument.split("=", 1) for argument in pod.command if argument.startswith("--") and "=" in argument)


def _image(home: Path) -> dict[str, str]:
    """Variables that an image sets, and nothing of the caller's."""
    return {"PATH": f"{SERVING.folder / 'bin'}:/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "PYTHONUNBUFFERED": "1"}


def _no_core() -> None:
    # that of a crashed worker has gigabytes
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
