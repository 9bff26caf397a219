"""Rules about the way in: load balancer, router, network policies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Network, collapse_addresses
from typing import TYPE_CHECKING, Any

from ...errors import Level, did_you_mean
from ...phrases import say
from ...pins import DCGM_CHART, DCGM_IMAGE, DEFAULT_ROUTER, keda_images, lws_image
from ...place import Place
from ...planning.addresses import EKS_SERVICE_CIDRS, makes_network, service_cidr
from ...planning.gateway import TLS_IDLE_SECONDS
from ...planning.image_sources import is_chart, located, source_of
from ...planning.shapes import Served, group_size
from ...spec import GatewaySpec, PluginSpec
from ...spec.network import region_of
from ..documents import EC2, EKS, KUBERNETES, ROUTER
from ..registry import Fault, Stage, Subject, meant, remove, rule, use

if TYPE_CHECKING:
    from ...catalog.router import Plugin

SERVICE_PREFIXES = (12, 24)
WIDEST = 8
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*(:\d+)?(/[a-z0-9][a-z0-9._-]*)*(:[A-Za-z0-9._-]+)?(@sha256:[0-9a-f]{64})?")
"""A registry, a part of an image's name, or all of it."""
IMAGE = re.compile(r"[a-z0-9][a-z0-9._-]*(:\d+)?(/[a-z0-9][a-z0-9._-]*)+(:[A-Za-z0-9._-]+|@sha256:[0-9a-f]{64}|:[A-Za-z0-9._-]+@sha256:[0-9a-f]{64})")
OWN_FILTERS = frozenset({"prefill-filter", "decode-filter", "encode-filter"})
OUTSIDE = frozenset(
    {
        "precise-prefix-cache-producer", "precise-prefix-cache-scorer", "predicted-latency-producer", "latency-scorer", "token-producer",
        "latency-slo-admitter", "slo-headroom-tier-filter", "session-id-producer",
    }
)  # fmt: skip
"""Plugins that need servers, KV events or tokenizers which nothing here makes."""
PRIVATE = tuple(IPv4Network(n) for n in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"))
USABLE_KINDS = ("filter", "scorer", "picker", "producer")
TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "list": (list,), "mapping": (dict,),
}  # fmt: skip
USUAL_PREFIX = 512
NEEDS = {"token-load-scorer": "inflight-load-producer"}
"""Scorers whose producer the endpoint picker does not add by itself (llm-d-router 0.10.0)."""


@rule("gateway-public", Level.ERROR, Stage.FORM, "our choice: docs/how-to/public-endpoint.md", firm=True)
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
                yield Fault(f"{path}.{key}", "is required with public: true", None, allowed, "add it", ways=[remove(f"{path}.public")])
        for wide in (r for r in gateway.source_ranges if _is_wide(r)):
            yield Fault(f"{path}.sourceRanges", "lets much of the internet in", wide, "your networks", "name them", Level.WARNING)


@rule("gateway-unused", Level.ERROR, Stage.FORM, "our choice: docs/reference/stack-file.md", firm=True)
def gateway_unused(s: Subject) -> Iterator[Fault]:
    """What is set for a gateway or for its routing has an effect."""
    for i, model in enumerate(s.spec.models):
        path, gateway = f"models[{i}].gateway", model.gateway
        if not gateway.enabled:
            for field in sorted(gateway.model_fields_set - {"enabled", "api_key_secret"}):
                place = f"{path}.{_alias(gateway, field)}"
                yield Fault(place, "has no effect while enabled is false", None, "without it", ways=[remove(place)])
            continue
        unused = ("server",) if model.disaggregated else ("prefill", "decode", "non_cached_tokens", "disaggregation")
        for field in sorted(gateway.routing.model_fields_set.intersection(unused)):
            mode = "with prefill and decode" if model.disaggregated else "in server mode"
            place = f"{path}.routing.{_alias(gateway.routing, field)}"
            yield Fault(place, f"has no effect {mode}", None, "without it", ways=[remove(place)])


@rule("gateway-idle", Level.ERROR, Stage.FORM, "https://docs.aws.amazon.com/elasticloadbalancing/latest/network/update-idle-timeout.html")
def gateway_idle(s: Subject) -> Iterator[Fault]:
    """A TLS listener closes connections after 350 seconds without a byte, whatever is asked."""
    for path, gateway in _gateways(s):
        asked = gateway.idle_timeout_seconds
        if gateway.certificate_arn and asked not in {None, TLS_IDLE_SECONDS}:
            place, advice = f"{path}.idleTimeoutSeconds", "end TLS behind the load balancer"
            yield Fault(place, "cannot be had with a certificate", asked, str(TLS_IDLE_SECONDS), advice, ways=[remove(place)])


