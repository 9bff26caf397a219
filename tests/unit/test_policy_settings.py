"""What a stack file can say about policies, and which flows that opens and closes."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from disagg_serving.errors import Level
from disagg_serving.manifests.bundle import build_all
from factories import aggregated, check, environment, existing_cluster, layout, model
from network_policies import Network, Place
from policy_flows import API, BEHIND_SIDECAR, CLOSED, OPEN, PICKER_METRICS, PORTS, PROXY, PROXY_READY, Flow
from policy_sites import FOUR, IN_S3, PUBLIC, TWO_NODES, actual, everything_closed, everything_open, sites
from recording import environment_graph, kinds

PRIVATE_SUBNETS = ("10.0.0.0", "10.0.15.255", "10.0.16.0", "10.0.31.255")
PUBLIC_SUBNETS = ("10.0.128.0", "10.0.143.255", "10.0.144.0", "10.0.159.255")
NO_SUBNETS = ("9.255.255.255", "10.0.32.0", "10.0.127.255", "10.0.160.0", "10.0.255.255", "10.1.0.0", "172.16.0.1", "192.168.0.1", "203.0.113.7")
EVERYWHERE = (*PRIVATE_SUBNETS, *PUBLIC_SUBNETS, *NO_SUBNETS)
"""The ends of the subnets of 10.0.0.0/16 in two zones, what lies between and beyond them, and the internet."""


def of_router(data: dict[str, Any]) -> tuple[Network, Place]:
    """The policies of an environment with one model, and its router."""
    (site,) = sites(layout(data)).values()
    (router,) = site.places["router"]
    return site.network, router


def errors_of(data: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """Rule, place and value of each error of an environment."""
    return [(f.id, f.path, f.value) for f in check(data).findings if f.level is Level.ERROR]


@pytest.mark.parametrize(("gateway", "subnets"), [({}, PRIVATE_SUBNETS), (PUBLIC, PUBLIC_SUBNETS)], ids=["internal", "public"])
@pytest.mark.parametrize("port", [PROXY, PROXY_READY])
def test_requests_and_health_checks_come_from_the_subnets_of_the_load_balancer(gateway: dict[str, Any], subnets: tuple[str, ...], port: int) -> None:
    """An internal load balancer is in the private subnets, one that faces the internet in the public ones, and nobody else passes as one.

    A pod without the clients' label is one more address there; in a namespace with the label it reaches the listener for clients from anywhere.
    """
    network, router = of_router(environment(model(gateway=gateway)))

    def admitted(namespace: str | None) -> tuple[str, ...]:
        return tuple(ip for ip in EVERYWHERE if network.allows(Place("somebody", ip, namespace, {"app": "chat"}), router, port))

    assert admitted(None) == subnets
    assert admitted("tools") == subnets
    assert admitted("apps") == (EVERYWHERE if port == PROXY else subnets)


@pytest.mark.parametrize("gateway", [{}, PUBLIC], ids=["internal", "public"])
def test_the_api_server_is_in_the_private_subnets(gateway: dict[str, Any]) -> None:
    """Whatever the load balancer, the router reaches 443 in the private subnets and nothing in the public ones."""
    network, router = of_router(environment(model(gateway=gateway)))
    assert tuple(ip for ip in EVERYWHERE if network.allows(router, Place("host", ip), 443)) == PRIVATE_SUBNETS
    assert not [ip for ip in EVERYWHERE for port in (22, 80, PROXY, 6443) if network.allows(router, Place("host", ip), port)]


@pytest.mark.parametrize(
    ("network", "private", "public"),
    [
        ({"zones": ["us-east-1a", "us-east-1b"]}, ["10.0.0.0/20", "10.0.16.0/20"], ["10.0.128.0/20", "10.0.144.0/20"]),
        (
            {"cidr": "172.31.4.0/22", "zones": ["us-east-1c", "us-east-1a", "us-east-1b"]},
            ["172.31.4.0/26", "172.31.4.64/26", "172.31.4.128/26"],
            ["172.31.6.0/26", "172.31.6.64/26", "172.31.6.128/26"],
        ),
    ],
)
def test_policies_name_the_subnets_that_are_made(network: dict[str, Any], private: list[str], public: list[str]) -> None:
    """The ranges in the router's policy are those of the subnets where AWS puts load balancers of either kind: by the tags that it looks for."""
    subnets = kinds(environment_graph(environment(model(), network=network)), "aws:ec2/subnet:Subnet")
    for gateway, tag, ranges in (({}, "kubernetes.io/role/internal-elb", private), (PUBLIC, "kubernetes.io/role/elb", public)):
        assert {s.inputs["cidrBlock"] for s in subnets if tag in s.inputs["tags"]} == set(ranges)
        objects = build_all(layout(environment(model(gateway=gateway), network=network)))
        (router,) = [o["spec"] for o in objects if o["kind"] == "NetworkPolicy" and o["metadata"]["name"] == "router"]
        assert router["ingress"][0]["from"] == [{"ipBlock": {"cidr": r}} for r in ranges]
        assert router["egress"][-1]["to"] == [{"ipBlock": {"cidr": r}} for r in sorted([*private, "172.20.0.1/32"])]


