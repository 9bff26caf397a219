"""Models as their rendered policies see them: their pods and the places around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Network, ip_address
from itertools import product
from typing import Any

from disagg_serving.manifests.bundle import build_all
from disagg_serving.planning.shapes import Layout
from disagg_serving.spec import EnvironmentSpec
from factories import aggregated, environment, existing_cluster, layout, model, role
from network_policies import Network, Place
from policy_flows import PORTS, PROXY, PROXY_READY, Flow

IN_S3 = {"revision": "0123456789abcdef0123456789abcdef01234567", "s3": {"bucket": "example-weights"}, "mirror": True}
TWO_NODES = role(tensorParallel=8, pipelineParallel=2)
PUBLIC = {
    "public": True,
    "sourceRanges": ["203.0.113.0/24"],
    "certificateArn": "arn:aws:acm:us-east-1:123456789012:certificate/a",
    "apiKeySecret": "apiKey",
}

FOUR = environment(
    model(name="split", prefill=role(replicas=2), decode=role(replicas=2)),
    aggregated(name="wide", model="glm-5-fp8", server=TWO_NODES),
    aggregated(name="copied", model="gpt-oss-120b", weights=IN_S3, server=role(replicas=2)),
    model(name="public", gateway=PUBLIC),
)
"""A model with prefill and decode, one over two nodes, one whose weights a Job copies to S3, and one that the internet may call."""

CHOSEN = {"nodeSelector": {"pool": "gpu"}, "tolerations": [{"key": "gpu"}]}
WITHOUT_AUTO_MODE = {
    **existing_cluster(
        model(name="split", prefill=role(replicas=2, **CHOSEN), decode=role(replicas=2, **CHOSEN)),
        aggregated(name="copied", model="gpt-oss-120b", weights=IN_S3, server=role(replicas=2, **CHOSEN)),
        model(name="public", gateway=PUBLIC, prefill=role(**CHOSEN), decode=role(**CHOSEN)),
        kubeconfig=None,
        name="theirs",
        autoMode=False,
        nodeRole=None,
        securityGroupIds=[],
        serviceCidr="172.20.0.0/16",
    ),
    "networkPolicy": {"vpcCidrs": ["10.0.0.0/16"]},
}
"""Three of them on a cluster without Auto Mode, in a network of which only the VPC's range is known."""

PRIVATE = ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16")
"""Where a network that exists may have any of its hosts, unless the spec says more."""


@dataclass(frozen=True)
class Subnets:
    """What a spec tells about the network around a model: where its hosts may be."""

    balancers: tuple[str, ...]
    """Subnets of the model's load balancer."""

    interfaces: tuple[str, ...]
    """Subnets of the API server's interfaces: the private ones."""

    public: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    """Parts of the VPC in which there is no subnet."""


@dataclass(frozen=True)
class Site:
    """One model of a layout with the pods and addresses around it, by what they are; a place may be several things."""

    network: Network
    places: Mapping[str, list[Place]]
    subnets: Subnets

    def hides(self, flow: Flow) -> bool:
        """Whether a flow of the router ends at an address like those of its load balancer, or of the API server's interfaces."""
        end, blocks = "", self.subnets.balancers
        if flow.destination == "router" and flow.port in {PROXY, PROXY_READY}:
            end = flow.source
        elif flow.source == "router" and flow.port == 443:
            end, blocks = flow.destination, self.subnets.interfaces
        strangers = [p for p in self.places.get(end, []) if p not in self.places["pod"]]
        return any(ip_address(p.ip) in IPv4Network(block) for p in strangers for block in blocks)

    def everyone(self) -> list[Place]:
        """All places, each once."""
        found = [place for places in self.places.values() for place in places]
        return [place for i, place in enumerate(found) if place not in found[:i]]


