"""Measures `pulumi preview` on the real engine over `disagg plan` of the same project, in one run. Exit 1 below the target."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from .build import go, tools
from .control_plane import ControlPlane
from .engine import Engine, for_stack

RUNS = 3
STACKS = ("prod", "local")
TARGET = 2.0


def seconds(action: Callable[[], object]) -> float:
    """Median wall time."""
    found = []
    for _ in range(RUNS):
        start = time.perf_counter()
        action()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def measure(engine: Engine) -> float:
    """Print and return how often a plan fits into a preview."""
    disagg = [str(Path(sys.executable).parent / "disagg"), "plan", engine.stack]

    def plan() -> None:
        subprocess.run(disagg, cwd=engine.project, env=engine.environment, capture_output=True, check=True)

    planned, previewed = seconds(plan), seconds(engine.preview)
    ratio = previewed / planned
    verdict, name = "ok" if ratio >= TARGET else "below target", f"pulumi preview / disagg plan, {engine.stack}"
    print(f"{verdict:13} {name:58} {ratio:6.2f}  (target {TARGET:g})  {previewed:.2f} s / {planned:.2f} s")
    return ratio


def main() -> int:
    """Measure where the real parts are built; else say why not."""
    if not go() or not all(t.binary.exists() for t in tools()):
        print("skipped       pulumi preview / disagg plan: the real engine is not built (`make live` builds it)")
        return 0
    with ControlPlane() as plane, tempfile.TemporaryDirectory() as name:
        ratios = []
        for stack in STACKS:
            folder = Path(name) / stack
            folder.mkdir()
            ratios.append(measure(for_stack(stack, plane.kubeconfig, folder)))
    return int(min(ratios) < TARGET)


if __name__ == "__main__":
    sys.exit(main())
