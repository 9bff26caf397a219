"""Components used alone, in a program of one's own: joined by outputs, twice in a program, and with bad args."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pulumi
import pytest
from disagg_serving.document.resource import COMPUTED, SECRET
from disagg_serving.errors import ProgramError, SpecError
from disagg_serving.forecast.capacities import capacities
from disagg_serving.records import data_of
from factories import aggregated, environment, layout
from recording import environment_graph, one, program_graph


def paths_of(refused: SpecError, component: str) -> list[str]:
    """The arguments that were refused; each fault says whose they are."""
    assert all(f.path.startswith(f"{component}: ") for f in refused.findings)
    return [f.path.removeprefix(f"{component}: ") for f in refused.findings]


def test_network_cluster_and_controller_alone() -> None:
    """Each part can be used alone in a program of one's own."""

    def program() -> None:
        from disagg_serving.resources import Cluster, Lws, Network

        network = Network("net", {"zones": ["eu-west-1a", "eu-west-1b"], "cluster_name": "own"})
        cluster = Cluster("own", {"vpc_id": network.vpc_id, "subnet_ids": network.private_subnet_ids}, pulumi.ResourceOptions(depends_on=[network]))
        Lws("lws", {"replicas": 3}, pulumi.ResourceOptions(providers=[cluster.provider]))

    graph = program_graph(program)
    assert one(graph, "eks:index:Cluster").inputs["name"] == "own"
    assert one(graph, "kubernetes:helm.sh/v4:Chart").inputs["values"] == {"replicaCount": 3}
    assert len(graph.of_type("aws:ec2/subnet:Subnet")) == 4


def test_environment_alone() -> None:
    """The façade takes the spec's fields in snake_case and secrets as inputs."""

    def program() -> None:
        from disagg_serving.resources import Environment

        Environment(
            "own",
            {
                "network": {"zones": ["us-east-1a", "us-east-1b"]},
                "models": [{"name": "m", "model": "qwen3-32b", "server": {"instance_type": "p5.48xlarge"}, "weights": {"token_key": "hf"}}],
                "secrets": {"hf": pulumi.Output.secret("marked")},
            },
        )

    graph = program_graph(program)
    assert one(graph, "kubernetes:core/v1:Secret").inputs["stringData"] in (SECRET, {"token": SECRET})
    assert "marked" not in repr(graph)


def test_bad_input_of_a_component_is_a_message_with_every_reason() -> None:
    """A component refuses bad args with all findings and without a traceback of ours."""

    def program() -> None:
        from disagg_serving.resources import ModelServing

        ModelServing("m", {"model": {"name": "M x", "model": "qwen", "server": {"instance_type": "p5"}}, "zone": "us-east-1a"})

    with pytest.raises(SpecError) as refused:
        program_graph(program)
    assert set(paths_of(refused.value, "ModelServing m")) >= {"model.name"}


def test_two_of_each_component_in_one_program() -> None:
    """A component used twice has children of its own: two environments of the same models share no URN."""

    def program() -> None:
        from disagg_serving.resources import Environment

        for name in ("east", "west"):
            Environment(
                name,
                {
                    "network": {"zones": ["us-east-1a", "us-east-1b"]},
                    "models": [{"name": "m", "model": "qwen3-32b", "server": {"instance_type": "p5.48xlarge"}}],
                },
            )

    graph = program_graph(program)
    assert len(graph.of_type("kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet")) == 2
    charts = sorted(r.name for r in graph.of_type("kubernetes:helm.sh/v4:Chart"))
    assert charts == ["east-lws", "east-m-router", "west-lws", "west-m-router"]


def test_network_and_pools_are_joined_by_outputs() -> None:
    """Outputs of one component are inputs of another: subnets of a network that is being made."""

    def program() -> None:
        from disagg_serving.resources import Cluster, Network, NodePools

        network = Network("net", {"zones": ["us-east-1a", "us-east-1b"], "cluster_name": "own"})
        cluster = Cluster("own", {"vpc_id": network.vpc_id, "subnet_ids": network.private_subnet_ids})
        NodePools(
            "gpu",
            {
                "models": [{"name": "m", "model": "qwen3-32b", "server": {"instance_type": "p5.48xlarge"}}],
                "zone": "us-east-1a",
                "node_role": cluster.node_role_name,
                "subnet_ids": network.gpu_subnet_ids,
                "security_group_ids": ["sg-1"],
            },
            pulumi.ResourceOptions(providers=[cluster.provider]),
        )

    spec = one(program_graph(program), "kubernetes:eks.amazonaws.com/v1:NodeClass").inputs["spec"]
    assert spec["subnetSelectorTerms"] == COMPUTED
    assert spec["securityGroupSelectorTerms"] == [{"id": "sg-1"}]


