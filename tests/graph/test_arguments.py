"""What a program may give to a component in whatever form, and how each fault is told: by component and argument, all at once."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pulumi
import pytest
from disagg_serving import resources
from disagg_serving.errors import SpecError
from disagg_serving.recording.graph import Graph
from disagg_serving.recording.recorder import record
from disagg_serving.resources.arguments import parse_args
from disagg_serving.resources.base import evaluate_args, require_layout
from disagg_serving.resources.wording import ChecksFailed
from factories import ROOT
from recording import one, program_graph

MODEL: dict[str, Any] = {"name": "m", "model": "qwen3-32b", "max_model_len": 16384, "server": {"instance_type": "p5.48xlarge"}}
PAIR: dict[str, Any] = {
    "name": "m", "model": "llama-3.3-70b-instruct-fp8", "max_model_len": 32768,
    **{role: {"instance_type": "p5.48xlarge", "tensor_parallel": 2} for role in ("prefill", "decode")},
}  # fmt: skip
NETWORK: dict[str, Any] = {"zones": ["us-east-1a", "us-east-1b"]}
POOLS: dict[str, Any] = {"models": [MODEL], "zone": "us-east-1a", "node_role": "r", "subnet_ids": ["subnet-1"], "security_group_ids": ["sg-1"]}
SERVING: dict[str, Any] = {"model": MODEL, "zone": "us-east-1a"}
WEIGHTS: dict[str, Any] = {"models": [MODEL], "zone": "us-east-1a", "cluster_name": "own"}


UNIDENTIFIED: dict[str, Any] = {"models": [MODEL], "zone": "us-east-1a"}


def later(value: Any) -> Any:
    """A value that comes out of an Output; made inside a program."""
    return pulumi.Output.from_input(value)


def made(component: str, args: Any) -> Graph:
    """The resources of a component."""
    return program_graph(lambda: getattr(resources, component)("x", args() if callable(args) else args))


def refused(component: str, args: Any) -> list[str]:
    """The faults that a component names, without its own name, which each of them begins with."""
    with pytest.raises(SpecError) as problem:
        made(component, args)
    sentences = [f.sentence() for f in problem.value.findings]
    assert all(s.startswith(f"{component} x: ") for s in sentences)
    return [s.removeprefix(f"{component} x: ") for s in sentences]


@pytest.mark.parametrize(
    ("component", "args", "fault"),
    [
        ("ModelServing", {**SERVING, "token": "marked"}, "token: is given, but model.weights.token_key names no key, so nothing would use it"),
        ("ModelServing", {**SERVING, "api_key": "marked"}, "api_key: is given, but model.gateway.api_key_secret names no key"),
        ("ModelServing", {**SERVING, "model": {**MODEL, "weights": {"token_key": "hf"}}}, "token: is required, because model.weights.token_key"),
        ("ModelServing", {**SERVING, "model": {**MODEL, "weights": {"tokenKey": "hf"}}, "token": ""}, "token: is an empty text"),
        ("Environment", {"models": [MODEL], "network": NETWORK, "secrets": {"hf": "marked"}}, "secrets.hf: is named by no model"),
        ("Environment", {"models": [{**MODEL, "weights": {"token_key": "hfToken"}}], "network": NETWORK},
         "secrets.hfToken: is required, because models[0].weights.token_key names it; add it"),
        ("Environment", {"models": [{**MODEL, "weights": {"token_key": "hfToken"}}], "network": NETWORK, "secrets": {"hfTokn": "marked"}},
         "secrets.hfTokn: is named by no model, so nothing would use it (allowed: hfToken); did you mean hfToken?"),
    ],
)  # fmt: skip
def test_a_secret_is_given_and_named_or_neither(component: str, args: dict[str, Any], fault: str) -> None:
    """A secret that nothing uses, and one that is missing, are check results that name the argument, and never the value."""
    said = refused(component, args)
    assert any(s.startswith(fault) for s in said), said
    assert "marked" not in "".join(said)


def test_faults_that_a_secret_cannot_be_judged_beside() -> None:
    """Where it cannot be told whether a model names a key, nothing is said about the secret."""
    args = {**SERVING, "model": {**MODEL, "weights": 5}, "token": "x"}
    assert refused("ModelServing", args) == ["model.weights: 5 is not a mapping (allowed: a mapping of keys to values)"]


NOTHING: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("ModelServing", SERVING, dict.fromkeys(("catalog_dirs", "create_namespace", "auto_mode", "router", "network_policy", "image_sources", "token"))),
    ("ModelServing", SERVING, {"model": {**MODEL, "prefill": None, "weights": {"s3": None}, "extra_env": {"A": None}}}),
    ("NodePools", POOLS, dict.fromkeys(("settings", "catalog_dirs", "node_identity"))),
    ("Lws", {}, dict.fromkeys(("image_sources", "chart_provider", "replicas", "version", "install"))),
    ("Weights", WEIGHTS, dict.fromkeys(("tags", "partition", "permissions_boundary_arn", "catalog_dirs"))),
    ("Network", NETWORK, dict.fromkeys(("cidr", "existing", "tags", "cluster_name"))),
    ("Environment", {"models": [MODEL], "network": NETWORK}, dict.fromkeys(("secrets", "cluster", "catalog_dirs", "image_sources", "lws"))),
    ("Cluster", {"vpc_id": "vpc-1", "subnet_ids": ["subnet-1", "subnet-2"]},
     dict.fromkeys(("existing", "gpu_subnet_ids", "node_role_name", "node_tags", "network_policies", "tags", "protect"))),
]  # fmt: skip


@pytest.mark.parametrize(("component", "args", "nothing"), NOTHING)
def test_none_is_absent(component: str, args: dict[str, Any], nothing: dict[str, Any]) -> None:
    """None for an optional argument, or inside of one, makes what leaving it out makes."""
    assert made(component, {**args, **nothing}).resources == made(component, args).resources


def test_mappings_and_sequences_of_any_class_are_data() -> None:
    """A program may share settings that cannot be changed: they are read like dicts and lists."""

    def frozen(value: Any) -> Any:
        if isinstance(value, Mapping):
            return MappingProxyType({key: frozen(inner) for key, inner in value.items()})
        return tuple(map(frozen, value)) if isinstance(value, list) else value

    args = {**POOLS, "settings": {"tags": {"team": "ml"}}}
    assert made("NodePools", frozen(args)).resources == made("NodePools", args).resources


def test_awaitables_are_outputs() -> None:
    """A coroutine is waited for where an Output may stand, and refused like one elsewhere."""

    async def awaited(value: Any) -> Any:
        return value

    graph = made("NodePools", lambda: {**POOLS, "node_role": awaited("theirs"), "subnet_ids": [awaited("subnet-7")]})
    spec = one(graph, "kubernetes:eks.amazonaws.com/v1:NodeClass").inputs["spec"]
    assert (spec["role"], spec["subnetSelectorTerms"]) == ("theirs", [{"id": "subnet-7"}])
    said = refused("NodePools", lambda: {**POOLS, "zone": awaited("a"), "models": [{**MODEL, "name": awaited("m")}]})
    fix = "an Output may stand in node_identity, node_role, subnet_ids, security_group_ids"
    assert [s.split(",")[0] for s in said] == ["models[0].name: is a coroutine", "zone: is a coroutine"]
    assert all(fix in s for s in said)
    gc.collect()  # when a coroutine that nobody awaited would speak up


@dataclass
class Role:
    """Somebody's own class."""

    instance_type: str


