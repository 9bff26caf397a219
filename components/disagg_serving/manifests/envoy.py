"""Envoy's configuration in the router's pod.

The chart brings one too. Ours is stricter where the chart's trusts the client: headers by which router and sidecar choose a pod are
taken off requests before the endpoint picker sets them (v0.10.0 of the picker never removes one that it does not set), and only
paths below /v1/ are forwarded, which is what an API key guards; vLLM's other paths stay inside the cluster.
"""

from __future__ import annotations

from typing import Any

from .network_policy import PROXY_PORT, PROXY_READY_PORT

ADMIN_PORT, PICKER_PORT = 19000, 9002
DESTINATION_HEADER = "x-gateway-destination-endpoint"
ROUTING_HEADERS = (
    DESTINATION_HEADER,
    "x-prefiller-host-port",
    "x-encoder-hosts-ports",
    "x-kv-cache-source-host-port",
    "x-data-parallel-host-port",
    "x-data-parallel-rank",
    "x-request-id",
)
"""Headers that endpoint picker, sidecar and vLLM act on. The request id names a KV transfer, where a client's own could meet another's;
the sidecar makes one."""
API_PREFIX = "/v1/"
PICKER_SECONDS = 1000
"""How long the endpoint picker may take, as in the chart: it holds requests back while all pods are busy."""
CONNECT_SECONDS = 5
UPSTREAM_IDLE_SECONDS = 60
"""Shorter than vLLM (120, set by us) and the sidecar (300) keep idle connections, or Envoy would now and then meet a closed one."""
_TYPE = "type.googleapis.com/envoy.extensions."
_UNLIMITED = 40000


def envoy_config(idle_seconds: int) -> dict[str, Any]:
    """A static configuration: listeners for clients and for readiness; `idle_seconds` end a stream on which nothing moves."""
    return {
        "admin": {"address": _address("127.0.0.1", ADMIN_PORT)},
        "static_resources": {
            "listeners": [_ready_listener(), _client_listener(idle_seconds)],
            "clusters": [_statistics(), _engines(), _picker()],
        },
    }


def _client_listener(idle_seconds: int) -> dict[str, Any]:
    idle = f"{idle_seconds}s"
    api = {
        "match": {"prefix": API_PREFIX},
        # a stream may last as long as something moves on it
        "route": {"cluster": "engines", "timeout": "0s", "idle_timeout": idle},
    }
    other = {
        "match": {"prefix": "/"},
        "direct_response": {"status": 404, "body": {"inline_string": f"only paths below {API_PREFIX} are served\n"}},
        "typed_per_filter_config": {"envoy.filters.http.ext_proc": {"@type": f"{_TYPE}filters.http.ext_proc.v3.ExtProcPerRoute", "disabled": True}},
    }
    return _listener(
        "clients",
        PROXY_PORT,
        {
            "route_config": {"name": "engines", "virtual_hosts": [{"name": "engines", "domains": ["*"], "routes": [api, other]}]},
            "http_filters": [_strip_routing_headers(), _ask_picker(), _router()],
            "stream_idle_timeout": idle,
            "use_remote_address": True,
            "normalize_path": True,
            "merge_slashes": True,
            "path_with_escaped_slashes_action": "REJECT_REQUEST",
            "common_http_protocol_options": {"idle_timeout": idle, "headers_with_underscores_action": "REJECT_REQUEST"},
            "http2_protocol_options": {"max_concurrent_streams": 100},
        },
    )


def _strip_routing_headers() -> dict[str, Any]:
    return {
        "name": "envoy.filters.http.header_mutation",
        "typed_config": {
            "@type": f"{_TYPE}filters.http.header_mutation.v3.HeaderMutation",
            "mutations": {"request_mutations": [{"remove": name} for name in ROUTING_HEADERS]},
        },
    }


def _ask_picker() -> dict[str, Any]:
    both = {f"{part}_mode": mode for part, mode in (("request_header", "SEND"), ("response_header", "SEND"))}
    bodies = {f"{part}_body_mode": "FULL_DUPLEX_STREAMED" for part in ("request", "response")}
    return {
        "name": "envoy.filters.http.ext_proc",
        "typed_config": {
            "@type": f"{_TYPE}filters.http.ext_proc.v3.ExternalProcessor",
            # without the picker nobody would check where a request goes
            "failure_mode_allow": False,
            "grpc_service": {"envoy_grpc": {"cluster_name": "picker", "authority": f"localhost:{PICKER_PORT}"}, "timeout": "10s"},
            "processing_mode": {**both, **bodies, "request_trailer_mode": "SEND", "response_trailer_mode": "SEND"},
            "message_timeout": f"{PICKER_SECONDS}s",
        },
    }


