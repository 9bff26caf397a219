"""Somebody's program, for type checkers: they must accept all of it but the lines that are marked."""

import pulumi
from disagg_serving.resources import Cluster, Environment, Gateway, Lws, ModelServing, Network, NodePools
from disagg_serving.resources.spec_args import ModelSpecArgs, RoleSpecArgs

decode: RoleSpecArgs = {"instance_type": "p5.48xlarge", "replicas": 4, "tensor_parallel": 2}
llama: ModelSpecArgs = {
    "name": "llama-70b",
    "model": "llama-3.3-70b-instruct-fp8",
    "prefill": {"instance_type": "p5.48xlarge", "replicas": 2, "tensor_parallel": 4},
    "decode": decode,
}
network = Network("net", {"zones": ["us-east-1a", "us-east-1b"], "cluster_name": "own"})
cluster = Cluster("own", {"vpc_id": network.vpc_id, "subnet_ids": network.private_subnet_ids})
in_cluster = pulumi.ResourceOptions(providers=[cluster.provider])
Lws("lws", {"replicas": 3}, in_cluster)
pools = NodePools(
    "gpu",
    {
        "models": [llama],
        "zone": "us-east-1a",
        "node_role": cluster.node_role_name,
        "subnet_ids": network.gpu_subnet_ids,
        "security_group_ids": [pulumi.Output.from_input("sg-0123456789abcdef0"), "sg-0123456789abcdef1"],
    },
    in_cluster,
)
Cluster("zones", {"vpc_id": network.vpc_id, "subnet_ids": [network.vpc_id, "subnet-1"], "gpu_subnet_ids": ("subnet-1",)})
serving = ModelServing("llama", {"model": llama, "zone": "us-east-1a", "token": pulumi.Output.secret("x")}, in_cluster)
gateway = Gateway("llama", {"model": llama}, in_cluster)
whole = Environment("whole", {"models": [llama], "secrets": {"hfToken": pulumi.Output.secret("x")}})
url: pulumi.Output[str] = gateway.endpoint
names: pulumi.Output[list[str]] = serving.service_names
endpoints: pulumi.Output[dict[str, str]] = whole.endpoints
first: pulumi.Output[str] = whole.services.apply(lambda services: services["llama-70b"]["names"][0])

Network("net", {"zones": 2})  # wrong
Lws("lws", {"replicas": "three"})  # wrong
ModelServing("llama", {"model": llama, "zoen": "us-east-1a"})  # wrong
ModelServing("llama", {"zone": "us-east-1a"})  # wrong
Gateway("llama", {"model": {"name": "m", "model": "qwen3-32b", "server": {"instance_type": 5}}})  # wrong
Environment("whole", {"models": [{"name": "m"}]})  # wrong
Network("net", {"nat_gateways": "perzone"})  # wrong
Lws("lws", {"install": "nope"})  # wrong
Environment("whole", {"models": [{"name": "m", "model": "m", "dtype": "fp7"}]})  # wrong
pools_of_numbers: pulumi.Output[list[int]] = pools.pool_names  # wrong
