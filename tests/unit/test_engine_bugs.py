"""Known bugs of engine releases are data: who meets which, and that a file adds one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from disagg_serving.catalog import Catalog
from disagg_serving.errors import Finding
from disagg_serving.rules.evaluation import evaluate
from factories import ROOT, aggregated, environment, model, role

OLD = {"engine": "vllm-0.27.1-dlc"}
WIDE = {"instanceType": "p5en.48xlarge", "tensorParallel": 1, "dataParallel": 16, "expertParallel": True}


def found(data: dict[str, Any], base: Path = ROOT) -> list[Finding]:
    """What the rule says."""
    return [f for f in evaluate(data, base).findings if f.id == "engine-bugs"]


def test_hybrid_attention_on_an_old_engine_names_wrong_answers() -> None:
    """The gpt-oss of a public report: decode answers 200 with wrong text after a failed transfer, and the fix is a newer engine."""
    said = found(environment(model(model="gpt-oss-120b", prefill=role(tensorParallel=1), decode=role(tensorParallel=4), **OLD)))
    (wrong,) = [f for f in said if "wrong text and HTTP 200" in f.message]
    assert (wrong.path, wrong.level.value) == ("models[0].engine", "warning")
    assert "vllm-0.33.0-efa" in wrong.allowed
    assert "issues/52234" in wrong.message


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (model(**OLD), ["stale-peer"]),
        (model(), []),
        (aggregated(**OLD), []),
        (aggregated(model="gpt-oss-120b", **OLD), []),
        (model(connector={"mode": "push"}, **OLD), ["writes over EFA", "stale-peer"]),
        (model(connector={"mode": "push"}), []),
        (model(model="deepseek-v3", maxModelLen=32768, prefill=None, decode=None, server=WIDE, **OLD), ["deadlock"]),
        (model(model="deepseek-v3", maxModelLen=32768, prefill=None, decode=None, server={**WIDE, "dataParallel": 8}, **OLD), []),
    ],
)
def test_a_bug_is_told_to_those_who_meet_it(data: dict[str, Any], words: list[str]) -> None:
    """Version and conditions both have to hold; a server moves no KV, and one node has no network between experts."""
    said = sorted(f.message for f in found(environment(data)))
    assert len(said) == len(words)
    assert all(any(word in message for message in said) for word in words)


def own(folder: Path, **overrides: Any) -> dict[str, Any]:
    """A folder of the catalogue with one bug, and an environment that uses it."""
    bug = {"id": "mine", "effect": "loses tokens", "source": ["https://example.com/1"], "checked": "2026-12-01", **overrides}
    (folder / "own/engines/bugs").mkdir(parents=True)
    (folder / "own/engines/bugs/mine.yaml").write_text(yaml.safe_dump(bug), encoding="utf-8")
    return environment(model(extraArgs=["--no-enable-prefix-caching"]), catalogDirs=["own"])


@pytest.mark.parametrize(
    ("when", "meets"),
    [
        ({}, True),
        ({"hybrid": False, "latent": False, "mode": "pull"}, True),
        ({"hybrid": True}, False),
        ({"flags": ["--enable-prefix-caching"]}, True),
        ({"flags": ["--enforce-eager"]}, False),
        ({"variables": ["VLLM_X"]}, False),
        ({"architectures": ["LlamaForCausalLM"]}, True),
        ({"architectures": ["DeepseekV3ForCausalLM"]}, False),
        ({"offload": True}, False),
        ({"speculative": True}, False),
    ],
)
def test_a_file_adds_a_bug(tmp_path: Path, when: dict[str, Any], meets: bool) -> None:  # noqa: FBT001 (a case of the table)
    """No code knows the bug; its conditions decide who is told."""
    said = found(own(tmp_path, when=when), tmp_path)
    assert [f.message for f in said] == (["loses tokens (https://example.com/1)"] if meets else [])


@pytest.mark.parametrize(
    ("span", "meets"),
    [({"since": "0.33.0"}, True), ({"since": "0.33.1"}, False), ({"before": "0.33.0"}, False), ({"before": "0.34"}, True),
     ({"of": "nixl", "before": "1.5.0"}, False), ({"of": "nixl", "before": "1.5.1"}, True)],
)  # fmt: skip
def test_versions_bound_a_bug(tmp_path: Path, span: dict[str, Any], meets: bool) -> None:  # noqa: FBT001 (a case of the table)
    """Of the engine or of a library in its image; the first version of a range has the bug, the one that ends it does not."""
    assert bool(found(own(tmp_path, **span), tmp_path)) == meets


def test_an_image_may_hold_the_fix(tmp_path: Path) -> None:
    """An entry of one's own says that its image has the fix, though the version does not tell."""
    data = own(tmp_path)
    entry = Catalog().engines["vllm-0.33.0-efa"].model_dump(by_alias=True, mode="json", exclude_none=True)
    fixed = {**entry, "id": "fixed", "fixes": ["mine"]}
    (tmp_path / "own/engines/fixed.yaml").write_text(yaml.safe_dump(fixed), encoding="utf-8")
    (told,) = found(data, tmp_path)
    assert "fixed" in told.allowed
    assert not found({**data, "models": [{**data["models"][0], "engine": "fixed"}]}, tmp_path)


def test_every_shipped_bug_has_an_issue() -> None:
    """The first source is what the finding shows, so it is an address."""
    bugs = Catalog().bugs
    assert len(bugs) >= 4
    assert all(bugs[bug].source[0].startswith("https://github.com/") for bug in bugs)
