"""Your own program: GPU pools and one model with its endpoint on an EKS Auto Mode cluster that exists, with its LeaderWorkerSet controller."""

import pulumi
import pulumi_kubernetes as k8s
from disagg_serving.resources import Gateway, ModelServing, NodePools
from disagg_serving.resources.spec_args import ModelSpecArgs

config = pulumi.Config()
cluster = k8s.Provider("cluster", kubeconfig=config.require("kubeconfig"))
in_cluster = pulumi.ResourceOptions(providers=[cluster])
zone = config.require("zone")

llama: ModelSpecArgs = {
    "name": "llama-70b",
    "model": "llama-3.3-70b-instruct-fp8",
    "max_model_len": 32768,
    "prefill": {"instance_type": "p5.48xlarge", "replicas": 2, "tensor_parallel": 4},
    "decode": {"instance_type": "p5.48xlarge", "replicas": 4, "tensor_parallel": 2},
}

pools = NodePools(
    "gpu",
    {
        "models": [llama],
        "zone": zone,
        "node_role": "platform-gpu-node",
        "subnet_ids": [config.require("subnetId")],
        "security_group_ids": [config.require("securityGroupId")],
    },
    in_cluster,
)
serving = ModelServing(
    "llama-70b",
    {"model": llama, "zone": zone},
    pulumi.ResourceOptions.merge(in_cluster, pulumi.ResourceOptions(depends_on=[pools])),
)
gateway = Gateway(
    "llama-70b",
    {"model": llama, "zone": zone},
    pulumi.ResourceOptions.merge(in_cluster, pulumi.ResourceOptions(depends_on=[serving])),
)

pulumi.export("endpoint", gateway.endpoint)
pulumi.export("services", serving.service_names)
pulumi.export("pools", pools.pool_names)
