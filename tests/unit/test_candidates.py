"""A candidate next to the pair that serves: what it takes from the model, how the pods of the two are told apart, and where they have room."""

from __future__ import annotations

import re
import subprocess
import sys
from copy import deepcopy
from typing import Any

import pytest
from disagg_serving import labels
from disagg_serving.errors import Finding
from disagg_serving.forecast.cost import cost_of
from disagg_serving.manifests.bundle import build_all
from disagg_serving.manifests.gateway import router_values
from disagg_serving.planning.pairs import identity_of
from disagg_serving.planning.placement import place
from disagg_serving.planning.shapes import Layout
from disagg_serving.rules.checks.rollout import RESERVE
from factories import RESERVED, ROOT, aggregated, check, environment, existing_cluster, layout, model, role

DIGEST = "sha256:" + "0" * 64
OTHER = {"generation": "b", "engine": "vllm-0.27.1-dlc"}


def stages(candidate: dict[str, Any], base: dict[str, Any] | None = None) -> tuple[Layout, Layout, Layout]:
    """An environment with one pair, with both, and after the activation."""
    base = base or model()
    found = (base, {**base, "candidate": candidate}, {**base, "candidate": {**candidate, "activate": True}})
    before, both, after = (layout(environment(one)) for one in found)
    return before, both, after


def objects(of: Layout, kind: str) -> dict[str, dict[str, Any]]:
    """Rendered objects of a kind, by name."""
    return {o["metadata"]["name"]: o for o in build_all(of) if o["kind"] == kind}


def template_labels(of: Layout) -> dict[str, dict[str, str]]:
    """Labels of the leaders of each set, with those that LWS adds."""
    found = {}
    for name, one in objects(of, "LeaderWorkerSet").items():
        whole = one["spec"]["leaderWorkerTemplate"]
        template = whole.get("leaderTemplate") or whole["workerTemplate"]
        found[name] = {**template["metadata"]["labels"], labels.LWS_NAME: name, labels.LWS_WORKER_INDEX: labels.LEADER}
    return found


def selected(selector: dict[str, str], of: Layout) -> set[str]:
    """Sets whose leaders a selector matches."""
    return {name for name, given in template_labels(of).items() if selector.items() <= given.items()}


def router_selects(of: Layout) -> set[str]:
    """Sets whose leaders the router's pod finds."""
    (served,) = of.served
    return selected(router_values(served, of.groups_of(served))["router"]["modelServers"]["matchLabels"], of)


def test_the_three_steps() -> None:
    """The candidate stands beside the pair, which keeps all requests; the activation sends them to it and leaves nothing of the other."""
    before, both, after = stages(OTHER)
    old, new = {"m-prefill", "m-decode"}, {"m-b-prefill", "m-b-decode"}
    assert set(objects(both, "LeaderWorkerSet")) == set(objects(both, "PodDisruptionBudget")) - {"lws-controller"} == old | new
    assert router_selects(before) == router_selects(both) == old
    assert router_selects(after) == set(objects(after, "LeaderWorkerSet")) == new
    for stage, serving in ((before, "m"), (both, "m"), (after, "m-b")):
        for side in ("prefill", "decode"):
            service = objects(stage, "Service")[f"m-{side}-api"]
            assert selected(service["spec"]["selector"], stage) == {f"{serving}-{side}"}
    tried = objects(both, "Service")["m-b-decode-api"]
    assert selected(tried["spec"]["selector"], both) == {"m-b-decode"}
    assert "m-b-decode-api" not in objects(after, "Service")


def test_the_pair_that_serves_is_not_touched_by_a_candidate() -> None:
    """All that was rendered before is rendered alike beside a candidate, whatever it changes."""
    before, both, _ = stages(
        {**OTHER, "maxModelLen": 4096, "prefill": role(tensorParallel=4)}, model(prefill=role(replicas=4), decode=role(replicas=4))
    )
    beside = {(o["kind"], o["metadata"]["name"]): o for o in build_all(both)}
    changed = [o["metadata"]["name"] for o in build_all(before) if beside[o["kind"], o["metadata"]["name"]] != o]
    assert sorted(changed) == ["decode-p5-48xlarge", "prefill-p5-48xlarge"]
    for name in changed:
        one, other = objects(before, "NodePool")[name], objects(both, "NodePool")[name]
        assert {**one["spec"], "limits": None} == {**other["spec"], "limits": None}, "only its bound grows"


