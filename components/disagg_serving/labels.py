"""Every label, taint, annotation and resource key that the project writes or selects by; no other file spells one."""

from __future__ import annotations

# ours
ROLE = "disagg-serving/role"
POOL = "disagg-serving/pool"
IDENTITY = "disagg-serving/identity"
"""Label of engines with a hash of what a prefill and a decode pod must have in common; Services and routers select by it."""
CLIENT = "disagg-serving/client"
"""Label of namespaces whose pods may call the models from inside the cluster."""
CONFIG_HASH = "disagg-serving/config-hash"
"""Annotation that changes with a router's configuration, which its pods read once."""
MANAGED_BY = "app.kubernetes.io/managed-by"
PART_OF = "app.kubernetes.io/part-of"
COMPONENT = "app.kubernetes.io/component"
APP_NAME = "app.kubernetes.io/name"
APP_INSTANCE = "app.kubernetes.io/instance"
OWNER = "disagg-serving"

# llm-d router: pod labels its filters read
LLM_D_MODEL = "llm-d.ai/model"
LLM_D_ROLE = "llm-d.ai/role"
LLM_D_INFERENCE_SERVING = "llm-d.ai/inference-serving"

ROUTER_RELEASE = "llm-d-router-standalone"
"""Label by which the standalone chart's Service finds its pods; its value is the release's name and -epp."""

# LeaderWorkerSet
LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
LWS_WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
LEADER = "0"

# Kubernetes
ZONE = "topology.kubernetes.io/zone"
HOST_NAME = "kubernetes.io/hostname"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ARCH = "kubernetes.io/arch"
POD_SECURITY_ENFORCE = "pod-security.kubernetes.io/enforce"

SERVICE_NAME = "kubernetes.io/service-name"
"""Label of an EndpointSlice: the Service that it belongs to."""
NAMESPACE_NAME = "kubernetes.io/metadata.name"
PROMETHEUS_NAME = "prometheus"
CLUSTER_DNS = {"k8s-app": "kube-dns"}

GRAFANA_FOLDER = "grafana_folder"
"""Annotation by which Grafana's sidecar sorts dashboards into folders, where it is told to."""

# Karpenter and EKS Auto Mode
INSTANCE_FAMILIES = ("eks.amazonaws.com/instance-family", "karpenter.k8s.aws/instance-family")
"""Labels of nodes that a peer's manifests select by; ours name the exact type."""
CAPACITY_TYPE = "karpenter.sh/capacity-type"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
CLUSTER_SECURITY_GROUP_TAG = "aws:eks:cluster-name"

# extended resources
GPU = "nvidia.com/gpu"
EFA = "vpc.amazonaws.com/efa"
EPHEMERAL_STORAGE = "ephemeral-storage"

# Pulumi's Kubernetes provider
SKIP_AWAIT = "pulumi.com/skipAwait"
WAIT_FOR = "pulumi.com/waitFor"
TIMEOUT_SECONDS = "pulumi.com/timeoutSeconds"
PATCH_FORCE = "pulumi.com/patchForce"

# load balancer controller of Auto Mode
NLB = "service.beta.kubernetes.io/aws-load-balancer-"

# AWS tags
PUBLIC_LOAD_BALANCERS = "kubernetes.io/role/elb"
INTERNAL_LOAD_BALANCERS = "kubernetes.io/role/internal-elb"
GPU_SUBNET_TAG = "disagg-serving/gpu-nodes-of"
FORBIDDEN_TAG_PREFIXES = ("aws:", "kubernetes.io/cluster/")
FORBIDDEN_TAGS = frozenset(
    {"karpenter.sh/provisioner-name", "karpenter.sh/nodepool", "karpenter.sh/nodeclaim", "karpenter.sh/managed-by", "eks.amazonaws.com/nodeclass"}
)
"""Tags that a NodeClass refuses (EKS user guide, create a node class)."""
