from __future__ import annotations

import importlib
import json
import re
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from disagg_serving.rules import rules
from disagg_serving.rules.form import FORM_CHECKS
from disagg_serving.schemas import json_schema
from disagg_serving.verify.points import MEANING
from documents import Block, anchors, blocks, documents, links, tokens
from factories import ROOT, SHIPPED
from jsonschema import Draft202012Validator

generate = importlib.import_module("scripts.generate")
figures = importlib.import_module("scripts.figures")


def name_of(file: Path) -> str:
    """Path inside the repository."""
    return file.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("file", documents(), ids=name_of)
def test_links_lead_somewhere(file: Path) -> None:
    """Every link inside the repository leads to a file, and to a heading of it where it names one; links to elsewhere are whole."""
    broken = []
    for link in links(file):
        parts = urlsplit(link)
        if parts.scheme:
            whole = parts.scheme == "https" and re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", parts.netloc) and not re.search(r"[\s<>]", link)
            broken += [] if whole else [link]
            continue
        target = (file.parent / parts.path).resolve() if parts.path else file
        found = target.is_file() and target.is_relative_to(ROOT)
        if not found or (parts.fragment and target.suffix == ".md" and parts.fragment not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_the_index_leads_to_every_page() -> None:
    """GitHub shows no navigation: each page is linked from docs/index.md, those of examples and releases from the pages about them."""
    pages = [ROOT / "docs" / name for name in ("index.md", "library.md", "upgrade/README.md")]
    assert {*pages[1:]} <= {(ROOT / "docs" / link).resolve() for link in links(pages[0])}
    led = {(page.parent / link).resolve() for page in pages for link in links(page)}
    assert sorted(name_of(d) for d in {*documents()} - led - {ROOT / "README.md", pages[0]}) == []
    assert pages[0] in {(ROOT / link).resolve() for link in links(ROOT / "README.md")}


def test_links_are_found() -> None:
    """The test above looks at links, pictures and anchors; else it would find nothing broken anywhere."""
    assert {"pictures/request-path.svg", "operations.md#destroy", "rules.md"} <= set(links(ROOT / "docs/concepts.md")) | set(
        links(ROOT / "docs/quick-start.md")
    )
    assert {"destroy"} <= anchors(ROOT / "docs/operations.md")
    assert len(documents()) > 30


def test_generated_files_are_fresh() -> None:
    """Reference pages, pictures and figures say what the code says now."""
    wanted = dict(generate.files())
    stale = [name_of(path) for path, text in wanted.items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run `make generate`"
    assert {"docs/reference/cli.md", "docs/pictures/destroy-order.svg", "docs/tutorial.md"} <= {name_of(path) for path in wanted}


def test_a_stale_figure_is_noticed() -> None:
    """A number that somebody changes by hand inside a generated block does not survive."""
    page = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    spoilt = re.sub(r"\| `prod` \|", "| `prod` (cheap) |", page)
    assert spoilt != page
    assert figures.filled(spoilt) == page
    assert page.count("<!-- generated: ") == page.count("<!-- end of generated -->") == len(figures.BLOCK.findall(page)) == 6


RULES = {r.id for r in rules()}
RULES_PAGE = ROOT / "docs/rules.md"
"""Its blocks are whole files, faulty ones too, which test_rule_cases.py runs."""
MADE = {"stacks/Pulumi.NAME.yaml", "stacks/Pulumi.try.yaml"}
"""Files that a page tells to make."""


@pytest.mark.parametrize("file", documents(), ids=name_of)
def test_rules_points_and_tests_that_pages_name_exist(file: Path) -> None:
    """A page names no rule, verify point or file of ours that is gone."""
    text = file.read_text(encoding="utf-8")
    named = [
        word for group in re.findall(r"[Rr]ules? ((?:\[?`[a-z-]+`(?:\]\(\S+\))?(?:, | and )?)+)", text) for word in re.findall(r"`([a-z-]+)`", group)
    ]
    assert [word for word in named if word not in RULES] == []
    points = [word for group in re.findall(r"((?:`[a-z-]+`(?:, | and )?)+) in `verify`", text) for word in re.findall(r"`([a-z-]+)`", group)]
    assert [word for word in points if word not in MEANING] == []
    files = re.findall(r"`((?:tests|scripts|stacks|examples|bench)/[\w./-]+\.(?:py|yaml|toml))`", text)
    assert [name for name in files if not any((root / name).exists() for root in (ROOT, SHIPPED)) and name not in MADE] == []


def test_each_rule_has_an_anchor() -> None:
    """A page can link to a rule by its id; no other heading takes that anchor, and links to the page of rules say which rule is meant."""
    parsed = tokens(RULES_PAGE)
    heads = [after.content for token, after in pairwise(parsed) if token.type == "heading_open" and token.tag == "h3"]
    assert sorted(heads) == sorted(RULES | FORM_CHECKS.keys())
    assert not {one.rpartition("-")[0] for one in anchors(RULES_PAGE) if re.search(r"-\d+$", one)} & (RULES | FORM_CHECKS.keys())
    wrong = [
        f"{name_of(f)}: {m[0]}"
        for f in documents()
        for m in re.finditer(r"\[`([a-z-]+)`\]\(\S*rules\.md#([a-z-]+)\)", f.read_text("utf-8"))
        if m[1] != m[2]
    ]
    assert wrong == []


def test_proof_names_points_of_verify() -> None:
    """The last column of the table of proofs names points that `disagg verify` has."""
    rows = [
        line.split("|") for line in (ROOT / "docs/proof.md").read_text(encoding="utf-8").split("\n") if line.startswith("| ") and "tests/" in line
    ]
    named = {word for row in rows for word in re.findall(r"`([a-z]+-[a-z-]+|object)`", row[-2])}
    assert len(rows) > 20
    assert named <= MEANING.keys()


YAML = list(blocks("yaml", "yml"))
ENVIRONMENT = json_schema("environment")


@pytest.mark.parametrize("block", YAML, ids=lambda b: b.place)
def test_stack_file_fragments_have_known_keys(block: Block) -> None:
    """What a page tells to write into a stack file is accepted there: no misspelt key, no wrong type, at any depth."""
    data = yaml.safe_load(block.text)
    if isinstance(data, dict) and "config" in data:
        data = data["config"]["disagg-serving:environment"]
    if not isinstance(data, dict) or "apiVersion" in data:
        return
    forms = {"environment": ENVIRONMENT, **{name: ENVIRONMENT["$defs"][f"{name}Spec"] for name in ("Model", "Role", "Candidate")}}
    owners = [name for name, form in forms.items() if data.keys() <= form["properties"].keys()]
    assert owners, f"{sorted(data)} are keys of neither an environment, a model, a role nor a candidate"
    faults = {name: _faults(forms[name], data) for name in owners}
    assert [] in faults.values(), faults


def _faults(form: dict[str, object], data: object) -> list[str]:
    """What the schema says about a fragment; that something is missing is no fault of a fragment, nor a `...` that a person fills in."""
    schema = json.loads(json.dumps({**form, "$defs": ENVIRONMENT["$defs"]}))
    _without_required(schema)
    return [f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema).iter_errors(json.loads(json.dumps(data, default=str)))]


def _without_required(part: object) -> None:
    if isinstance(part, dict):
        part.pop("required", None)
        for value in part.values():
            _without_required(value)
    elif isinstance(part, list):
        for value in part:
            _without_required(value)


def test_blocks_have_a_language() -> None:
    """Each block says what it is, so that commands and stack files among them are tested."""
    known = {"console", "text", "yaml", "json", "python", "typescript", "diff", "{toctree}"}
    bare = [f"{name_of(f)}: {t.info}" for f in documents() for t in tokens(f) if t.type == "fence" and t.info.split(" ")[0].strip() not in known]
    assert bare == []


@pytest.mark.parametrize("block", [b for b in blocks("python") if "def test_" not in b.text], ids=lambda b: b.place)
def test_python_in_pages_runs(block: Block) -> None:
    """Python that a page shows runs as it stands."""
    exec(compile(block.text, block.place, "exec"), {})  # noqa: S102 (the project's own pages)


def test_the_readme_shows_the_plan_of_today() -> None:
    """The README's first screen shows how the output of `make preview` begins."""
    (shown,) = [t.content for t in tokens(ROOT / "README.md") if t.type == "fence" and t.content.startswith("prod: ")]
    plan = (ROOT / "tests/golden/prod/plan.txt").read_text(encoding="utf-8")
    assert plan.startswith(shown)
