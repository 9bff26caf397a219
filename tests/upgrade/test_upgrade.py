"""Updates from each released version to today's code, and that the judge of them sees harm."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import upgrades
from disagg_serving.errors import ToolError
from factories import ROOT, SHIPPED, STACKS
from upgrades import HEADING, Kept, Written, contract_faults, faults, faults_of, kept, kept_contract, told, written_down

from scripts import contract, release, versions

KEPT = kept()
FIRST = "0.1.0"
CLUSTER, ROLE, KEY, SUBNET = "eks:index:Cluster", "aws:iam/role:Role", "aws:kms/key:Key", "aws:ec2/subnet:Subnet"
Plan = dict[str, Any]


@pytest.mark.parametrize("one", KEPT, ids=lambda one: f"{one.version}-{one.folder.name}-{one.stack}")
def test_update_does_no_harm(one: Kept) -> None:
    """Today's code takes the stack files and programs of every release, and what they deployed stays, but for what an upgrade page says."""
    if found := faults_of(one):
        pytest.fail(told(f"{one.folder.relative_to(upgrades.RELEASED)}, stack {one.stack}", found), pytrace=False)


@pytest.mark.parametrize("version", list(dict.fromkeys(k.version for k in KEPT)))
def test_what_others_build_on_stays(version: str) -> None:
    """No name, argument, output or key of a release goes or changes, but for what an upgrade page says."""
    if found := list(contract_faults(kept_contract(version), contract.contract(), written_down(version))):
        pytest.fail(told(f"what programs and stack files of {version} use", found), pytrace=False)


@pytest.mark.parametrize("named", [True, False])
def test_a_renamed_stack_keeps_its_resources(tmp_path: Path, named: bool) -> None:  # noqa: FBT001
    """A stack file under another name, with the former one as `name`, makes the same resources as the page of 0.2.0 says; without it, none stays."""
    folder = tmp_path / FIRST
    shutil.copytree(upgrades.RELEASED / FIRST, folder)
    file = (folder / "stacks/Pulumi.glm5.yaml").rename(folder / "stacks/Pulumi.glm5-pp.yaml")
    written = file.read_text(encoding="utf-8")
    if named:
        file.write_text(written.replace("environment:\n", "environment:\n    name: glm5\n"), encoding="utf-8")
    plan = (folder / "plans/glm5.json").rename(folder / "plans/glm5-pp.json")
    # what `pulumi stack rename` does to a state: the stack's part of every URN
    plan.write_text(plan.read_text(encoding="utf-8").replace("urn:pulumi:glm5::", "urn:pulumi:glm5-pp::"), encoding="utf-8")
    found = faults_of(next(k for k in kept(tmp_path) if k.stack == "glm5-pp" and k.folder == folder))
    assert (found == []) == named
    assert named or any(f.startswith("delete in spite of protect: ") and f.endswith("::glm5") for f in found), found


def test_what_is_kept() -> None:
    """The first release is kept with its stacks and at least three examples, and every release with a page and its versions."""
    first = [k for k in KEPT if k.version == FIRST]
    assert {k.stack for k in first if k.folder.name == FIRST} >= set(STACKS) - {"glm5-pp"}
    assert len({k.folder for k in first}) >= 4
    assert {k.folder.name for k in first if k.folder.parent.name == "programs"} == {f.name for f in (ROOT / release.PROGRAMS).iterdir()}
    for version in {k.version for k in KEPT}:
        assert (ROOT / f"docs/upgrade/{version}.md").is_file()
        assert version in versions.releases()


@pytest.fixture
def plan() -> Plan:
    """A kept plan of the stack prod."""
    return next(k for k in KEPT if k.version == FIRST and k.stack == "prod" and k.folder.name == FIRST).before()


def copy_of(plan: Plan, old: str = "", new: str = "") -> Plan:
    """A plan of its own, with a text replaced."""
    found: Plan = json.loads(json.dumps(plan).replace(old, new) if old else json.dumps(plan))
    return found


def find(plan: Plan, type_token: str, name: str = "") -> Plan:
    """The first resource of a type, of a name if given."""
    return next(r for r in plan["resources"] if r["type"] == type_token and name in ("", r["name"]))


def test_same_plan(plan: Plan) -> None:
    """Nothing is said where nothing changes."""
    assert list(faults(plan, copy_of(plan), [])) == []


def test_component_renamed(plan: Plan) -> None:
    """A component of another type name without an alias is found for each resource in it; with the alias it passes."""
    after = copy_of(plan, "disagg-serving:index:Network", "disagg-serving:index:Net")
    found = list(faults(plan, after, []))
    lost = [f for f in found if f.startswith("no alias: ")]
    assert len(lost) == len([r for r in plan["resources"] if "disagg-serving:index:Network$" in r["urn"]])
    cluster = find(plan, CLUSTER)["urn"]
    assert f"replace in spite of protect: {cluster}" in found, "it would lie in another VPC"
    after = copy_of(plan, "disagg-serving:index:Network", "disagg-serving:index:Net")
    find(after, "disagg-serving:index:Net")["options"]["aliases"] = [{"type": "disagg-serving:index:Network"}]
    assert list(faults(plan, after, [])) == []


