"""The component plugin: what its schema offers, and that it makes what the same components make in Python."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pulumi
import pytest
from disagg_serving import resources
from disagg_serving.errors import ProgramError
from disagg_serving.resources.plugin import COMPONENTS, Plugin
from pulumi.errors import InputPropertiesError
from recording import one, program_graph

MODEL: dict[str, Any] = {
    "name": "llama-70b",
    "model": "llama-3.3-70b-instruct-fp8",
    "maxModelLen": 32768.0,
    "prefill": {"instanceType": "p5.48xlarge", "replicas": 2.0, "tensorParallel": 4.0},
    "decode": {"instanceType": "p5.48xlarge", "replicas": 4.0, "tensorParallel": 2.0},
}
"""A model as the engine hands it over: camelCase keys, and every number a float."""
IDENTITY: dict[str, Any] = {
    "role": "r",
    "subnetTerms": [{"tags": {"disagg-serving/gpu-nodes-of": "own"}}],
    "securityGroupTerms": [{"id": "sg-1"}],
}
"""What a Cluster of the plugin gives to NodePools."""


@cache
def plugin() -> Plugin:
    """One plugin a test process: it reads the annotations of all components."""
    return Plugin()


def schema() -> dict[str, Any]:
    """What the plugin answers to GetSchema."""
    parsed: dict[str, Any] = json.loads(plugin().schema)
    return parsed


def snake(value: Any) -> Any:
    """A value with the keys that Python programs write."""
    if isinstance(value, dict):
        return {re.sub(r"[A-Z]", lambda m: f"_{m[0].lower()}", key): snake(inner) for key, inner in value.items()}
    return [snake(inner) for inner in value] if isinstance(value, list) else value


def test_every_component_is_offered() -> None:
    """What a Python program can import, programs in other languages can make."""
    exported = {name for name in resources.__all__ if isinstance(found := getattr(resources, name), type) and issubclass(found, pulumi.Resource)}
    assert {c.__name__ for c in COMPONENTS} == exported
    assert set(schema()["resources"]) == {f"disagg-serving:index:{name}" for name in exported}


def test_everything_in_the_schema_is_described() -> None:
    """Editors of other languages explain every component, input, output and type; inherited fields are no exception."""
    whole = schema()
    silent = [
        f"{token}.{name}"
        for part, keys in (("resources", ("inputProperties", "properties")), ("types", ("properties",)))
        for token, entry in whole[part].items()
        for key in keys
        for name, found in entry.get(key, {}).items()
        if not found.get("description")
    ]
    assert silent == []
    assert all(entry.get("description") for part in ("resources", "types") for entry in whole[part].values())


def test_names_of_types_are_those_of_the_spec() -> None:
    """Generators of SDKs add Args to the types of inputs, so that the schema must not."""
    assert "disagg-serving:index:ModelSpec" in schema()["types"]
    assert "SpecArgs" not in json.dumps(schema())


@pytest.mark.parametrize(
    ("component", "args"),
    [
        ("NodePools", {"models": [MODEL], "zone": "us-east-1a", "nodeRole": "r", "subnetIds": ["subnet-1"], "securityGroupIds": ["sg-1"]}),
        ("NodePools", {"models": [MODEL], "zone": "us-east-1a", "nodeIdentity": IDENTITY}),
        ("ModelServing", {"model": MODEL, "zone": "us-east-1a"}),
        ("Environment", {"models": [MODEL], "network": {"zones": ["us-east-1a", "us-east-1b"]}}),
    ],
)
def test_a_constructed_component_makes_the_same(component: str, args: dict[str, Any]) -> None:
    """Resources, inputs and dependencies of a component that the plugin constructs are those of the component in Python."""

    def in_python() -> None:
        getattr(resources, component)("x", snake(args))

    constructed = program_graph(lambda: plugin().construct("x", f"disagg-serving:index:{component}", args))
    written = program_graph(in_python)
    assert constructed.resources == written.resources
    assert len(written.resources) > 3


def test_outputs_of_a_cluster_are_inputs_of_pools() -> None:
    """A program in another language joins Cluster and NodePools as one in Python does: what the plugin gives it takes, in the schema's words."""

    def program() -> None:
        cluster = plugin().construct("own", "disagg-serving:index:Cluster", {"vpcId": "vpc-1", "subnetIds": ["subnet-1", "subnet-2"]})
        identity = cluster.state["nodeIdentity"]
        plugin().construct("gpu", "disagg-serving:index:NodePools", {"models": [MODEL], "zone": "us-east-1a", "nodeIdentity": identity})

    spec = one(program_graph(program), "kubernetes:eks.amazonaws.com/v1:NodeClass").inputs["spec"]
    assert spec["role"] == "own-gpu-node"
    assert spec["subnetSelectorTerms"] == [{"tags": {"disagg-serving/gpu-nodes-of": "own"}}]
    assert spec["securityGroupSelectorTerms"] == [{"tags": {"aws:eks:cluster-name": "own"}}]


