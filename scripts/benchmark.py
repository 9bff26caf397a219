"""Measures plan and check as ratios to what they cannot do without, all in one run. Prints a table; exit 1 above a target.

Seconds are of CPU time, so that what else the machine does counts less.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
RUNS = 5
PULUMI = r"\|\s+(pulumi(?:_aws|_eks|_kubernetes)?(?:\.[\w.]+)?)$"
LIBRARIES = "import pydantic, yaml, typer"
_failed = False


def timed(*command: str, cwd: Path = ROOT) -> tuple[float, float]:
    """Median CPU seconds and peak MiB of a command."""
    seconds, peak = [], 0.0
    for _ in range(RUNS):
        process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        _, status, usage = os.wait4(process.pid, 0)
        seconds.append(usage.ru_utime + usage.ru_stime)
        peak = max(peak, usage.ru_maxrss / 1024)
        error = process.stderr.read().decode() if process.stderr else ""
        if os.waitstatus_to_exitcode(status) not in (0, 2):
            sys.exit(f"{' '.join(command)}: {error[-300:]}")
    return statistics.median(seconds), peak


def report(name: str, ratio: float, target: float, detail: str) -> None:
    """One line of the table."""
    global _failed  # noqa: PLW0603 (a script's only state)
    _failed |= ratio > target
    print(f"{'above target' if ratio > target else 'ok':13} {name:58} {ratio:6.2f}  (target {target:g})  {detail}")


def pulumi_modules(*command: str) -> list[str]:
    """The Pulumi modules that a command loads."""
    trace = subprocess.run([sys.executable, "-X", "importtime", *command], cwd=ROOT, capture_output=True, text=True, check=False).stderr
    return re.findall(PULUMI, trace, re.MULTILINE)


def many_models(folder: Path, number: int) -> Path:
    """A stack file with `number` models."""
    models = [
        {
            "name": f"model-{i}",
            "model": "llama-3.3-70b-instruct-fp8",
            "prefill": {"instanceType": "p5.48xlarge", "replicas": 2, "tensorParallel": 4},
            "decode": {"instanceType": "p5.48xlarge", "replicas": 4, "tensorParallel": 2},
        }
        for i in range(number)
    ]
    data = {"config": {"disagg-serving:environment": {"network": {"zones": ["us-east-1a", "us-east-1b"]}, "models": models}}}
    (folder / f"Pulumi.n{number}.yaml").write_text(yaml.safe_dump(data))
    return folder


def main() -> int:
    """Run all measurements."""
    disagg = str(Path(sys.executable).parent / "disagg")
    modules = pulumi_modules(disagg, "plan", "prod")
    floor, _ = timed(sys.executable, "-c", f"import importlib\nfor m in {json.dumps(modules)}: importlib.import_module(m)")
    plan, plan_memory = timed(disagg, "plan", "prod")
    report("disagg plan prod / importing the pulumi modules it loads", plan / floor, 1.5, f"{plan:.2f} s / {floor:.2f} s, {plan_memory:.0f} MiB")
    with tempfile.TemporaryDirectory() as name:
        for kind, place, target in (("base recorded", f"$(mktemp -d {name}/XXXXXX)", 2.5), ("base kept", name, 1.3)):
            both, _ = timed("sh", "-c", f'XDG_CACHE_HOME="{place}" exec {disagg} plan prod --base HEAD')
            report(f"disagg plan prod --base HEAD, {kind} / disagg plan prod", both / plan, target, f"{both:.2f} s / {plan:.2f} s")
    base, _ = timed(sys.executable, "-c", LIBRARIES)
    check, check_memory = timed(disagg, "check", "prod")
    report(f"disagg check prod / {LIBRARIES}", check / base, 2.5, f"{check:.2f} s / {base:.2f} s, {check_memory:.0f} MiB")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "Pulumi.yaml").write_text("name: disagg-serving\nruntime: python\n")
        (folder / "__main__.py").write_text((ROOT / "__main__.py").read_text())
        times = {}
        for number in (1, 50, 100):
            many_models(folder, number)
            times[number], memory = timed(disagg, "plan", f"n{number}", cwd=folder)
            print(f"{'':13} plan with {number} model(s): {times[number]:.2f} s, {memory:.0f} MiB")
    many, half = times[100] - times[1], times[50] - times[1]
    report("plan with 99 models more / with 49 more; 2.02 is linear", many / half, 2.3, f"{many:.2f} s / {half:.2f} s")
    return 1 if _failed else 0


if __name__ == "__main__":
    sys.exit(main())
