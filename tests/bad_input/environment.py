"""Nodes, network, cluster and names that break a rule."""

from __future__ import annotations

from factories import aggregated, environment, existing_cluster, model, role

from .case import DECODE, SERVER, Case, decode, network, one, server, stack

RESERVED = {"type": "reserved", "reservationIds": ["cr-0123456789abcdef0"], "nodes": 2}
GPU_NODES = {"gpuZone": "us-east-1a", "existing": {"gpuSubnetIds": ["subnet-1"]}}
CAPACITY_CASES = [
    Case(
        "reserved without ids",
        decode(capacity={"type": "reserved", "nodes": 1}),
        f"{DECODE}.capacity.reservationIds",
        allowed="cr-...",
        fix="add the",
    ),
    Case(
        "reserved without nodes",
        decode(capacity={k: v for k, v in RESERVED.items() if k != "nodes"}),
        f"{DECODE}.capacity.nodes",
        says="is required with reserved",
        allowed="the number of reserved instances",
        fix="add it",
    ),
    Case(
        "id of the offering",
        decode(capacity={**RESERVED, "reservationIds": ["cb-0123456789abcdef0"]}),
        f"{DECODE}.capacity.reservationIds[0]",
        "cb-0123456789abcdef0",
        "the reservation's own id starts with cr-",
    ),
    Case(
        "reservation on demand",
        decode(capacity={"reservationIds": ["cr-0123456789abcdef0"]}),
        f"{DECODE}.capacity.type",
        "on-demand",
        "(allowed: reserved)",
        "set type: reserved or remove reservationIds",
    ),
    Case(
        "groups for more nodes than reserved",
        server(tensorParallel=8, pipelineParallel=2, replicas=3, capacity={**RESERVED, "nodes": 5}),
        f"{SERVER}.capacity.nodes",
        "5",
        "at least 6",
        "set replicas to 2",
        says="needs 6 nodes for 3 x 2 pods and 5 are reserved",
    ),
    Case(
        "pods for more nodes than allowed",
        decode(tensorParallel=4, replicas=5, capacity={"nodes": 2}),
        f"{DECODE}.capacity.nodes",
        "2",
        "at least 3",
        "set replicas to 4",
    ),
    Case("CPU beyond the node", decode(cpu=500), f"{DECODE}.cpu", "500", "at most 190.45", "lower it", says="pod asks for 501 vCPU"),
    Case(
        "memory beyond the node",
        decode(memoryGiB=5000),
        f"{DECODE}.memoryGiB",
        "5000",
        "at most 1891",
        "lower it",
        says="more than p5.48xlarge offers",
    ),
    Case("disk beyond the node", server(ephemeralStorageGiB=30000), f"{SERVER}.ephemeralStorageGiB", "30000", "at most 28312", "lower it"),
    Case("shared memory beyond memory", decode(memoryGiB=16, shmGiB=64), f"{DECODE}.shmGiB", "64", "at most 15", "raise memoryGiB"),
    Case(
        "one pool, two bounds",
        environment(
            aggregated(name="a", server=role(capacity={"nodes": 1})),
            aggregated(name="b", server=role(capacity={"nodes": 2})),
        ),
        "models[1].server.capacity.nodes",
        "2",
        "(allowed: 1)",
        "state it once",
        says="differs from models[0].server.capacity.nodes",
    ),
]