def holding_itself() -> dict[str, Any]:
    """A model that stands in itself, and in a list in itself."""
    held: dict[str, Any] = {**MODEL}
    held["server"] = {"instance_type": "p5.48xlarge", "node_selector": held}
    return held


@pytest.mark.parametrize(
    ("args", "faults"),
    [
        (lambda: dict([*SERVING.items(), (5, 6), (None, 7), ("model", {**MODEL, 3: 4})]),
         ["5: is a key that is not a text", "None: is a key that is not a text", "model.3: is a key that is not a text"]),
        (lambda: {**SERVING, "model": holding_itself()}, ["model.server.node_selector: holds itself or is nested too deeply"]),
        (lambda: {**SERVING, "model": {**MODEL, "server": Role("p5.48xlarge"), "engine": threading.Lock()}},
         ["model.engine: is an object of class lock", "model.server: is an object of class Role"]),
        (lambda: [SERVING], ["args: is a list (allowed: a mapping; see ModelServingArgs)"]),
        (lambda: {**SERVING, "zone": b"us-east-1a"}, ["zone: is an object of class bytes (allowed: a text)"]),
    ],
)  # fmt: skip
def test_values_that_are_no_data(args: Callable[[], Any], faults: list[str]) -> None:
    """What a program can hold and a stack file cannot is a fault with a path, and no traceback."""
    said = refused("ModelServing", args)
    for fault in faults:
        assert any(s.startswith(fault) for s in said), said


