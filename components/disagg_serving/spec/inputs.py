"""Forms of what components take beside a spec: ids and names that are often another resource's."""

from __future__ import annotations

from typing import Any

from .cluster import ClusterName, IamRoleName, PolicyArn, SecurityGroupId
from .network import SubnetId, VpcId

FORMS: dict[str, Any] = {
    "vpc_id": VpcId,
    "subnet_ids": SubnetId,
    "gpu_subnet_ids": SubnetId,
    "security_group_ids": SecurityGroupId,
    "node_role": IamRoleName,
    "node_role_name": IamRoleName,
    "cluster_name": ClusterName,
    "permissions_boundary_arn": PolicyArn,
}
"""By the argument's name; of a list, the form of one entry, of which there has to be one."""

MEANWHILE = {"vpc_id": "vpc-later", "subnet_ids": "subnet-later", "gpu_subnet_ids": "subnet-later", "security_group_ids": "sg-later"}
"""How a word begins that stands for an id which only the deployment knows, and has its form. Other words begin with `later`."""
