"""How many engines run: bounds and signals of a role, and the autoscaler of the environment."""

from typing import Annotated, Literal

from pydantic import Field

from ..pins import KEDA_CHART
from .base import AtLeastOne, Before, Fraction, Name, Positive, Spec, Text, form, number

Engines = Annotated[int, Before(number), Field(ge=0, le=1000)]
Address = Annotated[
    Text,
    form(r"^https?://[A-Za-z0-9.-]+(:\d+)?(/[^\s?#]*)?$", "an address such as http://prometheus-operated.monitoring.svc:9090, without user and key"),
]


class RoleAutoscalingSpec(Spec):
    """Between which bounds KEDA scales a role, and on what. Each threshold is what one engine may carry before another one is wanted."""

    min_replica_count: Engines = Field(
        1, description="Least engines, as in KEDA; 0 is refused, since a model takes many minutes to load. Default: 1."
    )
    max_replica_count: Engines = Field(
        ..., description="Most engines, as in KEDA. Nodes, quota and reservations have to hold them: pools are bounded by it, and more is refused."
    )
    backlog_seconds: Positive | None = Field(
        None,
        description="Seconds of prompts that wait or run in an engine: tokens in flight by the router's count, over the measured rate. Only with "
        "measuredRates and a gateway, and not on decode. Default: 1.5 there, else waitingRequests.",
    )
    waiting_requests: Positive | None = Field(
        None, description="Requests that wait in an engine's queue, mean of two minutes. Default: 4 on prefill and server without measuredRates."
    )
    kv_cache_usage: Fraction | None = Field(
        None, description="Share of an engine's KV cache in use. Default: 0.8 on decode and server; not on prefill, which hands its KV on."
    )
    scale_up_period_seconds: Annotated[AtLeastOne, Field(le=1800)] | None = Field(
        None, description="Seconds between two engines that are added. Default: what the model takes to load at the slow end, at most 1800."
    )
    scale_down_window_seconds: Annotated[int, Before(number), Field(ge=0, le=3600)] | None = Field(
        None,
        description="Seconds for which fewer engines must have sufficed before one is removed. Default: the model's start-up budget, at most 3600.",
    )


class AutoscalingSpec(Spec):
    """KEDA, which is installed when a role has `autoscaling`, and the Prometheus that it asks."""

    install: Literal["chart", "existing"] = Field(
        "chart", description="chart: install it; existing: the cluster already runs it, nothing is installed. Default: chart."
    )
    chart: Text = Field(
        KEDA_CHART.location,
        description="Chart source: a repository's address with the chart's name, an OCI reference, or a local folder or archive. "
        f"Default: {KEDA_CHART.location}.",
    )
    version: Annotated[Text, form(r"^\d+\.\d+\.\d+([-+].+)?$", "an exact version such as 2.21.1")] = Field(
        KEDA_CHART.version, description=f"Chart version, exact; not used for a local folder. Default: {KEDA_CHART.version}."
    )
    namespace: Name = Field("keda", description="Namespace of KEDA. Default: keda.")
    prometheus_address: Address | None = Field(
        None,
        description="Prometheus, as KEDA reaches it: http://prometheus-operated.monitoring.svc:9090. It scrapes engines and routers with the labels "
        "namespace and pod, as PodMonitors do. Required when a role has autoscaling. Default: none.",
    )