CERTIFICATE = "arn:aws:acm:us-east-1:123456789012:certificate/a"
MODEL: Any = {"name": "m", "model": "qwen3-32b", "max_model_len": 16384, "server": {"instance_type": "p5.48xlarge"}}
NETWORK: Any = {"zones": ["us-east-1a", "us-east-1b"]}
POOLS = {"models": [MODEL], "zone": "us-east-1a", "node_role": "r", "subnet_ids": ["subnet-1"], "security_group_ids": ["sg-1"]}


@pytest.mark.parametrize(
    ("component", "args", "path"),
    [
        ("Cluster", {}, "vpc_id"),
        ("Cluster", {"existing": {"kubeconfig": "x", "name": "y"}}, "existing"),
        ("Cluster", {"vpc_id": "v", "subnet_ids": [], "creator_admin": False}, "admin_role_arns"),
        ("Cluster", {"vpc_id": "v", "subnet_ids": [], "kubernetes_version": "1.20"}, "kubernetes_version"),
        ("Network", {}, "zones"),
        ("Network", {"zones": ["us-east-1a"]}, "zones"),
        ("Network", {"zoens": ["us-east-1a"]}, "zoens"),
        ("Lws", {"version": "latest"}, "version"),
        ("NodePools", {k: v for k, v in POOLS.items() if k != "node_role"}, "node_role"),
        ("NodePools", {**POOLS, "models": MODEL}, "models"),
        ("ModelServing", {"model": MODEL, "zone": "us-east-1a", "zoen": 1}, "zoen"),
        ("ModelServing", {"model": MODEL, "zone": "us-east-1a", "catalog_dirs": ["nowhere"]}, "catalog_dirs[0]"),
        ("Environment", {"models": [MODEL], "nonsense": 1}, "nonsense"),
    ],
)  # fmt: skip
def test_components_alone_refuse_bad_args(component: str, args: dict[str, Any], path: str) -> None:
    """A component used alone names what is wrong with its args: unknown, missing and impossible ones."""
    from disagg_serving import resources

    with pytest.raises(SpecError) as refused:
        program_graph(lambda: getattr(resources, component)("x", args))
    assert path in paths_of(refused.value, f"{component} x")


def test_an_output_where_a_plain_value_is_needed() -> None:
    """What decides the layout must be known before deployment, and the message says so."""

    def program() -> None:
        from disagg_serving.resources import ModelServing

        ModelServing("m", {"model": {**MODEL, "name": pulumi.Output.from_input("m")}, "zone": "us-east-1a", "token": 5})  # type: ignore[typeddict-item]

    with pytest.raises(SpecError, match="an Output, which only the deployment knows") as refused:
        program_graph(program)
    assert paths_of(refused.value, "ModelServing m") == ["model.name", "token"]


@pytest.mark.parametrize(
    ("component", "args", "paths"),
    [
        ("NodePools", {**POOLS, "node_role": 5, "security_group_ids": "sg-1"}, ["node_role", "security_group_ids"]),
        ("NodePools", {**POOLS, "subnet_ids": ["subnet-1", 7], "zone": None}, ["zone", "subnet_ids[1]"]),
        ("Cluster", {"vpc_id": 5, "subnet_ids": "subnet-1", "gpu_subnet_ids": [1]}, ["vpc_id", "subnet_ids", "gpu_subnet_ids[0]"]),
        ("ModelServing", {"model": MODEL, "zone": 3, "auto_mode": "yes", "catalog_dirs": "mine"}, ["zone", "auto_mode", "catalog_dirs"]),
        ("Environment", {"models": [MODEL], "network": NETWORK, "secrets": ["marked"]}, ["secrets"]),
        ("Environment", {"models": [MODEL], "network": NETWORK, "secrets": {"key": ["marked"]}}, ["secrets.key"]),
        ("Weights", {"models": [MODEL], "zone": "us-east-1a", "cluster_name": ["a"], "tags": {"team": 1}}, ["cluster_name", "tags.team"]),
        ("Lws", {"image_sources": [], "chart_provider": "p"}, ["image_sources", "chart_provider"]),
    ],
)  # fmt: skip
def test_values_of_the_wrong_type_are_named_together(component: str, args: dict[str, Any], paths: list[str]) -> None:
    """A program that nobody type-checked is told every wrong value before anything is made of it, and no value is repeated."""
    from disagg_serving import resources

    with pytest.raises(SpecError) as refused:
        program_graph(lambda: getattr(resources, component)("x", args))
    assert sorted(paths_of(refused.value, f"{component} x")) == sorted(paths)
    assert "marked" not in str(refused.value)


