"""The evaluator of NetworkPolicies in `tests/network_policies.py` is right: each sentence of Kubernetes' description, on a flow."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from network_policies import NAMESPACE_NAME, Network, Place

NAMESPACES = {"shop": {"team": "red"}, "bank": {"team": "blue"}, "lab": {}}
WEB = Place("web", "10.0.0.1", "shop", {"app": "web"})
DB = Place("db", "10.0.0.2", "shop", {"app": "db", "tier": "data"})
TELLER = Place("teller", "10.0.1.1", "bank", {"app": "web"})
VAULT = Place("vault", "10.0.1.2", "bank", {"app": "vault"})
LAB = Place("lab", "10.0.2.1", "lab")
OUTSIDE = Place("outside", "203.0.113.7")
NEIGHBOUR = Place("neighbour", "10.0.0.99")
SIX = Place("six", "2001:db8::7")


def policy(name: str, namespace: str, pods: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A policy of small parts; it selects all pods of its namespace unless labels are given."""
    selector = {"matchLabels": pods} if pods else {}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": {"podSelector": selector, **spec}}


def ingress(name: str, *rules: dict[str, Any], **options: Any) -> dict[str, Any]:
    """A policy of the namespace shop for what comes in at `app: db`."""
    return policy(name, "shop", {"app": "db"}, **{"policyTypes": ["Ingress"], "ingress": list(rules), **options})


def egress(name: str, *rules: dict[str, Any]) -> dict[str, Any]:
    """A policy of the namespace shop for what goes out of `app: web`."""
    return policy(name, "shop", {"app": "web"}, policyTypes=["Egress"], egress=list(rules))


def admits(*peers: dict[str, Any]) -> list[dict[str, Any]]:
    """One policy: these peers may come in, on every port."""
    return [ingress("p", {"from": list(peers)})]


def listens(*ports: dict[str, Any]) -> list[dict[str, Any]]:
    """One policy: everybody may come in, on these ports."""
    return [ingress("p", {"ports": list(ports)})]


def selects(key: str, operator: str, *values: str) -> dict[str, Any]:
    """A selector of one expression."""
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


ANY_POD: dict[str, Any] = {"podSelector": {}}
FROM_RED = {"namespaceSelector": {"matchLabels": {"team": "red"}}}
FROM_BLUE = {"namespaceSelector": {"matchLabels": {"team": "blue"}}}
FROM_WEB = {"podSelector": {"matchLabels": {"app": "web"}}}
BLUE_ON_5432 = {"from": [FROM_BLUE], "ports": [{"port": 5432}]}
DENY = policy("deny", "shop", policyTypes=["Ingress", "Egress"])
BLOCK = {"ipBlock": {"cidr": "10.0.0.0/16", "except": ["10.0.1.0/24"]}}


class Verdict(NamedTuple):
    """Policies, a flow, and whether they let it through."""

    what: str
    policies: list[dict[str, Any]]
    source: Place
    destination: Place
    open: bool
    port: int = 5432
    protocol: str = "TCP"


