"""Stack files, models and catalogues of somebody else: nothing in them runs, and nothing outside the repository is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from bad_input.case import LLAMA_CONFIG
from command_line import Run, write_project
from factories import aggregated, environment

ENV = "disagg-serving:environment"
MARK = "MARKED"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project in a repository, beside a file that nobody may see."""
    (tmp_path / "outside").mkdir()
    for name in ("secret.yaml", "config.json", "outside.yaml"):
        (tmp_path / "outside" / name).write_text(f"{{id: {MARK}, config: {MARK}, architectures: [{MARK}]}}", encoding="utf-8")
    (tmp_path / "outside/Pulumi.test.yaml").write_text(yaml.safe_dump({"config": {ENV: {MARK: 1}}}), encoding="utf-8")
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / ".git").mkdir()
    return write_project(repository, {ENV: environment()})


def refused(disagg: Run, project: Path, says: str) -> None:
    """Check and plan refuse the project with these words, and show nothing from outside."""
    for command in ("check", "plan"):
        assert disagg(command, "test", cwd=project) in (1, 2)
        assert says in " ".join((disagg.out + disagg.err).split())
        assert MARK not in disagg.out + disagg.err


def test_a_stack_file_that_is_a_link(project: Path, disagg: Run) -> None:
    """A stack file may not be a link to another place: a plan would show what stands there."""
    file = project / "stacks/Pulumi.test.yaml"
    file.unlink()
    file.symlink_to(project.parent / "outside/Pulumi.test.yaml")
    refused(disagg, project, "Pulumi.test.yaml: leads out of the repository")
    assert disagg("plan", "--all", cwd=project) == 2
    assert MARK not in disagg.out + disagg.err


@pytest.mark.parametrize(("key", "place"), [("stackConfigDir", "../outside"), ("stackConfigDir", "/etc"), ("main", "../outside")])
def test_folders_of_the_project_file(project: Path, disagg: Run, key: str, place: str) -> None:
    """Neither stacks nor the program are taken from outside."""
    (project / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "p", "runtime": "python", key: place}), encoding="utf-8")
    refused(disagg, project, f"Pulumi.yaml: {key}: leads out of the repository")


@pytest.mark.parametrize("command", [("check",), ("check", "--format", "json"), ("plan",)])
def test_a_path_to_a_link(project: Path, disagg: Run, command: tuple[str, ...]) -> None:
    """A file of a project that is named by its path is held to the same as a stack by its name, whichever folder it is named from."""
    file = project / "stacks/Pulumi.test.yaml"
    file.unlink()
    file.symlink_to(project.parent / "outside/Pulumi.test.yaml")
    (project / "env.yaml").symlink_to(project.parent / "outside/Pulumi.test.yaml")
    (project / "linked").symlink_to(project.parent / "outside")
    for folder, path in (
        (project, "stacks/Pulumi.test.yaml"),
        (project, "./env.yaml"),
        (project, "linked/Pulumi.test.yaml"),
        (file.parent, "../env.yaml"),
    ):
        assert disagg(*command, path, cwd=folder) == 2
        assert "leads out of the repository" in disagg.out + disagg.err
        assert MARK not in disagg.out + disagg.err


def test_a_folder_of_stacks_that_is_a_link(project: Path, disagg: Run) -> None:
    """A link in the way counts like `..`."""
    folder = project / "stacks"
    (folder / "Pulumi.test.yaml").unlink()
    folder.rmdir()
    folder.symlink_to(project.parent / "outside")
    refused(disagg, project, "leads out of the repository")


def test_stacks_elsewhere_in_the_repository(project: Path, disagg: Run) -> None:
    """A project in a subfolder may keep its stacks beside it: that is the same repository."""
    inner = project / "deploy"
    inner.mkdir()
    (inner / "Pulumi.yaml").write_text("name: p\nruntime: python\nstackConfigDir: ../stacks\n", encoding="utf-8")
    assert disagg("check", "test", cwd=inner) == 0


def models(project: Path, **overrides: Any) -> None:
    """One aggregated model in the stack file."""
    data = environment(aggregated(repository="acme/m", **overrides), catalogDirs=["catalog"])
    (project / "stacks/Pulumi.test.yaml").write_text(yaml.safe_dump({"config": {ENV: data}}), encoding="utf-8")
    (project / "catalog/models").mkdir(parents=True, exist_ok=True)


@pytest.mark.parametrize("link", ["model", "model/config.json", "model/hf_quant_config.json", "model/model.safetensors.index.json"])
def test_a_model_that_is_a_link(project: Path, disagg: Run, link: str) -> None:
    """A config.json, or a file beside it, may not be a link that leads out."""
    models(project, model="./model")
    if link != "model":
        (project / "model").mkdir()
    if not link.endswith(("model", "config.json")) or "quant" in link:
        import json

        (project / "model/config.json").write_text(json.dumps(LLAMA_CONFIG), encoding="utf-8")
    (project / link).symlink_to(project.parent / "outside" / ("" if link == "model" else "config.json"))
    refused(disagg, project, "leads out of the project")


def test_a_catalogue_entry_that_is_a_link(project: Path, disagg: Run) -> None:
    """A folder of catalogDirs may not bring files from elsewhere."""
    models(project, model="outside")
    (project / "catalog/models/outside.yaml").symlink_to(project.parent / "outside/outside.yaml")
    refused(disagg, project, "models/outside.yaml: is a link that leads out of the catalogue")


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system ['touch ran']", "!!python/name:os.system", "!include ../outside/secret.yaml"])
def test_tags_of_yaml_do_nothing(project: Path, disagg: Run, tag: str) -> None:
    """YAML is data: a tag that would make an object, call a function or include a file is an error."""
    (project / "stacks/Pulumi.test.yaml").write_text(f"config:\n  {ENV}: {tag}\n", encoding="utf-8")
    refused(disagg, project, "is not valid YAML")
    assert not (project / "ran").exists()
