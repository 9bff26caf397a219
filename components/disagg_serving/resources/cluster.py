"""The EKS Auto Mode cluster with its roles, key and access; or a cluster that exists."""

import json
import re
from collections.abc import Sequence
from typing import Any, NotRequired

import pulumi
import pulumi_kubernetes as k8s

from .. import labels
from ..errors import Finding
from ..manifests.network_policy import build_policy_controller
from ..manifests.node_identity import NodeIdentity
from ..place import Place
from ..rules.standalone import check_cluster
from ..spec import ClusterSpec, ExistingClusterSpec
from ..spec.validation import by_alias, try_parse
from . import iam
from .arguments import ComponentArgs, resolve
from .base import KubernetesObject, id_terms, read_args, require_spec
from .endpoint import endpoint_rules
from .spec_args import ClusterSpecArgs, ExistingClusterSpecArgs

BUILT_IN_POOLS = ["general-purpose", "system"]
"""Auto Mode's own pools; controllers and routers run there."""


class ClusterArgs(ClusterSpecArgs, total=False):
    """Arguments of Cluster: the spec's fields, and what it stands on."""

    existing: ExistingClusterSpecArgs
    """Adopt this cluster instead of making one; the fields of the spec are then not used."""

    vpc_id: pulumi.Input[str]
    """Id of the VPC. Required when a cluster is made."""

    subnet_ids: pulumi.Input[Sequence[pulumi.Input[str]]]
    """Private subnets of the control plane, in two zones or more. Required when a cluster is made."""

    gpu_subnet_ids: NotRequired[pulumi.Input[Sequence[pulumi.Input[str]]]]
    """Subnets of the GPU nodes. Default: those that carry the tag disagg-serving/gpu-nodes-of with the cluster's name."""

    node_role_name: NotRequired[str]
    """Name of the GPU nodes' role. Default: <cluster>-gpu-node."""

    node_tags: NotRequired[bool]
    """Whether NodeClasses carry tags of their own, which need one more policy. Default: false."""

    network_policies: NotRequired[bool]
    """Whether Auto Mode enforces NetworkPolicies, by a ConfigMap in kube-system. Default: true; on a cluster that exists it is its owner's."""


_OWN = [key for key in ClusterArgs.__annotations__ if key not in ClusterSpecArgs.__annotations__]