@pytest.mark.parametrize("elsewhere", ["10.0.2.0/24", "10.0.16.0/20"])
def test_pods_of_the_private_subnets_pass_as_internal_load_balancers(elsewhere: str) -> None:
    """A limit to know about: policies see addresses, and pods have those of the private subnets unless the cluster gives them others.

    The label of client namespaces then decides nothing on the router's two ports; what it guards everywhere is the rest.
    """
    inside = sites(layout(FOUR), elsewhere=elsewhere)["split"]
    for source, port in product(("visitor", "dashboard", "false engine"), (PROXY, PROXY_READY)):
        assert everything_open(inside, Flow(source, "router", port, "")) == []
    for flow in (f for f in CLOSED if not inside.hides(f)):
        assert everything_closed(inside, flow) == [], flow.why


@pytest.mark.parametrize("elsewhere", ["10.0.2.0/24", "10.0.16.0/20"])
def test_pods_of_the_private_subnets_do_not_pass_as_public_load_balancers(elsewhere: str) -> None:
    """There the label decides: pods have no addresses in public subnets, so all that is closed stays closed, and clients still come in."""
    facing = sites(layout(FOUR), elsewhere=elsewhere)["public"]
    assert not [f for f in CLOSED if facing.hides(f)]
    assert [leak for flow in CLOSED for leak in everything_closed(facing, flow)] == []
    assert [refusal for flow in OPEN for refusal in everything_open(facing, flow)] == []


def test_without_a_router_labelled_namespaces_reach_the_leaders() -> None:
    """`gateway.enabled: false`: callers in the cluster take the router's place, and still nobody else."""
    data = environment(model(gateway={"enabled": False}), aggregated(name="wide", model="glm-5-fp8", gateway={"enabled": False}, server=TWO_NODES))
    for site in sites(layout(data)).values():
        assert "router" not in site.places
        admitted = {(str(s), port) for s, d, port, _ in actual(site) if d in site.places["leader"] and s not in site.places["pod"]}
        assert admitted == {("apps/client", API), ("monitoring/prometheus", API)}
        assert (
            everything_closed(site, Flow("client", "worker", API, "")) == everything_closed(site, Flow("client", "decode", BEHIND_SIDECAR, "")) == []
        )
        for flow in (f for f in OPEN if "router" not in {f.source, f.destination}):
            assert everything_open(site, flow) == []


@pytest.mark.parametrize(
    "data", [environment(model(), networkPolicy={"enabled": False}), {**existing_cluster(), "networkPolicy": {"enabled": False}}]
)
def test_policies_can_be_turned_off(data: dict[str, Any]) -> None:
    """`networkPolicy.enabled: false` renders no policy, and does not touch what switches their enforcement."""
    objects = build_all(layout(data))
    assert [o["metadata"]["name"] for o in objects if o["kind"] in {"NetworkPolicy", "ConfigMap"}] == []


@pytest.mark.parametrize("data", [environment(), existing_cluster()])
def test_policies_are_on_by_default(data: dict[str, Any]) -> None:
    """A stack that says nothing about policies has them."""
    assert [o for o in build_all(layout(data)) if o["kind"] == "NetworkPolicy"]


def test_enforcement_is_switched_on_for_a_cluster_of_our_own_only() -> None:
    """On Auto Mode a policy does nothing without this ConfigMap; that of an adopted cluster is its owner's."""
    (switch,) = [o for o in build_all(layout(environment())) if o["kind"] == "ConfigMap"]
    assert (switch["metadata"]["namespace"], switch["metadata"]["name"]) == ("kube-system", "amazon-vpc-cni")
    assert switch["data"] == {"enable-network-policy-controller": "true"}
    assert not [o for o in build_all(layout(existing_cluster())) if o["kind"] == "ConfigMap"]