@pytest.mark.parametrize(
    ("component", "args", "fault"),
    [
        ("ModelServing", {"model": MODEL}, "zone: is required"),
        ("ModelServing", {**SERVING, "model": {**MODEL, "server": {"instance_type": "p5.48xlarge", "tensor_paralel": 2}}},
         "model.server.tensor_paralel: is not a known key (allowed: all2all_backend, "),
        ("ModelServing", {**SERVING, "model": {**MODEL, "server": {"instance_type": "p5.48xlarge", "tensor_parallel": 3}}},
         "model.server.tensor_parallel: 3 does not divide"),
        ("ModelServing", {**SERVING, "router": {"version": 5}}, 'router.version: 5 is a number (allowed: a text); use "5"'),
        ("Cluster", {"existing": {"kubeconfig": "x"}}, "existing.node_role: is required with kubeconfig and Auto Mode"),
        ("Cluster", {"existing": {"kubeconfi": "x"}}, "existing.kubeconfi: is not a known key"),
        ("NodePools", {**POOLS, "zone": "us-east-1a "}, 'zone: "us-east-1a " has a form that is not possible'),
        ("NodePools", {**POOLS, "models": [{**MODEL, "gpu_memory_utilization": float("nan")}]},
         "models[0].gpu_memory_utilization: nan is not a number"),
        ("Network", {"zones": ["us-east-1a"]}, "zones: [us-east-1a] has too few zones"),
        ("NodePools", {**POOLS, "settings": {"expire_after_hours": "x"}}, "settings.expire_after_hours: x "),
        ("Environment", {"models": [MODEL], "network": NETWORK, "existing_cluster": {"name": "a"}},
         "network.existing: is required with existing_cluster"),
    ],
)  # fmt: skip
def test_faults_name_the_arguments_of_their_component(component: str, args: dict[str, Any], fault: str) -> None:
    """A fault speaks of keys that the component has, as Python spells them, wherever a stack file would have them."""
    said = refused(component, args)
    assert any(s.startswith(fault) for s in said), said
    assert "did you mean tensor_parallel?" in "".join(said) or "paralel" not in fault


@pytest.mark.parametrize(
    ("component", "args", "faults"),
    [
        ("ModelServing", {**SERVING, "createNamespace": True}, {"createNamespace: is not a known key": "did you mean create_namespace?"}),
        ("Network", {**NETWORK, "natGateways": "single"}, {"natGateways: is not a known key": "did you mean nat_gateways?"}),
        ("ModelServing", {**SERVING, "model": {**MODEL, "maxModelLen": 3}},
         {"model.max_model_len: is given twice, in two spellings": "leave one of them out"}),
    ],
)  # fmt: skip
def test_an_unknown_key_is_told_as_it_is_spelled(component: str, args: dict[str, Any], faults: dict[str, str]) -> None:
    """A key in the spelling of another language is not repeated in the right one, as if that were unknown."""
    said = refused(component, args)
    assert len(said) == len(faults)
    for sentence, (start, end) in zip(said, faults.items(), strict=True):
        assert (sentence[: len(start)], sentence[-len(end) :]) == (start, end)


def test_the_text_of_a_refusal_names_the_component() -> None:
    """What `pulumi up` prints says which of a program's components cannot be deployed."""

    def program() -> None:
        with pytest.raises(ChecksFailed, match=r"^Lws mine cannot be deployed:\n  replicas: -3 is too small"):
            resources.Lws("mine", {"replicas": -3})

    program_graph(program)


