"""What changes of the network, the cluster, roles, keys and buckets mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...document.difference import Op
from ...errors import Level
from .cases import NODE_POOL, Case, Effect, Judge, drift, input_at

SUBNET = "aws:ec2/subnet:Subnet"
KEPT = "retainOnDelete"
DELETION_DAYS = 30
IDENTITY = ("profile", "assumeRole", "allowedAccountIds", "forbiddenAccountIds")
"""Configuration of the provider by which it acts for another account or role; `assumeRoles` and `assumeRoleWithWebIdentity` among it."""


def _network(case: Case) -> Iterator[Effect]:
    if case.goes:
        what = case.change.type.rsplit(":", 1)[1].lower()
        made = " and made anew" if case.op is Op.REPLACE else ""
        yield Effect(f"the {what} is deleted{made}, which AWS allows only when no node, load balancer or cluster uses it", Level.ERROR)


def _route(case: Case) -> Iterator[Effect]:
    if case.goes:
        yield Effect("nodes behind it lose their way out for a moment: pulls, downloads and joining nodes fail meanwhile", Level.WARNING)


def _nat(case: Case) -> Iterator[Effect]:
    if case.goes:
        yield Effect("nodes of its zone have no way out until another is there, and their public address changes", Level.WARNING)


def _address(case: Case) -> Iterator[Effect]:
    if case.goes:
        yield Effect("a public address of outgoing traffic is given up: lists of others that allow it must change", Level.WARNING)


def _cluster(case: Case) -> Iterator[Effect]:
    if case.goes:
        made = " and made anew" if case.op is Op.REPLACE else ""
        yield Effect(f"the cluster is deleted{made} with every model in it", Level.ERROR)
        return
    before, after = case.values("version")
    if before != after and before and after:
        yield _upgrade(str(before), str(after))
        # the new version has an image of its own
        yield from drift(case, (r for r in case.all_after.values() if r.type == NODE_POOL))
    if case.touches("encryptionConfigKeyArn"):
        yield Effect("EKS keeps the key that secrets were first encrypted with: AWS refuses another one", Level.WARNING)
    if case.touches("subnetIds"):
        yield _subnets(*({input_at(r, "availabilityZone") for r in rs.values() if r.type == SUBNET} for rs in (case.all_before, case.all_after)))
    if case.touches("publicAccessCidrs", "endpointPublicAccess"):
        yield Effect("who reaches the cluster's API changes", Level.WARNING)
    if case.touches("accessEntries"):
        yield Effect("who may administer the cluster changes", Level.WARNING)
    if case.touches("autoMode"):
        yield Effect("Auto Mode's built-in pools change: pods of controllers and routers on their nodes move", Level.WARNING)
    if case.values("deletionProtection") == (True, False):
        yield Effect("EKS no longer refuses to delete the cluster", Level.WARNING)


def _subnets(before: set[Any], after: set[Any]) -> Effect:
    """Other subnets of a cluster; where a zone is not said, nobody can tell."""
    other = before ^ after
    if other and None not in before | after:
        zones = ", ".join(sorted(other))
        return Effect(f"EKS refuses other zones than those that the cluster was made with, here {zones}: make a cluster beside this one", Level.ERROR)
    return Effect("EKS takes other subnets only in the zones that the cluster was made with", Level.WARNING)


def _upgrade(before: str, after: str) -> Effect:
    old, new = (tuple(int(part) for part in v.split(".") if part.isdigit()) for v in (before, after))
    if new < old:
        return Effect(f"EKS cannot go back from {before} to {after}", Level.ERROR)
    if old[:1] == new[:1] and new[1:2] > (old[1] + 1,):
        return Effect(f"EKS upgrades one minor version at a time, not from {before} to {after}", Level.ERROR)
    return Effect(f"the control plane goes from {before} to {after}, with no way back", Level.WARNING)


def _key(case: Case) -> Iterator[Effect]:
    if case.goes:
        days = input_at(case.before, "deletionWindowInDays") or DELETION_DAYS
        yield Effect(f"the key is deleted after {days} days, and what was encrypted with it can never be read again", Level.ERROR)


def _is_kept(case: Case) -> bool:
    return case.before is not None and bool(case.before.options.get(KEPT))


def _bucket(case: Case) -> Iterator[Effect]:
    if not case.goes:
        return
    if _is_kept(case):
        yield Effect("the bucket and its data stay, but nobody manages them any more", Level.WARNING)
    else:
        yield Effect("the bucket is deleted with the weights in it", Level.ERROR)


def _bucket_setting(case: Case) -> Iterator[Effect]:
    if case.goes and not _is_kept(case):
        yield Effect("a setting that protects the bucket goes", Level.WARNING)


def _role(case: Case) -> Iterator[Effect]:
    if case.goes:
        until = " until the new one is in place" if case.op is Op.REPLACE else ""
        yield Effect(f"who acts by it has no rights{until}", Level.WARNING)
    elif case.touches("assumeRolePolicy", "permissionsBoundary"):
        yield Effect("who may take the role, or what it may do, changes", Level.WARNING)


def _rights(case: Case) -> Iterator[Effect]:
    if case.op is not Op.CREATE:
        yield Effect("what the role may do changes", Level.INFO if case.op is Op.UPDATE else Level.WARNING)


def _entry(case: Case) -> Iterator[Effect]:
    if case.goes:
        until = " until it is there again" if case.op is Op.REPLACE else ""
        yield Effect(f"nodes or people of this role are not let into the cluster{until}", Level.WARNING)


def _ingress(case: Case) -> Iterator[Effect]:
    if case.op is not Op.CREATE:
        yield Effect("who reaches the cluster's private API endpoint changes", Level.WARNING)


def _record(case: Case) -> Iterator[Effect]:
    if case.goes:
        yield Effect("the name under which clients call the model changes or goes", Level.WARNING)


def _provider(case: Case) -> Iterator[Effect]:
    """The default provider: what it says holds for every AWS resource without a provider of its own."""
    before, after = case.values("region")
    if before != after and before and after:
        yield Effect(f"every regional AWS resource is made anew in {after}, and what runs in {before} is deleted with its data", Level.ERROR)
    elif before != after:
        what = f"aws:region is {after}" if after else f"aws:region is no longer {before}"
        yield Effect(
            f"{what}, else the environment says it: if the region becomes another, every regional AWS resource is made anew there", Level.WARNING
        )
    moved = sorted({path.split(".")[0].split("[")[0] for path in case.paths() if path.startswith(IDENTITY)})
    if moved:
        yield Effect(
            f"{', '.join(f'aws:{key}' for key in moved)}: in another account nothing of this stack is found, all is made anew there, "
            "and what runs in the former account stays and is managed by nobody",
            Level.ERROR,
        )
    if case.touches("defaultTags"):
        yield Effect("the tags of every AWS resource change: policies and bills that go by them follow", Level.WARNING)


AWS_EFFECTS: Mapping[str, Judge] = {
    "pulumi:providers:aws": _provider,
    "aws:ec2/vpc:Vpc": _network,
    SUBNET: _network,
    "aws:ec2/internetGateway:InternetGateway": _nat,
    "aws:ec2/natGateway:NatGateway": _nat,
    "aws:ec2/eip:Eip": _address,
    "aws:ec2/route:Route": _route,
    "aws:ec2/routeTable:RouteTable": _route,
    "aws:ec2/routeTableAssociation:RouteTableAssociation": _route,
    "aws:ec2/vpcEndpoint:VpcEndpoint": _route,
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": _ingress,
    "aws:eks/cluster:Cluster": _cluster,
    "eks:index:Cluster": _cluster,
    "aws:eks/accessEntry:AccessEntry": _entry,
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": _entry,
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": _role,
    "aws:iam/role:Role": _role,
    "aws:iam/rolePolicy:RolePolicy": _rights,
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": _rights,
    "aws:kms/key:Key": _key,
    "aws:s3/bucket:Bucket": _bucket,
    "aws:s3/bucketPolicy:BucketPolicy": _bucket_setting,
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": _bucket_setting,
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": _bucket_setting,
    "aws:route53/record:Record": _record,
}
"""By type; a type that is not here has no effect to tell."""
