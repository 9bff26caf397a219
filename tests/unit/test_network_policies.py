"""Who reaches whom under the rendered policies: what serving needs, nothing that could do harm, and nothing else."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from itertools import permutations, product

import pytest
from disagg_serving.manifests.bundle import build_all
from disagg_serving.planning.shapes import Layout
from disagg_serving.rules.evaluation import evaluate_file
from disagg_serving.spec.stack_file import find_project
from factories import SHIPPED, STACKS, layout
from network_policies import Network
from policy_flows import ACROSS, CLOSED, DNS_PODS, OPEN, PORTS, PROXY, WIDER, Flow
from policy_sites import FOUR, WITHOUT_AUTO_MODE, Site, actual, everything_closed, everything_open, four, namespaces_of, pairs, sites


@pytest.mark.parametrize("flow", OPEN, ids=str)
def test_what_serving_needs_is_open(flow: Flow) -> None:
    """Default deny must not break serving: each flow that it is made of passes for every model that has both ends."""
    found = [site for site in four().values() if pairs(site, flow)]
    assert found, "no model has both ends, so this proves nothing"
    assert [refusal for site in found for refusal in everything_open(site, flow)] == []


@pytest.mark.parametrize("flow", CLOSED, ids=str)
def test_what_nobody_needs_is_closed(flow: Flow) -> None:
    """What could do harm is refused for every model that has both ends."""
    found = [site for site in four().values() if pairs(site, flow)]
    assert found, "no model has both ends, so this proves nothing"
    assert [leak for site in found for leak in everything_closed(site, flow)] == [], flow.why


@pytest.mark.parametrize("flow", ACROSS, ids=str)
def test_models_are_strangers_to_each_other(flow: Flow) -> None:
    """Models of one environment do not reach each other, whichever way round."""
    both = [(a, b) for a in four().values() for b in four().values() if a is not b and pairs(a, flow, b)]
    assert both, "no model has the source, so this proves nothing"
    assert [leak for a, b in both for leak in everything_closed(a, flow, b)] == [], flow.why


@pytest.mark.parametrize("flow", DNS_PODS, ids=str)
def test_dns_pods_are_asked_where_there_is_no_auto_mode(flow: Flow) -> None:
    """Without Auto Mode pods answer for the DNS Service; with it nothing but the Service's address is open, which each node answers."""
    for site in sites(layout(WITHOUT_AUTO_MODE)).values():
        assert everything_open(site, flow) == []
    for site in four().values():
        assert pairs(site, flow)
        assert everything_closed(site, flow) == []


@pytest.mark.parametrize("selector", ["namespaceSelector", "podSelector"])
def test_the_lists_notice_a_wider_choice_of_dns_pods(selector: str) -> None:
    """Neither the label alone nor kube-system alone is enough: without either selector some forbidden flow opens."""
    objects = build_all(layout(WITHOUT_AUTO_MODE))
    policies = [deepcopy(o) for o in objects if o["kind"] == "NetworkPolicy"]
    for policy in (p for p in policies if p["metadata"]["name"] == "dns"):
        (peer,) = [p for p in policy["spec"]["egress"][0]["to"] if "ipBlock" not in p]
        peer[selector] = {}
    wider = replace(sites(layout(WITHOUT_AUTO_MODE))["split"], network=Network(policies, namespaces_of(objects, "monitoring")))
    assert [leak for flow in CLOSED if not wider.hides(flow) for leak in everything_closed(wider, flow)]


@pytest.mark.parametrize("name", ["split", "wide", "copied", "public"])
def test_nothing_else_is_open(name: str) -> None:
    """The lists are complete: of all pairs of places, ports and protocols no other flow passes. A new one needs a line and a reason."""
    nothing_else(four()[name], (*OPEN, *WIDER))


@pytest.mark.parametrize("name", ["split", "copied", "public"])
def test_nothing_else_is_open_without_auto_mode(name: str) -> None:
    """There the DNS pods come to the lists, and nothing else does."""
    site = sites(layout(WITHOUT_AUTO_MODE))[name]
    nothing_else(site, (*OPEN, *WIDER, *DNS_PODS))
    assert [refusal for flow in (*OPEN, *DNS_PODS) for refusal in everything_open(site, flow)] == []
    assert [leak for flow in CLOSED if not site.hides(flow) for leak in everything_closed(site, flow)] == []


def nothing_else(site: Site, flows: tuple[Flow, ...]) -> None:
    """Whether exactly these flows are open, besides those between engines."""
    engines = site.places["engine"]
    among = {(str(a), str(b)) for a, b in product(engines, repeat=2)}
    listed = {(str(s), str(d), f.port, f.protocol) for f in flows for s, d in pairs(site, f)}
    found = {(str(s), str(d), port, protocol) for s, d, port, protocol in actual(site)}
    assert {f for f in found if f[:2] not in among} == {f for f in listed if f[:2] not in among}
    assert not [f for f in found if f[:2] in among and f[3] != "TCP"]
    # between engines it is every port, on purpose
    assert all(site.network.allows(s, d, port) for s, d in product(engines, repeat=2) for port in (1, *PORTS, 65535))