class Cluster(pulumi.ComponentResource):
    """A cluster and the way into it.

    Outputs: `cluster_name`; `kubeconfig` (secret; None where a file is used); `node_role_name`; `node_identity`, for NodePools; `provider`,
    the Kubernetes provider of everything in it; `adopting`, the one that takes over what is there.
    """

    cluster_name: pulumi.Output[str]
    """Name of the EKS cluster."""

    kubeconfig: pulumi.Output[str]
    """Kubeconfig, a secret."""

    node_role_name: pulumi.Output[str]
    """Name of the GPU nodes' IAM role."""

    node_identity: pulumi.Output[NodeIdentity]
    """What its NodeClasses name: role, subnets and security groups."""

    def __init__(self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Make or adopt the cluster. Raises pulumi.RunError when the args are not valid."""
        raw = read_args(Cluster, name, args, ClusterArgs, opts)
        parsed = try_parse(ExistingClusterSpec, by_alias(ExistingClusterSpec, raw.get("existing"))) if isinstance(raw.get("existing"), dict) else None
        existing = parsed.spec if parsed else None
        raw.faults.extend(f.below("existingCluster") for f in (parsed.findings if parsed else []))

        def rules(made: ClusterSpec | None) -> list[Finding]:
            if "existing" in raw.values and existing is None:
                return []
            found = check_cluster(None if existing else made, existing, raw.get("vpc_id"), raw.get("subnet_ids"))
            return [f for f in found if not (parsed and parsed.lacks(Place.parse(f.path), at=Place(("existingCluster",))))]

        spec = require_spec(raw, ClusterSpec, rules)
        super().__init__("disagg-serving:index:Cluster", name, {}, opts)
        given = {**dict.fromkeys(_OWN), **raw.inputs}
        self._with_outputs = raw.with_outputs
        self.context = existing.context if existing else None
        self._identifier: pulumi.Input[str] | None = None
        self._ready: list[pulumi.Resource] = []
        self._kubernetes: dict[str, k8s.Provider] = {}
        subnets = given["gpu_subnet_ids"]
        if existing is None:
            self._make(spec, given)
        elif existing.kubeconfig:
            self._from_kubeconfig(existing)
        elif existing.stack_reference:
            theirs = self._from_stack(existing, raw)
            subnets = theirs if subnets is None else subnets
        else:
            self._look_up(existing, given["node_role_name"])
        self.kubeconfig = pulumi.Output.secret(self.kubeconfig)
        self.node_identity = self._identity(existing, subnets)
        self.provider = self.kubernetes_provider(f"{name}-kubernetes")
        if existing is None and given["network_policies"] is not False:
            # Environment declared it beside the cluster before; a deletion after the creation would turn the policies off
            formerly = [pulumi.Alias(parent=opts.parent)] if opts and opts.parent else None
            KubernetesObject(name, build_policy_controller(), pulumi.ResourceOptions(parent=self, provider=self.adopting, aliases=formerly))
        self.register_outputs(
            {
                "clusterName": self.cluster_name,
                "kubeconfig": self.kubeconfig,
                "nodeRoleName": self.node_role_name,
                "nodeIdentity": self.node_identity,
            }
        )

    @property
    def adopting(self) -> k8s.Provider:
        """The one provider that takes over what is there: CRDs of an earlier installation, and a ConfigMap that EKS may have made."""
        return self.kubernetes_provider(f"{self.pulumi_resource_name}-adopting", upsert=True)

    def kubernetes_provider(self, name: str, *, upsert: bool = False) -> k8s.Provider:
        """A Kubernetes provider for this cluster, one a name; `upsert` lets it take over objects that exist (only for kept CRDs)."""
        if name not in self._kubernetes:
            self._kubernetes[name] = k8s.Provider(
                name,
                kubeconfig=self.kubeconfig,
                context=self.context,
                cluster_identifier=self._identifier,
                upsert_existing_objects=True if upsert else None,
                opts=pulumi.ResourceOptions(parent=self, depends_on=self._ready),
            )
        return self._kubernetes[name]

    def _make(self, spec: ClusterSpec, given: dict[str, Any]) -> None:
        import pulumi_aws as aws  # noqa: PLC0415 (slow: pulumi_aws)
        import pulumi_eks as eks  # noqa: PLC0415 (slow: pulumi_aws)

        name, cluster_name = self.pulumi_resource_name, spec.name or self.pulumi_resource_name
        below = pulumi.ResourceOptions(parent=self)
        role = aws.iam.Role(
            f"{name}-cluster", assume_role_policy=iam.assume_role_policy("eks.amazonaws.com", "sts:TagSession"),
            permissions_boundary=spec.permissions_boundary_arn, tags=spec.tags, opts=below,
        )  # fmt: skip
        policies: list[pulumi.Resource] = [
            aws.iam.RolePolicyAttachment(
                f"{name}-cluster-{policy}", role=role.name, policy_arn=iam.managed_policy(spec.partition, policy), opts=below
            )
            for policy in iam.CLUSTER_POLICIES
        ]
        if given["node_tags"]:
            policies.append(aws.iam.RolePolicy(f"{name}-node-tags", role=role.name, policy=iam.node_tags_policy(spec.partition), opts=below))
        admins = {
            entry_name(arn): eks.AccessEntryArgs(
                principal_arn=arn,
                access_policies={
                    "admin": eks.AccessPolicyAssociationArgs(
                        policy_arn=iam.access_policy(spec.partition, iam.CLUSTER_ADMIN_ACCESS_POLICY),
                        access_scope=aws.eks.AccessPolicyAssociationAccessScopeArgs(type="cluster"),
                    )
                },
            )
            for arn in spec.admin_role_arns
        }
        credentials = {"role_arn": spec.deployer_role_arn, "profile_name": spec.deployer_profile}
        cluster = eks.Cluster(
            name,
            name=cluster_name,
            version=spec.kubernetes_version,
            kubernetes_service_ip_address_range=spec.service_cidr,
            vpc_id=given["vpc_id"],
            subnet_ids=given["subnet_ids"],
            authentication_mode=eks.AuthenticationMode.API,
            auto_mode=eks.AutoModeOptionsArgs(enabled=True, compute_config={"node_pools": BUILT_IN_POOLS}),
            service_role=role,
            access_entries=admins,
            # Auto Mode brings its own DNS; the add-on would wait for nodes that never come (https://github.com/pulumi/pulumi-eks/issues/1726)
            coredns_addon_options=eks.CoreDnsAddonOptionsArgs(enabled=False),
            create_instance_role=False,
            endpoint_private_access=spec.endpoint.private_access,
            endpoint_public_access=spec.endpoint.public_access,
            public_access_cidrs=spec.endpoint.public_access_cidrs if spec.endpoint.public_access else None,
            enabled_cluster_log_types=spec.log_types,
            encryption_config_key_arn=spec.kms_key_arn or self._key(spec).arn,
            upgrade_policy=aws.eks.ClusterUpgradePolicyArgs(support_type=spec.upgrade_policy),
            deletion_protection=spec.protect,
            provider_credential_opts=eks.KubeconfigOptionsArgs(**credentials) if any(credentials.values()) else None,
            tags=spec.tags,
            opts=pulumi.ResourceOptions(parent=self, protect=spec.protect, depends_on=policies, transforms=[_raw_features(spec)]),
        )
        self.cluster_name = pulumi.Output.from_input(cluster_name)
        self.kubeconfig = cluster.kubeconfig_json
        self._identifier = cluster_name
        self._ready = [cluster, *endpoint_rules(name, spec, cluster, self)]
        self.node_role_name = self._node_role(
            given["node_role_name"] or f"{cluster_name}-gpu-node",
            cluster_name,
            spec.partition,
            spec.permissions_boundary_arn,
            spec.tags,
            cluster,
        )

    def _key(self, spec: ClusterSpec) -> Any:
        import pulumi_aws as aws  # noqa: PLC0415 (slow: pulumi_aws)

        name = self.pulumi_resource_name
        return aws.kms.Key(
            f"{name}-secrets", description=f"Kubernetes secrets of {spec.name or name}", enable_key_rotation=True,
            deletion_window_in_days=30, tags=spec.tags, opts=pulumi.ResourceOptions(parent=self, protect=spec.protect),
        )  # fmt: skip

    def _node_role(
        self,
        role_name: str,
        cluster_name: pulumi.Input[str],
        partition: str,
        boundary: str | None,
        tags: dict[str, str],
        cluster: Any = None,
    ) -> pulumi.Output[str]:
        """The GPU nodes' role and the access entry without which they never join."""
        import pulumi_aws as aws  # noqa: PLC0415 (slow: pulumi_aws)

        name, below = self.pulumi_resource_name, pulumi.ResourceOptions(parent=self)
        # the cluster's instance profile may outlive it and would block the deletion (https://github.com/aws/containers-roadmap/issues/2531)
        role = aws.iam.Role(
            f"{name}-gpu-node", name=role_name, assume_role_policy=iam.assume_role_policy("ec2.amazonaws.com"), permissions_boundary=boundary,
            force_detach_policies=True, tags=tags, opts=below,
        )  # fmt: skip
        for policy in iam.NODE_POLICIES:
            aws.iam.RolePolicyAttachment(f"{name}-gpu-node-{policy}", role=role.name, policy_arn=iam.managed_policy(partition, policy), opts=below)
        after = pulumi.ResourceOptions(parent=self, depends_on=[cluster] if cluster else [])
        entry = aws.eks.AccessEntry(f"{name}-gpu-node", cluster_name=cluster_name, principal_arn=role.arn, type="EC2", tags=tags, opts=after)
        aws.eks.AccessPolicyAssociation(
            f"{name}-gpu-node", cluster_name=cluster_name, principal_arn=role.arn,
            policy_arn=iam.access_policy(partition, iam.AUTO_NODE_ACCESS_POLICY), access_scope={"type": "cluster"},
            opts=pulumi.ResourceOptions(parent=self, depends_on=[entry]),
        )  # fmt: skip
        node_role_name: pulumi.Output[str] = role.name
        return node_role_name

    def _from_kubeconfig(self, existing: ExistingClusterSpec) -> None:
        self.cluster_name = pulumi.Output.from_input(existing.name or "")
        self.kubeconfig = pulumi.Output.from_input(self._with_outputs(existing.kubeconfig or ""))
        self.node_role_name = pulumi.Output.from_input(self._with_outputs(existing.node_role or ""))
        # not the path or context, whose change would replace everything in the cluster
        self._identifier = self.pulumi_resource_name

    def _look_up(self, existing: ExistingClusterSpec, given_role: str | None) -> None:
        import pulumi_aws as aws  # noqa: PLC0415 (slow: pulumi_aws)

        name, region = existing.name or "", pulumi.Config("aws").get("region")
        found = aws.eks.get_cluster_output(name=name, opts=pulumi.InvokeOutputOptions(parent=self))
        self.cluster_name = pulumi.Output.from_input(name)
        self.kubeconfig = pulumi.Output.all(found.endpoint, found.certificate_authorities).apply(
            lambda v: exec_kubeconfig(existing, region, v[0], v[1][0]["data"])
        )
        self._identifier = name
        if existing.node_role or not existing.auto_mode:
            self.node_role_name = pulumi.Output.from_input(self._with_outputs(existing.node_role or ""))
        else:
            self.node_role_name = self._node_role(given_role or f"{name}-gpu-node", name, existing.partition, None, {})

    def _from_stack(self, existing: ExistingClusterSpec, given: ComponentArgs) -> pulumi.Output[Any]:
        reference = existing.stack_reference or ""
        other = pulumi.StackReference(reference, opts=pulumi.ResourceOptions(parent=self))

        def output(name: str, kind: Any) -> pulumi.Output[Any]:
            return resolve(other.get_output(name), kind, f"existing.stack_reference: output {name} of {reference}", given)

        self.cluster_name, self.kubeconfig = output("clusterName", str), output("kubeconfig", str)
        self.node_role_name = pulumi.Output.from_input(self._with_outputs(existing.node_role)) if existing.node_role else output("nodeRoleName", str)
        self._identifier = self.pulumi_resource_name
        return output("gpuSubnetIds", list[str])

    def _identity(self, existing: ExistingClusterSpec | None, subnets: Any) -> pulumi.Output[NodeIdentity]:
        groups = id_terms(self._with_outputs(existing.security_group_ids)) if existing and existing.security_group_ids else None
        identity: Any = {
            "role": self.node_role_name,
            "subnet_terms": id_terms(subnets) if subnets is not None else [{"tags": {labels.GPU_SUBNET_TAG: self.cluster_name}}],
            "security_group_terms": groups if groups is not None else [{"tags": {labels.CLUSTER_SECURITY_GROUP_TAG: self.cluster_name}}],
        }
        return pulumi.Output.from_input(identity)


def entry_name(arn: str) -> str:
    """A name for a role's access entry: account and role, since two accounts may have roles of one name."""
    return re.sub(r"[^A-Za-z0-9]+", "-", arn.split(":", 4)[-1]).strip("-")


def exec_kubeconfig(existing: ExistingClusterSpec, region: str | None, endpoint: str, authority: str) -> str:
    """A kubeconfig whose token the AWS command line makes on use, so that none is stored."""
    name = existing.name or ""
    args = ["eks", "get-token", "--cluster-name", name]
    args += ["--region", region] if region else []
    args += ["--role-arn", existing.deployer_role_arn] if existing.deployer_role_arn else []
    run: dict[str, Any] = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "aws", "args": args}
    if existing.deployer_profile:
        run["env"] = [{"name": "AWS_PROFILE", "value": existing.deployer_profile}]
    user = {"exec": run}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": endpoint, "certificate-authority-data": authority}}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    )


def _raw_features(spec: ClusterSpec) -> Any:
    """What pulumi-eks does not expose, set on the resources that it makes."""

    def transform(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
        props: dict[str, Any] = dict(args.props)
        if args.type_ == "aws:eks/cluster:Cluster" and not spec.creator_admin:
            props["accessConfig"] = {**(props.get("accessConfig") or {}), "bootstrapClusterCreatorAdminPermissions": False}
        elif args.type_ == "aws:iam/role:Role" and spec.permissions_boundary_arn:
            props["permissionsBoundary"] = spec.permissions_boundary_arn
        else:
            return None
        return pulumi.ResourceTransformResult(props, args.opts)

    return transform
