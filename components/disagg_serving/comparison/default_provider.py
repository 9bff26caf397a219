"""The default AWS provider as a resource of its own, and what follows from its configuration for every resource without another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..document.plan import PlanDocument
from ..document.resource import Resource, Resources
from ..recording.providers import AWS

TYPE = f"pulumi:providers:{AWS}"
NAME = "default"
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


def has_provider(plan: PlanDocument) -> bool:
    """Whether a plan says what its default provider is; those of older releases do not."""
    return AWS in plan.providers


def with_default_provider(before: PlanDocument, after: PlanDocument, old: Resources, new: Resources) -> tuple[Resources, Resources]:
    """Resources of two plans with the default provider among them, and with what each AWS resource takes from it.

    Since pulumi-aws 7 each regional resource has the provider's region as its own, so that a change of it replaces them one by one; tags
    of the provider are part of each resource's `tagsAll`. Unchanged where one plan does not say what its providers are.
    """
    if any(not has_provider(plan) or not plan.resources for plan in (before, after)):
        return old, new
    given = [plan.providers[AWS] for plan in (before, after)]
    if given[0] == given[1]:
        return old, new
    inherited = ("region",) if all(g.get("region") for g in given) else ()
    return _with_provider(before, old, given[0], inherited), _with_provider(after, new, given[1], inherited)


def _with_provider(plan: PlanDocument, resources: Resources, given: Mapping[str, Any], inherited: tuple[str, ...]) -> Resources:
    tags = given.get("defaultTags")
    tags = tags.get("tags", tags) if isinstance(tags, Mapping) else tags
    found: dict[str, Resource] = {}
    for urn, resource in resources.items():
        more: dict[str, Any] = {}
        if resource.type.startswith((f"{AWS}:", "eks:")) and resource.provider is None:
            if not resource.type.startswith(GLOBAL):
                more |= {key: given[key] for key in inherited}
            if tags and resource.type not in UNTAGGED:
                more["tagsAll"] = tags
        found[urn] = replace(resource, inputs={**more, **resource.inputs}) if more else resource
    urn = f"urn:pulumi:{plan.stack}::{plan.project}::{TYPE}::{NAME}"
    return {**found, urn: Resource(urn, TYPE, NAME, None, None, remote=False, custom=True, inputs=given, depends_on=(), options={})}
