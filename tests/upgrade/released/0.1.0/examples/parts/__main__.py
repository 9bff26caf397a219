"""A whole environment from its parts: each component joined to the next by outputs, and ordered by depends_on."""

import pulumi
from disagg_serving.resources import Cluster, Gateway, Lws, ModelServing, Network, NodePools
from disagg_serving.resources.spec_args import ModelSpecArgs, NetworkPolicySpecArgs

config = pulumi.Config()
name = pulumi.get_stack()
zone = "us-east-1a"
cidr, service_cidr = "10.60.0.0/16", "172.20.0.0/16"
policy: NetworkPolicySpecArgs = {"vpc_cidrs": [cidr]}
llama: ModelSpecArgs = {
    "name": "llama-70b",
    "model": "llama-3.3-70b-instruct-fp8",
    "max_model_len": 32768,
    "prefill": {"instance_type": "p5.48xlarge", "replicas": 2, "tensor_parallel": 4},
    "decode": {"instance_type": "p5.48xlarge", "replicas": 4, "tensor_parallel": 2},
}

network = Network(name, {"cidr": cidr, "zones": [zone, "us-east-1b"], "gpu_zone": zone, "cluster_name": name})
cluster = Cluster(
    name,
    {
        "service_cidr": service_cidr,
        "admin_role_arns": [config.require("adminRole")],
        "endpoint": {"public_access_cidrs": [config.require("office")]},
        "vpc_id": network.vpc_id,
        "subnet_ids": network.private_subnet_ids,
        "node_role_name": f"{name}-us-east-1-gpu-node",  # names of IAM are global, so two regions need two
    },
    # nodes need the routes until they are gone
    pulumi.ResourceOptions(depends_on=[network]),
)


def after(*resources: pulumi.Resource) -> pulumi.ResourceOptions:
    """In the cluster, once these are there; on destroy before them."""
    return pulumi.ResourceOptions(providers=[cluster.provider], depends_on=list(resources))


# pools wait for all of the cluster: without its access entries no node joins
pools = NodePools(name, {"models": [llama], "zone": zone, "node_identity": cluster.node_identity}, after(cluster, network))
lws = Lws(name, {"chart_provider": cluster.adopting}, after())
serving = ModelServing(f"{name}-llama-70b", {"model": llama, "zone": zone, "network_policy": policy, "service_cidr": service_cidr}, after(lws, pools))
# the load balancer goes before the router, and both before nodes and subnets
gateway = Gateway(f"{name}-llama-70b", {"model": llama, "zone": zone, "network_policy": policy}, after(serving))

pulumi.export("kubeconfig", cluster.kubeconfig)
pulumi.export("endpoint", gateway.endpoint)