@pytest.mark.parametrize("direction", ["Ingress", "Egress"])
def test_each_end_refuses_by_itself(direction: str) -> None:
    """Between pods of a namespace both ends refuse what is forbidden, so that one mistake opens nothing.

    Except where pods and load balancer have addresses in the same subnets: there only the pod's own end refuses the port of requests.
    """
    objects = build_all(layout(FOUR))
    policies = [{**o, "spec": {**o["spec"], "policyTypes": [direction]}} for o in objects if o["kind"] == "NetworkPolicy"]
    network, checked = Network(policies, namespaces_of(objects, "monitoring")), 0
    for site in four().values():
        ours = [f for f in CLOSED if site.places.get(f.source, [None])[0] in site.places["pod"] and pairs(site, f)]
        beside = direction == "Ingress" and site.subnets.balancers == site.subnets.interfaces
        for flow in (f for f in ours if site.places[f.destination][0] in site.places["pod"]):
            if not (beside and (flow.destination, flow.port) == ("router", PROXY)):
                assert everything_closed(replace(site, network=network), flow) == [], flow.why
                checked += 1
    assert checked >= 25


def test_no_port_leads_from_one_model_to_another() -> None:
    """Between pods of different models every pair, port and protocol is closed, not only what the list names."""
    for a, b in permutations(four().values(), 2):
        flows = product(a.places["pod"], b.places["pod"], PORTS, ("TCP", "UDP"))
        assert [f"{s} reaches {d} on {protocol} {port}" for s, d, port, protocol in flows if a.network.allows(s, d, port, protocol)] == []


POLICIES = ("dns", "engines", "leaders", "router", "weights-mirror")


def changed(name: str, part: str | None) -> Site:
    """The model with a copying Job after its policy of this name has lost the ports or peers of each rule, or is gone."""
    objects = build_all(layout(FOUR))
    policies = [deepcopy(o) for o in objects if o["kind"] == "NetworkPolicy"]
    (chosen,) = [p for p in policies if p["metadata"] == {**p["metadata"], "name": name, "namespace": "copied"}]
    if part is None:
        policies.remove(chosen)
    else:
        for direction, peers in (("ingress", "from"), ("egress", "to")):
            for rule in chosen["spec"].get(direction, []):
                del rule[peers if part == "peers" else "ports"]
    return replace(four()["copied"], network=Network(policies, namespaces_of(objects, "monitoring")))


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("part", ["ports", "peers"])
def test_the_forbidden_flows_notice_a_wider_policy(name: str, part: str) -> None:
    """The list is worth something: whichever policy loses its ports or its peers, some forbidden flow opens."""
    wider = changed(name, part)
    assert [leak for flow in CLOSED for leak in everything_closed(wider, flow)]


@pytest.mark.parametrize("name", POLICIES)
def test_the_needed_flows_notice_a_missing_policy(name: str) -> None:
    """And so is the list of open ones: whichever policy is missing, some flow that serving needs is refused."""
    without = changed(name, None)
    assert [refusal for flow in OPEN for refusal in everything_open(without, flow)]


@pytest.mark.parametrize("name", ["split", "public"])
@pytest.mark.parametrize("direction", ["ingress", "egress"])
@pytest.mark.parametrize("block", ["10.0.0.0/16", "10.0.0.0/20", "10.0.0.0/19", "10.0.128.0/19"])
def test_the_lists_notice_other_subnets(name: str, direction: str, block: str) -> None:
    """Both lists know where load balancers and the API server are: any range but the same in one piece opens or refuses something."""
    objects = build_all(layout(FOUR))
    policies = [deepcopy(o) for o in objects if o["kind"] == "NetworkPolicy"]
    (router,) = [p["spec"] for p in policies if (p["metadata"]["namespace"], p["metadata"]["name"]) == (name, "router")]
    (peers,) = [p for rule in router[direction] for key, p in rule.items() if key in {"from", "to"} and any("ipBlock" in peer for peer in p)]
    peers[:] = [p for p in peers if not p["ipBlock"]["cidr"].endswith("/20")] + [{"ipBlock": {"cidr": block}}]
    moved = replace(four()[name], network=Network(policies, namespaces_of(objects, "monitoring")))
    noticed = [*(n for flow in OPEN for n in everything_open(moved, flow)), *(n for flow in CLOSED for n in everything_closed(moved, flow))]
    same = "10.0.128.0/19" if (name, direction) == ("public", "ingress") else "10.0.0.0/19"
    assert bool(noticed) is (block != same)


# ---- the shipped stacks --------------------------------------------------------------------------------------------------------------------


def stack_layout(stack: str) -> Layout:
    """The layout of a shipped stack."""
    project = find_project(SHIPPED)
    return evaluate_file(project.stack_file(stack), project.root).require_layout()


@pytest.mark.parametrize("stack", STACKS)
def test_every_model_of_a_stack_is_closed_by_default(stack: str) -> None:
    """Each model's namespace has a policy that selects every pod and restricts both directions without a rule."""
    rendered = stack_layout(stack)
    objects = build_all(rendered)
    for served in rendered.served:
        mine = [o["spec"] for o in objects if o["kind"] == "NetworkPolicy" and o["metadata"]["namespace"] == served.spec.kubernetes_namespace]
        assert {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]} in mine


@pytest.mark.parametrize("stack", STACKS)
def test_stacks_serve_and_refuse_the_same(stack: str) -> None:
    """What a shipped stack's models need is open, and all that the list forbids is closed."""
    for site in sites(stack_layout(stack)).values():
        # where an adopted network's ranges are unknown, a pod's address passes for a load balancer's
        needed, forbidden = [f for f in OPEN if pairs(site, f)], [f for f in CLOSED if pairs(site, f) and not site.hides(f)]
        assert len(needed) >= 10
        assert len(forbidden) >= 40
        assert [refusal for flow in needed for refusal in everything_open(site, flow)] == []
        assert [leak for flow in forbidden for leak in everything_closed(site, flow)] == []
