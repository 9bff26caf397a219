"""Rules about the way in: load balancer, router, network policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any

from ...errors import Level, did_you_mean
from ...pins import DEFAULT_ROUTER
from ...spec import GatewaySpec, ModelSpec, PluginSpec
from ..addresses import makes_network, service_cidr
from ..gateway import TLS_IDLE_SECONDS
from .registry import Fault, Stage, Subject, rule

if TYPE_CHECKING:
    from ...catalog.router import Plugin

SERVICE_PREFIXES = (12, 24)
WIDEST = 8
USABLE_KINDS = ("filter", "scorer", "picker", "producer")
TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "list": (list,), "mapping": (dict,),
}  # fmt: skip
NEEDS = {"token-load-scorer": "inflight-load-producer"}
"""Scorers whose producer the endpoint picker does not add by itself (llm-d-router 0.10.0)."""


@rule("gateway-public", Level.ERROR, Stage.FORM, "disagg-serving: an open endpoint spends GPUs on anybody's prompts", firm=True)
def gateway_public(s: Subject) -> Iterator[Fault]:
    """A load balancer that faces the internet has source ranges, a certificate and an API key."""
    for path, gateway in _gateways(s):
        if not gateway.public:
            continue
        wanted = {
            "sourceRanges": (gateway.source_ranges, "the networks of your clients"),
            "certificateArn": (gateway.certificate_arn, "a certificate of ACM, since a key must not travel in plain text"),
            "apiKeySecret": (gateway.api_key_secret, "the name of a secret key such as apiKey"),
        }
        for key, (value, allowed) in wanted.items():
            if not value:
                yield Fault(f"{path}.{key}", "is required with public: true", None, allowed, "add it, or leave public out")
        for wide in (r for r in gateway.source_ranges if _is_wide(r)):
            yield Fault(f"{path}.sourceRanges", "lets much of the internet in", wide, "your networks", "name them", Level.WARNING)


@rule("gateway-unused", Level.ERROR, Stage.FORM, "disagg-serving: a setting that does nothing is a mistake", firm=True)
def gateway_unused(s: Subject) -> Iterator[Fault]:
    """What is set for a gateway or for its routing has an effect."""
    for i, model in enumerate(s.spec.models):
        path, gateway = f"models[{i}].gateway", model.gateway
        if not gateway.enabled:
            for field in sorted(gateway.model_fields_set - {"enabled", "api_key_secret"}):
                yield Fault(f"{path}.{_alias(gateway, field)}", "has no effect while enabled is false", None, "without it", "remove it")
            continue
        unused = ("server",) if model.disaggregated else ("prefill", "decode", "non_cached_tokens", "disaggregation")
        for field in sorted(gateway.routing.model_fields_set.intersection(unused)):
            mode = "with prefill and decode" if model.disaggregated else "in server mode"
            yield Fault(f"{path}.routing.{_alias(gateway.routing, field)}", f"has no effect {mode}", None, "without it", "remove it")


@rule("gateway-idle", Level.ERROR, Stage.FORM, "AWS: ELB guide, update the idle timeout of a Network Load Balancer")
def gateway_idle(s: Subject) -> Iterator[Fault]:
    """A TLS listener closes connections after 350 seconds without a byte, whatever is asked."""
    for path, gateway in _gateways(s):
        asked = gateway.idle_timeout_seconds
        if gateway.certificate_arn and asked not in {None, TLS_IDLE_SECONDS}:
            fix = "remove it, or end TLS behind the load balancer"
            yield Fault(f"{path}.idleTimeoutSeconds", "cannot be had with a certificate", asked, str(TLS_IDLE_SECONDS), fix)


@rule("gateway-dns", Level.ERROR, Stage.FORM, "disagg-serving: a record in Route 53 needs an AWS provider", firm=True)
def gateway_dns(s: Subject) -> Iterator[Fault]:
    """A DNS record is made where AWS is used, and once a name."""
    first: dict[str, int] = {}
    for i, model in enumerate(s.spec.models):
        dns = model.gateway.dns
        if dns is None:
            continue
        path = f"models[{i}].gateway.dns"
        if s.spec.existing_cluster and s.spec.existing_cluster.kubeconfig:
            fix = "find the cluster by name or stackReference, or make the record elsewhere from the output endpoints"
            yield Fault(path, "needs AWS, which a cluster by kubeconfig does without", dns.name, "no record", fix)
        other = first.setdefault(dns.name, i)
        if other != i:
            yield Fault(f"{path}.name", f"is that of models[{other}]", dns.name, "a name of its own", "choose another")


@rule("routing", Level.ERROR, Stage.FORM, "llm-d/llm-d-router: pkg/epp/framework/plugins/scheduling/profilehandler/disagg (v0.10.0)", firm=True)
def routing(s: Subject) -> Iterator[Fault]:
    """Deciding by prefix needs a bound, and then decode alone answers requests that nothing has checked for KV-transfer fields."""
    for i, model in enumerate(s.spec.models):
        path, asked = f"models[{i}].gateway.routing", model.gateway.routing
        if not model.disaggregated or not model.gateway.enabled:
            continue
        by_prefix = asked.disaggregation == "prefixBased"
        if by_prefix and asked.non_cached_tokens is None:
            yield Fault(f"{path}.nonCachedTokens", "is required with prefixBased", None, "a number of tokens, for example 512", "add it")
        elif by_prefix:
            message = "lets decode answer alone: a client's kv_transfer_params then reach vLLM, and only NetworkPolicies bound where it connects"
            yield Fault(f"{path}.disaggregation", message, asked.disaggregation, "always", "use always unless clients are trusted", Level.WARNING)
        elif asked.non_cached_tokens is not None:
            yield Fault(f"{path}.nonCachedTokens", "belongs to prefixBased", asked.non_cached_tokens, "without it", "set disaggregation: prefixBased")


@rule("router-plugins", Level.ERROR, Stage.FORM, "llm-d/llm-d-router: cmd/epp/runner/runner.go (v0.10.0); catalog/routers", firm=True)
def router_plugins(s: Subject) -> Iterator[Fault]:
    """The router's release has every plugin that is asked for, with these parameters; an unknown one stops the endpoint picker."""
    if s.spec.router.version != DEFAULT_ROUTER and s.spec.router.version in s.catalog.routers:
        _ = s.catalog.routers[s.spec.router.version].plugins  # an entry of the user's own may be faulty
    for served in s.served:
        asked = served.spec.gateway.routing
        for profile, plugins in (("prefill", asked.prefill), ("decode", asked.decode), ("server", asked.server)):
            path = f"{served.path}.gateway.routing.{profile}"
            for j, plugin in enumerate(plugins or ()):
                known = served.router.plugins.get(plugin.type)
                if known is None:
                    names = [n for n, p in served.router.plugins.items() if p.kind in USABLE_KINDS and p.stability != "alpha"]
                    fix = did_you_mean(plugin.type, list(served.router.plugins)) or "`disagg catalog routers` lists them"
                    yield Fault(f"{path}[{j}].type", f"is not a plugin of {served.router.id}", plugin.type, ", ".join(names), fix)
                else:
                    yield from _plugin(f"{path}[{j}]", plugin, known)
            yield from _missing_producers(path, plugins or (), served.spec)