VERDICTS = (
    Verdict("no policy", [], WEB, DB, open=True),
    Verdict("policies of another namespace do not select", [policy("deny", "bank", policyTypes=["Ingress", "Egress"])], WEB, DB, open=True),
    Verdict("an empty selector selects every pod of the namespace", [DENY], TELLER, DB, open=False),
    Verdict("a missing selector too", [{**DENY, "spec": {"policyTypes": ["Ingress"]}}], TELLER, DB, open=False),
    Verdict("a selector leaves other pods open", [ingress("p")], DB, WEB, open=True),
    Verdict("a policy without rules closes its direction", [ingress("p")], WEB, DB, open=False),
    Verdict("and only its direction", [ingress("p")], DB, TELLER, open=True),
    Verdict("a pod reaches itself", [DENY], DB, DB, open=True),
    Verdict("an address outside is in no namespace", [DENY], OUTSIDE, NEIGHBOUR, open=True),
    # policyTypes
    Verdict("without types a policy restricts ingress", [policy("p", "shop")], TELLER, DB, open=False),
    Verdict("and not egress", [policy("p", "shop")], DB, TELLER, open=True),
    Verdict("with egress rules it restricts both", [policy("p", "shop", egress=[{"to": [ANY_POD]}])], DB, TELLER, open=False),
    Verdict("both: ingress too", [policy("p", "shop", egress=[{}])], TELLER, DB, open=False),
    Verdict(
        "rules of a direction without type do nothing",
        [policy("p", "shop", policyTypes=["Ingress"], egress=[{"to": [FROM_RED]}])],
        DB,
        TELLER,
        open=True,
    ),
    Verdict("types of egress leave ingress open", [policy("p", "shop", policyTypes=["Egress"])], TELLER, DB, open=True),
    # both ends
    Verdict("ingress alone is not enough", [DENY, ingress("p", {"from": [FROM_WEB]})], WEB, DB, open=False),
    Verdict("egress alone is not enough", [DENY, egress("p", {"to": [ANY_POD]})], WEB, DB, open=False),
    Verdict("both ends open", [DENY, ingress("i", {"from": [FROM_WEB]}), egress("e", {"to": [ANY_POD]})], WEB, DB, open=True),
    # policies and rules add up
    Verdict("the second policy opens", [ingress("a"), ingress("b", {"from": [FROM_WEB]})], WEB, DB, open=True),
    Verdict("the second rule opens", [ingress("p", {"from": [FROM_BLUE]}, {"from": [FROM_WEB]})], WEB, DB, open=True),
    Verdict("peer of one rule, port of another", [ingress("p", BLUE_ON_5432, {"from": [FROM_WEB], "ports": [{"port": 1}]})], WEB, DB, open=False),
    # peers
    Verdict("an empty rule admits everyone", [ingress("p", {})], OUTSIDE, DB, open=True),
    Verdict("an empty from too", admits(), OUTSIDE, DB, open=True),
    Verdict("a pod selector stays in its namespace", admits(FROM_WEB), TELLER, DB, open=False),
    Verdict("an empty pod selector too", admits(ANY_POD), TELLER, DB, open=False),
    Verdict("a namespace selector admits all its pods", admits(FROM_BLUE), VAULT, DB, open=True),
    Verdict("and no others", admits(FROM_BLUE), LAB, DB, open=False),
    Verdict("not even those of its own namespace", admits(FROM_BLUE), WEB, DB, open=False),
    Verdict("both selectors in one peer must match", admits({**FROM_BLUE, **FROM_WEB}), VAULT, DB, open=False),
    Verdict("and match", admits({**FROM_BLUE, **FROM_WEB}), TELLER, DB, open=True),
    Verdict("in two peers one is enough", admits(FROM_BLUE, FROM_WEB), VAULT, DB, open=True),
    Verdict("the name is a label of every namespace", admits({"namespaceSelector": {"matchLabels": {NAMESPACE_NAME: "lab"}}}), LAB, DB, open=True),
    Verdict("selectors match no address outside", admits({"namespaceSelector": {}}), NEIGHBOUR, DB, open=False),
    Verdict("a block admits addresses", admits(BLOCK), NEIGHBOUR, DB, open=True),
    Verdict("pods by their address too", admits(BLOCK), LAB, DB, open=True),
    Verdict("but not what it excepts", admits(BLOCK), TELLER, DB, open=False),
    Verdict("unless another peer admits that", admits(BLOCK, FROM_BLUE), TELLER, DB, open=True),
    Verdict("nor what is outside", admits(BLOCK), OUTSIDE, DB, open=False),
    Verdict("an IPv4 block has no IPv6 address", admits({"ipBlock": {"cidr": "0.0.0.0/0"}}), SIX, DB, open=False),
    Verdict("an IPv6 block has", admits({"ipBlock": {"cidr": "2001:db8::/32"}}), SIX, DB, open=True),
    # ports
    Verdict("another port", listens({"protocol": "TCP", "port": 5433}), WEB, DB, open=False),
    Verdict("TCP is the protocol where none is given", listens({"port": 5432}), WEB, DB, open=True),
    Verdict("so that UDP is not", listens({"port": 5432}), WEB, DB, open=False, protocol="UDP"),
    Verdict("no port is every port", listens({"protocol": "TCP"}), WEB, DB, open=True, port=65535),
    Verdict("of that protocol", listens({"protocol": "TCP"}), WEB, DB, open=False, protocol="UDP"),
    Verdict("an empty list of ports is everything", listens(), WEB, DB, open=True, protocol="SCTP"),
    Verdict("the start of a range", listens({"port": 5432, "endPort": 5434}), WEB, DB, open=True),
    Verdict("the end of a range", listens({"port": 5430, "endPort": 5432}), WEB, DB, open=True),
    Verdict("beyond a range", listens({"port": 5430, "endPort": 5431}), WEB, DB, open=False),
    # expressions
    Verdict("In", admits({"podSelector": selects("app", "In", "api", "web")}), WEB, DB, open=True),
    Verdict("In without the label", admits({"podSelector": selects("tier", "In", "data")}), WEB, DB, open=False),
    Verdict("NotIn", admits({"podSelector": selects("app", "NotIn", "web")}), WEB, DB, open=False),
    Verdict("NotIn without the label", admits({"podSelector": selects("tier", "NotIn", "data")}), WEB, DB, open=True),
    Verdict("Exists", admits({"namespaceSelector": selects("team", "Exists")}), VAULT, DB, open=True),
    Verdict("Exists without the label", admits({"namespaceSelector": selects("team", "Exists")}), LAB, DB, open=False),
    Verdict("DoesNotExist", admits({"namespaceSelector": selects("team", "DoesNotExist")}), VAULT, DB, open=False),
    Verdict("DoesNotExist without the label", admits({"namespaceSelector": selects("team", "DoesNotExist")}), LAB, DB, open=True),
    Verdict("all requirements must hold", admits({"podSelector": {"matchLabels": {"app": "web"}, **selects("tier", "Exists")}}), WEB, DB, open=False),
    Verdict("all labels must hold", admits({"podSelector": {"matchLabels": {"app": "web", "tier": "data"}}}), WEB, DB, open=False),
)


