"""The way in: router, load balancer and who may use it."""

from typing import Annotated, Any, Literal

from pydantic import Field

from ..pins import DEFAULT_ROUTER
from .base import AtLeastOne, Count, Positive, Spec, Text, form
from .cluster import CidrText
from .weights import SecretKey

CertificateArn = Annotated[
    Text, form(r"^arn:aws[a-z-]*:acm:[a-z0-9-]+:\d{12}:certificate/.+$", "a certificate's ARN, arn:aws:acm:region:123456789012:certificate/id")
]
HostName = Annotated[Text, form(r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)+[a-z]{2,}$", "a host name such as llama.example.com"), Field(max_length=253)]
ZoneId = Annotated[Text, form(r"^Z[A-Z0-9]+$", "the id of a Route 53 hosted zone, Z...")]


class PluginSpec(Spec):
    """A plugin of the endpoint picker, as the router's catalogue entry lists them (`disagg catalog routers`)."""

    type: Text = Field(..., description="Its type, for example prefix-cache-scorer.")
    weight: Positive | None = Field(None, description="Weight of a scorer; other plugins have none. Default: 1 for a scorer.")
    parameters: dict[Text, Any] = Field({}, description="Its parameters. Default: none.")


class RoutingSpec(Spec):
    """How the endpoint picker chooses pods."""

    disaggregation: Literal["always", "prefixBased"] = Field(
        "always",
        description="always: each prompt goes through a prefill pod, as long as one is ready. prefixBased: short or cached prompts go to decode "
        "alone, where nothing "
        "checks KV-transfer fields that a client sends. Only with prefill and decode. Default: always.",
    )
    non_cached_tokens: Count | None = Field(
        None, description="With prefixBased: prompts with fewer uncached tokens stay on decode. Required there. Default: none."
    )
    prefill: list[PluginSpec] | None = Field(
        None,
        description="Filters, scorers and picker of the prefill profile, beside the role's filter. Default: prefix cache 3, KV cache use 2, queue 2.",
    )
    decode: list[PluginSpec] | None = Field(
        None, description="The same of the decode profile. Default: prefix cache 2, KV cache use 2, requests in flight 1."
    )
    server: list[PluginSpec] | None = Field(None, description="The same of an aggregated model. Default: prefix cache 3, KV cache use 2, queue 2.")


class SizeSpec(Spec):
    """CPU and memory of a router container."""

    cpu: Annotated[Positive, Field(ge=0.1)] | None = Field(None, description="vCPU requested. Default: 1, and 1 more for each 32 engines.")
    memory_gib: Count | None = Field(
        None, alias="memoryGiB", description="Memory in GiB, requested and limited. Default: 2 a vCPU for the picker, 1 for Envoy."
    )


class DnsSpec(Spec):
    """A name for the endpoint in Route 53."""

    zone_id: ZoneId = Field(..., description="Id of the hosted zone.")
    name: HostName = Field(..., description="Name of the record, for example llama.example.com.")


class GatewaySpec(Spec):
    """The endpoint of one model: the llm-d router (endpoint picker and Envoy) behind a Network Load Balancer."""

    enabled: bool = Field(True, description="Whether it is made. False: only the roles' Services, inside the cluster. Default: true.")
    public: bool = Field(
        False,
        description="Whether the load balancer faces the internet; then sourceRanges, certificateArn and apiKeySecret are required. Default: false.",
    )
    source_ranges: list[CidrText] = Field(
        [], description="Networks that reach the load balancer. Default: the VPC's own; on a network that exists, whatever can route to it."
    )
    certificate_arn: CertificateArn | None = Field(
        None, description="Certificate of ACM; the load balancer then speaks TLS on port 443. Default: none, HTTP on port 80."
    )
    api_key_secret: SecretKey | None = Field(
        None,
        description="Name of the stack's secret key with the key that clients send as bearer token, for example apiKey. It guards /v1 only. "
        "Default: no key.",
    )
    dns: DnsSpec | None = Field(None, description="A record in Route 53 for the load balancer. Default: none.")
    idle_timeout_seconds: Annotated[AtLeastOne, Field(ge=60, le=6000)] | None = Field(
        None,
        description="Seconds without a byte after which a connection ends: the wait for a first token counts. A TLS listener always has 350. "
        "Default: 3600, with a certificate 350.",
    )
    routing: RoutingSpec = Field(default={}, validate_default=True, description="How pods are chosen. Default: as documented there.")
    picker: SizeSpec = Field(
        default={}, validate_default=True, description="Size of the endpoint picker. Default: 1 vCPU and 2 GiB, more from 32 engines."
    )
    proxy: SizeSpec = Field(default={}, validate_default=True, description="Size of Envoy. Default: by the engines.")


class RouterSpec(Spec):
    """Which router the gateways run."""

    version: Text = Field(DEFAULT_ROUTER, description=f"Catalogue id of the router release. Default: {DEFAULT_ROUTER}.")
    chart: Text | None = Field(None, description="Chart source: an OCI reference or a local folder or archive. Default: the catalogue's.")
