"""Draft models: named in `speculative`, counted in memory and disk, copied and read with the model; second repositories beside offline weights."""

from __future__ import annotations

import json
from typing import Any

import pytest
from disagg_serving.errors import Finding
from disagg_serving.forecast.capacities import capacity_of
from disagg_serving.manifests.mirror import build_mirror_jobs
from disagg_serving.planning.command_line import command_args
from disagg_serving.planning.drafts import read_folders, written_folders
from disagg_serving.planning.pairs import identity_of
from disagg_serving.planning.startup import startup_budget_seconds
from factories import aggregated, check, environment, layout, model, role

COMMIT, DRAFT_COMMIT = "0" * 40, "1" * 40
HEAD = "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B"
EAGLE = {"method": "eagle3", "numSpeculativeTokens": 3, "model": HEAD, "checkpointGB": 3.4}
S3 = {"revision": COMMIT, "s3": {"bucket": "b-123"}}


def findings(data: dict[str, Any], *rules: str) -> list[Finding]:
    """What some rules say."""
    return [f for f in check(data).findings if f.id in rules]


def config(**overrides: Any) -> dict[str, Any]:
    """What follows --speculative-config on prefill, which decode has, too."""
    of = layout(environment(model(**overrides)))
    flags = {next(a for a in command_args(g, worker=False) if a.startswith("--speculative-config=")) for g in of.groups}
    (flag,) = flags
    found: dict[str, Any] = json.loads(flag.partition("=")[2])
    return found


def test_eagle3_names_its_draft_on_both_roles() -> None:
    """A repository and its revision reach vLLM, equal on prefill and decode, where NIXL compares them."""
    asked = {**EAGLE, "revision": DRAFT_COMMIT}
    assert config(speculative=asked) == {"method": "eagle3", "num_speculative_tokens": 3, "model": HEAD, "revision": DRAFT_COMMIT}
    assert not findings(environment(model(speculative=asked)), "speculative-method", "draft-model")


