"""The way in: values of the router's chart, and the load balancer before it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from .. import labels
from ..forecast.autoscaling import counts_tokens
from ..planning.addresses import makes_network, vpc_cidrs
from ..planning.gateway import container_sizes, idle_seconds
from ..planning.shapes import API_PORT, Group, Served
from ..spec import EnvironmentSpec
from ..yaml_io import to_yaml
from .engine import grace_seconds
from .envoy import envoy_config
from .lws import is_local
from .names import managed, pair_selector, router_labels
from .network_policy import PROXY_PORT, PROXY_READY_PORT
from .picker import picker_config

CONFIG_FILE = "disagg-serving.yaml"
HTTP_PORT, HTTPS_PORT = 80, 443
AUTO_MODE_CLASS, CONTROLLER_CLASS = "eks.amazonaws.com/nlb", "service.k8s.aws/nlb"
"""Classes of Auto Mode's own load balancer controller, and of the AWS Load Balancer Controller on other clusters."""
ENVOY_USER = 65532
"""The user of distroless images without root."""
TLS_POLICY = "ELBSecurityPolicy-TLS13-1-2-2021-06"


def gateway_name(served: Served) -> str:
    """Name of a model's load balancer Service."""
    return f"{served.spec.name}-gateway"


def release_name(served: Served) -> str:
    """Name of the chart's release."""
    return served.spec.name


def router_chart(served: Served, spec: EnvironmentSpec) -> tuple[str, str | None]:
    """Chart and version; a chart in a folder or archive has none."""
    given = spec.router.chart
    if given is not None and is_local(given):
        return given, None
    return served.located(given or served.router.chart.location), served.router.chart.version


def router_values(served: Served, groups: Sequence[Group]) -> dict[str, Any]:
    """Values of the standalone chart: one endpoint picker with Envoy beside it, no InferencePool and so no CRD.

    One replica: the picker counts requests in flight by itself, so two would each see half of them.
    """
    sizes = container_sizes(served, groups)
    repository, tag = served.located(served.router.images.endpoint_picker.reference).rsplit(":", 1)
    registry, name = repository.rsplit("/", 1)
    picker, envoy = to_yaml(picker_config(served, counts_tokens=any(map(counts_tokens, groups)))), to_yaml(envoy_config(idle_seconds(served)))
    return {
        "router": {
            "modelServers": {
                "type": "vllm",
                "protocol": "http",
                "targetPorts": [{"number": API_PORT}],
                "matchLabels": {labels.LLM_D_MODEL: served.spec.name, **pair_selector(groups[0])},
            },
            "inferencePool": {"create": False},
            # the policy admits Prometheus alone; a token would need rights over the whole cluster
            "monitoring": {"prometheus": {"auth": {"enabled": False}}},
            "extraServicePorts": [{"name": "http", "port": PROXY_PORT, "protocol": "TCP", "targetPort": PROXY_PORT}],
            "epp": {
                "replicas": 1,
                "image": {"registry": registry, "repository": name, "tag": tag, "pullPolicy": "IfNotPresent"},
                "pluginsConfigFile": CONFIG_FILE,
                "pluginsCustomConfig": {CONFIG_FILE: picker},
                "resources": sizes.picker,
                # the node's consolidation would cut every stream of the model
                "podAnnotations": {labels.DO_NOT_DISRUPT: "true", labels.CONFIG_HASH: hashlib.sha256(f"{picker}\0{envoy}".encode()).hexdigest()[:16]},
            },
            "proxy": {
                "enabled": True,
                "proxyType": "envoy",
                "mode": "sidecar",
                "failOpen": False,
                "image": served.located(served.router.images.proxy.reference),
                "imagePullPolicy": "IfNotPresent",
                "resources": sizes.proxy,
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                    "runAsNonRoot": True,
                    "runAsUser": ENVOY_USER,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "configMap": {"data": {"envoy.yaml": envoy}},
            },
        }
    }


def build_load_balancer(served: Served, groups: Sequence[Group], spec: EnvironmentSpec) -> dict[str, Any]:
    """The Network Load Balancer in front of Envoy. Its targets are pod addresses; it sees Envoy's own readiness."""
    gateway = served.spec.gateway
    secure = gateway.certificate_arn is not None
    port = HTTPS_PORT if secure else HTTP_PORT
    settings = {
        "scheme": "internet-facing" if gateway.public else "internal",
        "nlb-target-type": "ip",
        "healthcheck-protocol": "http",
        "healthcheck-port": str(PROXY_READY_PORT),
        "healthcheck-path": "/ready",
        "attributes": "load_balancing.cross_zone.enabled=true",
        # with the client's address kept, NetworkPolicies would have to name every client
        "target-group-attributes": f"preserve_client_ip.enabled=false,deregistration_delay.timeout_seconds={max(grace_seconds(g) for g in groups)}",
    }
    if gateway.certificate_arn:
        settings |= {"ssl-cert": gateway.certificate_arn, "ssl-ports": str(port), "ssl-negotiation-policy": TLS_POLICY, "backend-protocol": "tcp"}
    else:
        settings[f"listener-attributes.TCP-{port}"] = f"tcp.idle_timeout.seconds={idle_seconds(served)}"
    ranges = source_ranges(served, spec)
    metadata = managed(gateway_name(served), served)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**metadata, "annotations": {f"{labels.NLB}{key}": value for key, value in sorted(settings.items())}},
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": AUTO_MODE_CLASS if spec.makes_pools else CONTROLLER_CLASS,
            "allocateLoadBalancerNodePorts": False,
            "selector": router_labels(served),
            "ports": [{"name": "https" if secure else "http", "port": port, "targetPort": PROXY_PORT, "protocol": "TCP"}],
            **({"loadBalancerSourceRanges": ranges} if ranges else {}),
        },
    }


def source_ranges(served: Served, spec: EnvironmentSpec) -> list[str]:
    """Networks that reach the load balancer; empty where nothing is known and nothing was asked for."""
    if served.spec.gateway.source_ranges:
        return list(served.spec.gateway.source_ranges)
    return list(vpc_cidrs(spec)) if makes_network(spec) or spec.network_policy.vpc_cidrs else []


def endpoint_scheme(served: Served) -> str:
    """http, or https with a certificate."""
    return "https" if served.spec.gateway.certificate_arn else "http"