def sites(rendered: Layout, *, elsewhere: str = "100.64.0.0/10") -> dict[str, Site]:
    """The models of a layout by name. `elsewhere` is where pods of other namespaces have their addresses."""
    objects, spec = build_all(rendered), rendered.spec
    network = Network([o for o in objects if o["kind"] == "NetworkPolicy"], namespaces_of(objects, spec.network_policy.prometheus_namespace))
    far = IPv4Network(elsewhere)
    found: dict[str, Site] = {}
    for i, served in enumerate(rendered.served):
        namespace, subnets = served.spec.kubernetes_namespace, subnets_of(spec, public=served.spec.gateway.public)
        mine = [o for o in objects if o["metadata"].get("namespace") == namespace]
        places = pods_of(mine, namespace, [str(IPv4Network(subnets.interfaces[0])[1000 + 100 * i + n]) for n in range(100)])
        some = places["engine"][0]
        others = {
            "prometheus": (spec.network_policy.prometheus_namespace, {"app.kubernetes.io/name": "prometheus"}),
            "dashboard": (spec.network_policy.prometheus_namespace, {"app.kubernetes.io/name": "grafana"}),
            "false prometheus": ("tools", {"app.kubernetes.io/name": "prometheus"}),
            "client": ("apps", {"app": "chat"}),
            "visitor": ("tools", {"app": "chat"}),
            "false engine": ("tools", dict(some.labels)),
            "false router": ("tools", {"llm-d-router-standalone": f"{served.spec.name}-epp"}),
            "DNS pod": ("kube-system", {"k8s-app": "kube-dns"}),
            "false DNS": ("tools", {"k8s-app": "kube-dns"}),
            "system pod": ("kube-system", {"k8s-app": "metrics-server"}),
        }
        places |= {what: [Place(what, str(far[100 + n]), where, labels)] for n, (what, (where, labels)) in enumerate(others.items())}
        beyond = {
            "API server": "172.20.0.1",
            "DNS": "172.20.0.10",
            "DNS cache": "169.254.20.10",
            "another Service": "172.20.77.7",
            "internet": "203.0.113.7",
            "Pod Identity": "169.254.170.23",
            "metadata": "169.254.169.254",
        }
        places |= {what: [Place(what, ip)] for what, ip in beyond.items()}
        found[served.spec.name] = Site(network, places | hosts_of(subnets), subnets)
    return found


def subnets_of(spec: EnvironmentSpec, *, public: bool) -> Subnets:
    """The subnets around a model: of a network of our own as it is cut, else all that is known, for everything."""
    if spec.network_policy.vpc_cidrs:
        return Subnets(tuple(spec.network_policy.vpc_cidrs), tuple(spec.network_policy.vpc_cidrs))
    if spec.existing_cluster is not None or spec.network.existing is not None:
        return Subnets(PRIVATE, PRIVATE)
    sixteen = [str(n) for n in IPv4Network(spec.network.cidr).subnets(prefixlen_diff=4)]
    zones = len(spec.network.zones)
    private, facing = tuple(sixteen[:zones]), tuple(sixteen[8 : 8 + zones])
    return Subnets(facing if public else private, private, facing, tuple(n for n in sixteen if n not in private + facing))


def hosts_of(subnets: Subnets) -> dict[str, list[Place]]:
    """Load balancer, API server's interfaces and others without a pod's labels: some in each subnet."""

    def some(name: str, number: int, blocks: tuple[str, ...]) -> list[Place]:
        return [Place(name, str(IPv4Network(block)[number])) for block in blocks]

    balancers, interfaces = some("load balancer", 200, subnets.balancers), some("interface", 202, subnets.interfaces)
    everyone = [
        *balancers,
        *interfaces,
        *some("host", 201, subnets.interfaces),
        *some("public host", 201, subnets.public),
        *some("host outside", 201, subnets.outside),
    ]

    def within(blocks: tuple[str, ...]) -> list[Place]:
        return [p for p in everyone if any(ip_address(p.ip) in IPv4Network(block) for block in blocks)]

    beside = within(subnets.balancers)
    return {
        "load balancer": balancers,
        "API server's interface": interfaces,
        "host of the VPC": everyone,
        "host of the private subnets": within(subnets.interfaces),
        "host of the public subnets": within(subnets.public),
        "host outside the subnets": within(subnets.outside),
        "host beside the load balancer": beside,
        "host away from the load balancer": [p for p in everyone if p not in beside],
    }


