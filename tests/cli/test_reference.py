from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from command_line import Run
from disagg_serving.catalog import load_catalog
from disagg_serving.catalog.loader import PACKAGE_DIR
from disagg_serving.rules import rules
from disagg_serving.schemas import KINDS
from factories import ROOT, SHIPPED, STACKS
from jsonschema import Draft202012Validator


@pytest.mark.parametrize("kind", ["models", "instances", "engines"])
def test_catalog_lists_every_entry(disagg: Run, kind: str) -> None:
    """Every known entry stands in the table and in the JSON, there with source and date."""
    known = list(getattr(load_catalog(), kind))
    assert disagg("catalog", kind) == 0
    assert [line.split()[0] for line in disagg.out.splitlines()[1:]] == known
    assert disagg("catalog", kind, "--format", "json") == 0
    data = json.loads(disagg.out)
    assert [e["id"] for e in data] == known
    assert all(e["source"] and re.fullmatch(r"\d{4}-\d\d-\d\d", e["checked"]) for e in data)


def test_catalog_and_reference_page_say_the_same(disagg: Run) -> None:
    """A column that the command and docs/reference/catalogue.md call by one name holds the same figures in both."""
    assert disagg("catalog", "instances") == 0
    head, *lines = disagg.out.splitlines()
    said = {found[0].strip(): [line[slice(*found.span())].strip() for line in lines] for found in re.finditer(r"\S+(?: \S+)* *", head.ljust(200))}
    page = (ROOT / "docs/reference/catalogue.md").read_text(encoding="utf-8").split("\n## Instance types\n")[1].split("\n## ")[0]
    written = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in page.split("\n") if line.startswith("|")]
    columns = {name: [row[n].replace(",", "") for row in written[2:]] for n, name in enumerate(written[0])}
    shared = (said.keys() & columns.keys()) - {"GPUs", "EFA", "USD/h"}
    assert {"GPU memory GiB", "GPUDirect RDMA", "vCPU", "memory GiB for pods", "NVMe GiB", "price of"} < shared
    assert {name: said[name] for name in shared} == {name: columns[name] for name in shared}


def test_catalog_shows_entries_of_a_folder(disagg: Run, tmp_path: Path) -> None:
    """Entries of a user's own folder are listed with the others; a faulty one is named by its file."""
    entry = (PACKAGE_DIR / "models/qwen3-32b.yaml").read_text(encoding="utf-8")
    (tmp_path / "mine/models").mkdir(parents=True)
    (tmp_path / "mine/models/ours.yaml").write_text(entry.replace("id: qwen3-32b", "id: ours"), encoding="utf-8")
    assert disagg("catalog", "models", "--catalog-dir", "mine", cwd=tmp_path) == 0
    assert "ours" in [line.split()[0] for line in disagg.out.splitlines()]
    (tmp_path / "mine/models/ours.yaml").write_text(entry, encoding="utf-8")
    assert disagg("catalog", "models", "--catalog-dir", "mine", cwd=tmp_path) == 2
    assert "models/ours.yaml" in disagg.err


@pytest.mark.parametrize("command", [("catalog", "instances"), ("fit", "--model", "qwen3-32b", "--instance", "p5.48xlarge")], ids=" ".join)
def test_a_file_that_would_not_be_read_is_named(command: tuple[str, ...], disagg: Run, tmp_path: Path) -> None:
    """A file under another name than its id changes no figure in silence, whichever command takes the folder."""
    (tmp_path / "mine/instances").mkdir(parents=True)
    (tmp_path / "mine/instances/my-p5.yaml").write_text("id: p5.48xlarge\n", encoding="utf-8")
    assert disagg(*command, "--catalog-dir", "mine", cwd=tmp_path) == 2
    assert "mine/instances/my-p5.yaml: id: p5.48xlarge is not the file's name (allowed: my-p5)" in disagg.err


def test_rules_and_explain_tell_the_same(disagg: Run) -> None:
    """Every rule is listed, and explained with its level, meaning and reference."""
    assert disagg("rules") == 0
    assert [line.split()[:2] for line in disagg.out.splitlines()[1:]] == [[r.id, str(r.level)] for r in rules()]
    assert disagg("rules", "--format", "json") == 0
    assert json.loads(disagg.out) == [{"id": r.id, "level": str(r.level), "summary": r.summary, "reference": r.reference} for r in rules()]
    for r in rules():
        assert disagg("explain", r.id) == 0
        said = " ".join(disagg.out.split())
        assert all(part in said for part in (r.id, str(r.level), r.summary, r.reference))


@pytest.mark.parametrize(
    ("word", "hint"),
    [("pd", "(there are pd-"), ("Efa", "efa-alignment"), ("plain-secrets", "(did you mean plain-secret?)"), ("zzz", "(`disagg rules` lists them)")],
)
def test_explain_suggests_rules(disagg: Run, word: str, hint: str) -> None:
    """Part of an id gives the ids that hold it, a misspelt one the nearest, also of findings without a rule."""
    assert disagg("explain", word) == 1
    assert hint in disagg.err


@pytest.mark.parametrize("kind", KINDS)
def test_schemas_in_the_repository_are_fresh(disagg: Run, kind: str) -> None:
    """What editors read from docs/schema is what `disagg schema` prints, and is a valid schema."""
    assert disagg("schema", kind) == 0
    assert (ROOT / f"docs/schema/{kind}.schema.json").read_text(encoding="utf-8") == disagg.out
    Draft202012Validator.check_schema(json.loads(disagg.out))


def test_stack_files_match_their_schema() -> None:
    """Editors accept every shipped stack and mark a misspelt key or a wrong type, at any depth."""
    validator = Draft202012Validator(json.loads((ROOT / "docs/schema/stack.schema.json").read_text(encoding="utf-8")))
    for stack in STACKS:
        data = yaml.safe_load((SHIPPED / f"stacks/Pulumi.{stack}.yaml").read_text(encoding="utf-8"))
        validator.validate(data)
        wanted = data["config"]["disagg-serving:environment"]
        for place in (wanted, wanted["network"], wanted["models"][0], wanted["models"][0].get("decode") or wanted["models"][0]["server"]):
            place["tensorParalel"] = 1
            assert not validator.is_valid(data)
            del place["tensorParalel"]
        wanted["models"][0]["maxModelLen"] = "long"
        assert not validator.is_valid(data)


@pytest.mark.parametrize("kind", ["model", "instance", "engine"])
def test_catalogue_files_match_their_schema(kind: str) -> None:
    """Editors accept every file of the catalogue, too."""
    validator = Draft202012Validator(json.loads((ROOT / f"docs/schema/{kind}.schema.json").read_text(encoding="utf-8")))
    files = list((PACKAGE_DIR / f"{kind}s").glob("*.yaml"))
    assert len(files) > 2
    for file in files:
        data = json.loads(json.dumps(yaml.safe_load(file.read_text(encoding="utf-8")), default=str))
        validator.validate(data)
        assert not validator.is_valid({**data, "colour": "red"})