ADOPTED = {"gpuZone": "us-east-1a", "existing": {"vpcId": "vpc-1", "subnetIds": ["subnet-1", "subnet-2"], "gpuSubnetIds": ["subnet-1"]}}
"""A network that exists, for a cluster of our own."""


@pytest.mark.parametrize("gateway", [{}, PUBLIC], ids=["internal", "public"])
def test_vpc_cidrs_say_where_load_balancers_are(gateway: dict[str, Any]) -> None:
    """`networkPolicy.vpcCidrs` replaces the subnets of our own network, and on an adopted one all private ranges, whatever the load balancer."""
    settings = {"vpcCidrs": ["10.9.0.0/16", "192.168.7.0/24"]}
    asked = model(gateway=gateway)
    own = environment(asked, network={"cidr": "10.9.0.0/16", "zones": ["us-east-1a", "us-east-1b"]})
    for data in (own, environment(asked, network=ADOPTED), existing_cluster(asked)):
        network, router = of_router({**data, "networkPolicy": settings})
        inside = [Place("balancer", ip) for ip in ("10.9.4.4", "10.9.255.4", "192.168.7.7")]
        beyond = [Place("host", ip) for ip in ("10.0.0.200", "10.0.128.200", "192.168.8.8", "172.16.0.1", "100.64.0.1")]
        for port in (PROXY, PROXY_READY):
            assert [p.ip for p in (*inside, *beyond) if network.allows(p, router, port)] == [p.ip for p in inside]
        assert [p.ip for p in (*inside, *beyond) if network.allows(router, p, 443)] == [p.ip for p in inside]


def test_a_vpc_beyond_the_private_ranges_is_not_the_internet() -> None:
    """EKS puts pods into 198.19.0.0/16 too, and a VPC may have any range: what `vpcCidrs` names is never a place of weights."""
    beyond = {"vpcCidrs": ["198.19.0.0/16"]}
    for settings in (beyond, {**beyond, "weightsCidrs": ["198.51.100.0/24"]}):
        data = {**existing_cluster(aggregated(model="gpt-oss-120b", weights=IN_S3), name="theirs", kubeconfig=None), "networkPolicy": settings}
        (site,) = sites(layout(data)).values()
        for source in ("engine", "mirror"):
            assert site.places[source]
            assert everything_closed(site, Flow(source, "host of the VPC", 443, "")) == []
        assert everything_open(site, Flow("mirror", "internet", 443, "")) == []


@pytest.mark.parametrize(
    "networks",
    [["10.9.0.0/16"], ["10.0.0.0/17"], ["10.0.0.0/20", "10.0.16.0/20", "10.0.128.0/20", "10.0.144.0/20"], ["10.1.0.0/16", "192.168.0.0/16"]],
)
def test_vpc_cidrs_contain_the_network_that_is_made(networks: list[str]) -> None:
    """Our own load balancers and the API server are in it; what an adopted network has nobody here knows."""
    data = environment(networkPolicy={"vpcCidrs": networks})
    assert errors_of(data) == [("policy-use", "networkPolicy.vpcCidrs", networks)]
    (fault,) = [f for f in check(data).findings if f.level is Level.ERROR]
    assert (fault.allowed, fault.fix) == ("a list with 10.0.0.0/16", "remove it")
    assert errors_of(environment(networkPolicy={"vpcCidrs": [*networks, "10.0.0.0/16"]})) == []
    assert errors_of(environment(networkPolicy={"vpcCidrs": ["10.0.0.0/8"]})) == []
    for adopted in (environment(network=ADOPTED), existing_cluster()):
        assert errors_of({**adopted, "networkPolicy": {"vpcCidrs": networks}}) == []