ENVIRONMENT_CASES = [
    Case("cluster's name too long for its role", environment(cluster={"name": "c" * 60}), "cluster.name", "c" * 60, "at most"),
    Case(
        "one namespace for two models",
        environment(aggregated(name="a", namespace="x"), aggregated(name="b", namespace="x")),
        "models[1].namespace",
        "x",
        says="models[0]",
    ),
    Case("namespace of the controller", one(name="lws-system"), "models[0].namespace", "lws-system", "a namespace of its own", "models[].namespace"),
    Case("namespace of the system", one(namespace="kube-system"), "models[0].namespace", "kube-system", "a namespace of its own", "choose another"),
    Case(
        "one selector for two instance types",
        existing_cluster(
            aggregated(name="a", server=role(nodeSelector={"pool": "gpu"})),
            aggregated(name="b", server=role(nodeSelector={"pool": "gpu"}, instanceType="p5.4xlarge", tensorParallel=1)),
            autoMode=False,
        ),
        "models[1].server.nodeSelector",
        says="models[0].server",
    ),
    Case("GPU zone elsewhere", network(gpuZone="us-east-1f"), "network.gpuZone", "us-east-1f", "us-east-1a, us-east-1b", says="is not one of"),
    Case("one zone", network(zones=["us-east-1a"]), "network.zones", "['us-east-1a']", "two or more zones", "add a zone"),
    Case("no zones", environment(network=None), "network.zones", says="has too few zones", allowed="two or more zones", fix="add a zone"),
    Case("a zone twice", network(zones=["us-east-1a", "us-east-1a"]), "network.zones", "us-east-1a", "each zone once", "remove it"),
    Case("zones of two regions", network(zones=["us-east-1a", "us-west-2a"]), "network.zones", "us-east-1, us-west-2", "zones of one region"),
    Case(
        "another region than the stack's",
        stack(one(), **{"aws:region": "eu-central-1"}),
        "network.zones",
        "us-east-1",
        "zones of eu-central-1",
        "change zones or aws:region",
    ),
    Case(
        "environment encrypted",
        stack({"secure": "v1:abc:def"}),
        "disagg-serving:environment",
        says="is encrypted as a whole",
        allowed="a mapping",
        fix="put secrets under keys of their own",
    ),
    Case(
        "environment missing",
        {"config": {"aws:region": "us-east-1"}},
        "disagg-serving:environment",
        says="is missing",
        allowed="a mapping",
        fix="add it under config",
    ),
    Case("environment as a list", stack([one()]), "", says="is not a mapping", allowed="a mapping of keys to values", fix="start with `models:`"),
    Case("two models of one name", environment(model(), model()), "models[1].name", "m", "names whose objects differ", "choose another"),
    Case(
        "a model named like another's role",
        environment(model(name="a"), aggregated(name="a-decode")),
        "models[1].name",
        "a-decode",
        "names whose objects differ",
        "choose another",
        says="clashes with models[0].name a",
    ),
    Case("name too long for LWS", one(name="a" * 45), "models[0].name", "a" * 45, "at most 42 characters", "shorten it", says="pods of prefill"),
    Case(
        "cluster made and adopted", environment(existingCluster={"name": "c"}), "existingCluster", allowed="one of cluster", fix="remove one of them"
    ),
    Case(
        "cluster found in two ways",
        existing_cluster(name="c"),
        "existingCluster",
        "kubeconfig, name",
        "kubeconfig, name, stackReference",
        "give one of them",
    ),
    Case("cluster found in no way", existing_cluster(kubeconfig=None), "existingCluster", allowed="kubeconfig, name, stackReference", fix="give one"),
    Case(
        "context without kubeconfig", existing_cluster(kubeconfig=None, name="c", context="x"), "existingCluster.context", "x", fix="add kubeconfig"
    ),
    Case(
        "kubeconfig without node role", existing_cluster(nodeRole=None), "existingCluster.nodeRole", says="is required", fix="or set autoMode: false"
    ),
    Case(
        "GPU subnets missing",
        {**existing_cluster(), "network": {"gpuZone": "us-east-1a"}},
        "network.existing",
        says="is required with existingCluster",
        allowed="gpuSubnetIds",
        fix="add network.existing.gpuSubnetIds",
    ),
    Case(
        "range of an existing network",
        {**existing_cluster(), "network": {**GPU_NODES, "cidr": "10.0.0.0/16"}},
        "network.cidr",
        says="has no effect on an existing network",
        allowed="without it",
        fix="remove it",
    ),
    Case(
        "VPC missing", environment(network=GPU_NODES), "network.existing.vpcId", says="is required to make a cluster", allowed="vpc-...", fix="add it"
    ),
    Case(
        "nobody administers",
        environment(cluster={"creatorAdmin": False}),
        "cluster.adminRoleArns",
        says="is empty while creatorAdmin is false",
        allowed="ARN of the role",
        fix="add it",
    ),
    Case(
        "Kubernetes too old",
        environment(cluster={"kubernetesVersion": "1.30"}),
        "cluster.kubernetesVersion",
        "1.30",
        "1.34 or newer",
        'set "1.34"',
    ),
    Case(
        "existing Kubernetes too old", existing_cluster(kubernetesVersion="1.33"), "existingCluster.kubernetesVersion", "1.33", "1.34 or newer", "set"
    ),
    Case(
        "nodes outlive Auto Mode",
        environment(nodePools={"expireAfterHours": 600}),
        "nodePools.expireAfterHours",
        "600",
        "at most 480 with terminationGraceHours 24",
        "lower one of the two",
    ),
    Case(
        "network that is none",
        environment(cluster={"endpoint": {"publicAccessCidrs": ["999.1.1.1/99"]}}),
        "cluster.endpoint.publicAccessCidrs[0]",
        "999.1.1.1/99",
        "for example 203.0.113.0/24",
    ),
    Case("key of another service", environment(cluster={"kmsKeyArn": "arn:aws:s3:::x"}), "cluster.kmsKeyArn", "arn:aws:s3:::x", "a key's ARN"),
    Case("tag of AWS", environment(nodePools={"tags": {"aws:foo": "x"}}), "nodePools.tags.aws:foo", "", "tags of your own", "remove it"),
    Case(
        "tag of Karpenter",
        environment(nodePools={"tags": {"karpenter.sh/nodepool": "x"}}),
        "nodePools.tags.karpenter.sh/nodepool",
        "",
        "tags of your own",
        "remove it",
    ),
    Case(
        "partition of another region",
        network(zones=["us-gov-west-1a", "us-gov-west-1b"]),
        "cluster.partition",
        "aws",
        "aws-us-gov",
        "set partition: aws-us-gov",
    ),
    Case(
        "token in plain text",
        stack(one(weights={"tokenKey": "hfToken"}), **{"disagg-serving:hfToken": "hf_abcdefghijk"}),
        "models[0].weights.tokenKey",
        "hfToken",
        "an encrypted value",
        "revoke it",
    ),
    Case(
        "token as a flag",
        one(extraArgs=["--hf-token=hf_abcdefghijk"]),
        "models[0].extraArgs[0]",
        "--hf-token",
        "weights.tokenKey",
        "name a secret key instead",
    ),
    Case(
        "password as a flag",
        one(extraArgs=["--ssl-keyfile-password=x"]),
        "models[0].extraArgs[0]",
        "--ssl-keyfile-password",
        "weights.tokenKey",
        "name a secret key instead",
    ),
    Case(
        "token as a variable of another name",
        one(extraEnv={"BAR": "hf_abcdefghijk"}),
        "models[0].extraEnv.BAR",
        "",
        "weights.tokenKey",
        "name a secret key instead",
    ),
    Case(
        "secret beside other keys",
        one(weights={"tokenKey": {"secure": "v1:x", "other": "y"}}),
        "models[0].weights.tokenKey",
        "",
        "separate top-level keys",
        "pulumi config set --secret",
    ),
    Case("repository like a flag", one(repository="--evil"), "models[0].repository", "--evil", "without spaces"),
    Case("revision of two words", one(weights={"revision": "a b"}), "models[0].weights.revision", "a b", "one word"),
    Case("served name of two words", one(servedModelName="x y"), "models[0].servedModelName", "x y", "one word"),
]
