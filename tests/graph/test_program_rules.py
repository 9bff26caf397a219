"""Rules across a whole program: what its components cannot see of each other, found in the plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks
import pulumi_kubernetes as k8s
import pytest
from disagg_serving import labels
from disagg_serving.errors import Level
from disagg_serving.recording.graph import declared
from disagg_serving.resources import Cluster, Gateway, Lws
from disagg_serving.rules import check_objects
from factories import STACKS
from programs import RULES, environment, found, inside, model, pools, serve
from recording import program_graph, stack_graph


def other_zone() -> None:
    """Pods in another zone than their nodes."""
    opts = inside()
    pools("gpu", opts)
    serve("m", opts, "us-east-1b")


def other_pool() -> None:
    """Pods of another instance type than any pool of the program."""
    opts = inside()
    pools("gpu", opts, model(server={"instance_type": "p5en.48xlarge", "tensor_parallel": 4}))
    serve("m", opts)


def too_many() -> None:
    """Models that pools were not made for."""
    opts = inside()
    pools("gpu", opts)
    serve("m", opts)
    serve("n", opts, name="n")


def more_replicas() -> None:
    """A model that pools were made for at half its size."""
    opts = inside()
    pools("gpu", opts)
    serve("m", opts, server={"instance_type": "p5.48xlarge", "tensor_parallel": 4, "replicas": 4})


def same_names() -> None:
    """Two environments of one name."""
    environment("a", name="one")
    environment("b", name="one")


def same_role() -> None:
    """Two roles of one name."""
    for name in ("a", "b"):
        aws.iam.Role(name, name="gpu", assume_role_policy="{}")


def same_cluster() -> None:
    """Two clusters of one name by one provider, which is handed on to one of them by what it is a part of."""
    region = aws.Provider("east", region="us-east-1")
    part = pulumi.ComponentResource("own:index:Part", "part", None, pulumi.ResourceOptions(providers=[region]))
    eks.Cluster("a", name="prod", opts=pulumi.ResourceOptions(parent=part))
    eks.Cluster("b", name="prod", opts=pulumi.ResourceOptions(providers={"aws": region}))


def elsewhere() -> None:
    """A cluster, and a model that is not told of it."""
    Cluster("made", {"vpc_id": "vpc-1", "subnet_ids": ["subnet-1", "subnet-2"]})
    serve("m", None)


def beside_eks() -> None:
    """A plain cluster, and a model that is not told of it."""
    eks.Cluster("made")
    serve("m", None)


def beside_environment() -> None:
    """An environment, and a model that is not told of its cluster."""
    environment("made", models=[model("q")])
    serve("m", None)


CASES: list[tuple[Callable[[], None], str, list[str]]] = [
    (same_names, "name-twice", ["Cluster b", "one is the name of EKS cluster a of Cluster a, too", "give one another name"]),
    (same_cluster, "name-twice", ["Cluster a: prod is the name of EKS cluster b of the program, too"]),
    (same_role, "name-twice", ["Role b: gpu is the name of IAM role a of the program, too"]),
    (
        elsewhere,
        "object-cluster",
        ["all of ModelServing m", "while the program makes Cluster made", "providers=[cluster.provider]", "`kubernetes:context`"],
    ),
    (beside_eks, "object-cluster", ["providers=[pulumi_kubernetes.Provider('made', kubeconfig=cluster.kubeconfig_json)]"]),
    (beside_environment, "object-cluster", ["Namespace m/m: ", "providers=[environment.cluster.provider]"]),
    (
        other_zone,
        "object-pool",
        ["topology.kubernetes.io/zone us-east-1b", "of NodePools gpu has us-east-1a", "the pools and the model the same one"],
    ),
    (
        other_pool,
        "object-pool",
        ["server-p5-48xlarge is no pool of this program, which makes server-p5en-48xlarge; give NodePools this model, too"],
    ),
    (too_many, "object-pool", ["ends at 8 GPUs", "LeaderWorkerSet m/m, LeaderWorkerSet n/n ask for 16"]),
    (more_replicas, "object-pool", ["ends at 8 GPUs, and LeaderWorkerSet m/m asks for 16; give NodePools every model as it is served"]),
]


@pytest.mark.parametrize(("program", "rule", "says"), CASES, ids=[c[0].__name__ for c in CASES])
def test_what_components_cannot_see_of_each_other(program: Callable[[], None], rule: str, says: list[str]) -> None:
    """What only the whole program shows is an error of its own rule that names both sides."""
    sentences = [sentence for found_rule, sentence in found(program) if found_rule == rule]
    assert sentences
    assert [words for words in says if not any(words in s for s in sentences)] == []


def two_clusters() -> None:
    """The same model and pools in two clusters."""
    for name in ("east", "west"):
        opts = inside(name)
        pools(name, opts)
        serve(name, opts)


def two_environments() -> None:
    """Two environments with names of their own."""
    environment("east")
    environment("west")


def two_regions() -> None:
    """Clusters and roles of one name in two regions or accounts, with providers in each form, and by what they are a part of."""
    for region in ("us-east-1", "us-west-2"):
        provider = aws.Provider(region, region=region)
        part = pulumi.ComponentResource("own:index:Part", region, None, pulumi.ResourceOptions(providers=[provider]))
        eks.Cluster(f"part-{region}", name="inherited", opts=pulumi.ResourceOptions(parent=part))
        aws.iam.Role(region, name="gpu", assume_role_policy="{}", opts=pulumi.ResourceOptions(parent=part))
    east, west = aws.Provider("east"), aws.Provider("west")
    eks.Cluster("east", name="prod", opts=pulumi.ResourceOptions(providers=[east]))
    eks.Cluster("west", name="prod", opts=pulumi.ResourceOptions(providers={"aws": west}))
    eks.Cluster("default", name="prod")


def two_controllers() -> None:
    """The controller in two clusters."""
    for name in ("east", "west"):
        Lws(name, {}, inside(name))


def by_hand(name: str, opts: pulumi.ResourceOptions, template: Any) -> None:
    """A NodePool of the program's own."""
    provider = pulumi.ResourceOptions(provider=opts.providers[0])  # type: ignore[index]
    k8s.apiextensions.CustomResource(
        name, api_version="karpenter.sh/v1", kind="NodePool", metadata={"name": name}, spec={"template": template}, opts=provider
    )