@pytest.mark.parametrize(
    ("component", "args", "faults"),
    [
        ("Network", {"zones": ["us-east-1a"], "cidr": "10.0.0.0/8", "nat_gateways": "two", "cluster_name": 5},
         ["cidr", "cluster_name", "nat_gateways", "zones"]),
        ("NodePools", {**POOLS, "models": ["bad", 7, None, {}]}, ["models[0]", "models[1]", "models[2]", "models[3].model", "models[3].name"]),
        ("Cluster", {"vpc_id": "vpc-1", "kubernetes_version": "1.11", "permissions_boundary_arn": "x"},
         ["kubernetes_version", "permissions_boundary_arn", "subnet_ids"]),
        ("NodePools", {**POOLS, "subnet_ids": [], "security_group_ids": [None], "node_role": ""},
         ["node_role", "security_group_ids[0]", "subnet_ids"]),
        ("NodePools", {**POOLS, "subnet_ids": ["", "not a subnet", "vpc-1", "subnet-1"], "node_role": "arn:aws:iam::123456789012:role/r"},
         ["node_role", "subnet_ids[0]", "subnet_ids[1]", "subnet_ids[2]"]),
        ("Weights", {**WEIGHTS, "partition": "aws-mars", "cluster_name": "", "permissions_boundary_arn": "nonsense"},
         ["cluster_name", "partition", "permissions_boundary_arn"]),
        ("Cluster", {"vpc_id": "vpc-1", "subnet_ids": ["subnet-1"], "service_cidr": "10.0.0.0/8"}, ["service_cidr", "subnet_ids"]),
        ("Cluster", {"existing": {"name": "x", "service_cidr": "8.8.8.0/24"}}, ["existing.service_cidr"]),
        ("Cluster", {"subnet_ids": ["subnet-1", "subnet-2"]}, ["vpc_id"]),
        ("NodePools", {**POOLS, "models": [{**PAIR, "prefill": {"instance_type": {}, "replicas": 2}}]}, ["models[0].prefill.instance_type"]),
        ("NodePools", {**POOLS, "models": [{**PAIR, "decode": {"instance_type": "p5.48xlarge", "tensor_paralel": 2}}]},
         ["models[0].decode.tensor_paralel"]),
        ("NodePools", {**POOLS, "models": [{**PAIR, "prefill": {"replicass": 1, "replicas": 2}}]},
         ["models[0].prefill.instance_type", "models[0].prefill.replicass"]),
        ("Weights", {**WEIGHTS, "models": [{**MODEL, "weights": {"s3": {"bucket": "B_AD"}, "mirror": True, "revision": "a" * 40}}]},
         ["models[0].weights.s3.bucket"]),
        ("Environment", {"models": [MODEL], "network": {"gpu_zone": "us-east-1a", "existing": {"gpu_subnet_ids": ["c"]}}},
         ["network.existing.gpu_subnet_ids[0]"]),
        ("Cluster", {"vpc_id": "subnet-1", "subnet_ids": ["sg-1"], "gpu_subnet_ids": [], "node_role_name": "a/b"},
         ["gpu_subnet_ids", "node_role_name", "subnet_ids[0]", "vpc_id"]),
    ],
)  # fmt: skip
def test_ids_names_and_all_faults_at_once(component: str, args: dict[str, Any], faults: list[str]) -> None:
    """Ids and names that are given as texts have their form; one fault of form hides neither another nor those that the rules find.

    It makes none, too: what a faulty or misspelt part leaves empty is not judged as empty.
    """
    assert [s.split(": ")[0] for s in refused(component, args)] == faults


def test_ids_of_resources_are_whatever_their_resource_made() -> None:
    """What comes out of an Output is not held to a form: a mock, or a service of tomorrow, may make other ids."""
    graph = made("NodePools", lambda: {**POOLS, "subnet_ids": pulumi.Output.from_input(["net-private_id"])})
    assert one(graph, "kubernetes:eks.amazonaws.com/v1:NodeClass").inputs["spec"]["subnetSelectorTerms"] == [{"id": "net-private_id"}]


