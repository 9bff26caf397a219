"""Pods beside the engines, and pods whose credentials come late."""

from __future__ import annotations

from typing import Any

import pytest
from disagg_serving.manifests.bundle import build_all
from disagg_serving.verify.pods import _credentials
from disagg_serving.verify.view import Engine
from factories import aggregated, environment, layout, role

STREAMED = {"revision": "0" * 40, "s3": {"bucket": "b-123"}}


def of_kind(kind: str, **overrides: Any) -> dict[str, Any]:
    """The only object of a kind of one aggregated model."""
    (found,) = (o for o in build_all(layout(environment(aggregated(**overrides)))) if o["kind"] == kind)
    return found


def test_mirror_takes_the_hubs_variables() -> None:
    """It is the only pod that downloads, by the same client, so what makes its client work reaches it; other variables do not."""
    said = {"HF_HUB_DISABLE_XET": "1", "HF_XET_HIGH_PERFORMANCE": "1", "HTTPS_PROXY": "http://proxy:3128", "NCCL_DEBUG": "WARN"}
    job = of_kind("Job", weights={**STREAMED, "mirror": True}, extraEnv=said)
    env = {e["name"]: e.get("value") for e in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert {name: env.get(name) for name in said} == {**said, "NCCL_DEBUG": None}


def test_mirror_has_a_size() -> None:
    """By default it holds what hf_xet buffers, and a person may give it another."""
    for fields, cpu, memory in (({}, "2", "16Gi"), ({"mirrorCpu": 0.5, "mirrorMemoryGiB": 32}, "0.5", "32Gi")):
        job = of_kind("Job", weights={**STREAMED, "mirror": True, **fields})
        asked = job["spec"]["template"]["spec"]["containers"][0]["resources"]
        assert (asked["requests"]["cpu"], asked["requests"]["memory"], asked["limits"]) == (cpu, memory, {"memory": memory})


def test_pods_that_stream_weights_are_recreated() -> None:
    """Credentials are given at admission, so a restart in place would fail for ever; a pod with a download of its own keeps it."""
    policy = ("spec", "leaderWorkerTemplate", "restartPolicy")
    streamed, downloaded = (of_kind("LeaderWorkerSet", weights=weights) for weights in (STREAMED, {}))
    assert [one[policy[0]][policy[1]][policy[2]] for one in (streamed, downloaded)] == ["RecreateGroupAfterStart", "None"]
    job = of_kind("Job", weights={**STREAMED, "mirror": True})["spec"]
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    assert job["backoffLimit"] > 0


@pytest.mark.parametrize(
    ("variable", "made", "status"),
    [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", True, "ok"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", False, "ok"),
        ("OTHER", True, "failed"),
        ("OTHER", False, "unknown"),
    ],
)
def test_verify_names_a_pod_without_credentials(variable: str, made: bool, status: str) -> None:  # noqa: FBT001 (a case of the table)
    """Such a pod has to be deleted; where nobody made an association, nodes may have rights of their own."""
    (group,) = layout(environment(aggregated(server=role(), weights=STREAMED))).groups
    pod = {"metadata": {"name": "m-0"}, "spec": {"containers": [{"name": "vllm", "env": [{"name": variable, "value": "x"}]}]}}
    point = _credentials(Engine(group, 0, ("m-0",)), pod, made=made)
    assert (point.id, str(point.status), point.subject) == ("pod-credentials", status, "m/m-0")
    assert ("delete the pod" in point.fix) == (status == "failed")
