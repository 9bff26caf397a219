"""Components: alone, with existing parts, and what they hand to Pulumi."""

from __future__ import annotations

import json
from typing import Any

import pulumi
import pytest
from disagg_serving.document.resource import COMPUTED, SECRET
from disagg_serving.errors import ToolError
from factories import STACKS, aggregated, environment, existing_cluster, model
from recording import environment_graph, one, program_graph, stack_graph


@pytest.mark.parametrize("stack", STACKS)
def test_every_kubernetes_object_names_its_provider(stack: str) -> None:
    """No object falls back to whatever cluster a kubeconfig on the machine points at."""
    graph = stack_graph(stack)
    objects = [r for r in graph.resources.values() if r.type.startswith("kubernetes:")]
    assert objects
    assert all(r.provider in graph.resources for r in objects)


@pytest.mark.parametrize("stack", STACKS)
def test_every_resource_is_below_the_environment(stack: str) -> None:
    """The façade is the parent of all parts, so that one transform on it reaches everything."""
    graph = stack_graph(stack)
    roots = [r for r in graph.resources.values() if r.parent is None or r.parent.endswith(f"::disagg-serving-{stack}")]
    assert sorted(r.type for r in roots) == ["disagg-serving:index:Environment", "pulumi:pulumi:Stack"]


def test_local_needs_no_aws() -> None:
    """An existing cluster by kubeconfig declares nothing of AWS."""
    packages = {r.type.split(":")[0] for r in stack_graph("local").resources.values()}
    assert packages == {"disagg-serving", "kubernetes", "pulumi"}


def test_components_register_their_inputs_and_outputs_as_the_engine_sees_them() -> None:
    """Ids and other outputs are unknown, names that we choose are known, the kubeconfig is a secret."""
    graph = stack_graph("prod")
    node_class = one(graph, "kubernetes:eks.amazonaws.com/v1:NodeClass").inputs["spec"]
    assert node_class["role"] == "prod-us-east-1-gpu-node"
    assert node_class["subnetSelectorTerms"] == [{"tags": {"disagg-serving/gpu-nodes-of": "prod"}}]
    assert node_class["securityGroupSelectorTerms"] == [{"tags": {"aws:eks:cluster-name": "prod"}}]
    assert one(graph, "eks:index:Cluster").inputs["vpcId"] == COMPUTED
    assert graph.outputs["kubeconfig"] == SECRET
    assert graph.outputs["nodePools"] == ["decode-p5-48xlarge", "prefill-p5-48xlarge"]
    assert graph.outputs["services"]["llama-70b"] == {
        "namespace": "llama-70b",
        "names": ["llama-70b-prefill-api", "llama-70b-decode-api"],
    }


def test_subnets_lie_in_the_vpc_and_do_not_overlap() -> None:
    """Private and public subnets are disjoint parts of the VPC, and only the one of the GPU zone carries the node tag."""
    from ipaddress import IPv4Network

    subnets = stack_graph("prod").of_type("aws:ec2/subnet:Subnet")
    ranges = [IPv4Network(s.inputs["cidrBlock"]) for s in subnets]
    assert all(r.subnet_of(IPv4Network("10.40.0.0/16")) for r in ranges)
    assert not any(a.overlaps(b) for i, a in enumerate(ranges) for b in ranges[:i])
    tagged = [s for s in subnets if "disagg-serving/gpu-nodes-of" in s.inputs["tags"]]
    assert [s.inputs["availabilityZone"] for s in tagged] == ["us-east-1a"]


def test_adding_a_zone_moves_no_subnet() -> None:
    """A third zone leaves ranges and URNs of the first two as they are."""
    two = environment_graph(environment(network={"zones": ["us-east-1a", "us-east-1b"]}))
    three = environment_graph(environment(network={"zones": ["us-east-1a", "us-east-1b", "us-east-1c"]}))
    before = {r.urn: r.inputs["cidrBlock"] for r in two.of_type("aws:ec2/subnet:Subnet")}
    after = {r.urn: r.inputs["cidrBlock"] for r in three.of_type("aws:ec2/subnet:Subnet")}
    assert before.items() <= after.items()


INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
RUNNER = "sg-0123456789abcdef0"


def test_private_endpoint_lets_in_who_is_named() -> None:
    """Each network and group gets a rule for the API's port on the cluster's own group; what is in the cluster comes after it and goes before."""
    opened = {"publicAccess": False, "privateAccessCidrs": ["10.99.0.0/16"], "privateAccessSecurityGroupIds": [RUNNER]}
    graph = environment_graph(environment(cluster={"endpoint": opened, "tags": {"team": "serving"}}))
    rules = {r.name: r for r in graph.of_type(INGRESS)}
    common = {"securityGroupId": COMPUTED, "ipProtocol": "tcp", "fromPort": 443, "toPort": 443, "tags": {"team": "serving"}}
    sources = {name: {k: v for k, v in r.inputs.items() if k not in {*common, "description"}} for name, r in rules.items()}
    assert sources == {"test-api-10-99-0-0-16": {"cidrIpv4": "10.99.0.0/16"}, f"test-api-{RUNNER}": {"referencedSecurityGroupId": RUNNER}}
    assert all(common.items() <= r.inputs.items() for r in rules.values())
    objects = [r for r in graph.resources.values() if r.type.startswith("kubernetes:") and r.provider]
    assert objects
    assert all({r.urn for r in rules.values()} <= graph.requires(r.urn) for r in objects)


def test_private_endpoint_is_closed_by_default() -> None:
    """No rule is made that nobody asked for."""
    assert stack_graph("prod").of_type(INGRESS) == []


def test_auto_mode_settings_of_the_cluster() -> None:
    """The cluster is made in Auto Mode without what does not belong there: no DNS add-on, no instance role, API authentication."""
    inputs = one(stack_graph("prod"), "eks:index:Cluster").inputs
    assert inputs["autoMode"]["enabled"] is True
    assert inputs["autoMode"]["computeConfig"] == {"nodePools": ["general-purpose", "system"]}
    assert inputs["corednsAddonOptions"]["enabled"] is False
    assert inputs["createInstanceRole"] is False
    assert inputs["authenticationMode"] == "API"
    assert inputs["endpointPublicAccess"] is True
    assert inputs["publicAccessCidrs"] == ["203.0.113.0/24"]


def test_node_tags_bring_their_policy() -> None:
    """Tags on nodes need one more policy on the cluster role, or nothing launches; without tags it is not there."""
    policy = "aws:iam/rolePolicy:RolePolicy"
    assert not stack_graph("prod").of_type(policy)
    document = json.loads(one(stack_graph("staging"), policy).inputs["policy"])
    assert {a for s in document["Statement"] for a in s["Action"]} >= {"ec2:RunInstances", "ec2:CreateFleet"}
    assert all("Condition" in s for s in document["Statement"])


