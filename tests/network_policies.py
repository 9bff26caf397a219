"""Kubernetes NetworkPolicies decided on paper: may one end of a connection open it to the other?

The semantics of networking.k8s.io/v1 (Kubernetes: Network Policies). A verdict is about who opens a connection: answers flow back. Not
modelled: a node reaches its own pods, whatever policies say, and traffic that passes the kernel by, such as EFA.

An `ipBlock` compares addresses and nothing else. Kubernetes leaves open whether that includes pods; Amazon's agent filters by source
and destination address, and pods have addresses of the VPC, so here a block that contains a pod's address matches the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any

NAMESPACE_NAME = "kubernetes.io/metadata.name"
INGRESS, EGRESS = "Ingress", "Egress"
PROTOCOLS = ("TCP", "UDP", "SCTP")


@dataclass(frozen=True)
class Place:
    """One end of a flow: a pod, or with no namespace an address outside the cluster."""

    name: str
    ip: str
    namespace: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace is not None else f"{self.name} ({self.ip})"


class Network:
    """The pods of a cluster under its policies."""

    def __init__(self, policies: Iterable[Mapping[str, Any]], namespaces: Mapping[str, Mapping[str, str]]) -> None:
        """Read the policies; every namespace gets the label with its own name.

        Raises:
            ValueError: A policy has a key or value that is unknown here, or that the API server would refuse.
        """
        self._namespaces = {name: {**labels, NAMESPACE_NAME: name} for name, labels in namespaces.items()}
        self._policies = [_policy(p) for p in policies]

    def allows(self, source: Place, destination: Place, port: int, protocol: str = "TCP") -> bool:
        """Whether the source can open a connection to a port of the destination."""
        return self.refusal(source, destination, port, protocol) is None

    def refusal(self, source: Place, destination: Place, port: int, protocol: str = "TCP") -> str | None:
        """Nothing when allowed; else a sentence with the direction that refuses and the policies that isolate the pod.

        Raises:
            ValueError: A pod is in a namespace that the network does not have, or the protocol is unknown.
        """
        if protocol not in PROTOCOLS:
            raise ValueError(f"protocol {protocol}: one of {', '.join(PROTOCOLS)}")
        for place in (source, destination):
            if place.namespace is not None and place.namespace not in self._namespaces:
                raise ValueError(f"{place} is in a namespace that the network does not have")
        if source == destination:
            return None  # no policy keeps a pod from itself
        refused = self._closed(EGRESS, source, destination, (port, protocol))
        if refused:
            return f"Egress of {source} is not open to {protocol} {port} of {destination}; policies of the pod: {refused}."
        refused = self._closed(INGRESS, destination, source, (port, protocol))
        if refused:
            return f"Ingress of {destination} on {protocol} {port} is not open to {source}; policies of the pod: {refused}."
        return None

    def _closed(self, direction: str, pod: Place, peer: Place, port: tuple[int, str]) -> str:
        """The policies that isolate the pod in a direction, when none of them lets the peer through; else nothing."""
        isolating = [p for p in self._policies if direction in p.rules and p.namespace == pod.namespace and p.pods.matches(pod.labels)]
        rules = [rule for p in isolating for rule in p.rules[direction]]
        if any(r.covers(*port) and r.admits(peer, pod.namespace, self._namespaces) for r in rules):
            return ""
        return ", ".join(sorted(p.name for p in isolating))


@dataclass(frozen=True)
class _Requirement:
    key: str
    operator: str
    values: tuple[str, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.operator == "Exists":
            return self.key in labels
        if self.operator == "DoesNotExist":
            return self.key not in labels
        return (labels.get(self.key) in self.values) == (self.operator == "In")  # NotIn is also true of what has no such label


@dataclass(frozen=True)
class _Selector:
    requirements: tuple[_Requirement, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(r.matches(labels) for r in self.requirements)


@dataclass(frozen=True)
class _Peer:
    pods: _Selector | None
    namespaces: _Selector | None
    block: IPv4Network | IPv6Network | None
    holes: tuple[IPv4Network | IPv6Network, ...]

    def matches(self, place: Place, home: str | None, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
        if self.block is not None:
            address = ip_address(place.ip)
            return address in self.block and not any(address in hole for hole in self.holes)
        if place.namespace is None:
            return False
        where = place.namespace == home if self.namespaces is None else self.namespaces.matches(namespaces[place.namespace])
        return where and (self.pods is None or self.pods.matches(place.labels))


@dataclass(frozen=True)
class _Ports:
    protocol: str
    first: int
    last: int


@dataclass(frozen=True)
class _Rule:
    peers: tuple[_Peer, ...]
    ports: tuple[_Ports, ...]

    def covers(self, port: int, protocol: str) -> bool:
        return not self.ports or any(p.protocol == protocol and p.first <= port <= p.last for p in self.ports)

    def admits(self, place: Place, home: str | None, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
        return not self.peers or any(p.matches(place, home, namespaces) for p in self.peers)


@dataclass(frozen=True)
class _Policy:
    name: str
    namespace: str
    pods: _Selector
    rules: Mapping[str, tuple[_Rule, ...]]
    """By direction; a direction that the policy does not restrict is missing."""


def _policy(data: Mapping[str, Any]) -> _Policy:
    name = str(data.get("metadata", {}).get("name", "?"))
    where = f"policy {name}"
    _known(data, where, "apiVersion", "kind", "metadata", "spec")
    if (data.get("apiVersion"), data.get("kind")) != ("networking.k8s.io/v1", "NetworkPolicy"):
        raise ValueError(f"{where}: {data.get('apiVersion')} {data.get('kind')} is no NetworkPolicy")
    namespace = data["metadata"].get("namespace")
    if not isinstance(namespace, str):
        raise ValueError(f"{where}: no namespace")  # noqa: TRY004 - the text is wrong, not the call
    spec = data.get("spec", {})
    _known(spec, where, "podSelector", "policyTypes", "ingress", "egress")
    rules = {
        INGRESS: tuple(_rule(r, f"{where}: ingress", "from") for r in _list(spec, "ingress", where)),
        EGRESS: tuple(_rule(r, f"{where}: egress", "to") for r in _list(spec, "egress", where)),
    }
    types = _list(spec, "policyTypes", where) or [INGRESS, *([EGRESS] if rules[EGRESS] else [])]
    if not set(types) <= set(rules):
        raise ValueError(f"{where}: policyTypes {types}")
    return _Policy(name, namespace, _selector(spec.get("podSelector") or {}, where), {t: rules[t] for t in types})


def _rule(data: Mapping[str, Any], where: str, peers: str) -> _Rule:
    _known(data, where, peers, "ports")
    return _Rule(tuple(_peer(p, where) for p in _list(data, peers, where)), tuple(_ports(p, where) for p in _list(data, "ports", where)))


def _peer(data: Mapping[str, Any], where: str) -> _Peer:
    _known(data, where, "podSelector", "namespaceSelector", "ipBlock")
    given = {key: value for key, value in data.items() if value is not None}
    if not given or ("ipBlock" in given and len(given) > 1):
        raise ValueError(f"{where}: a peer is either selectors or an ipBlock, not {sorted(given) or 'nothing'}")
    if "ipBlock" in given:
        _known(given["ipBlock"], where, "cidr", "except")
        block = ip_network(given["ipBlock"]["cidr"])
        holes = tuple(ip_network(e) for e in _list(given["ipBlock"], "except", where))
        # compares the ends, which works for both families
        if not all(h.version == block.version and h[0] in block and h[-1] in block and h != block for h in holes):
            raise ValueError(f"{where}: every except must be inside {block} and smaller than it")
        return _Peer(None, None, block, holes)
    pods, namespaces = (_selector(given[key], where) if key in given else None for key in ("podSelector", "namespaceSelector"))
    return _Peer(pods, namespaces, None, ())


def _ports(data: Mapping[str, Any], where: str) -> _Ports:
    _known(data, where, "protocol", "port", "endPort")
    protocol, first, last = data.get("protocol") or "TCP", data.get("port"), data.get("endPort")
    if protocol not in PROTOCOLS:
        raise ValueError(f"{where}: protocol {protocol}")
    if first is None:
        if last is not None:
            raise ValueError(f"{where}: endPort without port")
        return _Ports(protocol, 0, 65535)
    last = first if last is None else last
    if not isinstance(first, int) or not isinstance(last, int) or not 1 <= first <= last <= 65535:
        raise ValueError(f"{where}: port {first} to {last}; names of ports are not known here")
    return _Ports(protocol, first, last)


def _selector(data: Mapping[str, Any], where: str) -> _Selector:
    _known(data, where, "matchLabels", "matchExpressions")
    labels = data.get("matchLabels") or {}
    return _Selector(
        (
            *(_Requirement(key, "In", (value,)) for key, value in labels.items()),
            *(_requirement(e, where) for e in _list(data, "matchExpressions", where)),
        )
    )


def _requirement(data: Mapping[str, Any], where: str) -> _Requirement:
    _known(data, where, "key", "operator", "values")
    operator, values = data.get("operator"), tuple(_list(data, "values", where))
    takes_values = {"In": True, "NotIn": True, "Exists": False, "DoesNotExist": False}
    if operator not in takes_values or bool(values) != takes_values[operator]:
        raise ValueError(f"{where}: operator {operator} with values {list(values)}")
    return _Requirement(data["key"], operator, values)


def _list(data: Mapping[str, Any], key: str, where: str) -> Sequence[Any]:
    found = data.get(key)
    if not isinstance(found, list | tuple | None):
        raise ValueError(f"{where}: {key} is no list")  # noqa: TRY004 - the text is wrong, not the call
    return found or ()


def _known(data: Mapping[str, Any], where: str, *keys: str) -> None:
    unknown = sorted(set(data) - set(keys))
    if unknown:
        raise ValueError(f"{where}: unknown {', '.join(unknown)}")