@rule("service-cidr", Level.ERROR, Stage.FORM, "AWS: EKS, Kubernetes network config", firm=True)
def service_range(s: Subject) -> Iterator[Fault]:
    """The Services' addresses are private, /12 to /24, and apart from the VPC's."""
    if s.spec.existing_cluster is not None:
        return
    services = IPv4Network(service_cidr(s.spec))
    low, high = SERVICE_PREFIXES
    if not low <= services.prefixlen <= high or not services.is_private:
        yield Fault("cluster.serviceCidr", "is no range for Services", str(services), f"a private network, /{low} to /{high}", "use 172.20.0.0/16")
    networks = [s.spec.network.cidr] if s.spec.network.existing is None else s.spec.network_policy.vpc_cidrs
    for network in networks:
        if services.overlaps(IPv4Network(network)):
            fix = "move one of them, for example to 10.100.0.0/16"
            yield Fault("cluster.serviceCidr", f"overlaps the VPC's {network}", str(services), "a range apart from it", fix)


@rule("policy-enforced", Level.INFO, Stage.FORM, "AWS: EKS user guide, network policies with Auto Mode")
def policy_enforced(s: Subject) -> Iterator[Fault]:
    """On a cluster that exists its owner decides whether NetworkPolicies are enforced."""
    if s.spec.network_policy.enabled and s.spec.existing_cluster is not None:
        what = "ConfigMap amazon-vpc-cni in kube-system with enable-network-policy-controller true" if s.spec.makes_pools else "its CNI"
        message = "makes policies, which this cluster enforces only if its owner has turned that on"
        yield Fault("networkPolicy", message, None, what, "ask for it; `kubectl get configmap -n kube-system amazon-vpc-cni` shows it")


@rule("policy-addresses", Level.INFO, Stage.FORM, "disagg-serving: what is not known is not narrowed down")
def policy_addresses(s: Subject) -> Iterator[Fault]:
    """On a network that exists, policies admit every private address as load balancer until the VPC's networks are given."""
    if s.spec.network_policy.enabled and not makes_network(s.spec) and not s.spec.network_policy.vpc_cidrs:
        fix = "set networkPolicy.vpcCidrs"
        yield Fault("networkPolicy.vpcCidrs", "is not set, so routers take requests from all private addresses", None, "the VPC's networks", fix)