def test_a_catalogue_id_is_a_draft_too() -> None:
    """The repository and the size are the catalogue's."""
    asked = {"method": "draft_model", "numSpeculativeTokens": 3, "model": "llama-3.1-8b-instruct"}
    assert config(speculative=asked, maxModelLen=16384)["model"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert not findings(environment(model(speculative=asked)), "speculative-method")


def test_without_a_draft_the_field_is_named() -> None:
    """What the public recipe of gpt-oss with EAGLE3 needs has a field, and the finding says which."""
    (finding,) = findings(environment(model(speculative={"method": "eagle3", "numSpeculativeTokens": 3})), "speculative-method")
    assert finding.level.value == "error"
    assert "speculative.model" in finding.fix


@pytest.mark.parametrize("draft", [EAGLE, {"method": "draft_model", "numSpeculativeTokens": 3, "model": "llama-3.1-8b-instruct"}])
@pytest.mark.parametrize("name", ["llama-3.3-70b-instruct-fp8", "gpt-oss-120b"])
def test_draft_takes_memory_disk_and_time(draft: dict[str, Any], name: str) -> None:
    """Its weights and its KV leave fewer tokens, its files take disk, and the start may take longer, also of a model with windows."""
    plain, drafted = (layout(environment(model(model=name, maxModelLen=16384, speculative=one))) for one in (None, draft))
    before, after = (capacity_of(of.groups[1]) for of in (plain, drafted))
    assert before is not None
    assert after is not None
    assert after.weights_gib.mid > before.weights_gib.mid
    assert after.kv_tokens.mid < before.kv_tokens.mid
    assert drafted.groups[0].engine_requests.disk_gib > plain.groups[0].engine_requests.disk_gib
    assert startup_budget_seconds(drafted.served[0]) >= startup_budget_seconds(plain.served[0])


def test_unknown_size_is_told() -> None:
    """A repository without a size is not counted, which a person has to know."""
    unknown = {key: value for key, value in EAGLE.items() if key != "checkpointGB"}
    (finding,) = findings(environment(model(speculative={**unknown, "revision": DRAFT_COMMIT})), "draft-model")
    assert (finding.path, finding.level.value) == ("models[0].speculative.model", "warning")


def test_draft_is_mirrored_and_read_with_the_model() -> None:
    """A Job of its own copies it, the mirror may write there and the engines may read there, and they stream it from the bucket."""
    asked = {**EAGLE, "revision": DRAFT_COMMIT}
    of = layout(environment(aggregated(speculative=asked, weights={**S3, "mirror": True})))
    (served,) = of.served
    jobs = build_mirror_jobs([served])
    said = [{e["name"]: e["value"] for e in j["spec"]["template"]["spec"]["containers"][0]["env"] if "value" in e} for j in jobs]
    assert [(e["REPOSITORY"], e["REVISION"], e["PREFIX"]) for e in said][1] == (HEAD, DRAFT_COMMIT, f"{HEAD}/{DRAFT_COMMIT}")
    assert len({j["metadata"]["name"] for j in jobs}) == 2
    assert read_folders(served)[1] == HEAD
    assert written_folders(served)[1] == f"{HEAD}/{DRAFT_COMMIT}"
    (flag,) = (a for a in command_args(of.groups[0], worker=False) if a.startswith("--speculative-config="))
    assert json.loads(flag.partition("=")[2])["model"] == f"s3://b-123/{HEAD}/{DRAFT_COMMIT}"


def test_a_mirror_needs_the_drafts_commit() -> None:
    """A copy of a floating head would be another one each time."""
    for revision in (None, "main"):
        asked = {**EAGLE, **({"revision": revision} if revision else {})}
        said = findings(environment(aggregated(speculative=asked, weights={**S3, "mirror": True})), "draft-model")
        assert [f.path for f in said if f.level.value == "error"] == ["models[0].speculative.revision"]


def test_another_draft_is_another_pair() -> None:
    """NIXL compares the draft, so its change is no rolling update."""

    def identity(draft: str) -> str:
        of = layout(environment(model(speculative={**EAGLE, "model": draft})))
        return identity_of(of.groups_of(of.served[0]))

    assert identity("a/one") != identity("a/two")


def test_heads_of_a_draft_beside_latent_attention() -> None:
    """NIXL refuses to merge a draft's KV heads, so decode has at least prefill's tensorParallel; with push the same."""
    base = {"model": "deepseek-v3", "maxModelLen": 32768, "speculative": {**EAGLE, "model": "a/b"}}
    sides = {"instanceType": "p5en.48xlarge"}
    more, less = {**sides, "tensorParallel": 16}, {**sides, "tensorParallel": 8}
    assert findings(environment(model(**base, prefill=more, decode=less)), "draft-heads")
    assert not findings(environment(model(**base, prefill=less, decode=more)), "draft-heads")
    assert findings(environment(model(**base, prefill=less, decode=more, connector={"mode": "push"})), "draft-heads")


OFFLINE = [
    "--tokenizer=owner/name",
    "--hf-config-path=owner/name",
    "--generation-config=owner/name",
    "--lora-modules=mine=owner/name",
    '--lora-modules={"name":"mine","path":"owner/name"}',
]


@pytest.mark.parametrize("flag", OFFLINE)
def test_offline_engines_find_no_second_repository(flag: str) -> None:
    """Beside weights from S3 it is an error, in a role too; where weights are downloaded, it is none."""
    assert findings(environment(aggregated(weights=S3, extraArgs=[flag])), "offline-repository")
    (of_role,) = findings(environment(aggregated(weights=S3, server=role(extraArgs=[flag]))), "offline-repository")
    assert of_role.path == "models[0].server.extraArgs[0]"
    assert not findings(environment(aggregated(extraArgs=[flag])), "offline-repository")


@pytest.mark.parametrize("flag", ["--tokenizer=/opt/tokenizer", "--generation-config=vllm", "--lora-modules=mine=/adapters/one", "--seed=1"])
def test_paths_in_the_pod_are_no_repositories(flag: str) -> None:
    """What is in the image is found offline."""
    assert not findings(environment(aggregated(weights=S3, extraArgs=[flag])), "offline-repository")