@rule("gateway-dns", Level.ERROR, Stage.FORM, "our choice: docs/how-to/public-endpoint.md", firm=True)
def gateway_dns(s: Subject) -> Iterator[Fault]:
    """A DNS record is made where AWS is used, and once a name."""
    first: dict[str, int] = {}
    for i, model in enumerate(s.spec.models):
        dns = model.gateway.dns
        if dns is None:
            continue
        path = f"models[{i}].gateway.dns"
        if s.spec.existing_cluster and s.spec.existing_cluster.kubeconfig:
            fix = say("find the cluster by {name} or {stackReference}, or make the record elsewhere from the output endpoints")
            yield Fault(path, "needs AWS, which a cluster by kubeconfig does without", dns.name, "no record", fix)
        other = first.setdefault(dns.name, i)
        if other != i:
            yield Fault(f"{path}.name", say("is that of {}", Place(("models", other))), dns.name, "a name of its own", "choose another")


@rule("routing", Level.ERROR, Stage.FORM, f"{ROUTER}pkg/epp/framework/plugins/scheduling/profilehandler/disagg/disagg_profile_handler.go", firm=True)
def routing(s: Subject) -> Iterator[Fault]:
    """Deciding by prefix needs a bound, and then decode alone answers requests that nothing has checked for KV-transfer fields."""
    for i, model in enumerate(s.spec.models):
        path, asked = f"models[{i}].gateway.routing", model.gateway.routing
        if not model.disaggregated or not model.gateway.enabled:
            continue
        by_prefix = asked.disaggregation == "prefixBased"
        if by_prefix and asked.non_cached_tokens is None:
            place, allowed = f"{path}.nonCachedTokens", "a number of tokens"
            yield Fault(place, "is required with prefixBased", None, allowed, ways=[use(place, USUAL_PREFIX), remove(f"{path}.disaggregation")])
        elif by_prefix:
            message = "lets decode answer alone: a client's kv_transfer_params then reach vLLM, and only NetworkPolicies bound where it connects"
            place, ways = f"{path}.disaggregation", [[{f"{path}.disaggregation": "always", f"{path}.nonCachedTokens": None}]]
            yield Fault(place, message, asked.disaggregation, "always", "trust your clients", Level.WARNING, ways)
        elif asked.non_cached_tokens is not None:
            place, either = f"{path}.nonCachedTokens", [remove(f"{path}.nonCachedTokens"), use(f"{path}.disaggregation", "prefixBased")]
            yield Fault(place, "belongs to prefixBased", asked.non_cached_tokens, "without it", ways=either)


@rule("router-plugins", Level.ERROR, Stage.FORM, f"{ROUTER}cmd/epp/runner/runner.go", firm=True)
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
                    names = [n for n, p in served.router.plugins.items() if _usable(n, p)]
                    place, ways = f"{path}[{j}].type", [meant(f"{path}[{j}].type", plugin.type, names)]
                    otherwise = "`disagg catalog routers` lists them"
                    message = f"is not a plugin of {served.router.id}"
                    yield Fault(place, message, plugin.type, ", ".join(names), ways=ways, otherwise=otherwise)
                else:
                    yield from _plugin(f"{path}[{j}]", plugin, known)
            yield from _together(path, plugins or (), served)


@rule("service-cidr", Level.ERROR, Stage.FORM, f"{EKS}create-cluster.html", firm=True, presumes_made="network", parts=("cluster",))
def service_range(s: Subject) -> Iterator[Fault]:
    """The Services' addresses are private, /12 to /24, and apart from the VPC's."""
    existing = s.spec.existing_cluster
    if existing is not None and existing.service_cidr is None:
        return
    path, text = ("existingCluster", existing.service_cidr) if existing else ("cluster", service_cidr(s.spec))
    services = IPv4Network(text or service_cidr(s.spec))
    low, high = SERVICE_PREFIXES
    if not low <= services.prefixlen <= high or not any(services.subnet_of(p) for p in PRIVATE):
        place = f"{path}.serviceCidr"
        yield Fault(place, "is no range for Services", str(services), f"a private network, /{low} to /{high}", ways=[use(place, *EKS_SERVICE_CIDRS)])
    networks = [s.spec.network.cidr] if makes_network(s.spec) else s.spec.network_policy.vpc_cidrs
    for network in networks:
        if services.overlaps(IPv4Network(network)):
            place, ways = f"{path}.serviceCidr", [use(f"{path}.serviceCidr", *EKS_SERVICE_CIDRS)]
            yield Fault(place, f"overlaps the VPC's {network}", str(services), "a range apart from it", ways=ways, otherwise="move one of them")