@pytest.mark.parametrize(
    "change",
    [
        OTHER,
        {"generation": "b", "maxModelLen": 4096, "weights": {"revision": "fedcba9876"}},
        {"generation": "b", "imageDigest": DIGEST, "extraArgs": ["--seed=1"], "extraEnv": {"A": "b"}},
        {"generation": "b", "model": "qwen3-32b", "decode": role(tensorParallel=4, replicas=2)},
        {"generation": "b", "kvCacheDtype": "fp8", "dtype": "bfloat16", "blockSize": 64, "gpuMemoryUtilization": 0.8},
    ],
)
def test_tidying_up_changes_nothing(change: dict[str, Any]) -> None:
    """With the candidate's fields moved into the model and its generation named there, every object is rendered as after the activation."""
    _, _, after = stages(change)
    moved = deepcopy(change)
    tidy = layout(environment(model(**moved)))
    assert build_all(tidy) == build_all(after)
    assert [router_values(s, tidy.groups_of(s)) for s in tidy.served] == [router_values(s, after.groups_of(s)) for s in after.served]


def test_what_a_candidate_takes_from_the_model() -> None:
    """Settings go over; a digest does not go over to another image, nor a revision to another repository, nor measurements to other pods."""
    measured = {"measuredRates": [{"inputTokens": 8000, "tokensPerSecondPerGPU": 1000}]}
    base = model(imageDigest=DIGEST, weights={"revision": "0123abcdef"}, maxModelLen=8192, prefill=role(**measured))

    def following(**fields: Any) -> Any:
        (served,) = layout(environment({**base, "candidate": {"generation": "b", **fields}})).candidates
        return served.spec

    plain = following(extraArgs=["--seed=1"])
    assert (plain.image_digest, plain.weights.revision, plain.max_model_len) == (DIGEST, "0123abcdef", 8192)
    assert plain.prefill.measured_rates == []
    assert following(engine="vllm-0.27.1-dlc").image_digest is None
    assert following(model="qwen3-32b").weights.revision is None
    assert following(model="qwen3-32b", weights={"revision": "fedcba9876"}).weights.revision == "fedcba9876"


def test_null_turns_a_setting_off() -> None:
    """What may be absent is taken away by null; what always has a value keeps the model's."""
    fast = {"method": "ngram", "numSpeculativeTokens": 2}
    base = model(speculative=fast, candidate={"generation": "b", "speculative": None, "engine": None})
    (served,) = layout(environment(base)).candidates
    assert served.spec.speculative is None
    assert served.engine.id == "vllm-0.33.0-efa"


def test_a_candidate_may_change_the_mode() -> None:
    """A server in the candidate takes the place of prefill and decode, and the other way round."""
    _, _, after = stages({"generation": "b", "server": role(tensorParallel=4)})
    assert set(objects(after, "LeaderWorkerSet")) == router_selects(after) == {"m-b"}
    _, both, after = stages({"generation": "b", "prefill": role(), "decode": role()}, aggregated())
    assert set(objects(both, "LeaderWorkerSet")) == {"m", "m-b-prefill", "m-b-decode"}
    assert router_selects(both) == {"m"}
    assert router_selects(after) == {"m-b-prefill", "m-b-decode"}


def test_a_candidates_own_fault_is_not_hidden_by_the_models() -> None:
    """Another value of the candidate is another finding, also where the words are the same; one that it takes over is said once."""
    heads = "models[0]{}.decode.tensorParallel"
    bad = model(decode=role(tensorParallel=3))
    found = check(environment({**bad, "candidate": {**OTHER, "decode": role(tensorParallel=6)}})).findings
    assert {(f.path, f.value) for f in found if f.id == "tensor-parallel"} == {(heads.format(""), 3), (heads.format(".candidate"), 6)}
    taken = check(environment({**bad, "candidate": OTHER})).findings
    assert {f.path for f in taken if f.id == "tensor-parallel"} == {heads.format("")}


def test_findings_stand_where_they_can_be_repaired() -> None:
    """What is true of the model alike is said once; what only the candidate brings is said of it; what it cannot say is said of the model."""
    ids = [(f.id, f.path) for f in check(environment(model(candidate=OTHER))).findings]
    assert ("revision-unpinned", "models[0].weights.revision") in ids
    assert ("revision-unpinned", "models[0].candidate.weights.revision") not in ids
    assert ("engine-bugs", "models[0].candidate.engine") in ids

    plugin = {"routing": {"decode": [{"type": "queue-scorerr"}]}}
    activated = {**OTHER, "activate": True}
    errors = [f for f in check(environment(model(gateway=plugin, candidate=activated))).findings if f.level == "error"]
    assert [f.path for f in errors] == ["models[0].gateway.routing.decode[0].type"]


