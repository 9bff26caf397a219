"""The policy pack at the real engine, as a program, so without a language host of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from factories import ROOT

from bench.control_plane import ControlPlane
from bench.engine import Engine, PulumiError, for_stack

PACK = ROOT / "policy/disagg-policy"
TRANSFORM = """
import pulumi
import disagg_serving.resources as parts


def change(args):
    if args.type_ == "kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet":
        args.props["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["image"] = "vllm/vllm-openai:latest"
    return pulumi.ResourceTransformationResult(args.props, args.opts)


pulumi.runtime.register_stack_transformation(change)
parts.deploy()
"""


@pytest.fixture
def preview(plane: ControlPlane, tmp_path: Path) -> Any:
    """A preview of a stack with the pack, under a configuration of it."""

    def run(stack: str, config: dict[str, Any] | None = None, *, change: Any = None, program: str = "") -> str:
        engine: Engine = for_stack(stack, plane.kubeconfig, tmp_path)
        engine.environment["DISAGG_PYTHON"] = sys.executable
        if change:
            engine.edit(change)
        if program:
            (engine.project / "__main__.py").write_text(program)
        settings = tmp_path / "policy.json"
        settings.write_text(json.dumps(config or {}))
        return engine.run("preview", "--stack", stack, "--policy-pack", str(PACK), "--policy-pack-config", str(settings))

    return run


@pytest.mark.parametrize("stack", ["prod", "local"])
def test_clean_stacks_pass(preview: Any, stack: str) -> None:
    """A stack without errors is previewed with the pack, whose warnings are shown and stop nothing."""
    assert "disagg-serving" in preview(stack)


def test_warnings_can_be_enforced(preview: Any) -> None:
    """The pack's configuration makes any rule mandatory; then the engine stops with the rule's own sentence."""
    with pytest.raises(PulumiError, match=r"(?s)efa-alignment.*models\[0\]\.prefill\.tensorParallel: 4 makes pods smaller than a node"):
        preview("prod", {"efa-alignment": "mandatory"})


def accepted(environment: dict[str, Any]) -> None:
    """Four nodes' worth of pods on two, knowingly."""
    environment["models"][0]["decode"].update(replicas=8, capacity={"nodes": 1})
    environment["accept"] = {"group-capacity": "the second reservation begins on Monday"}


def test_what_a_stack_accepts_the_pack_can_refuse(preview: Any) -> None:
    """A team may accept an error; whoever owns the pack decides whether that counts."""
    with pytest.raises(PulumiError, match=r"(?s)group-capacity.*accepted: the second reservation begins on Monday"):
        preview("prod", {"group-capacity": {"enforcementLevel": "mandatory", "refuseAccepted": True}}, change=accepted)


def test_what_a_stack_accepts_passes_by_default(preview: Any) -> None:
    """Without that setting an accepted error stops nothing."""
    assert "disagg-serving" in preview("prod", change=accepted)


def test_objects_after_transforms(preview: Any) -> None:
    """What a transform of the user's program breaks stops the preview, although the stack file passes every check."""
    with pytest.raises(PulumiError, match=r"(?s)object-image.*image: vllm/vllm-openai:latest floats \(allowed: a tag or a digest\)"):
        preview("local", program=TRANSFORM)
