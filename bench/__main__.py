"""A bench that stays up, for a person to play with: `python -m bench up` and `python -m bench down`."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

from .build import OUT, ROOT
from .build import main as build
from .control_plane import ControlPlane
from .engine import for_stack
from .instance_types import Reservation
from .processes import end_detached

FOLDER, PLAY = OUT / "up", OUT / "play"
KUBECONFIG = OUT / "kubeconfig"
"""Where stacks/Pulumi.local.yaml expects it."""
RESERVATIONS = (
    Reservation("cr-0123456789abcdef0", "p5.48xlarge", "us-east-1a", 2),  # of the stack glm5-pp
    Reservation("cr-0a1b2c3d4e5f60718", "p5en.48xlarge", "us-east-1a", 1),  # of the stack glm5
)


def up() -> int:
    """Start everything and leave it running."""
    if (FOLDER / "pids.json").exists():
        print(f"a bench is up already; KUBECONFIG={KUBECONFIG}, `make bench-down` ends it")
        return 1
    start = time.monotonic()
    shutil.rmtree(FOLDER, ignore_errors=True)
    plane = ControlPlane(folder=FOLDER, detach=True, reservations=RESERVATIONS)
    try:
        plane.start()
        KUBECONFIG.unlink(missing_ok=True)
        KUBECONFIG.symlink_to(plane.kubeconfig)
        _prepare_play(plane)
    except BaseException:
        plane.programs.stop_all()
        raise
    (FOLDER / "pids.json").write_text(json.dumps([p.process.pid for p in plane.programs.running]))
    print(f"the bench is up after {time.monotonic() - start:.0f} s; its logs are in {_shown(FOLDER)}")
    print(f"  source {_shown(PLAY / 'env.sh')}    # pulumi, kubectl and the kubeconfig, in a copy of the project")
    print("  pulumi up --stack local")
    print("  kubectl get pods,nodes -A")
    print("  make bench-down")
    return 0


def _prepare_play(plane: ControlPlane) -> None:
    """A copy of the project with the local stack for this bench, and the environment that its commands need."""
    shutil.rmtree(PLAY, ignore_errors=True)
    PLAY.mkdir(parents=True)
    engine = for_stack("local", plane.kubeconfig, PLAY, {"install": "existing"}, ROOT)
    variables = {**engine.environment, "PATH": f"{PLAY / 'bin'}:{OUT / 'bin'}:$PATH", "KUBECONFIG": str(plane.kubeconfig)}
    names = [n for n in variables if n in ("PATH", "KUBECONFIG", "PYTHONPATH", "BENCH_KUBECONFIG") or n.startswith("PULUMI_")]
    (PLAY / "env.sh").write_text("".join(f'export {n}="{variables[n]}"\n' for n in names) + f'cd "{PLAY / "project"}"\n')


def down() -> int:
    """End what `up` started."""
    pids = FOLDER / "pids.json"
    if not pids.exists():
        print("no bench is up")
        return 0
    end_detached(json.loads(pids.read_text()), OUT / "bin")
    for folder in (FOLDER, PLAY):
        shutil.rmtree(folder, ignore_errors=True)
    KUBECONFIG.unlink(missing_ok=True)
    print("the bench is down")
    return 0


def _shown(path: Path) -> Path:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def main(argv: list[str]) -> int:
    """`up` or `down`."""
    if argv == ["up"]:
        return build([]) or up()
    if argv == ["down"]:
        return down()
    print("usage: python -m bench up|down")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
