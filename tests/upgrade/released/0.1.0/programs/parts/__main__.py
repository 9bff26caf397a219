"""Each component by itself, joined by their outputs, and what each hands out."""

import pulumi
from disagg_serving.resources import Autoscaling, Cluster, Gateway, Lws, ModelServing, Network, NodePools, Observability, Weights
from disagg_serving.resources.spec_args import AutoscalingSpecArgs, ModelSpecArgs

NAME, ZONE = "parts", "us-east-1a"
token = pulumi.Config().require_secret("token")
model: ModelSpecArgs = {
    "name": "llama-70b",
    "model": "llama-3.3-70b-instruct-fp8",
    "namespace": "llama",
    "max_model_len": 32768,
    "prefill": {"instance_type": "p5.48xlarge", "replicas": 2, "tensor_parallel": 4},
    "decode": {"instance_type": "p5.48xlarge", "tensor_parallel": 2, "autoscaling": {"max_replica_count": 8}},
    "weights": {"s3": {"bucket": "example-123456789012-weights"}, "revision": "1a2b3c4d"},
    "gateway": {"api_key_secret": "token"},
}
scaling: AutoscalingSpecArgs = {"prometheus_address": "http://prometheus-operated.monitoring.svc:9090"}

network = Network(NAME, {"cidr": "10.80.0.0/16", "zones": [ZONE, "us-east-1b"], "cluster_name": NAME})
cluster = Cluster(
    NAME,
    {"endpoint": {"public_access_cidrs": ["203.0.113.0/24"]}, "vpc_id": network.vpc_id, "subnet_ids": network.private_subnet_ids},
    pulumi.ResourceOptions(depends_on=[network]),
)
adopting = cluster.kubernetes_provider(f"{NAME}-adopting", upsert=True)


def after(*resources: pulumi.Resource) -> pulumi.ResourceOptions:
    """In the cluster, after these."""
    return pulumi.ResourceOptions(providers=[cluster.provider], depends_on=[network, cluster, *resources])


lws = Lws(NAME, {"chart_provider": adopting}, after())
pools = NodePools(
    NAME,
    {
        "models": [model],
        "zone": ZONE,
        "node_role": cluster.node_role_name,
        "subnet_ids": network.gpu_subnet_ids,
        "security_group_ids": ["sg-0123456789abcdef0"],
    },
    after(),
)
weights = Weights(NAME, {"cluster_name": cluster.cluster_name, "models": [model], "zone": ZONE}, pulumi.ResourceOptions(depends_on=[cluster]))
serving = ModelServing(NAME, {"model": model, "zone": ZONE, "api_key": token}, after(lws, pools, weights))
gateway = Gateway(NAME, {"model": model, "zone": ZONE}, after(serving))
Observability(
    NAME,
    {
        "models": [model],
        "zone": ZONE,
        "observability": {"pod_monitors": True, "dashboards": True, "alerts": True, "dcgm_exporter": "chart"},
    },
    after(serving),
)
Autoscaling(NAME, {"model": model, "zone": ZONE, "autoscaling": scaling, "chart_provider": adopting}, after(serving))

pulumi.export("kubeconfig", cluster.kubeconfig)
pulumi.export("pools", pools.pool_names)
pulumi.export("services", {"namespace": serving.namespace, "names": serving.service_names})
pulumi.export("endpoint", gateway.endpoint)
