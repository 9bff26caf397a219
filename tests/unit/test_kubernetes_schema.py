from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import kubernetes_validate
import pytest
from disagg_serving.manifests.bundle import build_all
from disagg_serving.rules.evaluation import evaluate_file
from disagg_serving.spec.stack_file import find_project
from factories import SHIPPED, STACKS, aggregated, environment, existing_cluster, layout, model, role
from jsonschema import Draft202012Validator, ValidationError

VERSION = "1.36"
CORE = {
    "v1": {"ConfigMap", "Namespace", "Service", "ServiceAccount", "Secret"},
    "batch/v1": {"Job"},
    "networking.k8s.io/v1": {"NetworkPolicy"},
    "policy/v1": {"PodDisruptionBudget"},
    "scheduling.k8s.io/v1": {"PriorityClass"},
}
RESERVED = {"type": "reserved", "reservationIds": ["cr-0123456789abcdef0", "cr-0123456789abcdef1"], "nodes": 4}

ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "token": environment(model(weights={"tokenKey": "hfToken", "revision": "0123456789abcdef0123456789abcdef01234567"})),
    "reserved groups": environment(
        aggregated(model="glm-5-fp8", waitForReadySeconds=900, server=role(tensorParallel=8, pipelineParallel=2, replicas=2, capacity=RESERVED)),
        nodePools={"placementGroup": "gpus", "tags": {"team": "ml"}, "maintenanceWindow": {"day": "SUN", "startUtc": "23:30", "hours": 167}},
    ),
    "two models": environment(
        model(name="a", extraEnv={"VLLM_LOGGING_LEVEL": "DEBUG"}, extraArgs=["--enable-prefix-caching"]),
        aggregated(name="b", model="gpt-oss-120b", server=role(cpu=1.5, memoryGiB=99, shmGiB=7, capacity={"type": "spot"})),
    ),
    "cluster without Auto Mode": existing_cluster(
        model(
            prefill=role(nodeSelector={"pool": "p"}, tolerations=[{"key": "gpu"}]),
            decode=role(nodeSelector={"pool": "d"}, tolerations=[{"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoExecute"}]),
        ),
        autoMode=False,
    ),
    "every type": environment(
        *(
            aggregated(name=f"m{i}", model="qwen3-32b", maxModelLen=4096, server=role(instanceType=t, tensorParallel=1))
            for i, t in enumerate(("p5.4xlarge", "p5e.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge", "p6-b300.48xlarge"))
        )
    ),
    "public endpoint": environment(
        model(
            gateway={
                "public": True,
                "sourceRanges": ["203.0.113.0/24"],
                "certificateArn": "arn:aws:acm:us-east-1:123456789012:certificate/a",
                "apiKeySecret": "apiKey",
                "dns": {"zoneId": "Z123", "name": "m.example.com"},
            }
        ),
    ),
    "weights on the node": environment(model(weights={"cache": "node"}), networkPolicy={"weightsCidrs": ["198.51.100.0/24"]}),
    "no gateway, no policies": environment(model(gateway={"enabled": False}), networkPolicy={"enabled": False}),
    "controller that exists": environment(model(), lws={"install": "existing"}),
}
CASES = [*STACKS, *ENVIRONMENTS]

