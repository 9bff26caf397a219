"""Buckets for weights, and who may read and fill them: one role a service account, bound by EKS Pod Identity."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, Required, TypedDict

import pulumi

from ..manifests.names import mirror_account
from ..planning.drafts import read_folders, written_folders
from ..planning.shapes import Layout, Served
from ..spec import S3WeightsSpec
from . import iam
from .base import evaluate_args, read_args, require_layout
from .spec_args import ModelSpecArgs

STALE_UPLOAD_DAYS = 3


class WeightsArgs(TypedDict):
    """Arguments of Weights."""

    cluster_name: Required[pulumi.Input[str]]
    """Name of the EKS cluster whose pods read."""

    models: Required[Sequence[ModelSpecArgs]]
    """The models; those without weights.s3 need nothing here."""

    zone: NotRequired[str]
    """Availability zone of the models' pods; required where NodePools are made."""

    partition: NotRequired[Literal["aws", "aws-cn", "aws-us-gov"]]
    """AWS partition. Default: aws."""

    permissions_boundary_arn: NotRequired[str]
    """Permissions boundary of the roles. Default: none."""

    tags: NotRequired[Mapping[str, str]]
    """AWS tags. Default: none."""

    catalog_dirs: NotRequired[Sequence[str]]
    """Folders that add to the catalogue. Default: none."""


class Weights(pulumi.ComponentResource):
    """S3 for the weights of one cluster's models.

    Buckets that it makes stay when it is destroyed: a terabyte is not copied twice by accident.
    """

    def __init__(self, name: str, args: WeightsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Make buckets and roles. Raises pulumi.RunError when a check fails."""
        given = read_args(Weights, name, args, WeightsArgs, opts)
        layout, settings = require_layout(evaluate_args(given), given), given.inputs
        self._declare(name, layout, settings["cluster_name"], settings, opts)

    @classmethod
    def of_layout(cls, name: str, layout: Layout, cluster_name: pulumi.Input[str], settings: Mapping[str, Any], opts: Any) -> "Weights":
        """The weights of a layout that has been checked as part of a whole environment."""
        self = cls.__new__(cls)
        self._declare(name, layout, cluster_name, settings, opts)
        return self

    def _declare(self, name: str, layout: Layout, cluster_name: pulumi.Input[str], settings: Mapping[str, Any], opts: Any) -> None:
        super().__init__("disagg-serving:index:Weights", name, {}, opts)
        self._cluster = cluster_name
        self._partition = settings.get("partition") or "aws"
        self._role_options = {"permissions_boundary": settings.get("permissions_boundary_arn"), "tags": dict(settings.get("tags") or {})}
        made: set[str] = set()
        for served in layout.served:
            s3, model = served.spec.weights.s3, served.spec
            if s3 is None:
                continue
            if s3.create and s3.bucket not in made:
                made.add(s3.bucket)
                self._bucket(s3)
            # one role a service account, which all pairs of a model share
            pairs = [served, *layout.candidates_of(served)]
            self._access(served, s3, "weights-read", model.name, sorted({f for p in pairs for f in read_folders(p)}))
            if model.weights.mirror:
                self._access(served, s3, "weights-write", mirror_account(served), sorted({f for p in pairs for f in written_folders(p)}))
        self.register_outputs({})

    def _bucket(self, s3: S3WeightsSpec) -> None:
        import pulumi_aws as aws  # noqa: PLC0415 (slow: pulumi_aws)

        name, tags = f"{self.pulumi_resource_name}-{s3.bucket}", self._role_options["tags"]
        kept = pulumi.ResourceOptions(parent=self, retain_on_delete=True)
        bucket = aws.s3.Bucket(name, bucket=s3.bucket, tags=tags, opts=kept)
        below = pulumi.ResourceOptions(parent=self, retain_on_delete=True)
        aws.s3.BucketPublicAccessBlock(
            name,
            bucket=bucket.id,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=below,
        )
        aws.s3.BucketPolicy(name, bucket=bucket.id, policy=iam.tls_only_policy(self._partition, s3.bucket), opts=below)
        # parts of an upload that never ended are billed and not shown
        rule = {"id": "unfinished-uploads", "status": "Enabled", "abort_incomplete_multipart_upload": {"days_after_initiation": STALE_UPLOAD_DAYS}}
        aws.s3.BucketLifecycleConfiguration(name, bucket=bucket.id, rules=[{**rule, "filter": {"prefix": ""}}], opts=below)
        if s3.kms_key_arn:
            by_default = {"sse_algorithm": "aws:kms", "kms_master_key_id": s3.kms_key_arn}
            aws.s3.BucketServerSideEncryptionConfiguration(
                name, bucket=bucket.id, rules=[{"apply_server_side_encryption_by_default": by_default, "bucket_key_enabled": True}], opts=below
            )

    def _access(self, served: Served, s3: S3WeightsSpec, purpose: str, account: str, folders: Sequence[str]) -> None:
        """A role for one service account, on folders of one bucket."""
        import pulumi_aws as aws  # noqa: PLC0415 (slow: pulumi_aws)

        name, below = f"{self.pulumi_resource_name}-{served.spec.name}-{purpose}", pulumi.ResourceOptions(parent=self)
        trust = iam.assume_role_policy("pods.eks.amazonaws.com", "sts:TagSession")
        role = aws.iam.Role(name, name_prefix=iam.role_prefix(name), assume_role_policy=trust, **self._role_options, opts=below)
        policy = iam.weights_policy(self._partition, s3.bucket, folders, s3.kms_key_arn, writes=purpose == "weights-write")
        rights = aws.iam.RolePolicy(name, role=role.name, policy=policy, opts=below)
        aws.eks.PodIdentityAssociation(
            name,
            cluster_name=self._cluster,
            namespace=served.spec.kubernetes_namespace,
            service_account=account,
            role_arn=role.arn,
            tags=self._role_options["tags"],
            opts=pulumi.ResourceOptions(parent=self, depends_on=[rights]),
        )
