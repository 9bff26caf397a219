"""Models that load for ever, on the real engine: what `pulumi up` does and says."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

from bench.control_plane import SLOW_MODEL, ControlPlane
from bench.engine import SHIPPED, PulumiError, for_stack

WAIT_SECONDS = 10


def test_up_ends_and_waits_only_when_asked(plane: ControlPlane, tmp_path: Path) -> None:
    """`up` ends in seconds and says what it did not wait for; asked to wait it times out with a clear message, and the next one resumes."""
    engine = for_stack("local", plane.kubeconfig, tmp_path, {"install": "existing"})
    engine.edit(lambda e: e["models"][0].update(name=SLOW_MODEL))
    start = time.monotonic()
    printed = engine.run("up", "--yes", "--skip-preview", "--stack", "local")
    assert time.monotonic() - start < 60
    assert f"not waiting until {SLOW_MODEL}-prefill, {SLOW_MODEL}-decode have loaded" in printed

    engine.edit(lambda e: e["models"][0].update(waitForReadySeconds=WAIT_SECONDS, drainSeconds=61))
    with pytest.raises(PulumiError) as stopped:
        engine.run("up", "--yes", "--skip-preview", "--stack", "local")
    assert "timed out" in str(stopped.value)
    assert f"{SLOW_MODEL}-decode" in str(stopped.value)

    engine.edit(lambda e: e["models"][0].pop("waitForReadySeconds"))
    engine.up()
    engine.run("up", "--yes", "--skip-preview", "--expect-no-changes", "--stack", "local")
    engine.destroy()
    assert not plane.cluster.items("lws")


def test_the_slow_model_is_no_stack_of_ours() -> None:
    """The name that keeps pods unready on the bench belongs to no shipped stack, whose pods must become ready."""
    for file in (SHIPPED / "stacks").glob("Pulumi.*.yaml"):
        environment = yaml.safe_load(file.read_text())["config"]["disagg-serving:environment"]
        assert SLOW_MODEL not in [m["name"] for m in environment["models"]]
