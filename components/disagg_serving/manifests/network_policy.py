"""Who may talk to whom in a model's namespace: nobody, except what is listed here.

A kubelet always reaches the pods of its own node (Kubernetes: network policies), so probes need no entry. EFA traffic passes the
kernel by and is not filtered: rule `efa-unfiltered` says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import labels
from ..planning.addresses import INTERNET, NODE_LOCAL_DNS, POD_IDENTITY, Addresses, addresses_of
from ..planning.shapes import API_PORT, Served
from ..spec import EnvironmentSpec
from .names import LOAD_LABELS, MIRROR_LABELS, managed, router_labels

DNS_PORT, HTTPS_PORT, POD_IDENTITY_PORT = 53, 443, 80
PROXY_PORT, PROXY_READY_PORT, PICKER_METRICS_PORT = 8081, 19001, 9090
"""Listeners of the router's pod: Envoy's for clients, Envoy's for readiness and statistics, the endpoint picker's metrics."""
CONTROLLER_CONFIG = "amazon-vpc-cni"


def build_policy_controller() -> dict[str, Any]:
    """What makes Auto Mode enforce NetworkPolicies (EKS user guide: network policies with Auto Mode)."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONTROLLER_CONFIG, "namespace": "kube-system", "labels": {labels.MANAGED_BY: labels.OWNER}},
        "data": {"enable-network-policy-controller": "true"},
    }


def build_network_policies(served: Served, spec: EnvironmentSpec) -> list[dict[str, Any]]:
    """The policies of one model's namespace; none where they are turned off."""
    if not spec.network_policy.enabled:
        return []
    found, addresses = _Namespace(served, spec), addresses_of(spec)
    policies = [found.policy("default-deny", {}), found.policy("dns", {}, egress=[_to_dns(addresses, node_local=spec.makes_pools)])]
    policies += [found.engines(addresses), found.leaders()]
    if served.spec.gateway.enabled:
        policies.append(found.router(addresses))
    if served.spec.weights.mirror:
        # it reads from Hugging Face, wherever the engines read from
        both = _to_weights(served, addresses) + ([_to_internet(addresses)] if addresses.weights else [])
        policies.append(found.policy("weights-mirror", MIRROR_LABELS, egress=both))
    return policies


def build_load_policies(served: Served, spec: EnvironmentSpec) -> list[dict[str, Any]]:
    """What a load Job needs on top while it runs: to the router, or without one to leaders, and to where the tokenizer comes from."""
    if not spec.network_policy.enabled:
        return []
    found, addresses = _Namespace(served, spec), addresses_of(spec)
    routed = served.spec.gateway.enabled
    target, port = (dict(router_labels(served)), PROXY_PORT) if routed else (found.leader_labels, API_PORT)
    tokenizer = _to_weights(served, addresses) + ([_to_internet(addresses)] if addresses.weights else [])
    return [
        found.policy("load-generator", LOAD_LABELS, egress=[{"to": [_pods(target)], "ports": _tcp(port)}, *tokenizer]),
        found.policy("load-generator-target", target, ingress=[{"from": [_pods(LOAD_LABELS)], "ports": _tcp(port)}]),
    ]