@rule("policy-everything", Level.ERROR, Stage.FORM, "Kubernetes: an exception of a NetworkPolicy is smaller than its block", firm=True)
def policy_everything(s: Subject) -> Iterator[Fault]:
    """The VPC's networks and the places of weights are named, not the whole internet or a large part of it."""
    policy = s.spec.network_policy
    for key, networks, allowed in (("vpcCidrs", policy.vpc_cidrs, "the VPC's networks"), ("weightsCidrs", policy.weights_cidrs, "single places")):
        for i, network in enumerate(networks):
            if _is_wide(network):
                yield Fault(f"networkPolicy.{key}[{i}]", "is too much of the internet", network, f"{allowed}, /{WIDEST} or smaller", "name them")


@rule("efa-unfiltered", Level.INFO, Stage.FORM, "disagg-serving: EFA passes the kernel by, where NetworkPolicies are enforced")
def efa_unfiltered(s: Subject) -> Iterator[Fault]:
    """NetworkPolicies filter TCP and UDP; what GPU nodes say over EFA is bounded only by the security group that they share."""
    fabric = [served.spec.name for served in s.served if served.spec.disaggregated or _spans_nodes(served)]
    if s.spec.network_policy.enabled and fabric:
        message = f"does not filter EFA traffic, here of {', '.join(fabric)}: only the security group bounds it, which all GPU nodes share"
        yield Fault("networkPolicy", message, None, "one environment for each model that must be apart")


@rule("image-sources", Level.ERROR, Stage.FORM, "OCI: references of images and charts", firm=True)
def image_sources(s: Subject) -> Iterator[Fault]:
    """Registries and their mirrors are written as in an image's name: host and path, no scheme, no slash at the end."""
    for prefix, mirror in s.spec.image_sources.items():
        for what, text in (("prefix", prefix), ("mirror", mirror)):
            if "://" in text or text.endswith("/") or any(c.isspace() for c in text):
                allowed = "host and path such as registry.example.com/mirror"
                yield Fault(f"imageSources.{prefix}", f"has a {what} that is no part of an image's name", text, allowed, "remove scheme and slash")


def _is_wide(network: str) -> bool:
    return IPv4Network(network).prefixlen < WIDEST


def _spans_nodes(served: Any) -> bool:
    return any(r.tensor_parallel * r.pipeline_parallel > served.instances[n].gpu.count for n, r in served.spec.roles.items())


def _gateways(s: Subject) -> Iterator[tuple[str, GatewaySpec]]:
    for i, model in enumerate(s.spec.models):
        if model.gateway.enabled:
            yield f"models[{i}].gateway", model.gateway


def _plugin(path: str, plugin: PluginSpec, known: Plugin) -> Iterator[Fault]:
    if known.kind not in USABLE_KINDS:
        yield Fault(f"{path}.type", f"is a {known.kind}, which no profile lists", plugin.type, ", ".join(USABLE_KINDS), "remove it")
        return
    if known.stability == "alpha":
        yield Fault(f"{path}.type", "is experimental in this release and not enabled", plugin.type, "plugins of stability beta", "remove it")
    if known.deprecated:
        yield Fault(f"{path}.type", "is deprecated", plugin.type, known.deprecated, f"use {known.deprecated}", Level.WARNING)
    if plugin.weight is not None and known.kind != "scorer":
        yield Fault(f"{path}.weight", f"belongs to scorers, and {plugin.type} is a {known.kind}", plugin.weight, "without it", "remove it")
    if not isinstance(known.parameters, str):
        yield from _parameters(path, plugin, known.parameters)
    for name in known.required:
        if name not in plugin.parameters:
            yield Fault(f"{path}.parameters.{name}", f"is required by {plugin.type}", None, "", "add it")


def _parameters(path: str, plugin: PluginSpec, known: Mapping[str, str]) -> Iterator[Fault]:
    for name, value in plugin.parameters.items():
        kind = known.get(name)
        if kind is None:
            allowed = ", ".join(known) or "none"
            yield Fault(f"{path}.parameters.{name}", f"is no parameter of {plugin.type}", None, allowed, did_you_mean(name, list(known)))
        elif not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
            yield Fault(f"{path}.parameters.{name}", "is of another type", value, f"a {kind}" if kind != "integer" else "an integer")


def _missing_producers(path: str, plugins: Any, model: ModelSpec) -> Iterator[Fault]:
    listed = {p.type for p in plugins}
    for j, plugin in enumerate(plugins):
        producer = NEEDS.get(plugin.type)
        if producer and producer not in listed and model.gateway.enabled:
            yield Fault(f"{path}[{j}].type", f"needs {producer} in the list", plugin.type, producer, f"add {{type: {producer}}}")


def _alias(spec: Any, field: str) -> str:
    return str(type(spec).model_fields[field].alias or field)
