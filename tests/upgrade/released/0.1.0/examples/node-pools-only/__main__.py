"""GPU pools with EFA in a program of the platform team; who deploys the models is another matter."""

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
from disagg_serving.resources import NodePools

config = pulumi.Config()
cluster = k8s.Provider("cluster", kubeconfig=config.require("kubeconfig"))
subnet = aws.ec2.Subnet(
    "gpu", vpc_id=config.require("vpcId"), cidr_block=config.require("cidr"), availability_zone=config.require("zone"), tags={"team": "platform"}
)

pools = NodePools(
    "gpu",
    {
        "models": [
            {
                "name": "llama-70b",
                "model": "llama-3.3-70b-instruct-fp8",
                "prefill": {"instance_type": "p5.48xlarge", "replicas": 2, "tensor_parallel": 4},
                "decode": {"instance_type": "p5en.48xlarge", "replicas": 2, "tensor_parallel": 4},
            }
        ],
        "zone": config.require("zone"),
        "node_role": "platform-gpu-node",
        "subnet_ids": [subnet.id],
        "security_group_ids": [config.require("securityGroupId")],
        "settings": {"maintenance_window": {"day": "SUN", "start_utc": "01:00", "hours": 8}},
    },
    pulumi.ResourceOptions(providers=[cluster]),
)

pulumi.export("pools", pools.pool_names)