IN_COMMON: dict[str, dict[str, Any]] = {
    "engine": {"engine": "vllm-0.27.1-dlc"},
    "digest": {"imageDigest": DIGEST},
    "model": {"model": "qwen3-32b"},
    "repository": {"repository": "acme/llama"},
    "revision": {"weights": {"revision": "0123abcdef"}},
    "place of weights": {"weights": {"s3": {"bucket": "acme-weights"}}},
    "served name": {"servedModelName": "llama"},
    "dtype": {"dtype": "bfloat16"},
    "KV dtype": {"kvCacheDtype": "fp8"},
    "block size": {"blockSize": 64},
    "speculation": {"speculative": {"method": "ngram", "numSpeculativeTokens": 2}},
    "attention backend": {"extraArgs": ["--attention-backend=FLASHINFER"]},
    "a variable of vLLM": {"extraEnv": {"VLLM_KV_CACHE_LAYOUT": "HND"}},
    "GPU generation": {"prefill": role(instanceType="p6-b200.48xlarge"), "decode": role(instanceType="p6-b200.48xlarge")},
    "generation": {"generation": "b"},
}
EACH_FOR_ITSELF: dict[str, dict[str, Any]] = {
    "replicas": {"decode": role(replicas=3)},
    "batching": {"decode": role(maxNumSeqs=64, maxNumBatchedTokens=4096)},
    "tensor parallelism": {"decode": role(tensorParallel=4)},
    "resources": {"prefill": role(cpu=20, memoryGiB=300, shmGiB=30)},
    "memory share": {"gpuMemoryUtilization": 0.8},
    "length": {"maxModelLen": 4096},
    "draining": {"drainSeconds": 120},
    "logs": {"extraArgs": ["--enable-log-requests", "--uvicorn-log-level=debug"], "extraEnv": {"VLLM_LOGGING_LEVEL": "DEBUG"}},
    "type of one GPU generation": {"decode": role(instanceType="p5en.48xlarge")},
    "a mirror of images": {},
}


def identity(data: dict[str, Any], **of_environment: Any) -> str:
    """Identity of the one pair."""
    (found,) = {g.labels[labels.IDENTITY] for g in layout(environment(data, **of_environment)).groups}
    return found


@pytest.mark.parametrize("name", IN_COMMON)
def test_identity_changes_with_what_both_roles_share(name: str) -> None:
    """Whatever NIXL hashes, and what else one role would do wrong for the other, makes another identity."""
    assert identity(model(**IN_COMMON[name])) != identity(model())


@pytest.mark.parametrize("name", EACH_FOR_ITSELF)
def test_identity_stays_where_roles_may_differ(name: str) -> None:
    """What rolls in place keeps the identity, so that old and new pods serve together meanwhile."""
    sources = {"docker.io": "mirror.example.com/hub"} if name == "a mirror of images" else {}
    assert identity(model(**EACH_FOR_ITSELF[name]), imageSources=sources) == identity(model())


def test_guessed_tokens_may_differ() -> None:
    """The number of guessed tokens is not in NIXL's hash; the method is."""
    two, three = ({"speculative": {"method": "ngram", "numSpeculativeTokens": n}} for n in (2, 3))
    assert identity(model(**two)) == identity(model(**three))


def test_aggregated_engines_roll_in_place() -> None:
    """An engine that does both needs no peer alike, so its identity is that of its generation alone."""
    assert identity(aggregated(engine="vllm-0.27.1-dlc", dtype="bfloat16")) == identity(aggregated())
    assert identity(aggregated(generation="b")) != identity(aggregated())


def test_identity_is_a_label_value() -> None:
    """Short, and the same in every process."""
    groups = layout(environment(model())).groups
    assert re.fullmatch("[0-9a-f]{8}", identity_of(groups))
    program = "from factories import *; from disagg_serving import labels; print(layout(environment(model())).groups[0].labels[labels.IDENTITY])"
    printed = subprocess.run([sys.executable, "-c", program], cwd=ROOT / "tests", capture_output=True, text=True, check=True).stdout
    assert printed.strip() == identity_of(groups)


def test_names_do_not_depend_on_the_identity() -> None:
    """Objects keep their names, and so their URNs, when anything but the generation changes."""
    names = [(o["kind"], o["metadata"]["name"]) for o in build_all(layout(environment(model())))]
    for change in (*IN_COMMON.values(), *EACH_FOR_ITSELF.values()):
        if {"generation", "prefill", "decode"} & change.keys():
            continue
        assert [(o["kind"], o["metadata"]["name"]) for o in build_all(layout(environment(model(**change))))] == names


def test_both_pairs_are_placed_and_paid() -> None:
    """Placement and cost of a candidate's step are those of both pairs, in the pools that they share."""
    whole = aggregated(server=role(tensorParallel=8))
    before, both, after = stages({"generation": "b", "maxModelLen": 4096}, whole)
    assert [[n.pods for n in nodes] for _, _, nodes in place(both)] == [[["m-0"], ["m-b-0"]]]
    costs = [cost_of(stage).lines[0] for stage in (before, both, after)]
    assert [line.quantity for line in costs] == [1, 2, 1]
    assert [r.engine for r in cost_of(both).roles] == ["m server", "m b server"]