@pytest.mark.parametrize("data", [environment(), environment(network=ADOPTED), existing_cluster()], ids=["own", "adopted network", "adopted"])
@pytest.mark.parametrize(
    ("field", "value"),
    [("vpcCidrs", ["10.0.0.0/16"]), ("vpcCidrs", []), ("weightsCidrs", ["198.51.100.0/24"]), ("prometheusNamespace", "monitoring")],
)
def test_nothing_is_set_of_policies_that_are_off(data: dict[str, Any], field: str, value: Any) -> None:
    """Whoever sets one of them believes that it is enforced, even with the value that is the default."""
    settings = {"enabled": False, field: value}
    assert errors_of({**data, "networkPolicy": settings}) == [("policy-use", f"networkPolicy.{field}", None)]
    assert errors_of({**data, "networkPolicy": {**settings, "enabled": True}}) == []


def test_each_setting_of_policies_that_are_off_is_named() -> None:
    """All at once, so that one correction is enough; a router that faces the internet without policies is a warning."""
    settings = {"enabled": False, "weightsCidrs": ["198.51.100.0/24"], "vpcCidrs": ["10.9.0.0/16"], "prometheusNamespace": "tools"}
    data = environment(model(), model(name="facing", gateway=PUBLIC), networkPolicy=settings)
    assert errors_of(data) == [("policy-use", f"networkPolicy.{f}", None) for f in ("prometheusNamespace", "vpcCidrs", "weightsCidrs")]
    assert [(f.level, f.path) for f in check(data).findings if f.id == "policy-use" and f.level is not Level.ERROR] == [
        (Level.WARNING, "models[1].gateway.public")
    ]


def test_weights_cidrs_and_hugging_face_are_a_warning() -> None:
    """Engines reach these networks in place of the internet, so a model that downloads needs a hub among them; one in S3 does not."""
    three = (model(), aggregated(name="copied", model="gpt-oss-120b", weights=IN_S3), aggregated(name="too", model="gpt-oss-120b"))
    for settings, paths in ((WEIGHTS_FROM, ["models[0].weights", "models[2].weights"]), ({}, [])):
        for data in (environment(*three), existing_cluster(*three, name="theirs", kubeconfig=None)):
            result = check({**data, "networkPolicy": settings})
            assert [(f.level, f.path) for f in result.findings if f.id == "policy-use"] == [(Level.WARNING, path) for path in paths]
            assert result.ok


@pytest.mark.parametrize("networks", [["0.0.0.0/0"], ["10.0.0.0/16", "0.0.0.0/0"]])
@pytest.mark.parametrize("data", [environment(), existing_cluster()], ids=["own", "adopted"])
def test_vpc_cidrs_are_not_everything(data: dict[str, Any], networks: list[str]) -> None:
    """Whatever passes the checks renders policies that the API server takes: an except is smaller than its block, so the internet is no VPC."""
    wide = {**data, "networkPolicy": {"vpcCidrs": networks}}
    assert errors_of(wide) == [("policy-everything", f"networkPolicy.vpcCidrs[{len(networks) - 1}]", "0.0.0.0/0")]
    assert not check(wide).ok


def test_service_ranges_against_everything_have_no_proposal() -> None:
    """Where no range of EKS is free, the overlap is still reported, next to what is wrong with the list."""
    data = {**existing_cluster(), "networkPolicy": {"vpcCidrs": ["0.0.0.0/0"]}}
    data["existingCluster"] = {**data["existingCluster"], "serviceCidr": "172.20.0.0/16"}
    assert {rule for rule, _, _ in errors_of(data)} == {"policy-everything", "service-cidr"}


def test_a_network_named_in_pieces_is_named() -> None:
    """Two halves of the network that is made admit what the whole would."""
    assert not errors_of(environment(networkPolicy={"vpcCidrs": ["10.0.0.0/17", "10.0.128.0/17"]}))
    assert errors_of(environment(networkPolicy={"vpcCidrs": ["10.0.0.0/17"]}))


@pytest.mark.parametrize("gateway", [{}, PUBLIC], ids=["internal", "public"])
def test_an_adopted_network_has_load_balancers_anywhere_private(gateway: dict[str, Any]) -> None:
    """Without `vpcCidrs` an adopted network's ranges are unknown: all private addresses, which rule `policy-addresses` says, and no others."""
    network, router = of_router(existing_cluster(model(gateway=gateway)))
    for ip, admitted in (("10.1.2.3", True), ("100.64.0.1", True), ("172.16.9.9", True), ("192.168.0.9", True), ("203.0.113.7", False)):
        assert network.allows(Place("somebody", ip), router, PROXY) is admitted