def _ready_listener() -> dict[str, Any]:
    health = {
        "name": "envoy.filters.http.health_check",
        "typed_config": {
            "@type": f"{_TYPE}filters.http.health_check.v3.HealthCheck",
            "pass_through_mode": False,
            "headers": [{"name": ":path", "string_match": {"exact": "/ready"}}],
        },
    }
    # this path and no other: behind the same address Envoy's administration could be stopped
    statistics = {"match": {"path": "/stats/prometheus"}, "route": {"cluster": "statistics"}}
    return _listener(
        "ready",
        PROXY_READY_PORT,
        {
            "route_config": {"name": "statistics", "virtual_hosts": [{"name": "statistics", "domains": ["*"], "routes": [statistics]}]},
            "http_filters": [health, _router()],
            "normalize_path": True,
            "path_with_escaped_slashes_action": "REJECT_REQUEST",
        },
    )


def _listener(name: str, port: int, manager: dict[str, Any]) -> dict[str, Any]:
    connections = {
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": f"{_TYPE}filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": name,
            **manager,
        },
    }
    return {"name": name, "address": _address("0.0.0.0", port), "filter_chains": [{"filters": [connections]}]}  # noqa: S104 (a pod's own address)


def _router() -> dict[str, Any]:
    return {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{_TYPE}filters.http.router.v3.Router", "suppress_envoy_headers": True}}


def _engines() -> dict[str, Any]:
    return {
        "name": "engines",
        "type": "ORIGINAL_DST",
        "connect_timeout": f"{CONNECT_SECONDS}s",
        "lb_policy": "CLUSTER_PROVIDED",
        "circuit_breakers": _no_limits(),
        "original_dst_lb_config": {"use_http_header": True, "http_header_name": DESTINATION_HEADER},
        "typed_extension_protocol_options": _upstream(
            explicit_http_config={"http_protocol_options": {}}, common_http_protocol_options={"idle_timeout": f"{UPSTREAM_IDLE_SECONDS}s"}
        ),
    }


def _picker() -> dict[str, Any]:
    tls = {
        "name": "envoy.transport_sockets.tls",
        # the picker makes its own certificate; both are in one pod
        "typed_config": {"@type": f"{_TYPE}transport_sockets.tls.v3.UpstreamTlsContext", "common_tls_context": {"validation_context": {}}},
    }
    check = {
        "timeout": "2s",
        "interval": "10s",
        "unhealthy_threshold": 3,
        "healthy_threshold": 2,
        "reuse_connection": True,
        "grpc_health_check": {"service_name": "envoy.service.ext_proc.v3.ExternalProcessor"},
        "tls_options": {"alpn_protocols": ["h2"]},
    }
    return {
        **_static("picker", PICKER_PORT),
        "connect_timeout": f"{CONNECT_SECONDS}s",
        "circuit_breakers": _no_limits(),
        "transport_socket": tls,
        "typed_extension_protocol_options": _upstream(explicit_http_config={"http2_protocol_options": {}}),
        "health_checks": [check],
    }


def _upstream(**options: Any) -> dict[str, Any]:
    name = "upstreams.http.v3.HttpProtocolOptions"
    return {f"{_TYPE.removeprefix('type.googleapis.com/')}{name}": {"@type": f"{_TYPE}{name}", **options}}


def _statistics() -> dict[str, Any]:
    return {**_static("statistics", ADMIN_PORT), "connect_timeout": "1s"}


def _static(name: str, port: int) -> dict[str, Any]:
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": _address("127.0.0.1", port)}}]}]
    return {"name": name, "type": "STATIC", "load_assignment": {"cluster_name": name, "endpoints": endpoints}}


def _no_limits() -> dict[str, Any]:
    """Envoy's default of 1024 at a time would refuse requests that the picker has room for."""
    return {"thresholds": [dict.fromkeys(("max_connections", "max_pending_requests", "max_requests"), _UNLIMITED)]}


def _address(host: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": host, "port_value": port}}