def test_resource_renamed(plan: Plan) -> None:
    """A resource under another name, for which Pulumi would make a new one and delete the old, is found, and its alias accepted."""
    former = find(plan, "kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet")
    after = copy_of(plan, former["urn"], former["urn"].removesuffix(former["name"]) + "other")
    renamed = find(after, former["type"], former["name"])
    renamed["name"] = "other"
    assert [f for f in faults(plan, after, []) if f.startswith("no alias: ")] == [f"no alias: {former['urn']} is now {renamed['urn']}"]
    renamed["options"]["aliases"] = [{"name": former["name"]}]
    assert list(faults(plan, after, [])) == []


def test_protected_is_replaced(plan: Plan) -> None:
    """A change that replaces what is protected is found, and no page can allow it."""
    after = copy_of(plan)
    key = find(after, KEY)
    key["inputs"]["multiRegion"] = True
    assert list(faults(plan, after, [Written("replace", KEY, "*")])) == [f"replace in spite of protect: {key['urn']}"]


@pytest.mark.parametrize("option", upgrades.KEEPING)
def test_protected_is_deleted(plan: Plan, option: str) -> None:
    """What is protected or retained does not go, and does not lose that either."""
    former = find(plan, KEY)
    former["options"] = {option: True}
    after = copy_of(plan)
    after["resources"] = [r for r in after["resources"] if r["urn"] != former["urn"]]
    assert f"delete in spite of {option}: {former['urn']}" in list(faults(plan, after, [Written("delete", "*", "*")]))
    after = copy_of(plan)
    find(after, KEY)["options"] = {option: False}
    assert list(faults(plan, after, [])) == [f"no longer {option}: {former['urn']}"]


def test_gone(plan: Plan) -> None:
    """A resource that is no longer made is found unless a page says so."""
    former = find(plan, ROLE)
    after = copy_of(plan)
    after["resources"] = [r for r in after["resources"] if r["urn"] != former["urn"]]
    assert list(faults(plan, after, [])) == [f"delete, and no page of docs/upgrade says so: {former['urn']}"]
    assert list(faults(plan, after, [Written("replace", ROLE, former["name"]), Written("delete", ROLE, "other")])) != []
    assert list(faults(plan, after, [Written("delete", "aws:iam/*", former["name"])])) == []


def test_replaced(plan: Plan) -> None:
    """A replacement names the input that forces it, and needs its line as well."""
    after = copy_of(plan)
    subnet = find(after, SUBNET, "prod-public-us-east-1b")
    subnet["inputs"]["cidrBlock"] = "10.40.255.0/24"
    found = list(faults(plan, after, []))
    assert f"replace, and no page of docs/upgrade says so: {subnet['urn']} because of cidrBlock" in found
    assert not [f for f in faults(plan, after, [Written("replace", SUBNET, subnet["name"])]) if subnet["urn"] in f]


def test_project_renamed(plan: Plan) -> None:
    """Another project name means another state, so nothing of it is an update."""
    assert any(f.startswith("another project: ") for f in faults(plan, copy_of(plan, "disagg-serving", "else"), []))


def test_rows_of_pages(tmp_path: Path) -> None:
    """Rows of newer pages count, those of the release's own and of older ones do not; a row without its reason is refused."""
    row = "| delete | `aws:ec2/*` | `*-nat` | no longer needed |"
    for name in ("0.1.0", "0.2.0", "0.10.0"):
        (tmp_path / f"{name}.md").write_text(f"# x\n\n{HEADING}\n|---|---|---|---|\n{row}\n\nafter\n| a | b | c | d |\n")
    (tmp_path / "README.md").write_text("")
    assert written_down("0.2.0", tmp_path) == [Written("delete", "aws:ec2/*", "*-nat")]
    assert len(written_down("0.1.0", tmp_path)) == 2
    (tmp_path / "1.0.0.md").write_text(f"{HEADING}\n|---|---|---|---|\n| delete | a | b |  |\n")
    with pytest.raises(ValueError, match=r"1\.0\.0\.md"):
        written_down("0.2.0", tmp_path)


