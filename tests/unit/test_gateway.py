"""The router: its chart's values, the endpoint picker's configuration, Envoy's, the sidecar and the load balancer."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from disagg_serving import labels
from disagg_serving.catalog import Catalog
from disagg_serving.manifests.envoy import ROUTING_HEADERS, envoy_config
from disagg_serving.manifests.gateway import CONFIG_FILE, build_load_balancer, router_chart, router_values
from disagg_serving.manifests.picker import HANDLERS, IN_PROFILES, picker_config
from disagg_serving.manifests.serving import build_routing_sidecar
from disagg_serving.pins import DEFAULT_ROUTER
from disagg_serving.planning.shapes import API_PORT, BEHIND_SIDECAR_PORT, Layout
from disagg_serving.rules.evaluation import evaluate_file
from disagg_serving.spec.stack_file import find_project
from factories import SHIPPED, STACKS, aggregated, check, environment, existing_cluster, layout, model, role

ROUTER = Catalog().routers[DEFAULT_ROUTER]
CERTIFICATE = "arn:aws:acm:us-east-1:123456789012:certificate/a"
PUBLIC = {"public": True, "sourceRanges": ["203.0.113.0/24"], "certificateArn": CERTIFICATE, "apiKeySecret": "apiKey"}
ROUTINGS: dict[str, dict[str, Any]] = {
    "default": environment(model()),
    "aggregated": environment(aggregated()),
    "by prefix": environment(model(gateway={"routing": {"disaggregation": "prefixBased", "nonCachedTokens": 512}})),
    "own scorers": environment(
        model(
            gateway={
                "routing": {
                    "prefill": [{"type": "inflight-load-producer"}, {"type": "token-load-scorer", "weight": 2.5}],
                    "decode": [
                        {"type": "active-request-scorer", "parameters": {"idleThreshold": 2}},
                        {"type": "active-request-scorer", "parameters": {"idleThreshold": 9}, "weight": 3},
                        {"type": "random-picker"},
                    ],
                }
            }
        )
    ),
    "own scorers, aggregated": environment(aggregated(gateway={"routing": {"server": [{"type": "running-requests-size-scorer"}]}})),
}


def made(case: str) -> Layout:
    """The layout of a shipped stack or of one of the environments above."""
    if case in ROUTINGS:
        return layout(ROUTINGS[case])
    return evaluate_file(find_project(SHIPPED).stack_file(case), SHIPPED).require_layout()


def balancer(**gateway: Any) -> dict[str, Any]:
    """The load balancer of a model with this gateway."""
    wanted = layout(environment(model(gateway=gateway)))
    return build_load_balancer(wanted.served[0], wanted.groups, wanted.spec)


def setting(service: dict[str, Any], key: str) -> str | None:
    """An annotation of the load balancer controller."""
    found: str | None = service["metadata"]["annotations"].get(f"service.beta.kubernetes.io/aws-load-balancer-{key}")
    return found


@pytest.mark.parametrize("case", [*STACKS, *ROUTINGS])
def test_picker_config_is_one_that_the_release_takes(case: str) -> None:
    """Every plugin has a type that the release registers, only its parameters, and every reference of a profile is listed."""
    config = picker_config(made(case).served[0])
    names = [p.get("name", p["type"]) for p in config["plugins"]]
    kinds = {p.get("name", p["type"]): ROUTER.plugins[p["type"]] for p in config["plugins"]}
    assert len(set(names)) == len(names)
    assert config["apiVersion"] == ROUTER.config_api_version
    for plugin in config["plugins"]:
        known = ROUTER.plugins[plugin["type"]]
        assert known.stability != "alpha"
        assert set(plugin.get("parameters", {})) <= set(known.parameters)
        assert set(known.required) <= set(plugin.get("parameters", {}))
    for profile in config["schedulingProfiles"]:
        references = [r["pluginRef"] for r in profile["plugins"]]
        assert set(references) <= set(names)
        assert {kinds[r].kind for r in references} <= IN_PROFILES
        assert [kinds[r].kind for r in references].count("picker") == 1
        assert all(("weight" in r) == (kinds[r["pluginRef"]].kind == "scorer") for r in profile["plugins"])


def test_prefill_and_decode_are_always_split_by_default() -> None:
    """Two profiles that each take only the role's pods, and a decider that never leaves a request to decode alone."""
    config = picker_config(made("prod").served[0])
    handler = next(p for p in config["plugins"] if p["type"] == HANDLERS[True])
    assert handler["parameters"] == {"deciders": {"prefill": "always-disagg-pd-decider"}}
    assert {p["name"]: p["plugins"][0]["pluginRef"] for p in config["schedulingProfiles"]} == {
        "prefill": "prefill-filter",
        "decode": "decode-filter",
    }