class _Namespace:
    """The pods of one model by their labels."""

    def __init__(self, served: Served, spec: EnvironmentSpec) -> None:
        self.served, self.monitoring = served, spec.network_policy.prometheus_namespace
        self.engine_labels = {labels.LLM_D_INFERENCE_SERVING: "true", labels.LLM_D_MODEL: served.spec.name}
        self.leader_labels = {**self.engine_labels, labels.LWS_WORKER_INDEX: labels.LEADER}

    def engines(self, addresses: Addresses) -> dict[str, Any]:
        """Engines among themselves on any TCP port: NCCL, Gloo, message queues and NIXL's handshake listen on random ones."""
        each_other = [_pods(self.engine_labels)]
        any_tcp = [{"protocol": "TCP"}]
        return self.policy(
            "engines",
            self.engine_labels,
            ingress=[{"from": each_other, "ports": any_tcp}],
            egress=[{"to": each_other, "ports": any_tcp}, *_to_weights(self.served, addresses)],
        )

    def leaders(self) -> dict[str, Any]:
        """The HTTP port of leaders: the router and Prometheus; without a router, clients."""
        calls = _pods(router_labels(self.served)) if self.served.spec.gateway.enabled else _clients()
        return self.policy("leaders", self.leader_labels, ingress=[{"from": [calls, self._prometheus()], "ports": _tcp(API_PORT)}])

    def router(self, addresses: Addresses) -> dict[str, Any]:
        """The router: from its load balancer and clients in the cluster, to leaders and the API server."""
        balancers = addresses.public_balancers if self.served.spec.gateway.public else addresses.internal_balancers
        return self.policy(
            "router",
            router_labels(self.served),
            ingress=[
                {"from": _blocks(balancers), "ports": _tcp(PROXY_PORT, PROXY_READY_PORT)},
                {"from": [_clients()], "ports": _tcp(PROXY_PORT)},
                {"from": [self._prometheus()], "ports": _tcp(PICKER_METRICS_PORT, PROXY_READY_PORT)},
            ],
            egress=[
                {"to": [_pods(self.leader_labels)], "ports": _tcp(API_PORT)},
                {"to": _blocks(addresses.api_server), "ports": _tcp(HTTPS_PORT)},
            ],
        )

    def policy(
        self, name: str, pods: dict[str, str], ingress: list[dict[str, Any]] | None = None, egress: list[dict[str, Any]] | None = None
    ) -> dict[str, Any]:
        """A policy for pods with these labels; it always restricts both directions."""
        rules = {**({"ingress": ingress} if ingress else {}), **({"egress": egress} if egress else {})}
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": managed(name, self.served),
            "spec": {"podSelector": {"matchLabels": pods} if pods else {}, "policyTypes": ["Ingress", "Egress"], **rules},
        }

    def _prometheus(self) -> dict[str, Any]:
        return {
            "namespaceSelector": {"matchLabels": {labels.NAMESPACE_NAME: self.monitoring}},
            "podSelector": {"matchLabels": {labels.APP_NAME: labels.PROMETHEUS_NAME}},
        }


def _to_dns(addresses: Addresses, *, node_local: bool) -> dict[str, Any]:
    """On Auto Mode DNS answers on each node; elsewhere pods do, which policies see after or before translation, or a cache on the node."""
    pods = {"namespaceSelector": {"matchLabels": {labels.NAMESPACE_NAME: "kube-system"}}, "podSelector": {"matchLabels": dict(labels.CLUSTER_DNS)}}
    elsewhere = [] if node_local else [pods, *_blocks([NODE_LOCAL_DNS])]
    return {"to": [*_blocks(addresses.dns), *elsewhere], "ports": [{"protocol": p, "port": DNS_PORT} for p in ("UDP", "TCP")]}


def _to_weights(served: Served, addresses: Addresses) -> list[dict[str, Any]]:
    rules = [{"to": _blocks(addresses.weights), "ports": _tcp(HTTPS_PORT)} if addresses.weights else _to_internet(addresses)]
    if served.weights_uri:
        rules.append({"to": _blocks([POD_IDENTITY]), "ports": _tcp(POD_IDENTITY_PORT)})
    return rules


def _to_internet(addresses: Addresses) -> dict[str, Any]:
    return {"to": [{"ipBlock": {"cidr": INTERNET, "except": list(addresses.inside)}}], "ports": _tcp(HTTPS_PORT)}


def _clients() -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {labels.CLIENT: "true"}}}


def _pods(matching: dict[str, str]) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": dict(matching)}}


def _blocks(networks: Iterable[str]) -> list[dict[str, Any]]:
    return [{"ipBlock": {"cidr": n}} for n in networks]


def _tcp(*ports: int) -> list[dict[str, Any]]:
    return [{"protocol": "TCP", "port": p} for p in ports]
