"""One model on GPU nodes that somebody else runs; the cluster has the LeaderWorkerSet controller."""

import pulumi
import pulumi_kubernetes as k8s
from disagg_serving.resources import ModelServing

config = pulumi.Config()
cluster = k8s.Provider("cluster", kubeconfig=config.require("kubeconfig"))
nodes = {"example.com/gpu-pool": "h100"}

serving = ModelServing(
    "llama-70b",
    {
        "model": {
            "name": "llama-70b",
            "model": "llama-3.3-70b-instruct-fp8",
            "max_model_len": 32768,
            "prefill": {"instance_type": "p5.48xlarge", "replicas": 2, "tensor_parallel": 4, "node_selector": nodes},
            "decode": {"instance_type": "p5.48xlarge", "replicas": 4, "tensor_parallel": 2, "node_selector": nodes},
            "gateway": {"enabled": False},
        },
        "auto_mode": False,
    },
    pulumi.ResourceOptions(providers=[cluster]),
)

pulumi.export("namespace", serving.namespace)
pulumi.export("services", serving.service_names)