def test_aggregated_models_have_one_profile() -> None:
    """One profile with a handler of its own; nothing of prefill and decode is listed."""
    config = picker_config(made("dev").served[0])
    assert [p["name"] for p in config["schedulingProfiles"]] == ["default"]
    types = {p["type"] for p in config["plugins"]}
    assert HANDLERS[False] in types
    assert not types & {HANDLERS[True], "prefill-filter", "decode-filter", "always-disagg-pd-decider"}


def test_own_plugins_keep_their_parameters_apart() -> None:
    """Two of one type with different parameters get different names; a picker of one's own replaces the default; producers are only listed."""
    config = picker_config(made("own scorers").served[0])
    decode = next(p for p in config["schedulingProfiles"] if p["name"] == "decode")["plugins"]
    assert decode == [
        {"pluginRef": "decode-filter"},
        {"pluginRef": "active-request-scorer", "weight": 1},
        {"pluginRef": "active-request-scorer-2", "weight": 3},
        {"pluginRef": "random-picker"},
    ]
    listed = {p.get("name", p["type"]): p.get("parameters") for p in config["plugins"]}
    assert listed["active-request-scorer"] == {"idleThreshold": 2}
    assert listed["active-request-scorer-2"] == {"idleThreshold": 9}
    prefill = next(p for p in config["schedulingProfiles"] if p["name"] == "prefill")["plugins"]
    assert prefill[1] == {"pluginRef": "token-load-scorer", "weight": 2.5}
    assert "inflight-load-producer" in listed


def paths(values: dict[str, Any], before: str = "") -> set[str]:
    """Dotted paths of all leaves."""
    found: set[str] = set()
    for key, value in values.items():
        inner = f"{before}{key}"
        found |= paths(value, f"{inner}.") if isinstance(value, dict) and value else {inner}
    return found


@pytest.mark.parametrize("case", [*STACKS, *ROUTINGS])
def test_values_are_ones_that_the_chart_reads(case: str) -> None:
    """Each value has a path that the release's chart knows; a misspelt one would be ignored without a word."""
    wanted = made(case)
    free = tuple(v.removesuffix("*") for v in ROUTER.chart_values if v.endswith(".*"))
    used = paths(router_values(wanted.served[0], wanted.groups))
    assert {p for p in used if p not in ROUTER.chart_values and not p.startswith(free)} == set()


