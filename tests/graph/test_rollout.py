"""The order of a rollout: what is made, switched and removed after what."""

from __future__ import annotations

from typing import Any

import pytest
from disagg_serving import labels
from disagg_serving.document.resource import Resource
from disagg_serving.recording.graph import Graph
from factories import environment, model
from recording import environment_graph, one

LWS = "kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet"
SERVICE = "kubernetes:core/v1:Service"
CHART = "kubernetes:helm.sh/v4:Chart"
JOB = "kubernetes:batch/v1:Job"
OTHER = {"generation": "b", "engine": "vllm-0.27.1-dlc"}


def graph(**candidate: Any) -> Graph:
    """The program with a candidate, or without one."""
    return environment_graph(environment(model(candidate={**OTHER, **candidate} if candidate else None)))


def called(found: Graph, kind: str, name: str) -> Resource:
    """A resource by the end of its name."""
    (resource,) = [r for r in found.of_type(kind) if r.name.endswith(name)]
    return resource


def test_a_candidate_adds_and_renames_nothing() -> None:
    """Every URN of before is there beside a candidate; what is new belongs to it."""
    before, both = graph(), graph(activate=False)
    assert set(before.resources) <= set(both.resources)
    added = sorted(both.resources[urn].name for urn in set(both.resources) - set(before.resources))
    sets = ["test-m/m-b-decode", "test-m/m-b-decode", "test-m/m-b-decode-api", "test-m/m-b-prefill", "test-m/m-b-prefill", "test-m/m-b-prefill-api"]
    assert added == sets


def test_the_activation_keeps_the_candidate_and_drops_the_other_pair() -> None:
    """The candidate's sets keep their URNs, Services and router theirs; the engine deletes what is left out after all updates."""
    both, after = graph(activate=False), graph(activate=True)
    gone = sorted(both.resources[urn].name for urn in set(both.resources) - set(after.resources))
    assert set(after.resources) <= set(both.resources)
    assert gone == [
        "test-m/m-b-decode-api",
        "test-m/m-b-prefill-api",
        "test-m/m-decode",
        "test-m/m-decode",
        "test-m/m-prefill",
        "test-m/m-prefill",
    ]


def test_requests_are_sent_after_the_sets_are_available() -> None:
    """Services and router require the sets, which `up` waits for, so a candidate that does not start leaves them as they are."""
    after = graph(activate=True)
    sets = after.of_type(LWS)
    assert all(labels.WAIT_FOR in s.inputs["metadata"]["annotations"] for s in sets)
    waiting = {s.urn for s in sets}
    for side in ("prefill", "decode"):
        assert waiting <= after.requires(called(after, SERVICE, f"m-{side}-api").urn)
    assert waiting <= after.requires(called(after, CHART, "-router").urn)


def test_what_serves_does_not_wait_for_a_candidate() -> None:
    """A candidate that never starts holds up neither the Services nor the sets of the pair that serves."""
    both = graph(activate=False)
    waiting = {r.urn for r in both.of_type(LWS) if "-b-" in r.name}
    assert len(waiting) == 2
    for resource in (called(both, SERVICE, "/m-decode-api"), called(both, LWS, "/m-decode"), called(both, LWS, "/m-prefill")):
        assert not waiting & both.requires(resource.urn)


@pytest.mark.parametrize("activate", [False, True])
def test_weights_of_a_candidate(activate: bool) -> None:  # noqa: FBT001
    """The mirror fills the candidate's folder beside the model's, and one role may read what the pairs that run read."""
    s3 = {"bucket": "acme-weights"}
    weights = {"revision": "0123abcdef", "mirror": True, "s3": s3}
    candidate = {"generation": "b", "model": "qwen3-32b", "weights": {"revision": "fedcba9876"}, "activate": activate}
    found = environment_graph(environment(model(weights=weights, maxModelLen=8192, candidate=candidate)))
    assert len(found.of_type(JOB)) == (1 if activate else 2)
    reads = one(found, "aws:iam/rolePolicy:RolePolicy", "test-m-weights-read").inputs["policy"]
    assert "Qwen/Qwen3-32B/*" in reads
    assert ("RedHatAI" in reads) is not activate
    jobs = {r.urn for r in found.of_type(JOB)}
    assert all(jobs <= found.requires(r.urn) for r in found.of_type(LWS))