def later(value: Any) -> Any:
    """A value that comes out of an Output; made inside a program."""
    return pulumi.Output.from_input(value)


BAD = {"server": {"instance_type": "p5.84xlarge"}}
IMPOSSIBLE: list[tuple[str, Callable[[], Any], list[str]]] = [
    (
        "ModelServing",
        lambda: {"model": {**MODEL, "name": later("m"), "prefil": 1, "max_model_len": -1}, "zone": 3},
        ["model.max_model_len", "model.name", "model.prefil", "zone"],
    ),
    ("ModelServing", lambda: {"model": {**MODEL, "server": {"instance_type": later("p5.48xlarge"), "replicas": -1}}, "zone": "us-east-1a"},
     ["model.server.instance_type", "model.server.replicas"]),
    ("ModelServing", lambda: {"model": {**MODEL, "server": {"instance_type": "p5.84xlarge", "replicas": later(2)}}, "zone": "us-east-1a"},
     ["model.server.instance_type", "model.server.replicas"]),
    ("ModelServing", lambda: {"model": {**MODEL, "server": later({})}, "zone": "us-east-1a", "zoen": 1}, ["model.server", "zoen"]),
    ("ModelServing", lambda: {"model": later(MODEL), "zone": "us-east-1a", "router": {"version": 5}}, ["model", "router.version"]),
    ("NodePools", lambda: {**POOLS, "models": [MODEL, later(MODEL), {**MODEL, **BAD, "name": "n"}], "zone": later("us-east-1a"), "node_role": 5},
     ["models[1]", "models[2].server.instance_type", "node_role", "zone"]),
    ("NodePools", lambda: {**POOLS, "models": [{**MODEL, **BAD}], "settings": {"tags": {"team": later("ml")}}, "catalog_dirs": later([])},
     ["catalog_dirs", "models[0].server.instance_type", "settings.tags.team"]),
    ("Environment", lambda: {"models": [{**MODEL, "max_model_len": later(5)}], "network": {"zones": later(["a"])}, "secrets": {"key": 5},
                             "cluster": {"kubernetes_version": "1.20"}},
     ["cluster.kubernetes_version", "models[0].max_model_len", "network.zones", "secrets.key"]),
    ("Cluster", lambda: {"vpc_id": 5, "kubernetes_version": later("1.36"), "creator_admin": "maybe", "existing": later({})},
     ["creator_admin", "existing", "kubernetes_version", "vpc_id"]),
    ("Network", lambda: {"zones": [later("us-east-1a"), "b"], "cidr": "nonsense", "cluster_name": later("own")},
     ["cidr", "cluster_name", "zones[0]", "zones[1]"]),
    ("Lws", lambda: {"version": later("1"), "replicas": -3, "image_sources": {"ghcr.io": later("x")}},
     ["image_sources.ghcr.io", "replicas", "version"]),
]  # fmt: skip


@pytest.mark.parametrize(("component", "args", "paths"), IMPOSSIBLE, ids=lambda v: v if isinstance(v, str) else "")
def test_an_output_hides_no_other_fault(component: str, args: Callable[[], Any], paths: list[str]) -> None:
    """What is wrong besides an Output in the wrong place is told in the same run, and nothing is said about what it may hold."""
    from disagg_serving import resources

    with pytest.raises(SpecError) as refused:
        program_graph(lambda: getattr(resources, component)("x", args()))
    assert sorted(paths_of(refused.value, f"{component} x")) == paths


