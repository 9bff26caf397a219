"""Rules about Kubernetes objects, whoever wrote them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from budgets import examples
from disagg_serving.errors import Level
from disagg_serving.manifests.bundle import build_all
from disagg_serving.rules import Stage, check_objects, rules
from disagg_serving.rules.declared import Declared
from disagg_serving.rules.evaluation import evaluate_file
from disagg_serving.spec.stack_file import find_project
from factories import SHIPPED, STACKS, environment, layout
from hypothesis import given, settings
from hypothesis import strategies as st

COMPUTED = "<computed>"
OBJECTS = [Declared(f"{o['kind']} {o['metadata']['name']}", o) for o in build_all(layout(environment()))]
LWS = "LeaderWorkerSet m-decode"
CONTAINER = "spec.leaderWorkerTemplate.workerTemplate.spec.containers.0"


def changed(place: str, value: Any, name: str = LWS) -> list[Declared]:
    """The objects of an environment with one value changed; None removes it."""
    objects = [Declared(o.path, deepcopy(dict(o.manifest))) for o in OBJECTS]
    data: Any = next(o.manifest for o in objects if o.path == name)
    *way, last = [int(k) if k.isdecimal() else k.replace("|", ".") for k in place.split(".")]
    for key in way:
        data = data[key]
    if value is None:
        del data[last]
    else:
        data[last] = value
    return objects


CASES = {
    "request without limit": ("object-limits", f"{CONTAINER}.resources", {"requests": {"nvidia.com/gpu": 4}}, "asks for 4 nvidia.com/gpu"),
    "unequal limit": ("object-limits", f"{CONTAINER}.resources.limits.nvidia|com/gpu", 1, "with a limit of 1"),
    "no toleration": ("object-tolerations", "spec.leaderWorkerTemplate.workerTemplate.spec.tolerations", [], "lacks the taint disagg-serving/role"),
    "wrong value": (
        "object-tolerations",
        "spec.leaderWorkerTemplate.workerTemplate.spec.tolerations",
        [{"key": "nvidia.com/gpu", "operator": "Exists"}, {"key": "disagg-serving/role", "value": "prefill"}],
        "lacks the taint disagg-serving/role=decode",
    ),
    "too many GPUs": ("object-node-size", f"{CONTAINER}.resources.limits.nvidia|com/gpu", 16, "ask for 16 nvidia.com/gpu, more than p5.48xlarge"),
    "too many devices": ("object-node-size", f"{CONTAINER}.resources.limits.vpc|amazonaws|com/efa", 33, "ask for 33 vpc.amazonaws.com/efa"),
    "no tag": ("object-image", f"{CONTAINER}.image", "registry:5000/vllm", "floats"),
    "latest": ("object-image", f"{CONTAINER}.image", "vllm/vllm-openai:latest", "floats"),
    "token in a variable": ("object-secrets", f"{CONTAINER}.env", [{"name": "HF_TOKEN", "value": "abc"}], "HF_TOKEN holds a secret as text"),
    "token in arguments": ("object-secrets", f"{CONTAINER}.args.0", "--x=$(HF_TOKEN)", "puts a secret on the command line"),
    "privileged": ("object-privileged", f"{CONTAINER}.securityContext", {"privileged": True}, "opens the node"),
    "host network": ("object-privileged", "spec.leaderWorkerTemplate.workerTemplate.spec.hostNetwork", True, "opens the node"),
    "may be moved": ("object-disruption", "spec.leaderWorkerTemplate.workerTemplate.metadata.annotations", {}, "lets Karpenter move the pods"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_faulty_objects(case: tuple[str, str, Any, str]) -> None:
    """Each fault is found by its rule, at the object and place where it stands."""
    rule, place, value, words = case
    found = [f for f in check_objects(changed(place, value)) if f.id == rule]
    assert found
    assert all(f.path.startswith(f"{LWS}: spec.leaderWorkerTemplate.workerTemplate.") for f in found)
    assert words in found[0].sentence()


@pytest.mark.parametrize("stack", STACKS)
def test_generated_objects_are_clean(stack: str) -> None:
    """What the project itself generates passes its rules about objects."""
    project = find_project(SHIPPED)
    made = build_all(evaluate_file(project.stack_file(stack), project.root).require_layout())
    assert check_objects([Declared(o["metadata"]["name"], o) for o in made]) == []


def test_pods_elsewhere_are_left_alone() -> None:
    """Pods without GPUs, and pods that select nodes of nobody's pools, are not judged by pools."""
    pod = {"kind": "Pod", "spec": {"containers": [{"image": "busybox:1.36", "resources": {}}], "hostNetwork": True}}
    assert check_objects([*OBJECTS, Declared("Pod a", pod)]) == []
    other = {
        "kind": "Deployment",
        "spec": {
            "template": {
                "spec": {
                    "nodeSelector": {"team": "x"},
                    "containers": [{"image": "a:1", "resources": {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}}],
                }
            }
        },
    }
    assert check_objects([*OBJECTS, Declared("Deployment b", other)]) == []


def places(data: Any, way: tuple[str, ...] = ()) -> list[str]:
    """Every place in an object."""
    items = list(data.items()) if isinstance(data, dict) else list(enumerate(data)) if isinstance(data, list) else []
    below = [p for key, value in items for p in places(value, (*way, str(key).replace(".", "|")))]
    return [".".join(way), *below] if way else below


@given(st.sampled_from([p for p in places(next(o.manifest for o in OBJECTS if o.path == LWS)) if not p.startswith(("kind", "apiVersion"))]))
@settings(max_examples=examples(300))
def test_unknown_values_are_no_faults(place: str) -> None:
    """Whatever only the deployment knows, no rule stumbles over it or takes it for a fault."""
    assert check_objects(changed(place, COMPUTED)) == []


def test_levels() -> None:
    """Objects that cannot work are errors."""
    assert {r.level for r in rules() if r.stage is Stage.OBJECTS} == {Level.ERROR, Level.WARNING}
