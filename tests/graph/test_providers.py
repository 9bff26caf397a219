"""The default AWS provider in a comparison: region, account and tags of a stack's configuration, which no resource's input shows."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from changes import compared, difference_of, edit
from disagg_serving.comparison.base_plan import read_plan
from disagg_serving.comparison.compare import compare
from disagg_serving.comparison.default_provider import TYPE
from disagg_serving.document.difference import Change, Op
from disagg_serving.document.plan import PlanDocument
from disagg_serving.document.resource import SECRET
from disagg_serving.errors import Level
from disagg_serving.recording.plan import Plan, make_plan
from disagg_serving.records import data_of
from disagg_serving.report.json import render_json
from disagg_serving.resources.environment import TYPE as ENVIRONMENT
from recording import PROJECT

ROLE = "arn:aws:iam::123456789012:role/a"


def plan_of(**config: Any) -> Plan:
    """The plan of prod with other `aws:` configuration; None removes a key."""
    file = PROJECT.stack_file("prod")
    given = {**file.config, **{f"aws:{key}": value for key, value in config.items()}}
    environment, region = deepcopy(file.environment), config.get("region") or "us-east-1"
    edit(environment, {"network.zones": [f"{region}a", f"{region}b"], "network.gpuZone": f"{region}a"})
    secrets = {k for k, v in given.items() if isinstance(v, dict) and "secure" in v}
    kept = {k: v for k, v in given.items() if v is not None and k not in secrets}
    return make_plan(PROJECT, replace(file, environment=environment, config=kept, secrets=file.secrets | secrets | {"aws:token"}))


def between(before: dict[str, Any], after: dict[str, Any]) -> tuple[Plan, dict[str, Change], Change]:
    """The plan that was compared, its changes by type, and that of the provider."""
    found = compared(plan_of(**before), plan_of(**after))
    by_type = {c.type: c for c in found.changes}
    return found, by_type, by_type[TYPE]


def test_another_region_replaces_what_is_regional() -> None:
    """VPC, key and cluster have no region among their inputs, and are made anew all the same; roles are global."""
    found, by_type, provider = between({}, {"region": "us-west-2"})
    assert provider.severity is Level.ERROR
    assert "every regional AWS resource is made anew in us-west-2, and what runs in us-east-1 is deleted" in provider.effect
    for kind in ("aws:ec2/vpc:Vpc", "aws:kms/key:Key", "eks:index:Cluster", "aws:ec2/internetGateway:InternetGateway"):
        assert by_type[kind].op is Op.REPLACE
        assert ("region", "us-east-1", "us-west-2", True) in [(p.path, p.before, p.after, p.forces_replacement) for p in by_type[kind].paths]
    assert by_type["aws:kms/key:Key"].severity is Level.ERROR
    assert not any(p.path == "region" for c in found.changes if c.type.startswith("aws:iam/") for p in c.paths)
    assert found.changes[0].type == TYPE


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        ({"profile": "a"}, {"profile": "b"}, "aws:profile"),
        ({}, {"profile": "b"}, "aws:profile"),
        ({"assumeRole": {"roleArn": ROLE}}, {"assumeRole": {"roleArn": ROLE + "b"}}, "aws:assumeRole"),
        ({}, {"assumeRoles": json.dumps([{"roleArn": ROLE}])}, "aws:assumeRoles"),
        ({"allowedAccountIds": ["1"]}, {"allowedAccountIds": ["2"]}, "aws:allowedAccountIds"),
    ],
)
def test_another_account(before: dict[str, Any], after: dict[str, Any], key: str) -> None:
    """Who acts, and so perhaps the account, is an error of its own: nothing is deleted, and nothing is found."""
    found, by_type, provider = between(before, after)
    assert (provider.op, provider.severity, list(by_type)) == (Op.UPDATE, Level.ERROR, [TYPE])
    assert provider.effect.startswith(f"{key}: in another account nothing of this stack is found")
    assert difference_of(found).unchanged == len(plan_of().resources) - 1


def test_default_tags_are_part_of_each_resource() -> None:
    """Tags of the provider update what can have tags, and nothing else."""
    _, by_type, provider = between({"defaultTags": {"tags": {"team": "a"}}}, {"defaultTags": '{"tags": {"team": "b"}}'})
    assert (provider.severity, {c.op for c in by_type.values()}) == (Level.WARNING, {Op.UPDATE})
    assert [(p.path, p.before, p.after) for p in by_type["aws:ec2/vpc:Vpc"].paths] == [("tagsAll.team", "a", "b")]
    assert {"aws:iam/role:Role", "eks:index:Cluster"} <= by_type.keys()
    assert not {"aws:ec2/route:Route", "aws:iam/rolePolicyAttachment:RolePolicyAttachment"} & by_type.keys()


def test_a_region_of_the_environment_is_not_known() -> None:
    """Where a file leaves the region to the environment, the plan warns and claims no replacement."""
    _, by_type, provider = between({"region": None}, {})
    assert (provider.severity, list(by_type)) == (Level.WARNING, [TYPE, ENVIRONMENT])


def test_no_credential_is_shown() -> None:
    """Keys in the clear, encrypted ones, and those inside a structure stay out of the plan."""
    inside = {"assumeRole": {"roleArn": ROLE, "externalId": "MARKED"}, "endpoints": '[{"s3": {"secure": "MARKED"}}]'}
    plain = plan_of(secretKey="MARKED", **inside)
    assert "MARKED" not in render_json([plain], as_list=False)
    assert [f.id for f in plain.checks if f.level is Level.ERROR] == ["provider-credentials"]
    plan = plan_of(secretKey={"secure": "MARKED"}, **inside)
    assert "MARKED" not in render_json([plan], as_list=False)
    assert plan.providers["aws"]["token"] == plan.providers["aws"]["secretKey"] == SECRET


def test_a_base_that_does_not_say() -> None:
    """The plan of a version without `providers` is compared without them, and that is said."""
    old = data_of(plan_of(region="eu-west-1"), PlanDocument)
    del old["providers"]
    found = compare(read_plan(old), plan_of(), "v0.1", "0" * 40)
    assert TYPE not in {c.type for c in found.changes}
    assert "v0.1 does not say its aws: configuration: region, account and tags are not compared" in difference_of(found).notes