IDENTITY = {"role": "r", "subnet_terms": [{"id": "subnet-1"}], "security_group_terms": [{"id": "sg-1"}]}
UNIDENTIFIED = {"models": [MODEL], "zone": "us-east-1a"}
TOKEN: Any = {**MODEL, "weights": {"token_key": "hf"}}
RESOLVED: list[tuple[str, Callable[[], Any], str]] = [
    ("NodePools", lambda: {**POOLS, "subnet_ids": later("subnet-1")}, "subnet_ids: is a text (allowed: a list)"),
    ("NodePools", lambda: {**POOLS, "subnet_ids": later(["subnet-1", 5])}, "subnet_ids[1]: is a number (allowed: a text)"),
    ("NodePools", lambda: {**POOLS, "subnet_ids": [later(["subnet-1"])]}, "subnet_ids[0]: is a list (allowed: a text)"),
    ("NodePools", lambda: {**POOLS, "security_group_ids": later({"id": "sg-1"})}, "security_group_ids: is a mapping (allowed: a list)"),
    ("NodePools", lambda: {**POOLS, "node_role": later(None)}, "node_role: is an Output of nothing (allowed: a text)"),
    ("NodePools", lambda: {**UNIDENTIFIED, "node_identity": later("r")}, "node_identity: is a text (allowed: a mapping)"),
    ("NodePools", lambda: {**UNIDENTIFIED, "node_identity": later({**IDENTITY, "role": 5})}, "node_identity.role: is a number (allowed: a text)"),
    ("NodePools", lambda: {**UNIDENTIFIED, "node_identity": later({"role": "r"})}, "node_identity.subnet_terms: is required; add it"),
    ("NodePools", lambda: {**UNIDENTIFIED, "node_identity": {**IDENTITY, "subnet_terms": [{"idd": "x"}]}},
     "node_identity.subnet_terms[0].idd: is not a known key (allowed: id, tags); did you mean id?"),
    ("Cluster", lambda: {"vpc_id": later(5), "subnet_ids": ["subnet-1", "subnet-2"]}, "vpc_id: is a number (allowed: a text)"),
    ("Cluster", lambda: {"vpc_id": "vpc-1", "subnet_ids": later("a")}, "subnet_ids: is a text (allowed: a list)"),
    ("Cluster", lambda: {"vpc_id": "vpc-1", "subnet_ids": ["subnet-1", "subnet-2"], "gpu_subnet_ids": later("a")},
     "gpu_subnet_ids: is a text (allowed: a list)"),
    ("Weights", lambda: {**UNIDENTIFIED, "models": [{**MODEL, "weights": {"s3": {"bucket": "acme"}}}], "cluster_name": later(["a"])},
     "cluster_name: is a list (allowed: a text)"),
    ("ModelServing", lambda: {"model": TOKEN, "zone": "us-east-1a", "token": pulumi.Output.secret({"a": "marked"})},
     "token: is a mapping (allowed: a text)"),
    ("Environment", lambda: {"models": [TOKEN], "network": NETWORK, "secrets": {"hf": later(5)}}, "secrets.hf: is a number (allowed: a text)"),
]  # fmt: skip


@pytest.mark.parametrize(("component", "args", "sentence"), RESOLVED, ids=[sentence.split(":")[0] for _, _, sentence in RESOLVED])
def test_an_output_of_the_wrong_kind(component: str, args: Callable[[], Any], sentence: str, capfd: pytest.CaptureFixture[str]) -> None:
    """What turns out to be of another kind than its argument stops the program with its path, and is neither shown nor taken apart."""
    from disagg_serving import resources

    with pytest.raises(SpecError) as refused:
        program_graph(lambda: getattr(resources, component)("x", args()))
    assert f"{component} x: {sentence}" in [f.sentence() for f in refused.value.findings]
    gc.collect(1)  # when futures that nobody looked at would speak up
    said = capfd.readouterr()
    assert "Traceback" not in said.out + said.err
    assert "marked" not in said.out + said.err + str(refused.value)


def test_a_program_after_one_that_failed() -> None:
    """What a failed program leaves unfinished does not reach the next one of the same process."""
    from disagg_serving.resources import NodePools

    for _ in range(2):
        with pytest.raises(SpecError):
            program_graph(lambda: NodePools("x", {**POOLS, "subnet_ids": later("subnet-1")}))  # type: ignore[typeddict-item]
    with pytest.raises(SpecError, match="zone: is an Output"):
        program_graph(lambda: NodePools("x", {**POOLS, "zone": later("us-east-1a")}))  # type: ignore[typeddict-item]


