"""Flags and variables of one role: how they join the model's, what follows them, and what has to be equal on both roles."""

from __future__ import annotations

from typing import Any

import pytest
from disagg_serving.errors import Finding
from disagg_serving.forecast.capacities import capacity_of, shape_of
from disagg_serving.manifests.bundle import build_all
from disagg_serving.planning.pairs import identity_of
from disagg_serving.planning.shapes import Layout
from factories import aggregated, check, environment, layout, model, role


def containers(of: Layout) -> dict[str, dict[str, Any]]:
    """The engine's container of each LeaderWorkerSet."""
    sets = [o for o in build_all(of) if o["kind"] == "LeaderWorkerSet"]
    return {o["metadata"]["name"]: o["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0] for o in sets}


def found(rule: str, **overrides: Any) -> list[Finding]:
    """What one rule says about a model."""
    return [f for f in check(environment(model(**overrides))).findings if f.id == rule]


def identity(of: Layout) -> str:
    """The identity of the only model."""
    return identity_of(of.groups_of(of.served[0]))


def test_flags_of_a_role_reach_that_role_alone() -> None:
    """Decode drops its prefix cache, as Dynamo's p5 recipe does, while prefill keeps it."""
    args = {n: c["args"] for n, c in containers(layout(environment(model(decode=role(extraArgs=["--no-enable-prefix-caching"]))))).items()}
    assert "--no-enable-prefix-caching" in args["m-decode"]
    assert "--no-enable-prefix-caching" not in args["m-prefill"]


@pytest.mark.parametrize("own", ["--no-enable-prefix-caching", "--disable-prefix-caching", "--no_enable_prefix_caching"])
def test_a_role_wins_flag_by_flag(own: str) -> None:
    """Of a flag that stands in both the role's counts alone, in any spelling and negated; the model's others stay, before the role's."""
    args = containers(layout(environment(model(extraArgs=["--enable-prefix-caching", "--seed=1"], decode=role(extraArgs=[own])))))
    assert "--enable-prefix-caching" in args["m-prefill"]["args"]
    decode = args["m-decode"]["args"]
    assert decode.index("--seed=1") < decode.index(own)
    assert "--enable-prefix-caching" not in decode


def test_keys_of_a_role_replace_the_whole_flag_of_the_model() -> None:
    """Keys are not added to a JSON value, since vLLM does not add them either."""
    args = containers(
        layout(environment(model(extraArgs=['--compilation-config={"mode":3}'], decode=role(extraArgs=["--compilation-config.cudagraph_mode=FULL"]))))
    )
    assert [a for a in args["m-decode"]["args"] if "compilation" in a] == ["--compilation-config.cudagraph_mode=FULL"]
    assert [a for a in args["m-prefill"]["args"] if "compilation" in a] == ['--compilation-config={"mode":3}']


def test_a_role_wins_variable_by_variable() -> None:
    """Variables join by name."""
    data = environment(model(extraEnv={"NCCL_DEBUG": "WARN", "VLLM_X": "1"}, decode=role(extraEnv={"NCCL_DEBUG": "TRACE", "VLLM_Y": "2"})))
    env = {n: {e["name"]: e.get("value") for e in c["env"]} for n, c in containers(layout(data)).items()}
    assert (env["m-prefill"]["NCCL_DEBUG"], env["m-prefill"]["VLLM_X"], env["m-prefill"].get("VLLM_Y")) == ("WARN", "1", None)
    assert (env["m-decode"]["NCCL_DEBUG"], env["m-decode"]["VLLM_X"], env["m-decode"]["VLLM_Y"]) == ("TRACE", "1", "2")


def test_forecast_reads_the_flags_of_each_role() -> None:
    """A prefill that captures no CUDA graphs has more room than one that does, and decode's figure stays."""
    plain, eager = (layout(environment(model(prefill=role(extraArgs=args)))) for args in ([], ["--enforce-eager"]))
    assert [shape_of(g).eager for g in eager.groups] == [True, False]
    before, after = ([capacity_of(g) for g in one.groups] for one in (plain, eager))
    assert before[0] is not None
    assert after[0] is not None
    assert after[0].engine_tokens.mid > before[0].engine_tokens.mid
    assert after[1] is not None
    assert before[1] is not None
    assert after[1].engine_tokens == before[1].engine_tokens


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("extraArgs", ["--max-model-len=8192"], "extra-args"),
        ("extraArgs", ["--kv-transfer-config={}"], "extra-args"),
        ("extraArgs", ["--hf-token=hf_abcdefghijklmnopqrstuvwxyzABCDEF"], "extra-args"),
        ("extraArgs", ["--enable-prefix-cachin"], "engine-flags"),
        ("extraArgs", ["--enable-log-outputs"], "engine-flags"),
        ("extraArgs", ["--seed=1", "--seed=2"], "engine-flags"),
        ("extraEnv", {"VLLM_PORT": "1"}, "extra-env"),
        ("extraEnv", {"LD_LIBRARY_PATH": "/x"}, "efa-env"),
    ],
)
def test_rules_look_at_the_extras_of_a_role(key: str, value: Any, rule: str) -> None:
    """What is refused in a model's extras is refused in a role's, at its place there."""
    (finding,) = found(rule, decode=role(**{key: value}))
    assert finding.path.startswith(f"models[0].decode.{key}")