def test_what_all_components_of_a_model_see_is_told_once() -> None:
    """Pools, serving and endpoint of one model repeat no warning, and policies are the matter of the component that makes them."""

    def program() -> None:
        resources.NodePools("gpu", {**POOLS, "models": [MODEL, {**MODEL, "name": "n"}]})  # type: ignore[typeddict-item]
        for name in ("m", "n"):
            resources.ModelServing(name, {**SERVING, "model": {**MODEL, "name": name}})  # type: ignore[typeddict-item]

    for _ in range(2):  # what one program was told is news to the next
        evaluations = record(ROOT, "disagg", "test", {}, frozenset(), program=program).evaluations
        paths = [(f.id, f.path) for e in evaluations for f in e.findings]
        assert [path for rule, path in paths if rule == "revision-unpinned"] == [f"NodePools gpu: models[{i}].weights.revision" for i in (0, 1)]
        assert [path for rule, path in paths if rule == "policy-addresses"] == ["ModelServing m: network_policy.vpc_cidrs"]


def test_entries_of_a_catalogue_have_keys_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in the user's catalogue speaks of that file's keys, all in the spelling of the file."""
    monkeypatch.chdir(tmp_path)
    entry = tmp_path / "cat/instances/p5.48xlarge.yaml"
    entry.parent.mkdir(parents=True)
    entry.write_text("id: p5.48xlarge\n", encoding="utf-8")
    given = parse_args("NodePools x", {**POOLS, "catalog_dirs": ["cat"]}, resources.NodePoolsArgs)
    with pytest.raises(ChecksFailed) as problem:
        require_layout(evaluate_args(given), given)
    assert {"memoryGiB", "nvmeGB"} <= {f.path.rpartition(": ")[2] for f in problem.value.findings}


ADOPTED: Any = {"gpu_zone": "us-east-1a"}


def ids(*values: str) -> Any:
    """Ids that only the deployment knows; made inside a program."""
    return pulumi.Output.from_input(list(values))


def test_ids_of_an_adopted_network_may_come_from_resources() -> None:
    """VPC and subnets of another component or stack are adopted as they are, one by one or as a list."""

    def network(vpc: Any, private: Any, gpu: Any) -> Graph:
        def program() -> None:
            existing: Any = {"vpc_id": vpc(), "subnet_ids": private(), "gpu_subnet_ids": gpu()}
            made = resources.Network("net", {"gpu_zone": "us-east-1a", "existing": existing})
            for name in ("vpc_id", "private_subnet_ids", "gpu_subnet_ids"):
                pulumi.export(name, getattr(made, name))

        return program_graph(program)

    plain = network(lambda: "vpc-1", lambda: ["subnet-1", "subnet-2"], lambda: ["subnet-3"])
    one_by_one = network(lambda: later("vpc-1"), lambda: ["subnet-1", later("subnet-2")], lambda: [later("subnet-3")])
    assert network(lambda: later("vpc-1"), lambda: ids("subnet-1", "subnet-2"), lambda: ids("subnet-3")).outputs == plain.outputs
    assert one_by_one.outputs == plain.outputs


def test_the_way_into_an_existing_cluster_may_come_from_resources() -> None:
    """Kubeconfig, role and security groups of a cluster that the same program makes; a kubeconfig stays secret."""

    def program() -> None:
        existing: Any = {"kubeconfig": pulumi.Output.secret("marked"), "node_role": later("theirs"), "security_group_ids": [later("sg-1"), "sg-2"]}
        cluster = resources.Cluster("x", {"existing": existing, "gpu_subnet_ids": ids("subnet-1")})
        pools: Any = {**UNIDENTIFIED, "node_identity": cluster.node_identity}
        resources.NodePools("gpu", pools, pulumi.ResourceOptions(providers=[cluster.provider]))

    graph = program_graph(program)
    spec = one(graph, "kubernetes:eks.amazonaws.com/v1:NodeClass").inputs["spec"]
    assert (spec["role"], spec["securityGroupSelectorTerms"]) == ("theirs", [{"id": "sg-1"}, {"id": "sg-2"}])
    assert "marked" not in repr(graph)


def test_an_environment_on_what_other_resources_made() -> None:
    """A whole environment in a network and a cluster of the same program is that with plain ids, but for what its state says of the spec."""

    def environment(gpu: Any, role: Any) -> Graph:
        existing: Any = lambda: {"kubeconfig": "kc.yaml", "node_role": role(), "security_group_ids": ["sg-1"]}  # noqa: E731
        return made(
            "Environment",
            lambda: {"models": [MODEL], "network": {**ADOPTED, "existing": {"gpu_subnet_ids": gpu()}}, "existing_cluster": existing()},
        )

    known, output = environment(lambda: ["subnet-1"], lambda: "r"), environment(lambda: ids("subnet-1"), lambda: later("r"))
    differing = [r.type for urn, r in known.resources.items() if output.resources[urn] != r]
    assert known.resources.keys() == output.resources.keys()
    assert differing == ["disagg-serving:index:Environment"]
    assert "subnet-later" in json.dumps(one(output, "disagg-serving:index:Environment").inputs)
    assert "later" not in json.dumps([r.inputs for r in output.resources.values() if r.custom])


def test_what_stands_for_an_output_is_never_its_own_kind_alone() -> None:
    """An Output of another kind stops the program with its path, and one where a check looks is refused with the places that take one."""
    said = refused("Network", lambda: {**ADOPTED, "existing": {"gpu_subnet_ids": later("subnet-1")}})
    assert said == ["existing.gpu_subnet_ids: is a text (allowed: a list)"]
    said = refused("Environment", lambda: {"models": [MODEL], "network": {"zones": later([])}})
    assert any("an Output may stand in network.existing.vpc_id, network.existing.subnet_ids, " in s and "secrets" in s for s in said)
    said = refused("Network", lambda: {"zones": ["us-east-1a"], "existing": {"gpu_subnet_ids": ids("subnet-1"), "vpc_idd": later("vpc-1")}})
    assert [s.split(" (")[0] for s in said] == ["existing.vpc_idd: is not a known key", "zones: has no effect on an existing network"]


@pytest.mark.parametrize("component", ["Network", "Cluster", "NodePools", "Lws", "Environment", "ModelServing"])
def test_names_and_options_of_a_wrong_kind(component: str) -> None:
    """What Pulumi would stop about with a traceback is told beside the other faults, and before anything is declared."""

    def program(name: Any, opts: Any) -> None:
        with pytest.raises(ChecksFailed) as problem:
            getattr(resources, component)(name, {"nonsense": 1}, opts)
        said = [f.sentence().removeprefix(f"{component} {name}: ") for f in problem.value.findings]
        assert any(s.startswith("name: ") for s in said) == (name != "x")
        assert any(s.startswith("nonsense: is not a known key") for s in said)
        assert ("opts: is a mapping (allowed: pulumi.ResourceOptions)" in said) == isinstance(opts, dict)

    for name, opts in (("x", {"parent": None}), (5, None), ("", None)):
        assert not [r for r in program_graph(lambda n=name, o=opts: program(n, o)).resources.values() if "disagg" in r.type]  # type: ignore[misc]


def test_keys_of_ones_own_are_spelled_as_they_are() -> None:
    """What a program calls its secrets and tags is no argument of ours, whatever it looks like."""
    keyed = {**MODEL, "weights": {"token_key": "tokenKey"}}
    assert refused("Environment", {"models": [keyed], "network": NETWORK}) == [
        "secrets.tokenKey: is required, because models[0].weights.token_key names it; add it"
    ]
    said = refused("NodePools", {**POOLS, "settings": {"tags": {"instanceType": 5, "instance_type": [5]}}})
    assert [s.split(": ")[0] for s in said] == ["settings.tags.instanceType", "settings.tags.instance_type"]


def test_a_faulty_value_is_not_missed_as_well() -> None:
    """A faulty setting of a cluster is one fault: nothing asks for what it was meant to be."""
    said = refused("Cluster", {"existing": {"kubeconfig": "k", "node_role": "r", "security_group_ids": [5]}})
    assert [s.split(": ")[0] for s in said] == ["existing.security_group_ids[0]"]