def test_ids_of_resources_may_stand_in_lists_and_models_in_tuples() -> None:
    """Ids that are not known yet are taken one by one as well as in one Output, and a tuple is as good as a list."""

    def program() -> None:
        from disagg_serving.resources import Cluster, NodePools

        ids: Any = [pulumi.Output.from_input("subnet-1"), pulumi.Output.from_input("subnet-2")]
        cluster = Cluster("own", {"vpc_id": pulumi.Output.from_input("vpc-1"), "subnet_ids": ids, "gpu_subnet_ids": ids})
        pools: Any = {**POOLS, "models": (MODEL,), "subnet_ids": tuple(ids), "node_role": cluster.node_role_name}
        NodePools("gpu", pools, pulumi.ResourceOptions(providers=[cluster.provider]))

    graph = program_graph(program)
    assert one(graph, "eks:index:Cluster").inputs["subnetIds"] == ["subnet-1", "subnet-2"]
    assert len(graph.of_type("kubernetes:eks.amazonaws.com/v1:NodeClass")) == 1


def test_gateway_and_weights_alone() -> None:
    """A router and the right to read weights can be added to a model of one's own program; keys are inputs and stay secret."""

    def program() -> None:
        from disagg_serving.resources import Gateway, ModelServing, Weights

        model: Any = {
            **MODEL,
            "gateway": {"api_key_secret": "key", "dns": {"zone_id": "Z1", "name": "m.example.com"}, "certificate_arn": CERTIFICATE},
            "weights": {"s3": {"bucket": "acme", "create": True}},
        }
        Weights("own", {"cluster_name": "theirs", "models": [model], "zone": "us-east-1a"})
        keyed: Any = {**MODEL, "gateway": {"api_key_secret": "key"}}
        serving = ModelServing("m", {"model": keyed, "zone": "us-east-1a", "api_key": "marked"})
        gateway = Gateway("m", {"model": MODEL, "zone": "us-east-1a", "network_policy": {"vpc_cidrs": ["10.7.0.0/16"]}})
        pulumi.export("endpoint", gateway.endpoint)
        pulumi.export("namespace", serving.namespace)

    graph = program_graph(program)
    assert one(graph, "aws:eks/podIdentityAssociation:PodIdentityAssociation").inputs["clusterName"] == "theirs"
    assert one(graph, "aws:s3/bucket:Bucket").inputs["bucket"] == "acme"
    (balancer,) = [r for r in graph.of_type("kubernetes:core/v1:Service") if r.inputs["spec"]["type"] == "LoadBalancer"]
    assert balancer.inputs["spec"]["loadBalancerSourceRanges"] == ["10.7.0.0/16"]
    assert "marked" not in repr(graph)
    assert graph.outputs["endpoint"] == COMPUTED


def test_a_named_key_has_to_be_given() -> None:
    """A model that names an API key does not start without one: its endpoint would be open."""

    def program() -> None:
        from disagg_serving.resources import ModelServing

        keyed: Any = {**MODEL, "gateway": {"api_key_secret": "key"}}
        ModelServing("m", {"model": keyed, "zone": "us-east-1a"})

    with pytest.raises(SpecError, match=r"ModelServing m: api_key: is required, because model\.gateway\.api_key_secret names a key"):
        program_graph(program)


def test_the_stack_gives_its_capacity() -> None:
    """Other programs read what each role holds from the stack's output, with the figures of the plan."""
    data = environment(aggregated(name="m"))
    (found,) = environment_graph(data).outputs["capacity"]
    assert (found["model"], found["role"]) == ("m", "aggregated")
    assert found == data_of(capacities(layout(data))[0])
    assert found["kvTokens"]["low"] > 0


def test_a_record_needs_aws_only_where_it_is_asked_for() -> None:
    """The endpoint is that of the record, over TLS with a certificate."""
    data = environment(aggregated(name="m", gateway={"dns": {"zoneId": "Z1", "name": "m.example.com"}, "certificateArn": CERTIFICATE}))
    graph = environment_graph(data)
    record = one(graph, "aws:route53/record:Record")
    assert (record.inputs["name"], record.inputs["type"], record.inputs["zoneId"]) == ("m.example.com", "CNAME", "Z1")
    assert graph.outputs["endpoints"] == {"m": "https://m.example.com"}
    assert not environment_graph(environment(aggregated())).of_type("aws:route53/record:Record")


def test_two_components_of_one_name() -> None:
    """The engine would refuse the second; what it says here names the way out."""
    from disagg_serving.resources import Lws

    def program() -> None:
        for _ in range(2):
            Lws("x", {})

    with pytest.raises(ProgramError, match=r"two resources have the URN .*; give one of them another name"):
        program_graph(program)