@rule("policy-enforced", Level.INFO, Stage.FORM, f"{EKS}auto-net-pol.html")
def policy_enforced(s: Subject) -> Iterator[Fault]:
    """On a cluster that exists its owner decides whether NetworkPolicies are enforced."""
    if s.spec.network_policy.enabled and s.spec.existing_cluster is not None:
        what = "ConfigMap amazon-vpc-cni in kube-system with enable-network-policy-controller true" if s.spec.makes_pools else "its CNI"
        message = "makes policies, which this cluster enforces only if its owner has turned that on"
        yield Fault("networkPolicy", message, None, what, "ask for it; `kubectl get configmap -n kube-system amazon-vpc-cni` shows it")


@rule("policy-addresses", Level.INFO, Stage.FORM, "our choice: docs/security.md", presumes_made="network")
def policy_addresses(s: Subject) -> Iterator[Fault]:
    """On a network that exists, policies admit every private address as load balancer until the VPC's networks are given."""
    if s.spec.network_policy.enabled and not makes_network(s.spec) and not s.spec.network_policy.vpc_cidrs:
        place = "networkPolicy.vpcCidrs"
        fix = say("set {}", Place.parse(place))
        yield Fault(place, "is not set, so routers take requests from all private addresses", None, "the VPC's networks", fix)


@rule("policy-everything", Level.ERROR, Stage.FORM, f"{KUBERNETES}concepts/services-networking/network-policies/", firm=True)
def policy_everything(s: Subject) -> Iterator[Fault]:
    """The VPC's networks and the places of weights are named, not the whole internet or a large part of it."""
    policy = s.spec.network_policy
    for key, networks, allowed in (("vpcCidrs", policy.vpc_cidrs, "the VPC's networks"), ("weightsCidrs", policy.weights_cidrs, "single places")):
        for i, network in enumerate(networks):
            if _is_wide(network):
                yield Fault(f"networkPolicy.{key}[{i}]", "is too much of the internet", network, f"{allowed}, /{WIDEST} or smaller", "name them")


@rule(
    "policy-use",
    Level.ERROR,
    Stage.FORM,
    "our choice: docs/security.md",
    firm=True,
    presumes_made="network",
)
def policy_use(s: Subject) -> Iterator[Fault]:
    """Settings of policies have an effect, and the networks that they name contain our own load balancers and the places of weights."""
    policy = s.spec.network_policy
    if not policy.enabled:
        for field in sorted(policy.model_fields_set - {"enabled"}):
            place = f"networkPolicy.{_alias(policy, field)}"
            yield Fault(place, "has no effect while enabled is false", None, "without it", ways=[remove(place)])
        for path, gateway in _gateways(s):
            if gateway.public:
                ways = [use("networkPolicy.enabled", True)]
                yield Fault(f"{path}.public", "stands without network policies", True, "with them", level=Level.WARNING, ways=ways)
        return
    given = list(collapse_addresses(IPv4Network(n) for n in policy.vpc_cidrs))
    if makes_network(s.spec) and given and not any(IPv4Network(s.spec.network.cidr).subnet_of(n) for n in given):
        message = "leaves out the network that is made, and with it load balancers and the API server"
        place = "networkPolicy.vpcCidrs"
        yield Fault(place, message, policy.vpc_cidrs, f"a list with {s.spec.network.cidr}", ways=[remove(place)])
    for i, model in enumerate(s.spec.models):
        if policy.weights_cidrs and model.weights.s3 is None:
            message = say("comes from Hugging Face, and {} takes the internet's place", Place.parse("networkPolicy.weightsCidrs"))
            allowed = say("a hub inside {weightsCidrs}, or {s3}")
            yield Fault(f"models[{i}].weights", message, None, allowed, "check that the hub is in it", Level.WARNING)