def test_refused_input_is_an_answer_with_paths() -> None:
    """A failed check reaches the engine as properties with reasons, which it prints without a traceback."""
    bad = {**MODEL, "decode": {"instanceType": "p5.84xlarge"}}
    seen: list[InputPropertiesError] = []

    def program() -> None:
        with pytest.raises(InputPropertiesError) as refused:
            plugin().construct("x", "disagg-serving:index:ModelServing", {"model": bad, "zone": "us-east-1a"})
        seen.append(refused.value)

    program_graph(program)
    (answer,) = seen
    assert "model.decode.instanceType" in {e["property_path"] for e in answer.errors or []}
    assert all(e["reason"] for e in answer.errors or [])


def answer(component: str, args: dict[str, Any]) -> dict[str, str]:
    """The inputs that the plugin refuses, each with the reason."""
    seen: list[InputPropertiesError] = []

    def program() -> None:
        with pytest.raises(InputPropertiesError) as refused:
            plugin().construct("x", f"disagg-serving:index:{component}", args)
        seen.append(refused.value)

    program_graph(program)
    assert seen[0].message == f"{component} x cannot be deployed"
    return {e["property_path"]: e["reason"] for e in seen[0].errors or []}


def test_all_faults_are_answered_in_the_words_of_the_schema() -> None:
    """Unknown, missing and impossible inputs come together, spelled as programs in other languages write them."""
    typo = {**MODEL, "decode": {**MODEL["decode"], "tensorParalel": 2, "memoryGib": -1}}
    found = answer("ModelServing", {"model": typo, "apiKey": "x"})
    assert list(found) == ["apiKey", "model.decode.memoryGib", "model.decode.tensorParalel", "zone"]
    assert "add model.gateway.apiKeySecret, or leave apiKey out" in found["apiKey"]
    assert "memoryGib," in found["model.decode.tensorParalel"]
    assert found["model.decode.tensorParalel"].endswith("did you mean tensorParallel?")
    found = answer("NodePools", {"models": [MODEL, 5, {}], "subnetIds": ["x"], "bogus": 1})
    assert list(found) == ["bogus", "models[1]", "models[2].model", "models[2].name", "nodeRole", "securityGroupIds", "subnetIds[0]", "zone"]
    assert found["nodeRole"] == "is required without nodeIdentity; add it, or nodeIdentity of a Cluster"


@pytest.mark.parametrize(("key", "value"), [("memoryGib", 512.0), ("shmGib", 32.0), ("ephemeralStorageGib", 100.0)])
def test_keys_that_the_schema_spells_otherwise_than_a_stack_file(key: str, value: float) -> None:
    """A schema has memoryGib for memory_gib, where YAML has memoryGiB."""

    def serving(role: dict[str, Any]) -> Any:
        return program_graph(
            lambda: plugin().construct(
                "x", "disagg-serving:index:ModelServing", {"model": {**MODEL, "decode": {**MODEL["decode"], **role}}, "zone": "us-east-1a"}
            )
        )

    assert key in schema()["types"]["disagg-serving:index:RoleSpec"]["properties"]
    assert serving({key: value}).resources == serving({key.replace("Gib", "GiB"): value}).resources
    assert serving({key: value}).resources != serving({}).resources


def test_nothing_is_absent() -> None:
    """What is null in another language makes what leaving it out makes."""

    def lws(args: dict[str, Any]) -> Any:
        return program_graph(lambda: plugin().construct("x", "disagg-serving:index:Lws", args)).resources

    assert lws({"imageSources": None, "replicas": None, "chartProvider": None}) == lws({})


def test_an_output_of_the_wrong_kind_is_an_answer_with_its_path() -> None:
    """What is found out only when an Output is known reaches the engine in the same form."""

    def program() -> None:
        pools = {"models": [MODEL], "zone": "us-east-1a", "nodeRole": "r", "securityGroupIds": ["sg-1"]}
        plugin().construct("x", "disagg-serving:index:NodePools", {**pools, "subnetIds": pulumi.Output.from_input("subnet-1")})

    with pytest.raises(ProgramError) as stopped:
        program_graph(program)
    answer = stopped.value.__cause__
    assert isinstance(answer, InputPropertiesError)
    assert answer.errors == [{"property_path": "subnetIds", "reason": "is a text (allowed: a list)"}]


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a check refuses is turned into a message; a programming error stays one."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setitem(plugin()._components, "ModelServing", broken)
    with pytest.raises(Exception, match="ours") as failed:
        plugin().construct("x", "disagg-serving:index:ModelServing", {"model": MODEL})
    assert not isinstance(failed.value, InputPropertiesError)
