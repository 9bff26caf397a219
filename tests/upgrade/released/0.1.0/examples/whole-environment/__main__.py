"""A whole environment beside whatever else your program makes."""

import pulumi
from disagg_serving.resources import Environment

config = pulumi.Config()
serving = Environment(
    "serving",
    {
        "cluster": {"admin_role_arns": [config.require("adminRole")], "endpoint": {"public_access_cidrs": [config.require("office")]}},
        "network": {"cidr": "10.60.0.0/16", "zones": ["us-east-1a", "us-east-1b"]},
        "models": [
            {
                "name": "llama-70b",
                "model": "llama-3.3-70b-instruct-fp8",
                "max_model_len": 32768,
                "prefill": {"instance_type": "p5.48xlarge", "replicas": 2, "tensor_parallel": 4},
                "decode": {"instance_type": "p5.48xlarge", "replicas": 4, "tensor_parallel": 2},
                "gateway": {"api_key_secret": "apiKey"},
            }
        ],
        "secrets": {"apiKey": config.require_secret("apiKey")},
    },
)

pulumi.export("endpoints", serving.endpoints)
pulumi.export("clusterName", serving.cluster_name)
