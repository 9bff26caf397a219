"""The rights that docs/verify.md documents follow from what `disagg verify` reads."""

from __future__ import annotations

from typing import Any, NamedTuple

import yaml
from disagg_serving.planning.shapes import Layout
from disagg_serving.verify.connection import path_of
from disagg_serving.verify.view import lists_to_read, objects_to_read
from factories import ROOT, aggregated, environment, layout, model, role

TEXT = (ROOT / "docs/verify.md").read_text(encoding="utf-8")
ROLE: dict[str, Any] = yaml.safe_load(TEXT.split("```yaml\n")[1].split("```")[0])


class Right(NamedTuple):
    """What somebody may do; the namespace is empty for what is in none."""

    group: str
    resource: str
    verb: str
    namespace: str


def everything_on() -> Layout:
    """An environment that makes every kind of object."""
    scaled = role(autoscaling={"maxReplicaCount": 3})
    weights = {"s3": {"bucket": "acme"}, "mirror": True, "revision": "0123abcdef", "tokenKey": "hfToken"}
    return layout(
        environment(
            model(decode=scaled, weights=weights, gateway={"apiKeySecret": "apiKey"}),
            aggregated(name="b"),
            autoscaling={"prometheusAddress": "http://prometheus.monitoring.svc:9090"},
            observability={"podMonitors": True, "dashboards": True, "alerts": True, "dcgmExporter": "chart"},
        )
    )


def needed(made: Layout) -> set[Right]:
    """Rights for all that is read, by the addresses at which the API server has it."""
    refs = [(ref, "get") for ref in objects_to_read(made)] + [(ref, "list") for ref in lists_to_read(made)]
    found = set()
    for ref, verb in refs:
        group, _, _ = ref.api_version.rpartition("/")
        place = path_of(ref).split("/")
        found.add(Right(group, place[-2] if verb == "get" else place[-1], verb, ref.namespace))
    return found


def test_the_documented_role_is_what_is_read() -> None:
    """Everything that is read with everything on is in the documented ClusterRole, and it grants nothing else but what pods are asked with."""
    documented = {(g, r, v) for rule in ROLE["rules"] for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}
    asked = {("", "pods/log", "get"), ("", "pods/proxy", "get"), ("", "pods/portforward", "get"), ("", "pods/portforward", "create")}
    assert documented == {right[:3] for right in needed(everything_on())} | asked


def test_the_documented_namespaces_of_config_maps_are_those_that_are_read() -> None:
    """Whoever gives Roles instead reads from the text where ConfigMaps are read: the models' namespaces and the two that are named."""
    found = needed(everything_on())
    models = {r.namespace for r in found if r.resource == "leaderworkersets"}
    others = {r.namespace for r in found if r.resource == "configmaps"} - models
    sentence = TEXT.split("`configmaps` are read by name")[1].split("\n\n")[0]
    assert others == {"kube-system", "dcgm-exporter"}
    assert [space for space in others if f"`{space}`" not in sentence] == []