def pools_by_hand() -> None:
    """Pools of the program's own beside those of NodePools: by label, by a list, for any pool, and with what only the deployment knows."""
    requirements: list[Any] = [
        {"key": labels.POOL, "operator": "In", "values": ["other", "server-p5-48xlarge"]},
        {"key": labels.POOL, "operator": "Exists"},
    ]
    known = {"metadata": {"labels": {labels.POOL: "server-p5-48xlarge"}}, "spec": {}}
    unknown = k8s.core.v1.ConfigMap("labels").metadata.uid
    templates = [known, *({"spec": {"requirements": [r]}} for r in requirements)]
    for i, template in enumerate([*templates, {"metadata": {"labels": {labels.POOL: unknown}}}, {"metadata": {"labels": unknown}}, unknown]):
        opts = inside(f"c{i}")
        pools(f"c{i}", opts, model(server={"instance_type": "p5en.48xlarge", "tensor_parallel": 4}))
        by_hand(f"hand{i}", opts, template)
        serve(f"c{i}", opts)


def across_stacks() -> None:
    """What other stacks hold the other half of: an endpoint and a model, without pools."""
    opts = inside()
    serve("m", opts)
    Gateway("other", {"model": model("other"), "zone": "us-east-1a"}, opts)


def in_parts() -> None:
    """Pools of two kinds by two components, a patch of what is there, and something that is only read."""
    opts = inside()
    provider = pulumi.ResourceOptions(provider=opts.providers[0])  # type: ignore[index]
    pools("a", opts)
    pools("b", opts, model(server={"instance_type": "p5en.48xlarge", "tensor_parallel": 4}))
    serve("m", opts)
    k8s.core.v1.NamespacePatch("patch", metadata={"name": "m"}, opts=provider)
    k8s.core.v1.Namespace.get("read", "m", opts=provider)


@pytest.mark.parametrize(
    "program",
    [two_clusters, two_controllers, two_regions, two_environments, across_stacks, in_parts, pools_by_hand],
    ids=lambda p: p.__name__,
)
def test_programs_that_are_well(program: Callable[[], None]) -> None:
    """What may be declared again, and what other stacks hold, is no fault."""
    assert found(program) == []


@pytest.mark.parametrize("key", ["kubeconfig", "context", "cluster"])
def test_a_configured_default_provider_leads_to_a_cluster(key: str) -> None:
    """The stack's configuration may lead the default provider to another cluster than those of the program; other keys of it do not."""
    assert found(elsewhere, f"kubernetes:{key}", "aws:region") == []
    assert [rule for rule, _ in found(elsewhere, "kubernetes:namespace", "aws:region")] == ["object-cluster"]


def test_advice_about_a_cluster_works() -> None:
    """The provider that the advice names removes the finding, also that of a plain cluster."""

    def told() -> None:
        cluster = eks.Cluster("made")
        serve("m", pulumi.ResourceOptions(providers=[k8s.Provider("made", kubeconfig=cluster.kubeconfig_json)]))

    def told_by_environment() -> None:
        serve("m", pulumi.ResourceOptions(providers=[environment("made", models=[model("q")]).cluster.provider]))

    assert [rule for program in (told, told_by_environment) for rule, _ in found(program) if rule == "object-cluster"] == []


def test_what_another_stack_may_make_is_no_error() -> None:
    """Pools of a model may be another stack's, and whoever writes pools by hand may have more of them there: then a plan only warns."""

    def other_zone_by_hand() -> None:
        opts = inside()
        pools("gpu", opts, model(server={"instance_type": "p5en.48xlarge", "tensor_parallel": 4}))
        pod_labels = {labels.POOL: "server-p5-48xlarge", labels.ZONE: "us-east-1b"}
        by_hand("hand", opts, {"metadata": {"labels": pod_labels}})
        serve("m", opts)

    for program in (other_pool, other_zone_by_hand):
        findings = check_objects(declared(program_graph(program)))
        assert [(f.id, f.level) for f in findings if f.id in RULES] == [("object-pool", Level.WARNING)]


@pytest.mark.parametrize("stack", STACKS)
def test_shipped_stacks_are_well(stack: str) -> None:
    """The project's own stacks pass."""
    assert [f for f in check_objects(declared(stack_graph(stack))) if f.id in RULES] == []
