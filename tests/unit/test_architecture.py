from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from disagg_serving.errors import Level
from disagg_serving.rules import Rule, rules
from disagg_serving.spec.base import Spec
from factories import ROOT

PACKAGE = ROOT / "components/disagg_serving"
BASE = {
    "characters",
    "files",
    "labels",
    "place",
    "guesses",
    "phrases",
    "corrections",
    "credentials",
    "records",
    "errors",
    "pins",
    "yaml_io",
    "yaml_nodes",
    "yaml_scalars",
}
FORM = BASE | {"spec", "catalog"}
PLAN = FORM | {"document", "planning", "forecast"}
CHECKED = PLAN | {"rules"}
LAYERS: dict[str, set[str]] = {
    "characters": set(),
    "files": set(),
    "labels": set(),
    "place": set(),
    "phrases": {"place"},
    "corrections": {"place", "phrases"},
    "credentials": set(),
    "records": set(),
    "guesses": set(),
    "errors": {"guesses", "phrases", "corrections", "credentials", "records"},
    "pins": set(),
    "yaml_scalars": set(),
    "yaml_nodes": {"credentials", "yaml_scalars"},
    "yaml_io": {"errors", "place", "yaml_nodes"},
    "spec": BASE | {"spec"},
    "catalog": FORM,
    "document": {"records", "errors", "document"},
    "planning": FORM | {"planning"},
    "forecast": PLAN,
    "rules": PLAN | {"rules"},
    "imports": CHECKED | {"imports"},
    "lookups": CHECKED | {"lookups"},
    "manifests": PLAN | {"manifests"},
    "verify": CHECKED | {"manifests", "verify"},
    "load": CHECKED | {"manifests", "verify", "load"},
    "resources": CHECKED | {"lookups", "manifests", "resources", ""},
    "recording": CHECKED | {"manifests", "resources", "recording"},
    "comparison": CHECKED | {"manifests", "recording", "comparison"},
    "report": BASE | {"spec", "document", "rules", "recording", "verify", "load", "report"},
    "schemas": FORM | {"document"},
    "cli": CHECKED | {"schemas", "imports", "lookups", "manifests", "resources", "recording", "comparison", "report", "verify", "load", "cli", ""},
    "__main__": {"cli"},
    "__init__": set(),
}
"""Each part of the package with the parts that it may import; `""` is the package itself (its version)."""

KEY = re.compile(
    r"(?:[a-z0-9.-]+\.)?(?:sigs\.k8s\.io|karpenter\.sh|kubernetes\.io|llm-d\.ai|pulumi\.com|nvidia\.com|vpc\.amazonaws\.com|disagg-serving)"
    r"/[A-Za-z0-9._/-]*"
)
"""A whole literal that is a label, taint, annotation, tag or resource key, or the beginning of one."""
API_VERSION = re.compile(r".*/v\d+((alpha|beta)\d+)?")
"""`karpenter.sh/v1` names a form of an object and not a key, so manifests spell it."""
GENERATED = {"resources/spec_args.py"}
"""Files that a script writes: they grow with the spec, and nobody reads them from top to bottom."""


def modules() -> list[Path]:
    """The package's source files."""
    return sorted(PACKAGE.rglob("*.py"))


def name_of(file: Path) -> str:
    """Path inside the package."""
    return file.relative_to(PACKAGE).as_posix()


