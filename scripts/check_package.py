"""Builds the wheel and tests it: in a virtual environment of its own, in a folder without the package's sources."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEEDED = ("tests", "stacks", "examples", "docs", "Pulumi.yaml", "__main__.py", "pyproject.toml")
"""What the tests read besides the installed package."""
SUITE = ("tests/cli", "tests/golden", "tests/graph")


def run(*command: str | Path, cwd: Path) -> None:
    """Run a command and stop at its failure."""
    subprocess.run([str(part) for part in command], cwd=cwd, check=True)


def install(python: Path, *what: str | Path, cwd: Path) -> None:
    """Install packages with uv where it is, else with pip."""
    uv = shutil.which("uv")
    tool: list[str | Path] = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install", "--disable-pip-version-check"]
    run(*tool, "--quiet", *what, cwd=cwd)


def main() -> int:
    """Build, inspect, install, test."""
    bin_dir = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(sys.executable, "-m", "build", "--outdir", folder / "dist", ROOT, cwd=folder)
        (wheel,) = (folder / "dist").glob("*.whl")
        run(bin_dir / "check-wheel-contents", "--config", ROOT / "pyproject.toml", wheel, cwd=folder)
        run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
        python = folder / "venv/bin/python"
        pins = folder / "pins.txt"
        pins.write_text("".join(line for line in (ROOT / "requirements.txt").read_text().splitlines(keepends=True) if not line.startswith("-e")))
        install(python, wheel, "-r", pins, *(part for kind in ("extras", "dev") for part in ("-r", ROOT / f"requirements-{kind}.txt")), cwd=folder)
        project = folder / "project"
        project.mkdir()
        for item in NEEDED:
            source = ROOT / item
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, project / item)
        run(folder / "venv/bin/disagg", "plan", "prod", "--format", "json", "-o", folder / "plan.json", cwd=project)
        run(python, "-m", "pytest", "-n", "auto", *SUITE, cwd=project)
    print(f"{wheel.name}: built, inspected, installed and tested outside the source tree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
