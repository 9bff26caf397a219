"""Look-ups in the real engine's preview, on a machine that has no credentials of AWS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from disagg_serving.resources.environment import TYPE as ENVIRONMENT

from bench.control_plane import ControlPlane
from bench.engine import Engine, for_stack


def previewed(engine: Engine) -> str:
    """What a preview prints."""
    return engine.run("preview", "--stack", "local")


def test_a_preview_without_credentials_warns(plane: ControlPlane, tmp_path: Path) -> None:
    """With `lookUps: true` and no credentials the preview shows one warning more and the same resources, and does not fail."""
    engine = for_stack("local", plane.kubeconfig, tmp_path, {"install": "existing"})
    engine.environment |= {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    without = previewed(engine)
    steps = declared(engine)
    engine.edit(lambda e: e.update(lookUps=True))
    asked = previewed(engine)
    warning = "credentials could not be looked up: there are no credentials of AWS"
    assert warning in asked
    assert warning not in without
    assert declared(engine) == steps


def declared(engine: Engine) -> list[tuple[str, str, Any]]:
    """What the preview does to each resource; the component that repeats the stack file is none."""
    return sorted(((s.op, s.urn, s.state.get("inputs")) for s in engine.preview() if s.type != ENVIRONMENT), key=lambda step: step[1])
