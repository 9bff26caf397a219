"""Network, cluster and LeaderWorkerSet controller; another stack serves models there."""

import pulumi
from disagg_serving.resources import Cluster, Lws, Network

config = pulumi.Config()
name = config.require("name")
network = Network(name, {"cidr": "10.80.0.0/16", "zones": ["us-east-1a", "us-east-1b"], "cluster_name": name})
cluster = Cluster(
    name,
    {
        "admin_role_arns": [config.require("adminRole")],
        "endpoint": {"public_access_cidrs": [config.require("office")]},
        "vpc_id": network.vpc_id,
        "subnet_ids": network.private_subnet_ids,
    },
    # nodes need the routes until they are gone
    pulumi.ResourceOptions(depends_on=[network]),
)
Lws(name, {"chart_provider": cluster.adopting}, pulumi.ResourceOptions(providers=[cluster.provider], depends_on=[cluster]))

# what existingCluster.stackReference reads
pulumi.export("clusterName", cluster.cluster_name)
pulumi.export("kubeconfig", cluster.kubeconfig)
pulumi.export("nodeRoleName", cluster.node_role_name)
pulumi.export("gpuSubnetIds", network.gpu_subnet_ids)
