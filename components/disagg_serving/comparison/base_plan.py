"""The plan of another revision: its own code, in a process without the environment's credentials, and kept for the next time."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from types import FrameType
from typing import Any

from ..document.plan import PlanDocument
from ..errors import Level, SpecError, Terminated, ToolError, visible
from ..forecast.cost import today
from ..records import record_of
from ..spec.stack_file import read_project
from ..yaml_io import real
from .requirements import RequirementsError, interpreter_of
from .revision import PROJECT_FILES, Revision

KEPT_VARIABLES = frozenset({
    "PATH", "TZ", "TMPDIR", "SOURCE_DATE_EPOCH", "LD_LIBRARY_PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES",
    "LC_MONETARY", "LC_NUMERIC", "LC_TIME", "PYTHONPATH", "PYTHONHOME", "PYTHONHASHSEED", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONCOERCECLOCALE",
    "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTHONWARNINGS", "PYTHONNOUSERSITE", "PYTHONOPTIMIZE", "PYTHONFAULTHANDLER",
    "PYTHONINTMAXSTRDIGITS", "PYDANTIC_DISABLE_PLUGINS",
})  # fmt: skip
"""What a program sees of the environment while two revisions are compared; everything else may be a credential."""
COMPONENTS = ("disagg-serving:", "pulumi:pulumi:")
"""Types of components, by their beginning."""
ALL = "*"
KEEP_DAYS = 30
SECONDS = 600


@dataclass(frozen=True)
class BasePlans:
    """Plans of the base revision by stack, and what a reader has to know about all of them.

    `failures` says why a stack that the base has, or any stack under ALL, has no plan or one without resources.
    """

    plans: Mapping[str, PlanDocument] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)

    def failure(self, stack: str) -> str | None:
        """Why a stack cannot be compared, if so."""
        return self.failures.get(stack) or self.failures.get(ALL)


def cache_folder() -> Path:
    """Where plans and packages of other revisions are kept, for one user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "disagg-serving"  # noqa: PTH111 (Path.home raises without a home)


