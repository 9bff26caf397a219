"""A large environment and the places of all its texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from disagg_serving.rules import rules
from factories import aggregated, environment, model

WHOLE = environment(
    model(
        name="split",
        extraArgs=["--seed=1"],
        extraEnv={"FOO": "bar"},
        weights={"tokenKey": "hfToken", "revision": "0123456789abcdef0123456789abcdef01234567"},
        gateway={"apiKeySecret": "apiKey"},
        workload={"inputTokens": 100, "outputTokens": 100},
    ),
    aggregated(name="other", repository="acme/other", servedModelName="other"),
    imageSources={"docker.io": "mirror.example"},
    accept={rules()[0].id: "for now"},
    lws={"chart": "oci://charts.example/lws"},
    nodePools={"tags": {"team": "serving"}, "placementGroup": "near"},
    catalogDirs=["catalog"],
    existingCluster={"kubeconfig": "./kubeconfig", "context": "here", "nodeRole": "gpu", "securityGroupIds": ["sg-0123456789abcdef0"]},
)


def leaves(value: Any, steps: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The places of all texts."""
    for key, one in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(one, (dict, list)):
            yield from leaves(one, (*steps, key))
        elif isinstance(one, str):
            yield (*steps, key)


PLACES = [*leaves(WHOLE)]