def namespaces_of(objects: list[dict[str, Any]], monitoring: str) -> dict[str, dict[str, str]]:
    """Labels of the rendered namespaces and of four others, one of which may call the models."""
    made = {o["metadata"]["name"]: o["metadata"].get("labels", {}) for o in objects if o["kind"] == "Namespace"}
    return {**made, monitoring: {}, "kube-system": {}, "tools": {}, "apps": {"disagg-serving/client": "true"}}


def pods_of(objects: list[dict[str, Any]], namespace: str, ips: list[str]) -> dict[str, list[Place]]:
    """The pods of one namespace by what they are, with the labels that the LeaderWorkerSet controller adds and the router's chart gives."""
    addresses = iter(ips)
    places: dict[str, list[Place]] = {"pod": []}

    def add(name: str, labels: dict[str, str], *kinds: str) -> None:
        place = Place(name, next(addresses), namespace, labels)
        for kind in ("pod", *kinds):
            places.setdefault(kind, []).append(place)

    for o in (o for o in objects if o["kind"] == "LeaderWorkerSet"):
        name, template = o["metadata"]["name"], o["spec"]["leaderWorkerTemplate"]
        streams = "--load-format=runai_streamer" in template["workerTemplate"]["spec"]["containers"][0]["args"]
        for group, worker in product(range(o["spec"]["replicas"]), range(template["size"])):
            pod = template["workerTemplate"] if worker else template.get("leaderTemplate", template["workerTemplate"])
            added = {"leaderworkerset.sigs.k8s.io/name": name, "leaderworkerset.sigs.k8s.io/worker-index": str(worker)}
            kinds = [
                "worker" if worker else "leader",
                "streaming" if streams else "downloading",
                pod["metadata"]["labels"]["app.kubernetes.io/component"],
            ]
            add(f"{name}-{group}-{worker}" if worker else f"{name}-{group}", {**pod["metadata"]["labels"], **added}, "engine", *kinds)
    for o in (o for o in objects if o["kind"] == "Job"):
        add(o["metadata"]["name"], o["spec"]["template"]["metadata"]["labels"], "mirror")
    for o in (o for o in objects if o["kind"] == "Service" and o["spec"]["type"] == "LoadBalancer"):
        add("router", {**o["spec"]["selector"], "app.kubernetes.io/name": "router"}, "router")
    add("stray", {"app": "debug"}, "stray")
    return places


@cache
def four() -> dict[str, Site]:
    """The sites of the four models."""
    return sites(layout(FOUR))


def pairs(site: Site, flow: Flow, other: Site | None = None) -> list[tuple[Place, Place]]:
    """The places of a flow; a pod that is both ends is left out. The destination is another model's where one is given."""
    sources, destinations = site.places.get(flow.source, []), (other or site).places.get(flow.destination, [])
    return [(s, d) for s in sources for d in destinations if s != d]


def everything_open(site: Site, flow: Flow) -> list[str]:
    """Refusals of a flow that must be open."""
    refusals = [site.network.refusal(s, d, flow.port, flow.protocol) for s, d in pairs(site, flow)]
    return [r for r in refusals if r]


def everything_closed(site: Site, flow: Flow, other: Site | None = None) -> list[str]:
    """Flows that must be closed and are open."""
    return [
        f"{s} reaches {d} on {flow.protocol} {flow.port}" for s, d in pairs(site, flow, other) if site.network.allows(s, d, flow.port, flow.protocol)
    ]


def actual(site: Site) -> Iterator[tuple[Place, Place, int, str]]:
    """Every flow from or to the model's pods that is open, on the ports that anybody here uses and some others."""
    mine = site.places["pod"]
    for source, destination in product(site.everyone(), repeat=2):
        if source != destination and (source in mine or destination in mine):
            for port, protocol in product(PORTS, ("TCP", "UDP")):
                if site.network.allows(source, destination, port, protocol):
                    yield source, destination, port, protocol