@rule("efa-unfiltered", Level.INFO, Stage.FORM, f"{EC2}efa.html and docs/security.md")
def efa_unfiltered(s: Subject) -> Iterator[Fault]:
    """NetworkPolicies filter TCP and UDP; what GPU nodes say over EFA is bounded only by the security group that they share."""
    fabric = list(dict.fromkeys(served.spec.name for served in s.served if served.spec.disaggregated or _spans_nodes(served)))
    if s.spec.network_policy.enabled and fabric:
        message = f"does not filter EFA traffic, here of {', '.join(fabric)}: only the security group bounds it, which all GPU nodes share"
        yield Fault("networkPolicy", message, None, "one environment for each model that must be apart")


@rule("image-sources", Level.ERROR, Stage.FORM, "https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md", firm=True)
def image_sources(s: Subject) -> Iterator[Fault]:
    """Registries and their mirrors are written as in an image's name, each is used, and what they make is an image with a tag or digest."""
    sources = s.spec.image_sources
    for prefix, mirror in sources.items():
        for what, text in (("prefix", prefix), ("mirror", mirror)):
            if not NAME.fullmatch(text):
                allowed = "host and path such as registry.example.com/mirror"
                yield Fault(f"imageSources.{prefix}", f"has a {what} that is no part of an image's name", text, allowed, "remove scheme and slash")
    used = {source_of(r, sources): r for r in _references(s)}
    for prefix in sources:
        if s.served and prefix not in used:
            fix = "`disagg render STACK --images` lists what is used"
            yield Fault(f"imageSources.{prefix}", "is used by no image and no chart", prefix, "the beginning of one", fix, Level.WARNING)
    for reference in _references(s):
        made = located(reference, sources)
        if made != reference and not is_chart(reference) and not IMAGE.fullmatch(made):
            where = f"imageSources.{source_of(reference, sources)}"
            yield Fault(
                where, f"makes {made} of {reference}, which is no image in a registry", None, "host/path, with the tag where the prefix has it"
            )


@rule(
    "gateway-class",
    Level.WARNING,
    Stage.FORM,
    f"{EKS}auto-configure-nlb.html and https://kubernetes-sigs.github.io/aws-load-balancer-controller/latest/guide/service/annotations/",
)
def gateway_class(s: Subject) -> Iterator[Fault]:
    """Without Auto Mode somebody has to run the AWS Load Balancer Controller, or the load balancer is waited for in vain."""
    for path, _ in _gateways(s):
        if not s.spec.makes_pools:
            message = "needs the AWS Load Balancer Controller on a cluster without Auto Mode"
            ways = [use(f"{path}.enabled", False)]
            yield Fault(path, message, None, "the controller, class service.k8s.aws/nlb", "install it", ways=ways)


@rule("gateway-split", Level.WARNING, Stage.FORM, f"{ROUTER}pkg/sidecar/proxy/proxy.go")
def gateway_split(s: Subject) -> Iterator[Fault]:
    """Without the router nothing splits requests: whoever calls decode pods decides, also about where they read KV."""
    for i, model in enumerate(s.spec.models):
        if model.disaggregated and not model.gateway.enabled:
            message = "leaves nobody who splits requests: clients reach the sidecars themselves, which follow their headers and kv_transfer_params"
            place, advice = f"models[{i}].gateway.enabled", "run a router of your own, and let only it reach the pods"
            yield Fault(place, message, False, "true", advice, ways=[remove(place)])


@rule("gateway-certificate", Level.ERROR, Stage.FORM, "https://docs.aws.amazon.com/acm/latest/userguide/acm-regions.html")
def gateway_certificate(s: Subject) -> Iterator[Fault]:
    """A certificate is one of the cluster's region, and there is a name that it can be for."""
    zone = s.spec.network.zone
    for path, gateway in _gateways(s):
        arn = gateway.certificate_arn
        if arn and zone and arn.split(":")[3] != region_of(zone):
            yield Fault(f"{path}.certificateArn", f"is not of {region_of(zone)}", arn, f"a certificate of {region_of(zone)}", "make one there")
        if arn and gateway.dns is None:
            message = "is for a name, and the load balancer's own is none that a certificate can have"
            yield Fault(f"{path}.certificateArn", message, None, "dns", "set dns, or point a name at the output endpoints", Level.INFO)