@pytest.mark.parametrize("case", VERDICTS, ids=lambda v: v.what)
def test_the_evaluator_knows_kubernetes(case: Verdict) -> None:
    """Each sentence of Kubernetes' description of NetworkPolicies, on a flow that would be decided otherwise without it."""
    network = Network(case.policies, NAMESPACES)
    refusal = network.refusal(case.source, case.destination, case.port, case.protocol)
    assert (refusal is None) is case.open, refusal
    assert network.allows(case.source, case.destination, case.port, case.protocol) is case.open


def test_a_refusal_names_direction_and_policies() -> None:
    """A failed test says at which end a flow is stopped, and by which policies."""
    network = Network([DENY, egress("out", {"to": [FROM_RED]}), ingress("in", {"from": [FROM_BLUE]})], NAMESPACES)
    assert network.refusal(WEB, VAULT, 443) == "Egress of shop/web is not open to TCP 443 of bank/vault; policies of the pod: deny, out."
    assert network.refusal(WEB, DB, 53, "UDP") == "Ingress of shop/db on UDP 53 is not open to shop/web; policies of the pod: deny, in."
    assert network.refusal(OUTSIDE, WEB, 80) == "Ingress of shop/web on TCP 80 is not open to outside (203.0.113.7); policies of the pod: deny."


MALFORMED = {
    "a misspelt key of the spec": (policy("p", "shop", policyType=["Ingress"]), "unknown policyType"),
    "a key beside the spec": ({**DENY, "rules": []}, "unknown rules"),
    "ingress with to": (ingress("p", {"to": [ANY_POD]}), "unknown to"),
    "egress with from": (egress("p", {"from": [ANY_POD]}), "unknown from"),
    "a misspelt peer": (ingress("p", {"from": [{"namespaceSelektor": {}}]}), "unknown namespaceSelektor"),
    "a misspelt selector": (ingress("p", {"from": [{"podSelector": {"matchLabel": {}}}]}), "unknown matchLabel"),
    "bare labels as selector": (ingress("p", {"from": [{"podSelector": {"app": "web"}}]}), "unknown app"),
    "a misspelt port": (ingress("p", {"ports": [{"containerPort": 1}]}), "unknown containerPort"),
    "a misspelt block": (ingress("p", {"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "excepts": []}}]}), "unknown excepts"),
    "a misspelt expression": (ingress("p", {"from": [{"podSelector": {"matchExpressions": [{"key": "a", "op": "Exists"}]}}]}), "unknown op"),
    "an unknown operator": (ingress("p", {"from": [{"podSelector": selects("a", "Gt", "1")}]}), "operator Gt"),
    "In without values": (ingress("p", {"from": [{"podSelector": selects("a", "In")}]}), "operator In"),
    "Exists with values": (ingress("p", {"from": [{"podSelector": selects("a", "Exists", "1")}]}), "operator Exists"),
    "an empty peer": (ingress("p", {"from": [{}]}), "not nothing"),
    "a block with a selector": (ingress("p", {"from": [{**BLOCK, "podSelector": {}}]}), "either selectors or an ipBlock"),
    "an exception outside": (ingress("p", {"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/9"]}}]}), "except"),
    "an exception of everything": (ingress("p", {"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8"]}}]}), "except"),
    "host bits in a block": (ingress("p", {"from": [{"ipBlock": {"cidr": "10.0.0.1/8"}}]}), "host bits"),
    "an unknown direction": (policy("p", "shop", policyTypes=["Inbound"]), "policyTypes"),
    "an unknown protocol": (ingress("p", {"ports": [{"protocol": "tcp", "port": 1}]}), "protocol tcp"),
    "a port's name": (ingress("p", {"ports": [{"port": "http"}]}), "names of ports"),
    "an end before the start": (ingress("p", {"ports": [{"port": 9, "endPort": 8}]}), "port 9 to 8"),
    "an end without a start": (ingress("p", {"ports": [{"endPort": 8}]}), "endPort without port"),
    "a peer that is no list": (ingress("p", {"from": ANY_POD}), "is no list"),
    "no namespace": ({**DENY, "metadata": {"name": "p"}}, "no namespace"),
    "another kind": ({**DENY, "kind": "ClusterNetworkPolicy"}, "is no NetworkPolicy"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_not_understood_is_refused(case: str) -> None:
    """A misspelt field must not pass as a policy that admits or denies something."""
    malformed, words = MALFORMED[case]
    with pytest.raises(ValueError, match=words):
        Network([malformed], NAMESPACES)


def test_questions_about_nobody_are_refused() -> None:
    """A misspelt namespace or protocol in a question would be answered as open."""
    network = Network([DENY], NAMESPACES)
    with pytest.raises(ValueError, match="a namespace that the network does not have"):
        network.allows(Place("p", "10.0.0.1", "shopp"), DB, 1)
    with pytest.raises(ValueError, match="protocol tcp"):
        network.allows(WEB, DB, 1, "tcp")