def test_values_that_matter() -> None:
    """The chart's own defaults are overridden where they are unsafe or too large for a small node."""
    wanted = made("prod")
    router = router_values(wanted.served[0], wanted.groups)["router"]
    assert router["proxy"]["failOpen"] is False
    assert router["inferencePool"] == {"create": False}
    identity = wanted.groups[0].labels[labels.IDENTITY]
    assert router["modelServers"]["matchLabels"] == {
        labels.LLM_D_MODEL: "llama-70b",
        labels.LWS_WORKER_INDEX: "0",
        labels.IDENTITY: identity,
    }
    assert router["modelServers"]["targetPorts"] == [{"number": API_PORT}]
    assert (router["epp"]["replicas"], router["epp"]["image"]["tag"], router["epp"]["image"]["pullPolicy"]) == (1, "v0.10.0", "IfNotPresent")
    assert router["epp"]["resources"] == {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "2Gi"}}
    assert router["proxy"]["resources"] == {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    assert yaml.safe_load(router["epp"]["pluginsCustomConfig"][CONFIG_FILE]) == picker_config(wanted.served[0])
    assert router["epp"]["pluginsConfigFile"] == CONFIG_FILE
    assert router_chart(wanted.served[0], wanted.spec) == ("oci://ghcr.io/llm-d/charts/llm-d-router-standalone", "v0.10.0")


def test_router_grows_with_the_engines_or_as_asked() -> None:
    """One more vCPU for each 32 engines, unless sizes are given."""
    many = layout(environment(model(prefill=role(replicas=32), decode=role(replicas=33))))
    assert router_values(many.served[0], many.groups)["router"]["epp"]["resources"]["requests"] == {"cpu": "3", "memory": "6Gi"}
    asked = layout(environment(model(gateway={"picker": {"cpu": 0.5, "memoryGiB": 7}, "proxy": {"cpu": 4}})))
    router = router_values(asked.served[0], asked.groups)["router"]
    assert router["epp"]["resources"] == {"requests": {"cpu": "500m", "memory": "7Gi"}, "limits": {"memory": "7Gi"}}
    assert router["proxy"]["resources"]["requests"]["cpu"] == "4"


def test_envoy_trusts_no_client_with_routing() -> None:
    """Routing headers go before the endpoint picker sets them, nothing is forwarded without it, and only paths below /v1/ are."""
    (listener,) = [o for o in envoy_config(900)["static_resources"]["listeners"] if o["name"] == "clients"]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    names = [f["name"] for f in manager["http_filters"]]
    assert names == ["envoy.filters.http.header_mutation", "envoy.filters.http.ext_proc", "envoy.filters.http.router"]
    removed = [m["remove"] for m in manager["http_filters"][0]["typed_config"]["mutations"]["request_mutations"]]
    assert set(removed) == set(ROUTING_HEADERS) >= {"x-gateway-destination-endpoint", "x-prefiller-host-port"}
    assert manager["http_filters"][1]["typed_config"]["failure_mode_allow"] is False
    routes = manager["route_config"]["virtual_hosts"][0]["routes"]
    assert [(r["match"]["prefix"], "direct_response" in r) for r in routes] == [("/v1/", False), ("/", True)]
    assert routes[0]["route"] == {"cluster": "engines", "timeout": "0s", "idle_timeout": "900s"}


def test_sidecar_uses_flags_of_the_release_and_one_pair_of_ports() -> None:
    """The sidecar listens where everybody calls and forwards to where vLLM beside it listens, in plain HTTP, with flags that it has."""
    wanted = made("prod")
    sidecar = build_routing_sidecar(wanted.served[0])
    flags = dict(a.removeprefix("--").split("=", 1) for a in sidecar["args"])
    assert set(flags) <= set(ROUTER.sidecar_flags)
    assert flags["port"] == str(API_PORT)
    assert flags["model-server-port"] == str(BEHIND_SIDECAR_PORT)
    assert flags["secure-proxy"] == "false"
    (decode,) = [g for g in wanted.groups if g.role == "decode"]
    assert decode.engine_port == BEHIND_SIDECAR_PORT
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["image"] == ROUTER.images.sidecar.reference


def test_load_balancer_is_internal_by_default() -> None:
    """Inside the VPC, from the VPC's addresses only, over HTTP, with a timeout that a long prompt does not meet."""
    service = balancer()
    assert setting(service, "scheme") == "internal"
    assert service["spec"]["loadBalancerClass"] == "eks.amazonaws.com/nlb"
    assert service["spec"]["loadBalancerSourceRanges"] == ["10.0.0.0/16"]
    assert service["spec"]["selector"] == {"llm-d-router-standalone": "m-epp"}
    assert [(p["port"], p["targetPort"]) for p in service["spec"]["ports"]] == [(80, 8081)]
    assert setting(service, "listener-attributes.TCP-80") == "tcp.idle_timeout.seconds=3600"
    assert setting(service, "nlb-target-type") == "ip"
    assert "preserve_client_ip.enabled=false" in (setting(service, "target-group-attributes") or "")
    assert (setting(service, "healthcheck-port"), setting(service, "healthcheck-path")) == ("19001", "/ready")


def test_public_load_balancer_speaks_tls() -> None:
    """Facing the internet it has the asked ranges and a certificate; the timeout that TLS does not allow is left out."""
    service = balancer(**PUBLIC)
    assert setting(service, "scheme") == "internet-facing"
    assert service["spec"]["loadBalancerSourceRanges"] == ["203.0.113.0/24"]
    assert [(p["name"], p["port"]) for p in service["spec"]["ports"]] == [("https", 443)]
    assert (setting(service, "ssl-cert"), setting(service, "ssl-ports"), setting(service, "backend-protocol")) == (CERTIFICATE, "443", "tcp")
    assert not [k for k in service["metadata"]["annotations"] if "listener-attributes" in k]
    assert all(isinstance(v, str) for v in service["metadata"]["annotations"].values())


def test_targets_drain_as_long_as_pods_do() -> None:
    """A target keeps its connections for as long as the slowest engine behind it may take to end."""
    wanted = layout(environment(model(drainSeconds=600)))
    service = build_load_balancer(wanted.served[0], wanted.groups, wanted.spec)
    assert "deregistration_delay.timeout_seconds=635" in (setting(service, "target-group-attributes") or "")


def test_source_ranges_of_an_adopted_network() -> None:
    """Nothing is known about a network that exists, so the ranges are left to its security groups until vpcCidrs is given."""
    wanted = layout(existing_cluster(model()))
    assert "loadBalancerSourceRanges" not in build_load_balancer(wanted.served[0], wanted.groups, wanted.spec)["spec"]
    told = layout({**existing_cluster(model()), "networkPolicy": {"vpcCidrs": ["10.9.0.0/16"]}})
    assert build_load_balancer(told.served[0], told.groups, told.spec)["spec"]["loadBalancerSourceRanges"] == ["10.9.0.0/16"]


def test_long_names_are_cut_as_the_chart_cuts_them() -> None:
    """The chart cuts release names at 40 characters; whoever selects its pods must cut alike."""
    wanted = layout(environment(aggregated(name="m" * 45)))
    service = build_load_balancer(wanted.served[0], wanted.groups, wanted.spec)
    assert service["spec"]["selector"] == {"llm-d-router-standalone": "m" * 40 + "-epp"}


RANKS = role(instanceType="p5en.48xlarge", tensorParallel=1, dataParallel=16, expertParallel=True)
"""Sixteen ranks over two nodes."""


@pytest.mark.parametrize(
    ("data", "rule", "level"),
    [
        (environment(model(gateway={**PUBLIC, "sourceRanges": ["0.0.0.0/0"]})), "gateway-public", "warning"),
        (environment(model(gateway={"routing": {"disaggregation": "prefixBased", "nonCachedTokens": 9}})), "routing", "warning"),
        (
            environment(aggregated(gateway={"routing": {"server": [{"type": "by-label", "parameters": {"label": "a", "allowsNoLabel": True}}]}})),
            "router-plugins",
            "warning",
        ),
        (environment(model(gateway={"enabled": False})), "gateway-split", "warning"),
        (
            existing_cluster(model(prefill=role(nodeSelector={"a": "p"}), decode=role(nodeSelector={"a": "d"})), autoMode=False),
            "gateway-class",
            "warning",
        ),
        (environment(model(gateway={"certificateArn": CERTIFICATE})), "gateway-certificate", "info"),
        (environment(model(), networkPolicy={"weightsCidrs": ["198.51.100.0/24"]}), "policy-use", "warning"),
        (environment(model(), imageSources={"quay.io": "mirror.example.com"}), "image-sources", "warning"),
        (environment(model(weights={"revision": "main"})), "revision-unpinned", "info"),
        (existing_cluster(model(weights={"s3": {"bucket": "acme"}})), "weights-access", "warning"),
        (environment(aggregated(model="glm-5-fp8", server=role(tensorParallel=8, pipelineParallel=2))), "weights-download", "warning"),
        (environment(model(weights={"cache": "node"})), "node-cache", "warning"),
        (environment(model()), "efa-unfiltered", "info"),
        (environment(aggregated(model="deepseek-v3", maxModelLen=32768, server=RANKS)), "efa-unfiltered", "info"),
        (existing_cluster(model()), "policy-enforced", "info"),
        (existing_cluster(model()), "policy-addresses", "info"),
    ],
)
def test_what_is_allowed_but_said(data: dict[str, Any], rule: str, level: str) -> None:
    """What works with a reservation is deployed and the reservation is said."""
    result = check(data)
    assert result.ok
    assert [str(f.level) for f in result.findings if f.id == rule] == [level]


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (environment(aggregated(server=role(tensorParallel=2))), "efa-unfiltered"),
        (environment(model(), networkPolicy={"enabled": False}), "efa-unfiltered"),
        (environment(model(weights={"s3": {"bucket": "acme"}})), "weights-access"),
        (environment(model(weights={"s3": {"bucket": "acme"}})), "revision-unpinned"),
        (environment(model(), networkPolicy={"vpcCidrs": ["10.0.0.0/16"]}), "policy-addresses"),
    ],
)
def test_what_needs_no_words(data: dict[str, Any], rule: str) -> None:
    """A rule is silent where its reason is not there."""
    result = check(data)
    assert result.ok
    assert rule not in {f.id for f in result.findings}