def step(data: dict[str, Any]) -> list[Finding]:
    """What the plan says about a step of a rollout."""
    return [f for f in check(data).findings if f.id == "rollout-step"]


def test_the_plan_says_what_a_step_does() -> None:
    """Without another revision to compare with, too: how many nodes more, that nothing is sent there, and what comes next."""
    (made,) = step(environment(aggregated(server=role(tensorParallel=8), candidate={"generation": "b", "maxModelLen": 4096})))
    assert (made.path, made.level) == ("models[0].candidate", "info")
    assert "makes m-b next to the pair that serves: 1 more p5.48xlarge; no request goes there yet" in made.message
    (sent,) = step(environment(model(candidate={**OTHER, "activate": True})))
    assert sent.path == "models[0].candidate.activate"
    assert "sends requests to m-b-prefill, m-b-decode once they are available" in sent.message
    assert "the router's pod restarts" in sent.message
    assert "move its fields and its generation into the model" in sent.fix
    selector = {"pool": "gpu"}
    foreign = existing_cluster(
        aggregated(server=role(nodeSelector=selector), candidate={"generation": "b", "maxModelLen": 4096}),
        autoMode=False,
    )
    (unknown,) = step(foreign)
    assert "on nodes whose number is not known here" in unknown.message


def test_a_generation_is_waited_for_and_nothing_else() -> None:
    """The sets of a generation that serves have to be available before anything selects them; a candidate loads while nobody waits."""
    before, both, after = stages(OTHER)

    def waits(of: Layout) -> dict[str, bool]:
        return {n: labels.WAIT_FOR in o["metadata"].get("annotations", {}) for n, o in objects(of, "LeaderWorkerSet").items()}

    assert not any(waits(before).values())
    assert not any(waits(both).values())
    assert waits(after) == {"m-b-prefill": True, "m-b-decode": True}
    seconds = objects(after, "LeaderWorkerSet")["m-b-decode"]["metadata"]["annotations"][labels.TIMEOUT_SECONDS]
    assert int(seconds) > 600


def refused(data: dict[str, Any]) -> list[Finding]:
    """Errors of an environment."""
    return [f for f in check(data).findings if f.level == "error"]


def reserved_twice(nodes: int, live: int, following: int) -> dict[str, Any]:
    """Whole-node engines on reserved nodes, and a candidate of them."""
    server = role(tensorParallel=8, capacity={**RESERVED, "nodes": nodes})
    candidate = {"generation": "b", "maxModelLen": 4096, "server": {**server, "replicas": following}}
    return environment(aggregated(server={**server, "replicas": live}, candidate=candidate))


def test_what_is_said_about_room_helps() -> None:
    """Both ways out, fewer engines and as many nodes as the line says, end the refusal; one node less than named does not."""
    (error,) = refused(reserved_twice(3, 2, 3))
    assert (error.id, error.path) == ("candidate-capacity", "models[0].candidate.server")
    assert "needs 5 nodes (40 GPUs) for both pairs, of which 2 serve, and 3 (24 GPUs) are reserved" in error.message
    assert error.fix == f"set candidate.server.replicas: 1, or {RESERVE}"
    assert refused(reserved_twice(3, 2, 1)) == refused(reserved_twice(5, 2, 3)) == []
    assert refused(reserved_twice(4, 2, 3))


def test_too_few_nodes_for_what_serves_are_its_own_fault() -> None:
    """Where not even the pair that serves has room, the candidate is not blamed."""
    assert {f.id for f in refused(reserved_twice(1, 2, 1))} == {"group-capacity"}


def test_a_candidate_left_behind_is_tidied_up_as_told() -> None:
    """The fix for a candidate whose fields have been moved already leads to the same objects and to no error."""
    left = model(engine="vllm-0.27.1-dlc", candidate={**OTHER, "activate": True})
    (error,) = refused(environment(left))
    assert error.fix == "set generation: b and remove it"
    tidy = model(engine="vllm-0.27.1-dlc", generation="b")
    assert build_all(layout(environment(tidy))) == build_all(layout(environment(model(candidate={**OTHER, "activate": True}))))


def test_a_candidate_of_its_own_pool_takes_no_room() -> None:
    """Another capacity source is another pool, with a bound of its own."""
    server = role(tensorParallel=8, capacity={**RESERVED, "nodes": 1})
    spot = role(tensorParallel=8, capacity={"type": "spot"})
    assert refused(environment(aggregated(server=server, candidate={"generation": "b", "server": spot}))) == []
