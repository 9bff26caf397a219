"""Findings in the words of a component: whose argument a place is, and which words are keys at all."""

from __future__ import annotations

from typing import Any

import pytest
from disagg_serving import resources
from disagg_serving.errors import Finding, Level
from disagg_serving.phrases import either, say
from disagg_serving.place import Place
from disagg_serving.resources.wording import PYTHON, Language, Wording, language

PLUGIN = Language(snake_case=False, refusal=PYTHON.refusal)


def translate(component: str, finding: Finding, spoken: Language = PYTHON) -> str:
    """What a component says of a finding to a program in a language."""
    kind: Any = getattr(resources, f"{component}Args")
    before = language.set(spoken)
    try:
        return Wording.of(kind).translate(finding).sentence()
    finally:
        language.reset(before)


@pytest.mark.parametrize(
    ("component", "path", "in_python", "in_others"),
    [
        ("NodePools", "network.gpuZone", "zone", "zone"),
        ("NodePools", "nodePools.expireAfterHours", "settings.expire_after_hours", "settings.expireAfterHours"),
        ("NodePools", "existingCluster.nodeRole", "existing_cluster.node_role (of Cluster, there existing)",
         "existingCluster.nodeRole (of Cluster, there existing)"),
        ("Cluster", "cluster.adminRoleArns[0]", "admin_role_arns[0]", "adminRoleArns[0]"),
        ("Cluster", "existingCluster", "existing", "existing"),
        ("Cluster", "network.existing.vpcId", "vpc_id", "vpcId"),
        ("Cluster", "networkPolicy.vpcCidrs[0]", "network_policy.vpc_cidrs[0] (of ModelServing)", "networkPolicy.vpcCidrs[0] (of ModelServing)"),
        ("ModelServing", "models[0].decode.memoryGiB", "model.decode.memory_gib", "model.decode.memoryGib"),
        ("ModelServing", "models[0].extraEnv.maxModelLen", "model.extra_env.maxModelLen", "model.extraEnv.maxModelLen"),
        ("Environment", "network.tags.gpuZone.a", "network.tags.gpuZone.a", "network.tags.gpuZone.a"),
        ("Environment", "networkPolicy.vpcCidrs", "network_policy.vpc_cidrs", "networkPolicy.vpcCidrs"),
    ],
)  # fmt: skip
def test_a_place_is_an_argument(component: str, path: str, in_python: str, in_others: str) -> None:
    """A place is spelled alike where the finding stands and in its words: as this component's argument, or with the component that has it."""
    found = Finding("x", Level.ERROR, path, "is odd", fix=say("set {}", Place.parse(path)))
    assert translate(component, found) == f"{in_python}: is odd; set {in_python}"
    assert translate(component, found, PLUGIN) == f"{in_others}: is odd; set {in_others}"


def test_words_that_are_no_keys_stay() -> None:
    """A key of a role is not the environment's of the same name, and a secret's name, a document and a flag are nobody's keys."""
    fix = say("set {autoscaling.maxReplicaCount}, see docs/observability.md, run `pulumi config set --secret apiKey` or give --max_model_len")
    spoken = translate("ModelServing", Finding("x", Level.ERROR, "models[0].decode", "is odd", fix=fix))
    wanted = "set autoscaling.max_replica_count, see docs/observability.md, run `pulumi config set --secret apiKey` or give --max_model_len"
    assert spoken == f"model.decode: is odd; {wanted}"
    assert translate("NodePools", Finding("x", Level.ERROR, "models[0].decode", "is odd", fix=fix), PLUGIN).endswith("or give --max_model_len")


def test_values_are_spelled_where_they_name_keys() -> None:
    """What stands at a place may be told in keys; a value of the user's own is shown as it is."""
    keys = say("{stackReference} and {name}{}", either(" in YAML", ""))
    assert (
        translate("Cluster", Finding("x", Level.ERROR, "existingCluster", "are too many", keys)) == "existing: stack_reference and name are too many"
    )
    assert translate("Cluster", Finding("x", Level.ERROR, "cluster.name", "is odd", "stackReference")) == "name: stackReference is odd"


def test_an_unknown_key_stays_as_it_is_given() -> None:
    """The spelling may be all that is wrong, so only what stands above it becomes an argument."""
    found = Finding("unknown-key", Level.ERROR, "models[0].maxModelLen", "is not a known key")
    assert translate("ModelServing", found) == "model.maxModelLen: is not a known key"
