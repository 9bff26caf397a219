"""Who has to reach whom for serving, and who must not: flows between kinds of places, each with its reason."""

from __future__ import annotations

from typing import NamedTuple

FABRIC, SIDE_CHANNEL, MASTER = 43117, 5600, 29501
"""A random port as NCCL and Gloo take one, NIXL's handshake, and the first rank of a group over several nodes."""
API, BEHIND_SIDECAR = 8000, 8200
PROXY, PROXY_READY, PICKER_METRICS = 8081, 19001, 9090


class Flow(NamedTuple):
    """A flow between kinds of places of one model, and why it is open or closed."""

    source: str
    destination: str
    port: int
    why: str
    protocol: str = "TCP"

    def __str__(self) -> str:
        return f"{self.source} to {self.destination} {self.protocol} {self.port}"


OPEN = (
    Flow("engine", "engine", FABRIC, "NCCL and Gloo listen on random ports"),
    Flow("engine", "engine", SIDE_CHANNEL, "NIXL's handshake"),
    Flow("engine", "engine", MASTER, "ranks find the first one"),
    Flow("decode", "prefill", API, "the sidecar sends the prompt to a prefill pod"),
    Flow("router", "leader", API, "Envoy forwards to the pod that the picker chose"),
    Flow("prometheus", "leader", API, "vLLM's metrics"),
    Flow("prometheus", "router", PICKER_METRICS, "the picker's metrics"),
    Flow("prometheus", "router", PROXY_READY, "Envoy's statistics"),
    Flow("load balancer", "router", PROXY, "clients come through it"),
    Flow("load balancer", "router", PROXY_READY, "its health check"),
    Flow("client", "router", PROXY, "namespaces that carry the label may call the model"),
    Flow("pod", "DNS", 53, "names", "UDP"),
    Flow("pod", "DNS", 53, "long answers"),
    Flow("downloading", "internet", 443, "Hugging Face"),
    Flow("streaming", "internet", 443, "S3, whose addresses are public also behind a gateway endpoint"),
    Flow("streaming", "Pod Identity", 80, "credentials for S3"),
    Flow("mirror", "internet", 443, "Hugging Face and S3"),
    Flow("mirror", "Pod Identity", 80, "credentials for S3"),
    Flow("router", "API server", 443, "the picker watches pods"),
    Flow("router", "API server's interface", 443, "where the Service's address ends"),
)
"""All that is needed, and with `WIDER` all that is open."""

DNS_PODS = (
    Flow("pod", "DNS pod", 53, "CoreDNS, which policies see behind its Service's address or in place of it", "UDP"),
    Flow("pod", "DNS pod", 53, "long answers"),
    Flow("pod", "DNS cache", 53, "NodeLocal DNSCache, which pods ask where a cluster runs it", "UDP"),
    Flow("pod", "DNS cache", 53, "long answers"),
)
"""Needed without Auto Mode, where DNS is answered by pods; closed with it, where each node answers."""

WIDER = (
    Flow("router", "host of the private subnets", 443, "the API server's interfaces have no subnets of their own"),
    Flow("host beside the load balancer", "router", PROXY, "load balancers have no subnets of their own"),
    Flow("host beside the load balancer", "router", PROXY_READY, "the same"),
)
"""Flows that nobody needs and that are open all the same, each with its reason; a narrower policy takes them from this list."""

