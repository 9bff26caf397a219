"""The default AWS provider: what a stack's `aws:` configuration says, and what follows from it for each resource."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from .graph import SECRET

AWS = "aws"
TYPE = f"pulumi:providers:{AWS}"
NAME = "default"
CREDENTIALS = frozenset({"accessKey", "secretKey", "token", "webIdentityToken", "externalId"})
"""Keys whose values no plan shows, also where a file holds them in the clear."""
GLOBAL = ("aws:iam/", "aws:route53/", "aws:cloudfront/", "aws:organizations/")
"""Services without a region."""
UNTAGGED = frozenset(
    {
        "aws:ec2/route:Route",
        "aws:ec2/routeTableAssociation:RouteTableAssociation",
        "aws:eks/accessPolicyAssociation:AccessPolicyAssociation",
        "aws:iam/rolePolicy:RolePolicy",
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        "aws:route53/record:Record",
        "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
        "aws:s3/bucketPolicy:BucketPolicy",
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
    }
)
"""Types without tags: schemas without `tags_all` in hashicorp/terraform-provider-aws, internal/service."""

Resources = Mapping[str, Mapping[str, Any]]


def configured(config: Mapping[str, Any], secrets: frozenset[str]) -> dict[str, dict[str, Any]]:
    """`providers` of a plan: the `aws:` configuration by key; what is encrypted or a credential is `<secret>`."""
    prefix = f"{AWS}:"
    plain = {key.removeprefix(prefix): _shown(key.removeprefix(prefix), value) for key, value in config.items() if key.startswith(prefix)}
    hidden = dict.fromkeys((key.removeprefix(prefix) for key in secrets if key.startswith(prefix)), SECRET)
    return {AWS: dict(sorted({**plain, **hidden}.items()))}


def _shown(key: str, value: Any) -> Any:
    if key in CREDENTIALS or (isinstance(value, Mapping) and value.keys() == {"secure"}):
        return SECRET
    if isinstance(value, Mapping):
        return {str(k): _shown(str(k), v) for k, v in value.items()}
    if isinstance(value, str) and value.startswith(("{", "[")):
        with suppress(ValueError):  # the form in which `pulumi config set` keeps structures
            return _shown(key, json.loads(value))
    return [_shown("", v) for v in value] if isinstance(value, list) else value


def compared(before: Mapping[str, Any], after: Mapping[str, Any], old: Resources, new: Resources) -> tuple[Resources, Resources]:
    """Resources of two plans with the default provider among them, and with what each AWS resource takes from it.

    Since pulumi-aws 7 each regional resource has the provider's region as its own, so that a change of it replaces them one by one; tags
    of the provider are part of each resource's `tagsAll`. Unchanged where one plan does not say what its providers are.
    """
    if any("providers" not in p or not p.get("resources") for p in (before, after)):
        return old, new
    given = [p["providers"].get(AWS, {}) for p in (before, after)]
    if given[0] == given[1]:
        return old, new
    inherited = ("region",) if all(g.get("region") for g in given) else ()
    return _with_provider(before, old, given[0], inherited), _with_provider(after, new, given[1], inherited)


def _with_provider(plan: Mapping[str, Any], resources: Resources, given: Mapping[str, Any], inherited: tuple[str, ...]) -> Resources:
    tags = given.get("defaultTags")
    tags = tags.get("tags", tags) if isinstance(tags, Mapping) else tags
    found: dict[str, Mapping[str, Any]] = {}
    for urn, resource in resources.items():
        kind = resource["type"]
        more: dict[str, Any] = {}
        if kind.startswith((f"{AWS}:", "eks:")) and resource["provider"] is None:
            if not kind.startswith(GLOBAL):
                more |= {key: given[key] for key in inherited}
            if tags and kind not in UNTAGGED:
                more["tagsAll"] = tags
        found[urn] = {**resource, "inputs": {**more, **resource["inputs"]}}
    urn = f"urn:pulumi:{plan['stack']}::{plan['project']}::{TYPE}::{NAME}"
    empty: dict[str, Any] = {"parent": None, "provider": None, "remote": False, "custom": True, "dependsOn": [], "options": {}}
    return {**found, urn: {**empty, "urn": urn, "type": TYPE, "name": NAME, "inputs": given}}