@contextmanager
def scrubbed_environment() -> Iterator[None]:
    """Run a program with no more of the environment than the base revision's gets, so that nothing but the code can differ."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="disagg-home-") as home:
        os.environ.clear()
        os.environ.update(_environment(before, home))
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


@contextmanager
def recorded(revision: Revision, stack: str | None) -> Iterator[Callable[[], BasePlans]]:
    """Record a stack, or with None all stacks, of a revision while the caller does other work; the function waits for the plans.

    The process ends and the work tree goes with the context, however it is left.
    """
    key = json.dumps([revision.commit, str(revision.project), stack or ALL, sys.version, str(today()), _installed()])
    file = cache_folder() / "plans" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
    kept = _read(file)
    if kept is not None:
        with _ended_by_signals():
            yield lambda: kept
        return
    with _ended_by_signals(), revision.checked_out() as tree, tempfile.TemporaryDirectory(prefix="disagg-base-") as scratch:
        stacks = _stacks(revision, tree, stack)
        if isinstance(stacks, BasePlans):
            yield lambda: stacks
            return
        output = Path(scratch) / "plans.json"
        what = ["--all"] if stack is None else [stack]
        try:
            process = _start(revision, tree, scratch, ["plan", *what, "--format", "json", "-o", str(output)])
        except RequirementsError as problem:
            missing = BasePlans(failures=dict.fromkeys(stacks, visible(str(problem))))
            yield lambda: missing
            return
        try:
            yield lambda: _finished(process, revision, stacks, output, file)
        finally:
            _end(process)


def _installed() -> str:
    """A fingerprint of what a plan is made by: this library's files and the versions of all installed packages."""
    package = Path(__file__).parents[1]
    found = hashlib.sha256()
    for file in sorted(f for f in package.rglob("*") if f.is_file() and f.suffix != ".pyc"):
        found.update(f"{file.relative_to(package)}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    found.update(json.dumps(sorted({(str(d.name), str(d.version)) for d in distributions()})).encode())
    return found.hexdigest()


def _stacks(revision: Revision, tree: Path, stack: str | None) -> list[str] | BasePlans:
    """The stacks to record; plans without any where there are none, or where nobody can tell."""
    file = next((f for f in (tree / revision.project / name for name in PROJECT_FILES) if f.is_file()), None)
    if file is None:
        return BasePlans(notes=(f"{revision.asked} has no Pulumi project here",))
    try:
        stacks = read_project(file).stacks()
    except (SpecError, OSError):
        return BasePlans(failures={ALL: f"its {file.name} cannot be read"})
    if stack is None:
        return stacks or BasePlans()
    return [stack] if stack in stacks else BasePlans()


def _start(revision: Revision, tree: Path, home: str, command: list[str]) -> subprocess.Popen[str]:
    """Run `disagg` of the revision in its work tree."""
    python, own = interpreter_of(revision, tree, cache_folder())
    roots = [real(Path(p)) for p in sys.path if p]
    inside = [r for r in roots if r.is_relative_to(real(revision.repository)) and not r.is_relative_to(real(Path(sys.prefix)))]
    # the same code need not be compiled anew
    moved = [tree / r.relative_to(real(revision.repository)) for r in inside if own or revision.differs(r)]
    environment = _environment(os.environ, home)
    paths = [str(m) for m in moved if m.is_dir()] + [p for p in (environment.pop("PYTHONPATH", ""),) if p and not own]
    if paths:
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    return subprocess.Popen(
        [*_without_network(), str(python), "-P", "-m", "disagg_serving", *command],
        cwd=tree / revision.project,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def _environment(given: Mapping[str, str], home: str) -> dict[str, str]:
    kept = {k: v for k, v in given.items() if k in KEPT_VARIABLES}
    return {**kept, "HOME": home}


@cache
def _without_network() -> tuple[str, ...]:
    """What puts a process into a network namespace without links, where this system allows it."""
    tool = shutil.which("unshare")
    for options in (("-n",), ("-rn",)) if tool else ():
        if tool and subprocess.run([tool, *options, "true"], capture_output=True, check=False).returncode == 0:
            return (tool, *options, "--")
    return ()


def _finished(process: subprocess.Popen[str], revision: Revision, stacks: list[str], output: Path, file: Path) -> BasePlans:
    try:
        _, error = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise ToolError(f"the plan of {revision.asked} took longer than {SECONDS} s") from None
    try:
        data = json.loads(output.read_text(encoding="utf-8"))
        written = {p["stack"]: p for p in (data if isinstance(data, list) else [data])}
        plans = {stack: read_plan(written.get(stack, {})) for stack in stacks}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        reason = next((line.strip() for line in reversed(error.splitlines()) if line.strip()), f"exit code {process.returncode}")
        reason = reason.removeprefix("error: ").removeprefix(f"the program of stack {stacks[0]} stopped: ")
        return BasePlans(failures=dict.fromkeys(stacks, f"its own code cannot plan it ({visible(reason)})"))
    notes = () if _without_network() else ("its code ran with this machine's network",)
    refused = {stack: _refusal(plan) for stack, plan in plans.items() if not plan.resources}
    if not refused:
        with suppress(OSError):
            _write(file, written, notes)
    return BasePlans(plans, notes, refused)


def _refusal(plan: PlanDocument) -> str:
    first = next((f": {f.path} {f.message}" for f in plan.checks if f.level is Level.ERROR), "")
    return f"its own checks stop before any resource is declared{first}"


def read_plan(data: Mapping[str, Any]) -> PlanDocument:
    """A plan from what `plan --format json` of any release wrote; what that release did not say is empty.

    Raises ValueError for a word of an enumeration that nobody knows here.
    """
    # older releases do not say which resources a provider manages
    resources = [{"custom": not str(r.get("type")).startswith(COMPONENTS), **r} for r in data.get("resources") or ()]
    return record_of(PlanDocument, {**data, "resources": resources})


def _read(file: Path) -> BasePlans | None:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["digest"] != _digest(data["plans"], data["notes"]):
            return None
        return BasePlans({stack: read_plan(plan) for stack, plan in data["plans"].items()}, tuple(data["notes"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _digest(plans: Any, notes: Any) -> str:
    """What a kept file has to match: one that was cut or that something else wrote is not read."""
    return hashlib.sha256(json.dumps([plans, notes], sort_keys=True).encode()).hexdigest()


def _write(file: Path, plans: Mapping[str, Any], notes: Sequence[str]) -> None:
    """Keep plans for this user alone; what is older than a month goes."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = file.with_suffix(f".{os.getpid()}")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        json.dump({"digest": _digest(plans, notes), "plans": plans, "notes": notes}, out)
    part.replace(file)
    for other in file.parent.iterdir():
        if time.time() - other.stat().st_mtime > KEEP_DAYS * 24 * 3600:
            other.unlink(missing_ok=True)


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """A termination, also that of the terminal, unwinds what is open, so that the work tree goes; Python by itself would just end."""

    def leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (a signal handler's arguments)
        raise Terminated(128 + number)

    before = {}
    if threading.current_thread() is threading.main_thread():  # which alone handles signals
        # nohup ignores the terminal's end, which has to stay so
        caught = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) is not signal.SIG_IGN]
        before = {number: signal.signal(number, leave) for number in caught}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