@pytest.fixture
def alone(tmp_path: Path) -> Callable[[str, str, str], list[str]]:
    """The faults of a kept stack after a text of one of its files was replaced."""

    def run(file: str, old: str, new: str) -> list[str]:
        folder = tmp_path / FIRST
        shutil.copytree(upgrades.RELEASED / FIRST, folder)
        text = (folder / file).read_text(encoding="utf-8")
        assert old in text
        (folder / file).write_text(text.replace(old, new), encoding="utf-8")
        return faults_of(next(k for k in kept(tmp_path) if k.stack == "dev" and k.folder == folder))

    return run


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("stacks/Pulumi.dev.yaml", "maxModelLen", "longest", "refused: models[0].longest is not a known key"),
        ("__main__.py", "import deploy", "import launch as deploy", "refused: the program of stack dev stopped: ImportError: "),
        ("plans/dev.json", "::dev-gpu-node", "::dev-nodes", "no alias: "),
        ("plans/dev.json", '"urn":"urn:pulumi:dev::disagg-serving::', '"urn":"urn:pulumi:dev::other::', "no alias: "),
    ],
)
def test_kept_stack(alone: Callable[[str, str, str], list[str]], file: str, old: str, new: str, says: str) -> None:
    """A stack file or program that today's code refuses is found, and so is a plan whose URNs today's code does not make."""
    assert any(f.startswith(says) for f in alone(file, old, new))


def test_keep_a_release(tmp_path: Path) -> None:
    """What is kept is what the test reads, and a kept release is not written again."""
    root = tmp_path / "root"
    for name in ("Pulumi.yaml", "__main__.py", "pyproject.toml", "requirements.txt"):
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    (root / "stacks").mkdir()
    shutil.copy(SHIPPED / "stacks/Pulumi.dev.yaml", root / "stacks")
    shutil.copytree(ROOT / "examples/existing-cluster", root / "examples/existing-cluster")
    (root / "examples/typescript").mkdir()
    (root / "examples/typescript/Pulumi.yaml").write_text("name: x\nruntime: nodejs\n")
    (root / "examples/typescript/Pulumi.dev.yaml").write_text("config: {}\n")
    folder = release.keep("v0.2", tmp_path / "released", root)
    assert folder.name == "0.2"
    assert [(k.folder.name, k.stack) for k in kept(tmp_path / "released")] == [("0.2", "dev"), ("existing-cluster", "dev")]
    assert [faults_of(k) for k in kept(tmp_path / "released")] == [[], []]
    assert not [f for f in folder.rglob("*") if f.name in ("README.md", "requirements.txt")]
    with pytest.raises(ToolError, match="is kept already"):
        release.keep("0.2.0", tmp_path / "released", root)
    with pytest.raises(ToolError, match=r"0\.1\.9 is older than 0\.2"):
        release.keep("0.1.9", tmp_path / "released", root)
    with pytest.raises(ToolError, match="is not a version"):
        release.keep("newest", tmp_path / "released", root)
    with pytest.raises(ToolError, match=r"0\.3\.0rc1 is no release"):
        release.keep("0.3.0rc1", tmp_path / "released", root)
    assert release.stale("0.2.0", tmp_path / "released", root) == []
    with pytest.raises(ToolError, match=r"0\.3 is not kept"):
        release.stale("0.3", tmp_path / "released", root)
    stack = root / "stacks/Pulumi.dev.yaml"
    stack.write_text(stack.read_text(encoding="utf-8").replace("maxModelLen", "longest"), encoding="utf-8")
    with pytest.raises(ToolError, match=r"stack dev: .*longest"):
        release.keep("0.3", tmp_path / "released", root)
    assert [f.name for f in (tmp_path / "released").iterdir()] == ["0.2"]
    stack.write_text((SHIPPED / "stacks/Pulumi.dev.yaml").read_text(encoding="utf-8") + "# as nobody has it\n", encoding="utf-8")
    (folder / "plans/dev.json").unlink()
    assert release.main(["check", "0.2"]) == 1
    assert release.main(["check"]) == 1
    assert release.stale("0.2", tmp_path / "released", root) == ["plans/dev.json", "stacks/Pulumi.dev.yaml"]


def test_a_release_has_the_stacks_that_tests_are_about(tmp_path: Path) -> None:
    """A stack that was edited, added or removed beside its frozen copy is not released: pictures and golden files would show another."""
    for folder in (tmp_path, tmp_path / release.SHIPPED):
        shutil.copytree(SHIPPED, folder, dirs_exist_ok=True)
    stack = tmp_path / "stacks/Pulumi.dev.yaml"
    stack.write_text("# a comment\n" + stack.read_text(encoding="utf-8"), encoding="utf-8")
    release.refuse_edited(tmp_path)
    stack.write_text(stack.read_text(encoding="utf-8").replace("maxModelLen", "longest"), encoding="utf-8")
    (tmp_path / "stacks/Pulumi.glm5.yaml").unlink()
    (tmp_path / "stacks/Pulumi.new.yaml").write_text("config: {}\n", encoding="utf-8")
    with pytest.raises(
        ToolError, match=r"^stacks/Pulumi\.dev\.yaml, stacks/Pulumi\.glm5\.yaml, stacks/Pulumi\.new\.yaml: not as in tests/data/shipped"
    ):
        release.refuse_edited(tmp_path)
