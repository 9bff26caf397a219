"""The same program through Pulumi's Automation API, as a deployment tool of one's own would run it."""

from __future__ import annotations

from pathlib import Path

from disagg_serving.recording.plan import make_plan
from disagg_serving.spec.stack_file import find_project
from pulumi import automation

from bench.control_plane import ControlPlane
from bench.engine import for_stack


def test_preview_up_and_destroy(plane: ControlPlane, tmp_path: Path) -> None:
    """A preview creates at least what `disagg plan` lists, the update does it, and the destroy leaves no set and no pool."""
    engine = for_stack("local", plane.kubeconfig, tmp_path)
    workspace = automation.LocalWorkspaceOptions(env_vars=engine.environment, pulumi_command=automation.PulumiCommand(root=str(engine.folder)))
    stack = automation.select_stack("local", work_dir=str(engine.project), opts=workspace)
    project = find_project(engine.project)
    planned = len(make_plan(project, project.stack_file("local")).graph.resources)

    assert stack.preview().change_summary[automation.OpType.CREATE] >= planned
    assert stack.up().summary.result == "succeeded"
    assert len(plane.cluster.items("lws")) == 2
    assert stack.destroy().summary.result == "succeeded"
    assert not plane.cluster.items("lws")
    assert not plane.cluster.items("nodepools")