CLOSED = (
    Flow("client", "decode", BEHIND_SIDECAR, "vLLM behind the sidecar trusts KV-transfer fields of the request"),
    Flow("client", "decode", API, "the sidecar trusts routing headers, which Envoy takes off requests"),
    Flow("load balancer", "decode", BEHIND_SIDECAR, "the same way past the router"),
    Flow("load balancer", "decode", API, "the same way past the router"),
    Flow("client", "prefill", API, "a prefill pod answers with one token and keeps KV blocks until they are fetched"),
    Flow("load balancer", "prefill", API, "the same"),
    Flow("client", "prefill", SIDE_CHANNEL, "NIXL tells whoever asks where KV blocks lie in memory"),
    Flow("client", "leader", API, "clients go through the router, which checks paths and headers"),
    Flow("load balancer", "leader", API, "the same"),
    Flow("client", "worker", API, "a worker has no HTTP server"),
    Flow("client", "worker", MASTER, "a worker takes orders from its leader only"),
    Flow("load balancer", "worker", API, "the same"),
    Flow("client", "leader", MASTER, "torch's rendezvous runs whatever a peer sends"),
    Flow("client", "router", PICKER_METRICS, "metrics name other clients' models"),
    Flow("client", "router", PROXY_READY, "statistics are for Prometheus"),
    Flow("client", "router", 9002, "the picker's gRPC is between the two containers of the pod"),
    Flow("client", "router", 19000, "Envoy's admin interface can stop it"),
    Flow("visitor", "router", PROXY, "its namespace does not carry the label"),
    Flow("visitor", "leader", API, "nor does the label lead past the router"),
    Flow("prometheus", "leader", BEHIND_SIDECAR, "metrics of decode pods go through the sidecar"),
    Flow("prometheus", "worker", API, "a worker has no metrics of its own"),
    Flow("prometheus", "router", PROXY, "Prometheus calls no model"),
    Flow("false prometheus", "leader", API, "its label alone does not make it Prometheus"),
    Flow("false prometheus", "router", PICKER_METRICS, "the same"),
    Flow("dashboard", "leader", API, "nor does its namespace"),
    Flow("dashboard", "router", PROXY_READY, "the same"),
    Flow("false engine", "engine", FABRIC, "labels of engines count in the model's namespace only"),
    Flow("false engine", "engine", SIDE_CHANNEL, "the same"),
    Flow("engine", "false engine", FABRIC, "KV blocks must not leave for another namespace"),
    Flow("false router", "leader", API, "labels of the router count in the model's namespace only"),
    Flow("stray", "engine", API, "a debug pod in the namespace is nobody"),
    Flow("stray", "router", PROXY, "the same"),
    Flow("stray", "internet", 443, "default deny"),
    Flow("router", "worker", API, "requests go to leaders"),
    Flow("router", "worker", MASTER, "the same"),
    Flow("router", "leader", BEHIND_SIDECAR, "the router does not go round the sidecar"),
    Flow("router", "leader", SIDE_CHANNEL, "the router speaks HTTP only"),
    Flow("router", "internet", 443, "the router has no business there"),
    Flow("router", "API server's interface", 80, "the API server listens on 443"),
    Flow("router", "metadata", 80, "a node's role is not a pod's"),
    Flow("router", "Pod Identity", 80, "the router needs nothing of AWS"),
    Flow("router", "another Service", 443, "the API server's address is one of the range"),
    Flow("engine", "API server", 443, "engines know nothing of Kubernetes"),
    Flow("engine", "API server's interface", 443, "the same"),
    Flow("engine", "metadata", 80, "a node's role is not a pod's"),
    Flow("engine", "metadata", 443, "nor by another port"),
    Flow("downloading", "Pod Identity", 80, "Hugging Face needs nothing of AWS"),
    Flow("streaming", "Pod Identity", 443, "the agent listens on 80"),
    Flow("engine", "internet", 80, "weights come over TLS"),
    Flow("engine", "internet", 22, "nothing goes out but requests for weights"),
    Flow("engine", "internet", SIDE_CHANNEL, "KV blocks stay inside"),
    Flow("engine", "internet", 443, "QUIC is not needed", "UDP"),
    Flow("engine", "internet", 53, "names come from the cluster's DNS", "UDP"),
    Flow("engine", "host of the VPC", 443, "weights do not come from the VPC unless weightsCidrs says so"),
    Flow("engine", "host of the VPC", 5432, "databases are none of an engine's business"),
    Flow("engine", "another Service", 443, "other Services are others'"),
    Flow("engine", "router", PROXY, "engines call nobody"),
    Flow("engine", "visitor", 443, "pods elsewhere are not the internet"),
    Flow("engine", "engine", FABRIC, "NCCL, Gloo and NIXL's handshake use TCP; EFA is not filtered here", "UDP"),
    Flow("engine", "engine", SIDE_CHANNEL, "the same", "UDP"),
    Flow("engine", "DNS", 443, "DNS over the usual port only"),
    Flow("pod", "DNS", 9153, "CoreDNS's metrics"),
    Flow("pod", "DNS pod", 9153, "the same"),
    Flow("engine", "DNS pod", 443, "DNS over the usual port only"),
    Flow("pod", "false DNS", 53, "CoreDNS's label counts in kube-system only", "UDP"),
    Flow("pod", "false DNS", 53, "the same"),
    Flow("pod", "system pod", 53, "nor does being in kube-system make a pod CoreDNS", "UDP"),
    Flow("pod", "system pod", 53, "the same"),
    Flow("DNS pod", "engine", API, "DNS asks engines nothing"),
    Flow("DNS pod", "router", PROXY, "the same"),
    Flow("internet", "router", PROXY, "the internet comes through a load balancer"),
    Flow("internet", "router", PROXY_READY, "the same"),
    Flow("internet", "leader", API, "the same"),
    Flow("internet", "engine", FABRIC, "nobody outside is a peer"),
    Flow("host away from the load balancer", "router", PROXY, "it is in the private subnets, or in the public ones where it faces the internet"),
    Flow("host away from the load balancer", "router", PROXY_READY, "the same"),
    Flow("router", "host of the public subnets", 443, "the API server's interfaces are in the private ones"),
    Flow("router", "host outside the subnets", 443, "the same"),
    Flow("load balancer", "router", PICKER_METRICS, "metrics are for Prometheus"),
    Flow("load balancer", "router", 22, "a router has one door"),
    Flow("host of the VPC", "leader", API, "being in the VPC is no permission"),
    Flow("host of the VPC", "engine", FABRIC, "the same"),
    Flow("mirror", "engine", API, "the copy has nothing to tell engines"),
    Flow("mirror", "engine", FABRIC, "nor is it one"),
    Flow("mirror", "internet", 80, "the copy goes over TLS"),
    Flow("mirror", "metadata", 80, "a node's role is not a pod's"),
    Flow("mirror", "API server", 443, "a Job needs no Kubernetes"),
    Flow("mirror", "host of the VPC", 443, "the same as for engines"),
    Flow("engine", "mirror", API, "the Job listens to nobody"),
    Flow("client", "mirror", API, "the same"),
    Flow("prometheus", "mirror", API, "the same"),
    Flow("load balancer", "mirror", 443, "the same"),
)
"""Closed between the places of one model, each with the harm or the needlessness of it."""

ACROSS = (
    Flow("engine", "leader", API, "another model's engines are strangers"),
    Flow("engine", "engine", SIDE_CHANNEL, "NIXL would hand out KV blocks of the other model's requests"),
    Flow("engine", "engine", FABRIC, "the same ports as among themselves"),
    Flow("engine", "engine", MASTER, "the same"),
    Flow("engine", "router", PROXY, "a model calls no model"),
    Flow("router", "leader", API, "each model has its own router"),
    Flow("router", "router", PROXY, "routers are not chained"),
    Flow("mirror", "engine", API, "the copy is one model's"),
    Flow("mirror", "leader", SIDE_CHANNEL, "the same"),
    Flow("stray", "leader", API, "a namespace of a model does not carry the clients' label"),
    Flow("stray", "router", PROXY, "the same"),
)
"""Closed between the pods of one model and those of another."""

PORTS = (
    22,
    53,
    80,
    443,
    5432,
    SIDE_CHANNEL,
    API,
    8080,
    PROXY,
    BEHIND_SIDECAR,
    9002,
    9003,
    PICKER_METRICS,
    9153,
    10250,
    19000,
    PROXY_READY,
    MASTER,
    FABRIC,
)
"""The ports that anybody here uses, and some others."""