def test_a_flag_that_needs_another_finds_it_at_the_model() -> None:
    """--enable-log-outputs of a role stands beside the flag that the model names."""
    beside = {"extraArgs": ["--enable-log-requests"]}
    assert not found("engine-flags", **beside, decode=role(extraArgs=["--enable-log-outputs"]))
    (missing,) = found("engine-flags", extraArgs=["--enable-log-outputs"], decode=role(extraArgs=["--enable-log-requests"]))
    assert "--enable-log-requests" in missing.message


SHARED = [
    (["--attention-backend=FLASHINFER"], {}, "warning"),
    (["--disable-hybrid-kv-cache-manager"], {}, "error"),
    (['--hf-overrides={"num_hidden_layers":10}'], {}, "warning"),
    (["--kv-cache-dtype-skip-layers=0"], {}, "error"),
    (["--chat-template=/weights/t.jinja"], {}, "warning"),
    ([], {"VLLM_KV_CACHE_LAYOUT": "NHD"}, "warning"),
]


@pytest.mark.parametrize(("args", "env", "level"), SHARED)
def test_what_nixl_compares_is_not_of_one_role(args: list[str], env: dict[str, str], level: str) -> None:
    """On one role alone it is an error where the other cannot do the same by itself, else a warning; on the model, or on both, it is neither."""
    one = {"extraArgs": args, "extraEnv": env}
    (finding,) = found("pd-alike", decode=role(**one))
    assert finding.level.value == level
    assert finding.path.startswith("models[0].decode.extra")
    assert not found("pd-alike", decode=role(**one), prefill=role(**one))
    assert not found("pd-alike", **one)


def test_two_values_of_what_nixl_compares_are_an_error() -> None:
    """Each says what the other does not do, so every request fails."""
    values = {name: role(extraArgs=[f"--attention-backend={b}"]) for name, b in (("prefill", "FLASHINFER"), ("decode", "FLASH_ATTN"))}
    (finding,) = found("pd-alike", **values)
    assert finding.level.value == "error"
    (of_model,) = found("pd-alike", extraArgs=["--attention-backend=FLASHINFER"], decode=values["decode"])
    assert (of_model.path, of_model.level.value) == ("models[0].decode.extraArgs[0]", "error")


@pytest.mark.parametrize("flag", ["--no-enable-prefix-caching", "--enforce-eager", "--no-disable-hybrid-kv-cache-manager", "--max-log-len=10"])
def test_what_the_other_role_need_not_know_may_differ(flag: str) -> None:
    """Flags that pair by nothing are free on each role."""
    assert not found("pd-alike", decode=role(extraArgs=[flag]))


def test_server_alone_is_compared_with_nobody() -> None:
    """One role has no other."""
    data = environment(aggregated(server=role(extraArgs=["--attention-backend=FLASHINFER"])))
    assert not [f for f in check(data).findings if f.id == "pd-alike"]


def test_identity_follows_what_roles_must_share() -> None:
    """A flag of both roles that NIXL compares makes another pair; one that it does not compare rolls its role alone."""
    plain = identity(layout(environment(model())))
    both = role(extraArgs=["--attention-backend=FLASHINFER"])
    assert identity(layout(environment(model(prefill=both, decode=both)))) != plain
    assert identity(layout(environment(model(decode=role(extraArgs=["--enforce-eager"]))))) == plain
