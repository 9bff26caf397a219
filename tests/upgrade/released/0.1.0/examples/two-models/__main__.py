"""Two models on one cluster: pools of one instance type and role are made once, and both models use them."""

import pulumi
import pulumi_kubernetes as k8s
from disagg_serving.resources import Gateway, ModelServing, NodePools
from disagg_serving.resources.spec_args import ModelSpecArgs

config = pulumi.Config()
zone = config.require("zone")
in_cluster = pulumi.ResourceOptions(providers=[k8s.Provider("cluster", kubeconfig=config.require("kubeconfig"))])


def after(*resources: pulumi.Resource) -> pulumi.ResourceOptions:
    """In the cluster, once these are there."""
    return pulumi.ResourceOptions.merge(in_cluster, pulumi.ResourceOptions(depends_on=list(resources)))


models: list[ModelSpecArgs] = [
    {
        "name": "llama-70b",
        "model": "llama-3.3-70b-instruct-fp8",
        "max_model_len": 32768,
        "prefill": {"instance_type": "p5.48xlarge", "replicas": 1, "tensor_parallel": 4},
        "decode": {"instance_type": "p5.48xlarge", "replicas": 2, "tensor_parallel": 2},
    },
    {
        "name": "qwen3-32b",
        "model": "qwen3-32b",
        "max_model_len": 32768,
        "prefill": {"instance_type": "p5.48xlarge", "replicas": 1, "tensor_parallel": 4},
        "decode": {"instance_type": "p5.48xlarge", "replicas": 1, "tensor_parallel": 4},
    },
]

pools = NodePools(
    "gpu",
    {
        "models": models,
        "zone": zone,
        "node_role": "platform-gpu-node",
        "subnet_ids": [config.require("subnetId")],
        "security_group_ids": [config.require("securityGroupId")],
    },
    in_cluster,
)
for model in models:
    serving = ModelServing(model["name"], {"model": model, "zone": zone}, after(pools))
    gateway = Gateway(model["name"], {"model": model, "zone": zone}, after(serving))
    pulumi.export(model["name"], gateway.endpoint)