NAME = {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", "maxLength": 253}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
LABELS = {"type": "object", "additionalProperties": {"type": "string", "maxLength": 63, "pattern": r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"}}
DURATION = {"type": "string", "pattern": r"^([0-9]+(s|m|h))+$|^Never$"}


def strict(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """Schema of a mapping that has the required keys, may have the optional ones, and no others."""
    return {"type": "object", "properties": {**required, **optional}, "required": list(required), "additionalProperties": False}


def kind(api_version: str, name: str, spec: dict[str, Any], *, namespaced: bool) -> dict[str, Any]:
    """Schema of an object with metadata and spec."""
    metadata = strict({"name": NAME, **({"namespace": NAME} if namespaced else {})}, labels=LABELS, annotations=TEXTS)
    return strict({"apiVersion": {"const": api_version}, "kind": {"const": name}, "metadata": metadata, "spec": spec})


def many(items: dict[str, Any], least: int = 0, most: int = 100) -> dict[str, Any]:
    """Schema of a list."""
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


POD_TEMPLATE = strict({"metadata": strict({"labels": LABELS, "annotations": TEXTS}), "spec": {"type": "object"}})
ROLLOUT = strict(
    {"type": {"const": "RollingUpdate"}},
    rollingUpdateConfiguration=strict(
        {}, partition={"type": "integer", "minimum": 0}, maxUnavailable={"type": ["integer", "string"]}, maxSurge={"type": ["integer", "string"]}
    ),
)
LEADER_WORKER_SET = kind(
    "leaderworkerset.x-k8s.io/v1",
    "LeaderWorkerSet",
    strict(
        {
            "leaderWorkerTemplate": strict(
                {"workerTemplate": POD_TEMPLATE},
                leaderTemplate=POD_TEMPLATE,
                size={"type": "integer", "minimum": 1},
                restartPolicy={"enum": ["RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"]},
                subGroupPolicy={"type": "object"},
            )
        },
        replicas={"type": "integer", "minimum": 0},
        rolloutStrategy=ROLLOUT,
        startupPolicy={"enum": ["LeaderCreated", "LeaderReady"]},
        networkConfig=strict({"subdomainPolicy": {"enum": ["Shared", "UniquePerReplica"]}}),
    ),
    namespaced=True,
)
REQUIREMENT = strict(
    {
        "key": {"type": "string", "maxLength": 316},
        "operator": {"enum": ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]},
        "values": many({"type": "string", "minLength": 1, "maxLength": 63}, least=1),
    }
)
BUDGET = strict(
    {"nodes": {"type": "string", "pattern": r"^((100|[0-9]{1,2})%|[0-9]+)$"}},
    reasons=many({"enum": ["Underutilized", "Empty", "Drifted"]}, least=1, most=3),
    schedule={"type": "string", "pattern": r"^[0-5]?\d ([01]?\d|2[0-3]) \* \* [0-6]$"},
    duration={"type": "string", "pattern": r"^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$"},
) | {"dependentRequired": {"schedule": ["duration"], "duration": ["schedule"]}}
NODE_POOL = kind(
    "karpenter.sh/v1",
    "NodePool",
    strict(
        {
            "template": strict(
                {
                    "metadata": strict({"labels": LABELS}, annotations=TEXTS),
                    "spec": strict(
                        {
                            "nodeClassRef": strict({"group": {"const": "eks.amazonaws.com"}, "kind": {"const": "NodeClass"}, "name": NAME}),
                            "requirements": many(REQUIREMENT, least=1),
                        },
                        taints=many(
                            strict({"key": {"type": "string"}, "effect": {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]}}, value=NAME)
                        ),
                        expireAfter=DURATION,
                        terminationGracePeriod=DURATION,
                    ),
                }
            ),
            "disruption": strict(
                {"consolidationPolicy": {"enum": ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"]}, "consolidateAfter": DURATION},
                budgets=many(BUDGET, most=50),
            ),
        },
        limits={"type": "object", "additionalProperties": {"type": "string", "pattern": r"^\d+$"}},
        weight={"type": "integer", "minimum": 1, "maximum": 100},
    ),
    namespaced=False,
)
TERM = {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": False}
BY_ID_OR_TAGS = {**TERM, "properties": {"id": {"type": "string", "minLength": 1}, "tags": TEXTS}}
INTERFACE = strict(
    {
        "networkCardIndex": {"type": "integer", "minimum": 0},
        "deviceIndex": {"type": "integer", "minimum": 0},
        "interfaceType": {"enum": ["interface", "efa-only"]},
    },
    secondaryIPv4PrefixCount={"type": "integer", "minimum": 1},
) | {"if": {"properties": {"interfaceType": {"const": "efa-only"}}}, "then": {"properties": {"secondaryIPv4PrefixCount": False}}}
NODE_CLASS = kind(
    "eks.amazonaws.com/v1",
    "NodeClass",
    strict(
        {
            "role": {"type": "string", "minLength": 1, "maxLength": 64},
            "subnetSelectorTerms": many(BY_ID_OR_TAGS, least=1),
            "securityGroupSelectorTerms": many(BY_ID_OR_TAGS, least=1),
        },
        ephemeralStorage=strict({"size": {"type": "string", "pattern": r"^\d{1,5}Gi$"}}),
        advancedNetworking=strict({"networkInterfaces": many(INTERFACE, least=1)}),
        capacityReservationSelectorTerms=many({**TERM, "properties": {"id": {"type": "string", "pattern": "^cr-[0-9a-f]{8,17}$"}}}, least=1),
        placementGroupSelector={**TERM, "properties": {"name": {"type": "string", "minLength": 1}, "id": {"type": "string"}}},
        networkPolicy={"enum": ["DefaultAllow", "DefaultDeny"]},
        tags=TEXTS,
    ),
    namespaced=False,
)
STRUCTURES = {"LeaderWorkerSet": LEADER_WORKER_SET, "NodePool": NODE_POOL, "NodeClass": NODE_CLASS}


def objects_of(case: str) -> list[dict[str, Any]]:
    """What a shipped stack or a made-up environment renders."""
    if case in ENVIRONMENTS:
        return build_all(layout(ENVIRONMENTS[case]))
    project = find_project(SHIPPED)
    return build_all(evaluate_file(project.stack_file(case), project.root).require_layout())


def pods(objects: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The pod templates of all LeaderWorkerSets, each as a Pod."""
    for o in objects:
        if o["kind"] == "LeaderWorkerSet":
            for key in ("leaderTemplate", "workerTemplate"):
                template = o["spec"]["leaderWorkerTemplate"].get(key)
                if template is not None:
                    metadata = {**template["metadata"], "name": o["metadata"]["name"], "namespace": o["metadata"]["namespace"]}
                    yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


@pytest.mark.parametrize("case", CASES)
def test_core_objects_are_valid_kubernetes(case: str) -> None:
    """The API server of the default cluster version takes every core object, with no field it does not know."""
    core = [o for o in objects_of(case) if o["kind"] in CORE.get(o["apiVersion"], ())]
    assert core
    for o in core:
        assert kubernetes_validate.validate(o, VERSION, strict=True) == VERSION


@pytest.mark.parametrize("case", CASES)
def test_pod_templates_are_valid_kubernetes(case: str) -> None:
    """The pods inside LeaderWorkerSets are valid too: the set's own schema would only find that at run time."""
    found = list(pods(objects_of(case)))
    assert found
    for pod in found:
        assert kubernetes_validate.validate(pod, VERSION, strict=True) == VERSION


@pytest.mark.parametrize("case", CASES)
def test_custom_objects_have_their_documented_form(case: str) -> None:
    """LeaderWorkerSets, NodePools and NodeClasses have the required fields and only documented ones, of the right types."""
    custom = [o for o in objects_of(case) if o["kind"] in STRUCTURES]
    assert custom
    for o in custom:
        Draft202012Validator(STRUCTURES[o["kind"]]).validate(o)


@pytest.mark.parametrize("case", CASES)
def test_no_object_escapes_the_schemas(case: str) -> None:
    """Every rendered kind is validated by one of the tests above, and no object is made twice."""
    objects = objects_of(case)
    assert [o["kind"] for o in objects if o["kind"] not in CORE.get(o["apiVersion"], ()) and o["kind"] not in STRUCTURES] == []
    identities = [(o["apiVersion"], o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects]
    assert len(set(identities)) == len(identities)


def test_every_kind_is_rendered_somewhere() -> None:
    """The environments above together render every kind that the schemas know."""
    seen = {o["kind"] for case in CASES for o in objects_of(case)}
    assert seen == {k for kinds in CORE.values() for k in kinds} | set(STRUCTURES)


def test_strict_validation_refuses_unknown_fields() -> None:
    """The validator would notice a misspelt field; else the tests above would prove little."""
    pod = deepcopy(next(pods(objects_of("prod"))))
    pod["spec"]["containers"][0]["resource"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod, VERSION, strict=True)


@pytest.mark.parametrize("name", sorted(STRUCTURES))
def test_structures_refuse_unknown_and_missing_fields(name: str) -> None:
    """The schemas written here refuse a misspelt key of the spec and a missing required one."""
    good = next(o for o in objects_of("glm5") if o["kind"] == name)
    validator = Draft202012Validator(STRUCTURES[name])
    extra, lacking = deepcopy(good), deepcopy(good)
    extra["spec"]["replica"] = 1
    lacking["spec"].pop({"LeaderWorkerSet": "leaderWorkerTemplate", "NodePool": "template", "NodeClass": "subnetSelectorTerms"}[name])
    for bad in (extra, lacking):
        with pytest.raises(ValidationError):
            validator.validate(bad)