def _references(s: Subject) -> list[str]:
    """Images and charts of the environment, as the catalogue names them."""
    found = [f"{s.spec.lws.chart}", lws_image(s.spec.lws.version)] if s.spec.lws.install == "chart" else []
    if s.spec.observability.dcgm_exporter == "chart":
        found += [DCGM_IMAGE, s.spec.observability.dcgm_chart or DCGM_CHART.location]
    if s.spec.autoscaling.install == "chart" and any(role.autoscaling for _, _, role, _ in s.roles()):
        found += [s.spec.autoscaling.chart, *keda_images(s.spec.autoscaling.version).values()]
    for served in s.served:
        found.append(f"{served.engine.image}@{served.spec.image_digest}" if served.spec.image_digest else served.engine.image)
        if s.spec.image_sources:
            images = served.router.images
            found += [i.reference for i in (images.endpoint_picker, images.proxy, images.sidecar)]
            found.append(s.spec.router.chart or served.router.chart.location)
    return found


def _is_wide(network: str) -> bool:
    return IPv4Network(network).prefixlen < WIDEST


def _spans_nodes(served: Served) -> bool:
    return any(group_size(role, served.instances[name]) > 1 for name, role in served.spec.roles.items())


def _gateways(s: Subject) -> Iterator[tuple[str, GatewaySpec]]:
    for i, model in enumerate(s.spec.models):
        if model.gateway.enabled:
            yield f"models[{i}].gateway", model.gateway


def _usable(name: str, plugin: Plugin) -> bool:
    """Whether a profile may list the plugin without a word from these rules."""
    return plugin.kind in USABLE_KINDS and plugin.stability != "alpha" and not plugin.deprecated and name not in {*OWN_FILTERS, *OUTSIDE, *NEEDS}


def _plugin(path: str, plugin: PluginSpec, known: Plugin) -> Iterator[Fault]:
    if known.kind not in USABLE_KINDS:
        yield Fault(
            f"{path}.type",
            f"is a {known.kind}, which no profile lists",
            plugin.type,
            f"plugins that are a {' or '.join(USABLE_KINDS)}",
            ways=[remove(path)],
        )
        return
    if plugin.type in OWN_FILTERS:
        yield Fault(f"{path}.type", "is set by the project where it belongs", plugin.type, "other filters", ways=[remove(path)])
    if plugin.type in OUTSIDE:
        message = "needs a server, KV events or a tokenizer that nothing here makes"
        yield Fault(f"{path}.type", message, plugin.type, "approx-prefix-cache-producer and scorers of metrics", ways=[remove(path)])
    if known.stability == "alpha":
        yield Fault(f"{path}.type", "is experimental in this release and not enabled", plugin.type, "plugins of stability beta", ways=[remove(path)])
    if known.deprecated:
        ways = [use(f"{path}.type", known.deprecated)]
        yield Fault(f"{path}.type", "is deprecated", plugin.type, known.deprecated, level=Level.WARNING, ways=ways)
    if plugin.weight is not None and known.kind != "scorer":
        ways = [remove(f"{path}.weight")]
        yield Fault(f"{path}.weight", f"belongs to scorers, and {plugin.type} is a {known.kind}", plugin.weight, "without it", ways=ways)
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


def _together(path: str, plugins: Sequence[PluginSpec], served: Served) -> Iterator[Fault]:
    """What only shows in the whole list of a profile."""
    kinds = [served.router.plugins[p.type].kind if p.type in served.router.plugins else "" for p in plugins]
    listed = {p.type for p in plugins}
    pickers = [j for j, kind in enumerate(kinds) if kind == "picker"]
    for j in pickers[1:]:
        message = "is a second picker, which the endpoint picker refuses"
        yield Fault(f"{path}[{j}].type", message, plugins[j].type, "one picker", ways=[remove(f"{path}[{j}]")])
    for j, plugin in enumerate(plugins):
        producer = NEEDS.get(plugin.type)
        if producer and producer not in listed:
            longer = [*(p.model_dump(by_alias=True, exclude_unset=True) for p in plugins), {"type": producer}]
            yield Fault(f"{path}[{j}].type", f"needs {producer} in the list", plugin.type, producer, ways=[use(path, longer), remove(f"{path}[{j}]")])
        for name, value in plugin.parameters.items():
            if name.endswith("ProducerName") and value not in listed:
                allowed = ", ".join(sorted(p for p, k in zip((q.type for q in plugins), kinds, strict=True) if k == "producer")) or "a producer"
                place = f"{path}[{j}].parameters.{name}"
                yield Fault(place, "is no producer of the list", value, allowed, "list it", ways=[remove(place)])


def _alias(spec: Any, field: str) -> str:
    return str(type(spec).model_fields[field].alias or field)