def test_service_ranges_say_where_dns_and_the_api_server_are() -> None:
    """The tenth and the first address of the range: as given, or of both ranges that EKS chooses from on a cluster that exists."""
    cluster = {"serviceCidr": "172.30.0.0/16", "endpoint": {"publicAccessCidrs": ["203.0.113.0/24"]}}
    elsewhere = {"vpcCidrs": ["192.168.0.0/16"]}
    cases = (
        (environment(cluster=cluster), {"172.30"}),
        (environment(cluster=cluster, network=ADOPTED, networkPolicy=elsewhere), {"172.30"}),
        (environment(), {"172.20"}),
        ({**existing_cluster(serviceCidr="10.96.0.0/16"), "networkPolicy": elsewhere}, {"10.96"}),
        ({**existing_cluster(), "networkPolicy": elsewhere}, {"172.20", "10.100"}),
    )
    for data, ranges in cases:
        (site,) = sites(layout(data)).values()
        (router,) = site.places["router"]
        for start in ("172.20", "172.30", "10.96", "10.100"):
            dns, server = Place("dns", f"{start}.0.10"), Place("server", f"{start}.0.1")
            assert all(site.network.allows(pod, dns, 53, protocol) is (start in ranges) for pod in site.places["pod"] for protocol in ("TCP", "UDP"))
            assert site.network.allows(router, server, 443) is (start in ranges)


def ranged(kind: str, services: str) -> tuple[dict[str, Any], str]:
    """An environment with this Service range, and the path of it."""
    if kind == "existing":
        return existing_cluster(serviceCidr=services), "existingCluster.serviceCidr"
    cluster = {"serviceCidr": services, "endpoint": {"publicAccessCidrs": ["203.0.113.0/24"]}}
    return environment(cluster=cluster, network=ADOPTED), "cluster.serviceCidr"


@pytest.mark.parametrize("kind", ["own", "existing"])
def test_service_ranges_are_private_and_of_a_size_that_eks_takes(kind: str) -> None:
    """/12 to /24 within 10/8, 172.16/12, 192.168/16 and 100.64/10, on a cluster of our own as on one that exists."""
    for good in ("172.16.0.0/12", "10.96.0.0/24", "192.168.0.0/16", "100.64.0.0/16", "10.240.0.0/12"):
        assert errors_of(ranged(kind, good)[0]) == []
    for bad in ("10.0.0.0/8", "10.0.0.0/11", "10.96.0.0/25", "172.20.0.1/32", "11.0.0.0/16", "198.18.0.0/16", "203.0.113.0/24", "172.32.0.0/16"):
        data, path = ranged(kind, bad)
        assert errors_of(data) == [("service-cidr", path, bad)]


@pytest.mark.parametrize("kind", ["own", "existing"])
@pytest.mark.parametrize(
    ("services", "vpc", "fix"),
    [
        ("10.9.0.0/16", ["10.9.0.0/16"], "10.100.0.0/16"),
        ("10.9.4.0/24", ["192.168.0.0/16", "10.0.0.0/8"], "172.20.0.0/16"),
        ("172.20.0.0/16", ["172.16.0.0/12"], "10.100.0.0/16"),
    ],
)
def test_service_ranges_are_apart_from_the_vpc(kind: str, services: str, vpc: list[str], fix: str) -> None:
    """The rule proposes the range of EKS that does not overlap; an adopted VPC is known by `vpcCidrs`."""
    data, path = ranged(kind, services)
    assert errors_of(data) == []
    overlapping = {**data, "networkPolicy": {"vpcCidrs": vpc}}
    assert errors_of(overlapping) == [("service-cidr", path, services)]
    (fault,) = [f for f in check(overlapping).findings if f.level is Level.ERROR]
    assert fault.fix == f"use {fix}"