@pytest.mark.parametrize(
    ("cluster", "type_token", "expected"),
    [
        ({"creatorAdmin": False, "adminRoleArns": ["arn:aws:iam::123456789012:role/x"]}, "aws:eks/cluster:Cluster",
         {"accessConfig": {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": False}}),
        ({"permissionsBoundaryArn": "arn:aws:iam::123456789012:policy/b"}, "aws:iam/role:Role",
         {"permissionsBoundary": "arn:aws:iam::123456789012:policy/b"}),
        ({}, "aws:iam/role:Role", None),
    ],
)  # fmt: skip
def test_raw_features_reach_what_pulumi_eks_makes(cluster: dict[str, Any], type_token: str, expected: dict[str, Any] | None) -> None:
    """Features that pulumi-eks does not expose are set by a transform on its children, and on nothing else."""
    from disagg_serving.resources.cluster import _raw_features
    from disagg_serving.spec import ClusterSpec

    props = {"accessConfig": {"authenticationMode": "API"}} if "cluster" in type_token else {}
    transform = _raw_features(ClusterSpec.model_validate(cluster))
    result = transform(pulumi.ResourceTransformArgs(True, type_token, "x", props, pulumi.ResourceOptions()))
    assert (result.props if result else None) == expected


def test_crds_outlive_a_destroy_and_controllers_keep_their_own_fields() -> None:
    """CRDs are retained; the webhooks' CA and the certificate, which the controller writes, cause no drift; the rest is untouched."""
    from disagg_serving.resources.lws import CRD, SECRET, WEBHOOKS, keep_and_ignore

    def options(type_token: str) -> pulumi.ResourceOptions | None:
        result = keep_and_ignore(pulumi.ResourceTransformArgs(True, type_token, "x", {}, pulumi.ResourceOptions()))
        return result.opts if result else None

    assert (crd := options(CRD)) is not None
    assert crd.retain_on_delete
    for webhook in WEBHOOKS:
        assert (hook := options(webhook)) is not None
        assert hook.ignore_changes == ["webhooks[*].clientConfig.caBundle"]
    assert (secret := options(SECRET)) is not None
    assert secret.ignore_changes == ["data"]
    assert options("kubernetes:apps/v1:Deployment") is None


def test_only_the_chart_may_take_over_existing_objects() -> None:
    """Kept CRDs, and the switch of the policy controller, are found again through a provider of their own; nothing else adopts anything."""
    graph = stack_graph("prod")
    upserting = [r.urn for r in graph.of_type("pulumi:providers:kubernetes") if r.inputs.get("upsertExistingObjects")]
    users = [r.type for r in graph.resources.values() if r.provider in upserting]
    assert len(upserting) == 1
    assert sorted(users) == ["kubernetes:core/v1:ConfigMap", "kubernetes:helm.sh/v4:Chart"]


def test_existing_controller_installs_nothing() -> None:
    """`lws: {install: existing}` declares no chart, namespace or provider for it."""
    graph = environment_graph(environment(model(gateway={"enabled": False}), lws={"install": "existing"}, networkPolicy={"enabled": False}))
    assert not graph.of_type("kubernetes:helm.sh/v4:Chart")
    assert len(graph.of_type("pulumi:providers:kubernetes")) == 1


def test_existing_cluster_by_name() -> None:
    """A cluster that is looked up in AWS gets the GPU role and access entry that its nodes need; its kubeconfig is unknown offline."""
    graph = environment_graph(existing_cluster(kubeconfig=None, nodeRole=None, securityGroupIds=[], name="shared"))
    assert one(graph, "aws:eks/accessEntry:AccessEntry").inputs["clusterName"] == "shared"
    assert not graph.of_type("eks:index:Cluster")
    provider = one(graph, "pulumi:providers:kubernetes", "test-kubernetes")
    assert provider.inputs["kubeconfig"] in (COMPUTED, SECRET)
    assert provider.inputs["clusterIdentifier"] == "shared"


def test_existing_cluster_by_stack_reference() -> None:
    """Another stack's outputs give cluster, role and subnets; nothing of AWS is made."""
    data = environment(cluster=None, existingCluster={"stackReference": "acme/disagg-serving/prod-cluster"}, network={"gpuZone": "us-east-1a"})
    graph = environment_graph(data)
    assert one(graph, "pulumi:pulumi:StackReference").inputs["id"] == "acme/disagg-serving/prod-cluster"
    assert one(graph, "kubernetes:eks.amazonaws.com/v1:NodeClass").inputs["spec"]["role"] == COMPUTED
    assert not [r for r in graph.resources.values() if r.type.startswith(("aws:", "eks:"))]


def test_existing_cluster_without_auto_mode() -> None:
    """Without Auto Mode no pool is made, and pods select the labels that are given."""
    chosen = {"nodeSelector": {"gpu": "h100"}, "instanceType": "p5.48xlarge"}
    data = existing_cluster(aggregated(server=chosen), autoMode=False, nodeRole=None, securityGroupIds=[])
    graph = environment_graph({**data, "network": {}})
    assert not graph.of_type("kubernetes:karpenter.sh/v1:NodePool")
    (serving,) = graph.of_type("kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet")
    pod = serving.inputs["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
    assert pod["nodeSelector"] == {"gpu": "h100"}


def test_existing_network() -> None:
    """A cluster in an adopted VPC uses its subnets and makes none."""
    network = {
        "gpuZone": "us-east-1a",
        "existing": {"vpcId": "vpc-1", "subnetIds": ["subnet-1", "subnet-2"], "gpuSubnetIds": ["subnet-3"]},
    }
    graph = environment_graph(environment(network=network))
    assert not [r for r in graph.resources.values() if r.type.startswith("aws:ec2/")]
    assert one(graph, "eks:index:Cluster").inputs["subnetIds"] == ["subnet-1", "subnet-2"]
    assert one(graph, "kubernetes:eks.amazonaws.com/v1:NodeClass").inputs["spec"]["subnetSelectorTerms"] == [{"id": "subnet-3"}]


def test_token_goes_into_a_secret_and_nowhere_else() -> None:
    """The Hugging Face token is a Kubernetes Secret's value, marked secret for Pulumi; pods refer to it by name."""
    graph = environment_graph(environment(model(weights={"tokenKey": "hfToken"})), frozenset({"disagg-serving:hfToken"}))
    secret = one(graph, "kubernetes:core/v1:Secret")
    assert secret.inputs["stringData"] in (SECRET, {"token": SECRET})
    assert set(secret.options["additionalSecretOutputs"]) >= {"stringData"}
    workloads = graph.of_type("kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet")
    assert all("secretKeyRef" in json.dumps(w.inputs) and SECRET not in json.dumps(w.inputs) for w in workloads)


def test_missing_environment_is_a_message() -> None:
    """A stack without an environment stops with one sentence that names the key."""
    from disagg_serving.resources import deploy

    with pytest.raises(ToolError, match="disagg-serving:environment"):
        program_graph(deploy)


def test_stack_reference_with_subnets_of_ones_own() -> None:
    """Given subnets win over the other stack's, everything else still comes from it."""
    network = {"gpuZone": "us-east-1a", "existing": {"gpuSubnetIds": ["subnet-9"]}}
    graph = environment_graph(environment(cluster=None, existingCluster={"stackReference": "acme/disagg-serving/x"}, network=network))
    spec = one(graph, "kubernetes:eks.amazonaws.com/v1:NodeClass").inputs["spec"]
    assert spec["subnetSelectorTerms"] == [{"id": "subnet-9"}]
    assert spec["role"] == COMPUTED


def test_administrators_of_two_accounts_with_one_role_name() -> None:
    """No administrator is lost where roles of two accounts have the same name."""
    arns = ["arn:aws:iam::111111111111:role/platform", "arn:aws:iam::222222222222:role/platform"]
    entries = one(environment_graph(environment(cluster={"adminRoleArns": arns})), "eks:index:Cluster").inputs["accessEntries"]
    assert [e["principalArn"] for e in entries.values()] == arns


def test_a_renewed_reservation_keeps_pools_and_pods() -> None:
    """Another reservation id changes the NodeClass's terms and no name: pools, selectors and pods stay."""

    def graph_with(*ids: str) -> Any:
        capacity = {"type": "reserved", "reservationIds": list(ids), "nodes": 1}
        return environment_graph(environment(aggregated(server={"instanceType": "p5.48xlarge", "capacity": capacity})))

    before, after = graph_with("cr-0123456789abcdef0"), graph_with("cr-0123456789abcdef0", "cr-0fedcba9876543210")
    assert list(before.resources) == list(after.resources)
    changed = [r.type for urn, r in before.resources.items() if r.custom and r.inputs != after.resources[urn].inputs]
    assert changed == ["kubernetes:eks.amazonaws.com/v1:NodeClass"]


def test_adding_a_large_model_does_not_drift_running_nodes() -> None:
    """The NodeClass of an instance type stays the same when a model with far larger weights joins it."""
    large = aggregated(
        name="glm", model="glm-5-fp8", maxModelLen=65536, server={"instanceType": "p5.48xlarge", "tensorParallel": 8, "pipelineParallel": 2}
    )
    node_class = "kubernetes:eks.amazonaws.com/v1:NodeClass"
    small, both = environment_graph(environment(model())), environment_graph(environment(model(), large))
    assert one(small, node_class).inputs == one(both, node_class).inputs