def imports(file: Path) -> Iterator[str]:
    """Full names of what a module imports, at the top and inside functions."""
    package = ["disagg_serving", *file.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def part_of(target: str) -> str:
    """The part of the package that a full name is in."""
    part = target.split(".")[1]
    return part if (PACKAGE / part).is_dir() or (PACKAGE / f"{part}.py").is_file() else ""


@pytest.mark.parametrize("file", modules(), ids=name_of)
def test_imports_go_one_way(file: Path) -> None:
    """A lower part never imports a higher one, so specs and rules can be used and tested without what stands above them."""
    here = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert here in LAYERS, f"{here} is a new part: say in LAYERS what it may import"
    wrong = {t for t in imports(file) if t.split(".")[0] == "disagg_serving" and part_of(t) not in LAYERS[here]}
    assert not wrong


def test_layers_name_only_parts_that_exist() -> None:
    """The table of layers describes this package and not an older one."""
    there = {p.name.removesuffix(".py") for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()}
    assert set(LAYERS) == there


@pytest.mark.parametrize("file", modules(), ids=name_of)
def test_pulumi_is_imported_in_three_places_only(file: Path) -> None:
    """Checking and rendering stay fast and free of Pulumi: only the components, the recorder, and what both use of its inside know it."""
    found = {t for t in imports(file) if t.split(".")[0].startswith("pulumi")}
    assert not found or file.is_relative_to(PACKAGE / "resources") or name_of(file) == "recording/recorder.py"


@pytest.mark.parametrize("file", [f for f in modules() if name_of(f) != "labels.py"], ids=name_of)
def test_keys_are_spelt_in_labels_only(file: Path) -> None:
    """Every label, taint, annotation, tag and resource key has one spelling, in labels.py."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    literals = [(n.lineno, n.value) for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    assert [(line, text) for line, text in literals if KEY.fullmatch(text) and not API_VERSION.fullmatch(text)] == []


def test_keys_of_labels_are_recognised() -> None:
    """The pattern of the test above knows the keys that labels.py holds; else it would find nothing anywhere."""
    labels = importlib.import_module("disagg_serving.labels")
    keys = [v for v in vars(labels).values() if isinstance(v, str) and "/" in v and not v.startswith("/")]
    missed = [k for k in keys if not KEY.fullmatch(k)]
    assert len(keys) > 15
    assert missed == []


def spec_models(package: str) -> list[type[Spec]]:
    """All pydantic models that a subpackage defines."""
    for file in (PACKAGE / package).glob("*.py"):
        importlib.import_module(f"disagg_serving.{package}.{file.stem}" if file.stem != "__init__" else f"disagg_serving.{package}")
    found: list[type[Spec]] = []
    todo = list(Spec.__subclasses__())
    while todo:
        model = todo.pop()
        todo += model.__subclasses__()
        found.append(model)
    return sorted({m for m in found if m.__module__.startswith(f"disagg_serving.{package}.")}, key=lambda m: m.__name__)


SPEC, CATALOG = spec_models("spec"), spec_models("catalog")


def test_models_are_found() -> None:
    """The tests of descriptions below look at the models that there are."""
    assert {"EnvironmentSpec", "ModelSpec", "RoleSpec", "NetworkSpec", "ClusterSpec"} <= {m.__name__ for m in SPEC}
    assert {"Instance", "Model", "Engine"} <= {m.__name__ for m in CATALOG}


@pytest.mark.parametrize("model", [*SPEC, *CATALOG], ids=lambda m: m.__name__)
def test_every_field_is_described(model: type[Spec]) -> None:
    """Editors and the generated reference explain every key with a sentence."""
    wrong = [name for name, f in model.model_fields.items() if not (f.description or "").endswith((".", ")"))]
    assert wrong == []


@pytest.mark.parametrize("model", SPEC, ids=lambda m: m.__name__)
def test_every_optional_field_tells_its_default(model: type[Spec]) -> None:
    """A person who leaves a key out can read what then happens, even where the value is calculated."""
    silent = [name for name, f in model.model_fields.items() if not f.is_required() and "Default" not in (f.description or "")]
    assert silent == []


@pytest.mark.parametrize("rule", rules(), ids=lambda r: r.id)
def test_every_rule_is_documented(rule: Rule) -> None:
    """`disagg rules` and `disagg explain` have something to say about each rule: what it asks for and where that comes from."""
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.id)
    assert isinstance(rule.level, Level)
    assert len(rule.reference) > 10
    assert len(rule.summary) > 20
    assert rule.summary.endswith(".")


@pytest.mark.parametrize("file", [f for f in modules() if name_of(f) != "place.py"], ids=name_of)
def test_places_are_taken_apart_in_one_module(file: Path) -> None:
    """Steps of `models[0].decode` are read by Place alone: no regular expression elsewhere knows indices, or a list of the stack file."""
    literals = [n.value for n in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(n, ast.Constant)]
    assert [text for text in literals if isinstance(text, str) and re.search(r"\\\[\(?(\\d|0|\[0-9\])|models\\\[", text)] == []


RULE_IDS_ELSEWHERE = {
    "components/disagg_serving/cli/answers.py": "an answer to `disagg init` is refused as the rule would refuse it in the stack file",
    "components/disagg_serving/cli/sizing_options.py": "the name of an option",
    "components/disagg_serving/forecast/fit/constants.py": "a version that no forecast can read is refused as the rule would",
    "components/disagg_serving/manifests/engine.py": "the name of a volume",
    "components/disagg_serving/manifests/serving.py": "the name of a volume",
    "components/disagg_serving/verify/engine_answers.py": "a point of `disagg verify`",
    "components/disagg_serving/verify/points.py": "the points of `disagg verify`",
    "components/disagg_serving/verify/versions.py": "points of `disagg verify`",
    "engine/grids.py": "inputs for the real parser, listed by the rule that they try",
}
"""Files outside of rules/checks that spell the id of a rule, and why that is no fact about the rule."""


def named_rules(file: Path) -> set[str]:
    """Ids of rules that a file spells: those of several words, and those of one word in a collection that holds nothing else."""
    ids, tree = {r.id for r in rules()}, ast.parse(file.read_text(encoding="utf-8"))
    texts = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    collections = [n.elts for n in ast.walk(tree) if isinstance(n, (ast.Set, ast.List, ast.Tuple))]
    words = [{e.value for e in held if isinstance(e, ast.Constant) and isinstance(e.value, str)} for held in collections if len(held) > 1]
    return {text for text in texts & ids if "-" in text}.union(*(held for held in words if held and held <= ids))


def test_facts_about_a_rule_stand_at_the_rule() -> None:
    """What other parts have to know about rules is an argument of `@rule`: a new rule has no table elsewhere in which it could be forgotten."""
    folders = [ROOT / part for part in ("components", "engine", "bench", "policy", "scripts")]
    files = [f for folder in folders for f in folder.rglob("*.py") if not {"checks", ".venv", "venv"} & set(f.parts)]
    found = {f.relative_to(ROOT).as_posix() for f in [*files, *(ROOT / "tests").glob("*.py")] if named_rules(f)}
    assert found == set(RULE_IDS_ELSEWHERE)
    assert named_rules(PACKAGE / "rules/checks/experts.py") == {"data-parallel", "all-to-all"}


def test_files_stay_readable() -> None:
    """No file written by hand is longer than 400 lines."""
    files = [f for part in ("components", "scripts", "tests", "examples") for f in (ROOT / part).rglob("*.py")]
    lengths = {
        f.relative_to(ROOT).as_posix(): len(f.read_text(encoding="utf-8").splitlines())
        for f in files
        if not {".venv", "venv", "node_modules"} & set(f.parts)
    }
    generated = {f"components/disagg_serving/{name}" for name in GENERATED}
    assert len(lengths) > 60
    assert {name: n for name, n in lengths.items() if n > 400 and name not in generated} == {}


@pytest.mark.parametrize("name", sorted(GENERATED))
def test_generated_files_say_so(name: str) -> None:
    """A file that is excused from the limit says which script writes it."""
    assert "Generated by scripts/" in (PACKAGE / name).read_text(encoding="utf-8")