@pytest.mark.parametrize(
    ("written", "meant"),
    [("10.0.0.5", "10.0.0.5/32"), ("10.0.0.1/8", "10.0.0.0/8"), ("10.0.0.0/255.0.0.0", "10.0.0.0/8"), ("10.9.1.0/16", "10.9.0.0/16")],
)
def test_networks_are_written_with_a_length_and_no_host_bits(written: str, meant: str) -> None:
    """An address alone may be meant as one host or as its network, and bits beyond the length are a slip: the fix says what it would be."""
    cluster = {"serviceCidr": written, "endpoint": {"publicAccessCidrs": [written]}}
    for data, paths in (
        (existing_cluster(serviceCidr=written), ["existingCluster.serviceCidr"]),
        (environment(cluster=cluster), ["cluster.endpoint.publicAccessCidrs[0]", "cluster.serviceCidr"]),
        ({**existing_cluster(), "networkPolicy": {"vpcCidrs": [written]}}, ["networkPolicy.vpcCidrs[0]"]),
        (environment(networkPolicy={"weightsCidrs": ["198.51.100.0/24", written]}), ["networkPolicy.weightsCidrs[1]"]),
    ):
        assert sorted(errors_of(data)) == [("schema", path, written) for path in paths]
        assert {f.fix for f in check(data).findings if f.level is Level.ERROR} == {f"use {meant}"}


WEIGHTS_FROM = {"weightsCidrs": ["10.0.77.0/24", "198.51.100.0/24"]}
PLACES = {
    "endpoint": "10.0.77.7",
    "copy": "198.51.100.1",
    "internet": "203.0.113.7",
    "private": "10.0.0.200",
    "public": "10.0.128.200",
    "VPC": "10.0.78.1",
    "peered": "172.16.0.1",
    "shared": "100.64.0.1",
    "home": "192.168.0.1",
    "metadata": "169.254.169.254",
    "agent": "169.254.170.23",
}
"""Two places that `WEIGHTS_FROM` names, and others."""


def reached(network: Network, pod: Place) -> dict[int, list[str]]:
    """The places that a pod reaches on 443, 80 and 22."""
    return {port: [name for name, ip in PLACES.items() if network.allows(pod, Place(name, ip), port)] for port in (443, 80, 22)}


@pytest.mark.parametrize("weights", [{}, IN_S3], ids=["hub", "S3"])
def test_weights_cidrs_replace_the_internet_for_engines(weights: dict[str, Any]) -> None:
    """`networkPolicy.weightsCidrs`: engines reach these on 443, and the internet no more."""
    (site,) = sites(layout(environment(aggregated(model="gpt-oss-120b", weights=weights), networkPolicy=WEIGHTS_FROM))).values()
    agent = ["agent"] if weights else []
    assert [reached(site.network, pod) for pod in site.places["engine"]] == [{443: ["endpoint", "copy"], 80: agent, 22: []}]


@pytest.mark.parametrize(("settings", "named"), [({}, []), (WEIGHTS_FROM, ["endpoint"])], ids=["without", "with"])
def test_weights_cidrs_add_to_the_internet_for_the_mirror(settings: dict[str, Any], named: list[str]) -> None:
    """The copying Job reads from Hugging Face and writes to S3, so it reaches them and the internet, without private ranges besides."""
    (site,) = sites(layout(environment(aggregated(model="gpt-oss-120b", weights=IN_S3), networkPolicy=settings))).values()
    assert [reached(site.network, pod) for pod in site.places["mirror"]] == [{443: [*named, "copy", "internet"], 80: ["agent"], 22: []}]


def test_weights_cidrs_are_for_weights_only() -> None:
    """They open nothing else: neither the router nor any other pod reaches them, and nobody comes in from there."""
    (site,) = sites(layout(environment(aggregated(model="gpt-oss-120b", weights=IN_S3), networkPolicy=WEIGHTS_FROM))).values()
    named = [Place(name, PLACES[name]) for name in ("endpoint", "copy")]
    for pod, place in product((*site.places["router"], *site.places["stray"]), named):
        assert not site.network.allows(pod, place, 443)
    for pod, place, port in product(site.places["pod"], named, PORTS):
        assert not site.network.allows(place, pod, port)


def test_prometheus_is_looked_for_in_its_namespace() -> None:
    """`networkPolicy.prometheusNamespace` moves the one namespace from which metrics are read."""
    (site,) = sites(layout(environment(networkPolicy={"prometheusNamespace": "tools"}))).values()
    for kind in ("prometheus", "false prometheus"):  # both are in tools now
        for destination, port in (("leader", API), ("router", PICKER_METRICS), ("router", PROXY_READY)):
            assert everything_open(site, Flow(kind, destination, port, "")) == []
    moved = sites(layout(environment(networkPolicy={"prometheusNamespace": "observability"})))["m"]
    assert everything_open(moved, Flow("prometheus", "leader", API, "")) == []
    assert everything_closed(moved, Flow("false prometheus", "leader", API, "")) == []
