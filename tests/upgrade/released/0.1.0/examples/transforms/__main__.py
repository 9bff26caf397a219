"""One transform on the façade reaches every resource below it."""

import pulumi
from disagg_serving.resources import Environment

OWNER = "example.com/cost-center"


def owned(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
    """The cost center as a label on every Kubernetes object and as a tag on every VPC part; pods of LeaderWorkerSets carry it, too."""
    props = dict(args.props)
    if args.type_ == "kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet":
        template = props["spec"]["leaderWorkerTemplate"]
        for pod in ("leaderTemplate", "workerTemplate"):
            if pod in template:
                labels = template[pod].setdefault("metadata", {}).setdefault("labels", {})
                labels[OWNER] = "ml"
    if args.type_.startswith("kubernetes:") and "metadata" in props:
        props["metadata"] = {**props["metadata"], "labels": {**props["metadata"].get("labels", {}), OWNER: "ml"}}
    elif args.type_.startswith("aws:ec2/") and "tags" in props:
        props["tags"] = {**props["tags"], "cost-center": "ml"}
    else:
        return None
    return pulumi.ResourceTransformResult(props, args.opts)


Environment(
    "own",
    {
        "cluster": {"endpoint": {"public_access_cidrs": ["203.0.113.0/24"]}},
        "network": {"zones": ["us-east-1a", "us-east-1b"]},
        "models": [{"name": "qwen3-32b", "model": "qwen3-32b", "server": {"instance_type": "p5.48xlarge", "tensor_parallel": 4}}],
    },
    pulumi.ResourceOptions(transforms=[owned]),
)
